"""Explain a score: split it exactly over the sources of the user's embedding.

A user's ranked row is ``e_u = Σ_l w_l E_u⁽ˡ⁾`` and each layer is linear in the one before:

    E_u⁽ˡ⁾ = Σ_{j ≠ u} M_uj α_j⁽ˡ⁾ E_j⁽ˡ⁻¹⁾ + M_uu α_u⁽ˡ⁾ E_u⁽ˡ⁻¹⁾.

Unrolling the last term leads to E_u⁽⁰⁾ and to messages from others, each counted once:

    E_u⁽ˡ⁾ = Σ_{t ≤ l} c_tl Σ_{j ≠ u} M_uj α_j⁽ᵗ⁾ E_j⁽ᵗ⁻¹⁾ + c_0l E_u⁽⁰⁾,   c_tl = Π_{s = t+1 … l} M_uu α_u⁽ˢ⁾.

E_u⁽⁰⁾ of a new user is a mean over the user's items in turn, so it is split over them as well.

So ``⟨e_u, e_i⟩`` is a sum over layers l of the contributions of the user's own items (direct neighbours j), of similar
users (cross-hop neighbours j), and of the user's own prior E_u⁽⁰⁾, which the self term carries from layer to layer. A
composed ranking adds a term ``d_u^-½ W[j, i]`` for each of the user's items j, and the prior p_i of the item.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dgcf.data.vocabulary import Vocabulary
from dgcf.errors import ConfigError, DataError
from dgcf.files import atomic_file
from dgcf.ids import RawId
from dgcf.ranking.arrays import Floats, Indices
from dgcf.recommend.foldin import Folded, FoldIn
from dgcf.recommend.snapshot import Snapshot
from dgcf.recommend.table import Table

Kind = Literal["weights", "item", "user", "prior", "negative"]
KINDS: dict[Kind, str] = {
    "weights": "your own items, by item weights",
    "item": "your own items",
    "user": "similar users",
    "prior": "your own prior",
    "negative": "items to avoid",
}
POPULAR = "popularity among all users"
FORGOTTEN = "users who were forgotten"
_NAMED = 3
_ROUNDING = 1e-5  # of float32 layers, relative to all parts
_COLOURS = {"weights": "#3a8f5c", "item": "#3b6fb6", "user": "#e08a2e", "prior": "#7a7a7a", "negative": "#b8434e"}
_BARS = 8


@dataclass(frozen=True)
class Part:
    """The contribution of one source to the score, ``value``: the sum of ``layers`` (L + 1 numbers) and ``added``.

    ``added`` is what the item weights or the prior of a composed ranking add. ``id`` is None for a prior, and for the
    sum of ``count`` sources.
    """

    kind: Kind
    id: RawId | None
    title: str
    layers: tuple[float, ...]
    count: int = 1
    added: float = 0.0

    @property
    def value(self) -> float:
        return float(sum(self.layers)) + self.added

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "id": self.id,
            "title": self.title,
            "value": self.value,
            "layers": list(self.layers),
            "count": self.count,
        }


@dataclass(frozen=True)
class Explanation:
    """A score and its parts, greatest first within each kind: ``sum(parts) + residual = score``.

    ``taken_by``: the number of similar users who have the item.
    """

    user: RawId | None
    item: RawId
    title: str
    score: float
    parts: tuple[Part, ...]
    taken_by: int

    def with_blend(self, values: Sequence[tuple[int, float]], prior: float | None, items: Vocabulary) -> Explanation:
        """Return the explanation of the score with these contributions of items, given by index, and a prior added."""
        nothing = tuple(0.0 for _ in self.parts[0].layers) if self.parts else (0.0,)
        ranked = sorted(values, key=lambda pair: -pair[1])
        added = [
            Part("weights", items.id_of(item), items.title_of(item), nothing, added=value) for item, value in ranked
        ]
        if prior is not None:
            added.append(Part("prior", None, POPULAR, nothing, added=prior))
        score = self.score + float(sum(value for _, value in values)) + (prior or 0.0)
        return replace(self, score=score, parts=(*added, *self.parts))

    def minus(self, other: Explanation, factor: float) -> Explanation:
        """Return the explanation of this score less ``factor`` times another one, whose parts become negative ones.

        An item is one part, whether it counts by its embedding, its weight or both; similar users are one part without
        an id.
        """
        nothing = (0.0,) * max((len(part.layers) for part in self.parts), default=1)
        merged: dict[tuple[RawId | None, str], Part] = {}
        for part in other.parts:
            own, alike = part.kind in ("item", "weights"), part.kind == "user" and part.id is not None
            key = (part.id if own else None, "similar users" if alike else part.title)
            known = merged.get(key, Part("negative", *key, nothing, 0))
            count = 1 if own else known.count + part.count
            merged[key] = replace(known, count=count, added=known.added - factor * part.value)
        parts = sorted(merged.values(), key=lambda part: part.value)
        return replace(self, score=self.score - factor * other.score, parts=(*self.parts, *parts))

    @property
    def residual(self) -> float:
        """The rounding error: the score minus the sum of its parts."""
        return self.score - float(sum(part.value for part in self.parts))

    @property
    def by_kind(self) -> dict[str, float]:
        return {kind: float(sum(part.value for part in self.parts if part.kind == kind)) for kind in self.kinds}

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of parts; ``negative`` only where items to avoid were given."""
        return [kind for kind in KINDS if kind != "negative" or any(part.kind == kind for part in self.parts)]

    @property
    def by_layer(self) -> list[float]:
        """The contribution of each layer of the user's embedding, without item weights that are added to it.

        A model without layers has one.
        """
        return [float(sum(values)) for values in zip(*(part.layers for part in self.parts), strict=True)]

    def top(self, n: int) -> Explanation:
        """Return the n parts of each kind with the greatest absolute value, and the rest of each kind as one part."""
        kept: list[Part] = []
        for kind in self.kinds:
            parts = sorted((part for part in self.parts if part.kind == kind), key=lambda part: -abs(part.value))
            kept += parts[:n]
            if rest := parts[n:]:
                layers = tuple(float(sum(values)) for values in zip(*(part.layers for part in rest), strict=True))
                added = float(sum(part.added for part in rest))
                kept.append(Part(kind, None, f"{len(rest):,} others", layers, len(rest), added))
        return replace(self, parts=tuple(kept))

    def text(self) -> str:
        """Return a sentence of the reasons with their shares of the score, the greatest first; items to avoid last."""
        reasons = sorted(self._reasons(), key=lambda reason: -reason[0])
        words: list[str] = []
        for value, reason in reasons:
            of = "" if words else " of the score"
            words.append(f"{reason} ({_percent(value / self.score)}{of})" if self.score > 0 else reason)
        words = words or ["none of your items raises its score"]
        return f"{self.title}: {'; '.join([*words, *self._avoided()])}."

    def _avoided(self) -> list[str]:
        """Return what the items to avoid do to the score, in words; nothing without such items."""
        value = self.by_kind.get("negative", 0.0)
        parts = [part for part in self.parts if part.kind == "negative" and part.id is not None]
        named = sorted((part for part in parts if part.value * value > 0), key=lambda part: -abs(part.value))[:_NAMED]
        if not named:
            return []
        by = f" by {_percent(abs(value) / self.score)}" if self.score > 0 else ""
        titles = ", ".join(part.title for part in named)
        if value < 0:
            return [f"lowered{by}, because you want less like {titles}"]
        return [f"raised{by}, because it is unlike {titles}"]

    def _reasons(self) -> list[tuple[float, str]]:
        """Return what raises the score, each with its part of it.

        That is the item itself if the user has it, other items of the user, similar users who have it, and the prior if
        it is more than any of these.
        """
        items, kinds = self._own_items(), self.by_kind
        popular = sum(part.value for part in self.parts if part.title == POPULAR and part.kind == "prior")
        alike = sum(part.count for part in self.parts if part.kind == "user")
        itself = items.pop(self.item, ("", 0.0))[1]
        named = sorted((entry for entry in items.values() if entry[1] > 0), key=lambda entry: -entry[1])[:_NAMED]
        reasons = [(itself, "you have it already")] if itself > 0 else []
        if named:
            titles = ", ".join(title for title, _ in named)
            reasons.append((sum(value for _, value in named), f"because you liked {titles}"))
        if self.taken_by and kinds["user"] > 0:
            users = "1 similar user" if alike == 1 else f"{self.taken_by:,} of {alike:,} similar users"
            reasons.append((kinds["user"], f"{users} {'has' if self.taken_by == 1 else 'have'} it"))
        largest = max((value for value, _ in reasons), default=0.0)
        for value, reason in ((popular, "it is popular"), (kinds["prior"] - popular, "your own learned prior")):
            if self.score > 0 and value > largest:
                reasons.append((value, reason))
        return reasons

    def _own_items(self) -> dict[RawId, tuple[str, float]]:
        """Return title and contribution of each item of the user, by its embedding and its weight together."""
        items: dict[RawId, tuple[str, float]] = {}
        for part in self.parts:
            if part.kind in ("item", "weights") and part.id is not None:
                items[part.id] = (part.title, items.get(part.id, ("", 0.0))[1] + part.value)
        return items

    def table(self) -> Table:
        """Return the parts as a table, with their share of the score."""
        whole = self.score or 1.0
        return Table(
            {
                "kind": [part.kind for part in self.parts],
                "id": [part.id for part in self.parts],
                "title": [self._title_of(part) for part in self.parts],
                "value": [part.value for part in self.parts],
                "share": [part.value / whole for part in self.parts],
            },
            title=f"{self.title}, score {self.score:.4f}",
        )

    def _title_of(self, part: Part) -> str:
        itself = part.kind in ("item", "weights") and part.id == self.item
        return f"{part.title} (itself)" if itself else part.title

    def to_dict(self) -> dict[str, Any]:
        return {
            "user": self.user,
            "item": self.item,
            "title": self.title,
            "score": self.score,
            "residual": self.residual,
            "text": self.text(),
            "by_kind": self.by_kind,
            "by_layer": self.by_layer,
            "parts": [part.to_dict() for part in self.parts],
        }

    def __rich__(self) -> Any:
        return self.table().__rich__()

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _percent(share: float) -> str:
    return "less than 1%" if share < 0.005 else f"{share:.0%}"


