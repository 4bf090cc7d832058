"""A sample of the fuzzer's inputs; ``python -m tests.fuzz.readers`` reads many more."""

from __future__ import annotations

from dgcf.data.readers import ReadOptions
from tests.fuzz.inputs import make_case
from tests.fuzz.readers import plain_pairs, plain_rows, run


def test_hostile_inputs_are_read_correctly_or_refused() -> None:
    refused, failures = run(count=150, seed=1)
    assert failures == []
    assert 40 < refused < 130, "both must happen for the sample to mean anything"


def test_inputs_are_a_function_of_seed_and_index() -> None:
    assert make_case(3, 5) == make_case(3, 5)
    assert len({make_case(3, index).content for index in range(50)}) > 40


def test_plain_parse_handles_quotes_and_line_breaks() -> None:
    rows = plain_rows('a,"b,""c\n"\r\n\r\nd, "e" ,f"g', ",", True)
    assert rows == [["a", 'b,"c\n'], ["d", "e", 'f"g']]
    assert plain_rows("a::b:\n:::c", "::", False) == [["a", "b:"], ["", ":c"]]
    assert plain_pairs(b"1 2  3\n4\n", {"format": "adjacency"}, ReadOptions()) == [("1", "2"), ("1", "3")]
