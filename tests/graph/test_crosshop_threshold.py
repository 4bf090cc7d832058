"""The auto threshold against sorting all entries, in parts of any size."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dgcf.graph.crosshop.threshold import AutoThreshold, Entries, shortest_between


@example([(0.1, False)] * 7, 2, 1)  # one entry at a time: each must be able to raise the threshold
@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, 0.55]), st.booleans()), min_size=1, max_size=300),
    st.integers(2, 100),
    st.integers(1, 50),
)
def test_auto_threshold_is_closest_to_the_target_with_ties_in_any_order(
    stream: list[tuple[float, bool]], target: int, part: int
) -> None:
    values = np.array([value for value, _ in stream])
    rows = np.arange(len(values), dtype=np.int32)
    entries = Entries(rows, np.where([diagonal for _, diagonal in stream], rows, rows + 1).astype(np.int32), values)
    threshold = AutoThreshold(target)
    for start in range(0, len(values), part):
        threshold.offer(Entries(*(column[start : start + part] for column in entries)))
    epsilon, kept = threshold.settle()
    counts = [entries.where(values > level).weight() for level in [0.0, *np.unique(values)]]
    assert abs(kept.weight() - target) == min(abs(count - target) for count in counts)
    assert sorted(kept.values) == sorted(values[values > epsilon])
    assert threshold.peak_held <= 3 * target, "more is held than the bound allows"


@given(st.floats(0, 1), st.floats(0, 1))
def test_shortest_between_lies_between_its_bounds(one: float, other: float) -> None:
    low, high = sorted((one, other))
    if low < high:
        assert low <= shortest_between(low, high) < high


def test_shortest_between_has_few_digits() -> None:
    assert shortest_between(0.0011707769, 0.0011707774) == 0.001170777
    assert shortest_between(0.0, 0.5) == 0.0
    assert shortest_between(0.31, 0.77) == 0.5