class Explainer:
    """Explains scores of a snapshot."""

    def __init__(self, snapshot: Snapshot, folding: FoldIn | None) -> None:
        snapshot.require_no_weights("and its weights are not stored, so its scores cannot be split over items")
        if snapshot.layers is None:
            raise DataError(
                f"the scores of model {snapshot.model} are not sums over linear layers and cannot be split exactly; "
                "train one whose scores are, such as dgcf or lightgcn."
            )
        self.snapshot, self.layers, self.folding = snapshot, snapshot.layers, folding

    def known(self, user: int, item: int) -> Explanation:
        """Explain the score of a known user, as trained."""
        folded = None
        if self.folding is not None:
            folded = self.folding.fold("user", self.folding.neighbours.of("user", user), user)
        # The stored layers and row, not the folded ones: the score that was given is explained.
        layers = self.layers.embeddings[:, user].astype(np.float64)
        return self._explain(self.snapshot.users.id_of(user), item, self.snapshot.user_rows[user], layers, folded)

    def folded(self, folded: Folded, item: int, user: RawId | None = None) -> Explanation:
        """Explain the score of a user who was folded in."""
        return self._explain(user, item, folded.ranked, folded.layers, folded)

    def _explain(
        self, user: RawId | None, item: int, ranked: Any, layers: Floats, folded: Folded | None = None
    ) -> Explanation:
        weights = self.snapshot.layer_weights(self.layers.depth)
        length = max(float(np.linalg.norm(weights @ layers)), 1e-12) if self.snapshot.cosine else 1.0
        target = self.snapshot.item_rows[item].astype(np.float64)
        carried = self._carried(folded) * weights / length  # (L + 1 messages, L + 1 layers)
        parts, taken = list[Part](), 0
        if folded is not None:
            own, alike = self._messages(folded, target)
            direct = own @ carried[1:]
            if folded.estimated:
                assert self.folding is not None
                direct += self.folding.layer0_parts(folded.row, target)[:, None] * carried[0]
            parts += parts_of("item", folded.row.across, direct, self.snapshot.items)
            parts += parts_of("user", folded.row.alike, alike @ carried[1:], self.snapshot.users)
            assert self.folding is not None
            taken = int(np.isin(folded.row.alike, self.folding.neighbours.of("item", item)).sum())
        learned = 0.0 if folded is not None and folded.estimated else float(layers[0] @ target)
        prior = learned * carried[0]
        parts.append(Part("prior", None, KINDS["prior"], tuple(prior.tolist())))
        parts += self._of_forgotten(weights / length * (layers @ target), parts)
        score = float((ranked.astype(np.float64) * target).sum())
        items = self.snapshot.items
        return Explanation(user, items.id_of(item), items.title_of(item), score, tuple(parts), taken)

    def _of_forgotten(self, whole: Floats, parts: Sequence[Part]) -> Iterable[Part]:
        """Yield what forgotten users left in the layers of the score, (L + 1,), if it is more than rounding."""
        if forgotten := self.snapshot.about.get("forgotten"):
            values = np.array([part.layers for part in parts])
            left = whole - values.sum(0)
            if np.abs(left).max() > _ROUNDING * max(float(np.abs(values).sum()), 1e-12):
                yield Part("user", None, FORGOTTEN, tuple(left.tolist()), len(forgotten))

    def _carried(self, folded: Folded | None) -> Floats:
        """Return c, (L + 1, L + 1): the factor of the message of step t (0: the prior) in layer l."""
        carried = np.eye(self.layers.depth + 1)
        if folded is not None:
            for layer in range(1, self.layers.depth + 1):
                carried[:layer, layer] = carried[:layer, layer - 1] * folded.row.own * folded.gates[layer - 1]
        return carried

    def _messages(self, folded: Folded, target: Floats) -> tuple[Floats, Floats]:
        """Return ``M_uj α_j⁽ᵗ⁾ ⟨E_j⁽ᵗ⁻¹⁾, e_i⟩`` for t = 1 … L, of items (n, L) and of similar users (m, L)."""
        row, layers = folded.row, self.layers

        def messages(nodes: Indices, weight: Floats) -> Floats:
            steps = range(1, layers.depth + 1)
            return np.stack(
                [weight * layers.gate(t, nodes) * (layers.embeddings[t - 1, nodes] @ target) for t in steps], 1
            )

        return messages(self.snapshot.n_users + row.across, row.across_weight), messages(row.alike, row.alike_weight)


