"""Explanations: they add up, and each part is what is missing from the score when that one message is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgcf.data import Dataset
from dgcf.errors import ConfigError, DataError
from dgcf.recommend import Recommender, Snapshot
from dgcf.recommend.explain import POPULAR, Explainer, Explanation, Kind, Part, draw_bars
from dgcf.recommend.foldin import FoldIn
from tests.recommend.conftest import MODELS, dense_matrix, gates_of, graphs, random_dataset, untrained


@given(graphs(), st.sampled_from(MODELS))
def test_parts_sum_to_score(dataset: Dataset, chosen: Any) -> None:
    rec = Recommender.of(untrained(dataset, chosen[0], **chosen[1]))
    for user in range(dataset.n_users):
        for item in range(dataset.n_items):
            result = rec.explain(user, item)
            assert result.score == rec.score(user, item)[0]
            assert abs(result.residual) <= 1e-5 * max(1, abs(result.score))
            assert sum(result.by_kind.values()) == pytest.approx(result.score, abs=1e-4)
            assert sum(result.by_layer) == pytest.approx(result.score, abs=1e-4)
            short = result.top(1)
            assert sum(part.value for part in short.parts) == pytest.approx(result.score - result.residual, abs=1e-9)
            assert sum(part.count for part in short.parts) == len(result.parts)


def score_without(snapshot: Snapshot, M: Any, user: int, item: int, source: int | None) -> float:
    """The dense score of (user, item) if the user's row of M lacked ``source``, or if its layer 0 were zero (None)."""
    assert snapshot.layers is not None
    row, layers, gates = M[user].copy(), snapshot.layers.embeddings.astype(float), gates_of(snapshot)
    x = layers[0, user] if source is not None else np.zeros(layers.shape[2])
    if source is not None:
        row[source] = 0.0
    own, row[user] = row[user], 0.0
    kept = [x]
    for step in range(len(gates)):
        x = row @ (gates[step][:, None] * layers[step]) + own * gates[step, user] * x
        kept.append(x)
    return float((snapshot.layer_weights(len(gates)) @ np.array(kept)) @ snapshot.item_rows[item])


@pytest.mark.parametrize("model", [chosen for chosen in MODELS if chosen[0] != "bpr-mf" and "loss" not in chosen[1]])
def test_part_equals_contribution_of_its_message(model: tuple[str, dict[str, Any]]) -> None:
    dataset = random_dataset(7, 8, seed=11, density=0.7)
    snapshot = untrained(dataset, model[0], **model[1])
    M = dense_matrix(dataset.train, snapshot)
    rec = Recommender.of(snapshot)
    for user, item in ((0, 0), (3, 7), (6, 2)):
        result = rec.explain(user, item)
        assert (result.user, result.item) == (user, item)
        neighbours = {int(j) for j in np.flatnonzero(M[user]) if j != user}
        named = {(7 if part.kind == "item" else 0) + int(part.id) for part in result.parts if part.id is not None}
        assert named == neighbours
        for part in result.parts:
            source = None if part.id is None else (7 if part.kind == "item" else 0) + int(part.id)
            missing = result.score - score_without(snapshot, M, user, item, source)
            assert part.value == pytest.approx(missing, abs=2e-5)
        for layer, value in enumerate(result.by_layer):
            alone = snapshot.layer_weights(len(result.by_layer) - 1)[layer]
            assert snapshot.layers is not None
            expected = alone * float(snapshot.layers.embeddings[layer, user] @ snapshot.item_rows[item])
            assert value == pytest.approx(expected, abs=2e-5)


def test_new_user_has_no_prior() -> None:
    rec = Recommender.of(untrained(random_dataset(seed=4, density=0.8), epsilon=0.0))
    result = rec.explain_for([1, 2], 5)
    assert result.user is None
    assert result.by_kind["prior"] == 0.0
    assert {part.id for part in result.parts if part.kind == "item"} == {1, 2}
    assert abs(result.residual) <= 1e-5 * max(1, abs(result.score))
    assert rec.explain_for([1, 2], 5, user=3).user == 3
    top = rec.recommend_for([1, 2], 9)
    assert dict(zip(top["item"], top["score"], strict=True))[5] == pytest.approx(result.score)