def parts_of(kind: Kind, indices: Any, layers: Floats, vocabulary: Any) -> Iterable[Part]:
    """Yield the parts of nodes, greatest first; ``layers`` (n, L + 1) has a row for each of ``indices``."""
    order = np.argsort(-layers.sum(1), kind="stable")
    for place in order.tolist():
        index = int(indices[place])
        yield Part(kind, vocabulary.id_of(index), vocabulary.title_of(index), tuple(layers[place].tolist()))


def draw_bars(explanation: Explanation, path: str | Path) -> Path:
    """Draw the greatest parts as horizontal bars into a PNG, SVG or PDF file, by its suffix; needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("a picture needs matplotlib; install it with: pip install 'dgcf[plots]'.") from None
    target = Path(path)
    kind = target.suffix.lstrip(".").lower() or "png"
    if kind not in ("png", "svg", "pdf"):
        raise ConfigError(f"a picture cannot be written as {target.suffix!r}; name it .png, .svg or .pdf.")
    parts = sorted(explanation.top(_BARS).parts, key=lambda part: part.value)
    figure = Figure(figsize=(8, 1.2 + 0.3 * len(parts)), layout="constrained")
    axes = figure.subplots()
    # Escaped, since matplotlib reads dollar signs as mathematics.
    names = [part.title.replace("$", r"\$")[:50] for part in parts]
    axes.barh(range(len(parts)), [part.value for part in parts], color=[_COLOURS[part.kind] for part in parts])
    axes.set_yticks(range(len(parts)), names)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(f"adds to the score ({explanation.score:.4f} in all)")
    axes.set_title(f"Why {explanation.title}".replace("$", r"\$"))
    handles = [axes.barh([0], [0], color=_COLOURS[kind], label=KINDS[kind]) for kind in explanation.kinds]
    axes.legend(handles=handles, loc="lower right")
    with atomic_file(target) as beside:
        figure.savefig(beside, format=kind, dpi=150)
    return target