@given(graphs(), st.sampled_from([chosen for chosen in MODELS if chosen[0] != "bpr-mf"]), st.data())
def test_layer_zero_of_a_new_user_is_split_over_the_items(dataset: Dataset, chosen: Any, data: Any) -> None:
    snapshot = untrained(dataset, chosen[0], **chosen[1])
    folding = FoldIn(snapshot)
    liked = np.array(sorted(data.draw(st.sets(st.integers(0, snapshot.n_items - 1), min_size=1))))
    folded = folding.fold("user", liked)
    result = Explainer(snapshot, folding).folded(folded, data.draw(st.integers(0, snapshot.n_items - 1)))
    target = snapshot.item_rows[snapshot.items.index_of(result.item)].astype(float)
    weights = snapshot.layer_weights(len(folded.layers) - 1)
    np.testing.assert_allclose(
        result.by_layer, weights * (folded.layers @ target) / folded.length, atol=1e-9, rtol=1e-7
    )
    assert result.by_kind["prior"] == 0.0
    assert abs(result.residual) <= 1e-5 * max(1, abs(result.score))


def test_matrix_factorisation_has_prior_only() -> None:
    result = Recommender.of(untrained(random_dataset(), "bpr-mf")).explain(2, 3)
    assert (result.user, result.item, result.taken_by) == (2, 3, 0)
    assert [part.kind for part in result.parts] == ["prior"]
    assert result.parts[0].value == pytest.approx(result.score)


def test_explanation_text_and_table(fitted: Recommender) -> None:
    item = fitted.recommend("u00003", 1)["item"][0]
    result = fitted.explain("u00003", item)
    liked = [part for part in result.parts if part.kind == "item"]
    assert [part.value for part in liked] == sorted((part.value for part in liked), reverse=True)
    mine = fitted.snapshot.train[fitted.snapshot.users.index_of("u00003")]
    assert {part.id for part in liked} == {fitted.snapshot.items.texts[item] for item in mine}
    assert f"because you liked {liked[0].title}" in result.text()
    named = sum(part.value for part in liked[:3]) / result.score
    assert f"{named:.0%}" in result.text()
    assert result.text().startswith(f"{result.title}: ")
    assert result.to_dict()["residual"] == result.residual
    table = result.top(2).table()
    assert table.columns == ["kind", "id", "title", "value", "share"]
    assert sum(table["share"]) == pytest.approx(1, abs=1e-4)
    assert "<table>" in result._repr_html_()


def test_similar_users_with_the_item_are_counted() -> None:
    """Of the cross-hop neighbours, those who have the item in training."""
    dataset = random_dataset(8, 8, seed=9, density=0.8)
    rec = Recommender.of(untrained(dataset, epsilon=0.0))
    result = rec.explain(0, 3)
    alike = [int(part.id) for part in result.parts if part.kind == "user" and part.id is not None]
    assert result.taken_by == sum(3 in dataset.train[user] for user in alike)
    assert 0 < result.taken_by < len(alike)
    assert f"{result.taken_by} of {len(alike)} similar users have it" in result.text()


def explanation(*parts: tuple[Kind, float], score: float = 1.0, taken_by: int = 0) -> Explanation:
    """An explanation with one part for each (kind, value): items A, B, … and users 0, 1, …"""
    named = [
        Part(kind, None if kind == "prior" else place, "ABCDEFG"[place], (value / 4, value * 3 / 4))
        for place, (kind, value) in enumerate(parts)
    ]
    return Explanation("me", "it", "Film", score, tuple(named), taken_by)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (explanation(), "Film: none of your items raises its score."),
        (explanation(("item", 0.4), ("item", 0.2)), "Film: because you liked A, B (60% of the score)."),
        (explanation(*[("item", 0.01)] * 5), "Film: because you liked A, B, C (3% of the score)."),
        (explanation(("item", 0.004)), "Film: because you liked A (less than 1% of the score)."),
        (
            explanation(("item", 0.4), ("item", 0.0), ("item", -0.2), ("user", 0.3)),
            "Film: because you liked A (40% of the score).",
        ),
        (explanation(*[("item", 0.2)] * 5).top(0), "Film: none of your items raises its score."),
        (explanation(("user", 0.5), taken_by=1), "Film: 1 similar user has it (50% of the score)."),
        (
            explanation(("user", 0.5), ("user", 0.5), taken_by=1),
            "Film: 1 of 2 similar users has it (100% of the score).",
        ),
        (
            explanation(("item", 0.3), ("user", 0.3), ("user", 0.1), taken_by=2).top(1),
            "Film: 2 of 2 similar users have it (40% of the score); because you liked A (30%).",
        ),
        (explanation(("item", 0.5), ("user", -0.1), taken_by=1), "Film: because you liked A (50% of the score)."),
        (
            explanation(("item", 0.05), ("prior", 0.95)),
            "Film: your own learned prior (95% of the score); because you liked A (5%).",
        ),
        (explanation(("prior", 0.5)), "Film: your own learned prior (50% of the score)."),
        (explanation(("item", 0.4), ("prior", 0.3)), "Film: because you liked A (40% of the score)."),
        (explanation(("prior", 0.3), score=0.4), "Film: your own learned prior (75% of the score)."),
        (explanation(("prior", -0.3), score=-0.4), "Film: none of your items raises its score."),
        (explanation(("item", 0.3), ("prior", -0.5), score=-0.2), "Film: because you liked A."),
        (explanation(("item", 0.3), ("prior", -0.3), score=0.0), "Film: because you liked A."),
    ],
)
def test_sentence_names_the_reasons(result: Explanation, text: str) -> None:
    assert result.text() == text


def test_shares_in_the_sentence_are_those_of_the_parts() -> None:
    """Of a model with item weights, what an item adds by its weight and by its embedding counts together."""
    parts = (
        Part("weights", 0, "A", (0.0, 0.0), added=0.3),
        Part("weights", 1, "B", (0.0, 0.0), added=0.2),
        Part("item", 0, "A", (0.1, 0.0)),
        Part("item", 1, "B", (-0.4, 0.0)),
        Part("user", 7, "7", (0.1, 0.0)),
        Part("prior", None, "prior", (0.7, 0.0)),
    )
    result = Explanation("me", 5, "Film", 1.0, parts, 1)
    assert result.text() == (
        "Film: your own learned prior (70% of the score); because you liked A (40%); 1 similar user has it (10%)."
    )


def test_item_does_not_explain_itself() -> None:
    """Of an item that the user has, its own part is said to be that, and is no reason."""
    parts = (Part("item", 5, "Film", (0.5, 0.0)), Part("item", 1, "B", (0.1, 0.0)))
    result = Explanation("me", 5, "Film", 1.0, parts, 0)
    assert result.text() == "Film: you have it already (50% of the score); because you liked B (10%)."
    assert result.table()["title"] == ["Film (itself)", "B"]
    assert result.residual == pytest.approx(0.4)  # its part still counts
    alone = Explanation("me", 5, "Film", 1.0, parts[:1], 0)
    assert "because you liked" not in alone.text()


@given(graphs(), st.sampled_from(MODELS))
def test_no_item_is_its_own_reason(dataset: Dataset, chosen: Any) -> None:
    rec = Recommender.of(untrained(dataset, chosen[0], **chosen[1]))
    for user in range(dataset.n_users):
        for item in dataset.train[user].tolist():
            liked = rec.explain(user, item).text().partition("because you liked ")[2].partition(" (")[0]
            assert str(item) not in liked.rstrip(".").split(", ")


def test_top_keeps_greatest_parts_and_sums_the_rest() -> None:
    result = explanation(("item", 0.1), ("item", -0.4), ("item", 0.2), ("user", 0.3), ("prior", 0.8))
    one = result.top(1)
    assert [(part.kind, part.id, part.title, part.count) for part in one.parts] == [
        ("item", 1, "B", 1),
        ("item", None, "2 others", 2),
        ("user", 3, "D", 1),
        ("prior", None, "E", 1),
    ]
    assert [part.value for part in one.parts] == pytest.approx([-0.4, 0.3, 0.3, 0.8])
    assert one.parts[1].layers == pytest.approx((0.075, 0.225))
    assert result.top(3) == result.top(9)


def test_explanation_as_table_and_json() -> None:
    result = explanation(("item", 0.4), ("prior", 0.8), score=2.0)
    assert result.to_dict() == {
        "user": "me",
        "item": "it",
        "title": "Film",
        "score": 2.0,
        "residual": pytest.approx(0.8),
        "text": "Film: your own learned prior (40% of the score); because you liked A (20%).",
        "by_kind": {"weights": 0.0, "item": pytest.approx(0.4), "user": 0.0, "prior": pytest.approx(0.8)},
        "by_layer": [pytest.approx(0.3), pytest.approx(0.9)],
        "parts": [
            {"kind": "item", "id": 0, "title": "A", "value": 0.4, "layers": pytest.approx([0.1, 0.3]), "count": 1},
            {"kind": "prior", "id": None, "title": "B", "value": 0.8, "layers": pytest.approx([0.2, 0.6]), "count": 1},
        ],
    }
    assert result.table().title == "Film, score 2.0000"
    assert result.table()["share"] == pytest.approx([0.2, 0.4])
    assert explanation(("item", 0.4), score=0.0).table()["share"] == pytest.approx([0.4])


def test_bar_chart_is_written(fitted: Recommender, tmp_path: Any) -> None:
    result = fitted.explain("u00003", "i00001")
    for name, magic in (("why.png", b"\x89PNG"), ("why.svg", b"<?xml"), ("why.pdf", b"%PDF")):
        assert draw_bars(result, tmp_path / name).read_bytes().startswith(magic)
    assert result.title in (tmp_path / "why.svg").read_text()
    with pytest.raises(ConfigError, match=r"cannot be written as '\.docx'"):
        draw_bars(result, tmp_path / "why.docx")


def test_nonlinear_model_is_not_explained() -> None:
    from dataclasses import replace

    rec = Recommender.of(replace(untrained(random_dataset()), load_layers=None))
    with pytest.raises(DataError):
        rec.explain(0, 0)


def test_an_item_to_avoid_is_one_part_and_named_in_the_sentence() -> None:
    """Also if it counts by its weight and by its embedding, and if a user has the same id."""
    liked, nothing = explanation(("item", 1.3), score=1.3), (0.0, 0.0)
    parts = (
        Part("weights", 7, "Lamp", nothing, added=0.3),
        Part("item", 7, "Lamp", (0.1, 0.1)),
        Part("user", 7, "7", (0.0, 0.1)),
        Part("user", 8, "8", (0.0, 0.1)),
        Part("prior", None, POPULAR, nothing, added=-0.1),
    )
    result = liked.minus(Explanation(None, "it", "Film", 0.6, parts, 0), 0.5)
    negative = [(part.id, part.title, part.count, round(part.value, 9)) for part in result.parts[1:]]
    expected = [(7, "Lamp", 1, -0.25), (None, "similar users", 2, -0.1), (None, POPULAR, 1, 0.05)]
    assert negative == expected
    assert sum(part.value for part in result.parts) == pytest.approx(result.score) == pytest.approx(1.0)
    assert result.text() == (
        "Film: because you liked A (130% of the score); lowered by 30%, because you want less like Lamp."
    )
    unlike = liked.minus(explanation(("item", -0.4), score=-0.4), 0.5)
    assert unlike.text() == "Film: because you liked A (87% of the score); raised by 13%, because it is unlike A."
    below = liked.minus(explanation(("item", 4.0), score=4.0), 0.5)
    assert below.text() == "Film: because you liked A; lowered, because you want less like A."


def test_explanation_less_another_one_has_negative_parts() -> None:
    liked = explanation(("item", 0.5), ("user", 0.25), score=0.75)
    avoided = explanation(("item", 0.4), ("prior", -0.1), score=0.3)
    result = liked.minus(avoided, 0.5)
    assert result.score == pytest.approx(0.75 - 0.15)
    assert result.residual == pytest.approx(liked.residual - 0.5 * avoided.residual, abs=1e-12)
    assert [part.value for part in result.parts if part.kind == "negative"] == [-0.2, 0.05]
    assert result.parts[: len(liked.parts)] == liked.parts
    assert result.by_kind["negative"] == pytest.approx(-0.15)
    assert "negative" not in liked.by_kind
    assert {len(part.layers) for part in result.parts} == {len(part.layers) for part in liked.parts}
    assert sum(part.value for part in result.top(1).parts) == pytest.approx(sum(part.value for part in result.parts))
