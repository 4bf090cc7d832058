"""The paper's figures: what each shows, on its axes, with a small table of the numbers where there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dgcf.experiments.report import Table, TableCell, signed
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.recipe import REFERENCE
from dgcf.experiments.reproduce.report.tables import PROTOCOL_NOTE
from dgcf.experiments.reproduce.report.view import (
    MISSING,
    Chapter,
    View,
    counted,
    hardware_note,
    number,
    shown,
    spread,
    words,
)
from dgcf.experiments.reproduce.stats.amplitude import amplitude, amplitude_interval, differences, swap_test

RECALL, NDCG = METRICS


def _along(view: View, what: str, axis: str, draw: Callable[[Any, list[Any], list[Any]], None], title: str) -> Chapter:
    """Recall and NDCG of DGCF along something varied: two panels and a table."""
    points = view.names(what)

    def both(figure: Any) -> None:
        for axes, metric in zip(figure.subplots(1, 2), METRICS, strict=True):
            found = [view.spread(metric, **{what: point}) for point in points]
            draw(axes, points, found)
            axes.set_xlabel(axis)
            axes.set_ylabel(metric)

    rows = [
        (*words(f"{point:g}", view.seeds(**{what: point})), *(shown(view.spread(m, **{what: point})) for m in METRICS))
        for point in points
    ]
    table = Table((what, "seeds", *METRICS), tuple(rows), 1)
    return Chapter([(title, table)], [PROTOCOL_NOTE, *hardware_note(view.recorded)], both)


def _curve(axes: Any, points: Sequence[Any], found: Sequence[Any], label: str | None = None) -> None:
    """Means with their deviations, joined by a line; nothing where nothing is recorded."""
    kept = [(point, one) for point, one in zip(points, found, strict=True) if one is not None]
    if kept:
        means, stds = [one.mean for _, one in kept], [one.std or 0.0 for _, one in kept]
        axes.errorbar([point for point, _ in kept], means, stds, marker="o", capsize=3, label=label)


def _bars(axes: Any, points: list[Any], found: list[Any]) -> None:
    """Bars of different ε, the largest first, on an axis that begins where differences are seen."""
    means = [0.0 if one is None else one.mean for one in found]
    stds = [0.0 if one is None else one.std or 0.0 for one in found]
    axes.bar(range(len(points)), means, yerr=stds, capsize=3)
    axes.set_xticks(range(len(points)), [f"{point:g}" for point in points])
    if kept := [(one.mean, one.std or 0.0) for one in found if one is not None]:
        low, high = min(mean - std for mean, std in kept), max(mean + std for mean, std in kept)
        axes.set_ylim(0.95 * low, 1.01 * high)


def drop_edge(view: View) -> Chapter:
    return _along(view, "edge_dropout", "share of edges dropped", _curve, "DGCF, 4 layers, by the share dropped")


def epsilon(view: View) -> Chapter:
    return _along(view, "epsilon", "ε", _bars, "DGCF, 12 layers, by ε")


def layers(view: View) -> Chapter:
    """Recall against depth, a line for each model."""
    depths, models = view.names("layers"), view.names("model")

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for model in models:
            _curve(axes, depths, [view.spread(RECALL, model=model, layers=depth) for depth in depths], model)
        axes.set_xticks(depths)
        axes.set_xlabel("layers")
        axes.set_ylabel(RECALL)
        axes.legend()

    rows = [
        (*words(model), *(shown(view.spread(RECALL, model=model, layers=depth)) for depth in depths))
        for model in models
    ]
    table = Table(("model", *(counted(depth, "layer") for depth in depths)), tuple(rows), 1)
    return Chapter([("Recall@20 by depth", table)], [PROTOCOL_NOTE, *hardware_note(view.recorded)], draw, (5.5, 4.0))


def _legend(figure: Any) -> None:
    """The names of the first panel above all of them, where they hide no bar."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(len(labels), 1), fontsize="small")


def loss_curve(view: View) -> Chapter:
    """Loss and validation recall against epochs, a thin line for each seed."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        right = axes.twinx()
        for place, line in enumerate(view.lines()):
            curve = line["measures"]["curve"]
            loss, recall = ({} if place else {"label": name} for name in ("training loss", f"validation {RECALL}"))
            axes.plot(curve["epochs"], curve["loss"], color="tab:gray", linewidth=1, **loss)
            right.plot(curve["epochs"], curve["validation"], color="tab:blue", linewidth=1, **recall)
        axes.set_xlabel("epoch")
        axes.set_ylabel("training loss")
        right.set_ylabel(f"validation {RECALL}")
        figure.legend(loc="outside upper center", ncols=2)

    rows = []
    for cell, line in view.cells():
        told = ("epochs", "best_epoch")
        counts = [MISSING] * 2 if line is None else [str(line[name]) for name in told]
        value = None if line is None else line["validation"].get(RECALL)
        rows.append((*words(str(cell.seed), *counts), number(value)))
    table = Table(("seed", "epochs", "best epoch", f"validation {RECALL}"), tuple(rows), 1)
    return Chapter([("DGCF on ML1M", table)], hardware_note(view.recorded), draw, (6.0, 4.0))


# -- oscillation ------------------------------------------------------------------------------------------------------


def oscillation_diff(view: View) -> Chapter:
    """Differences of successive depths, and the amplitude of each model with its interval and a test."""
    depths, models = view.names("layers"), view.names("model")
    own = {model: view.names("layers", model=model) for model in models}  # not every model can be as deep
    found = {model: view.table(RECALL, "layers", own[model], model=model) for model in models}

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhline(0.0, color="black", linewidth=0.8)
        for model, recalls in found.items():
            if recalls is not None:
                places = [depths.index(deeper) for deeper in own[model][1:]]
                axes.plot(places, differences(recalls), marker="o", markersize=3, label=model)
        axes.set_xticks(range(1, len(depths)), [f"{a}→{b}" for a, b in pairwise(depths)])
        axes.set_xlabel("layers")
        axes.set_ylabel(f"difference of mean {RECALL}")
        axes.legend(fontsize="small")

    def against(model: str) -> TableCell:
        first, second = view.table(RECALL, "layers", own[model], model=REFERENCE), found[model]
        if model == REFERENCE or first is None or second is None or len(first) != len(second) or len(first) < 2:
            return TableCell(MISSING)
        return TableCell(f"{swap_test(first, second):.2g}")

    rows = [
        (*words(model, f"{own[model][0]} to {own[model][-1]}"), *_amplitude(found[model]), against(model))
        for model in models
    ]
    header = ("model", "layers", "seeds", "amplitude", "95 % interval", f"p against {REFERENCE}")
    notes = [
        "Amplitude: the mean over successive depths of |difference of mean recall|; interval by bootstrap over the "
        f"seeds; p by swapping a model's and {REFERENCE}'s series of a seed, at the depths of the model. Noise of the "
        "seeds is part of every amplitude, and models have equally many of them.",
        PROTOCOL_NOTE,
        *hardware_note(view.recorded),
    ]
    return Chapter([("Amplitude of the oscillation", Table(header, tuple(rows), 1))], notes, draw)


def _amplitude(recalls: Any) -> list[TableCell]:
    if recalls is None:
        return words("0", MISSING, MISSING)
    low, high = amplitude_interval(recalls)
    return words(str(len(recalls)), f"{amplitude(recalls):.4f}", f"{low:.4f} … {high:.4f}")


def depth(view: View) -> Chapter:
    """Bars of recall and NDCG, lines of smoothness, by depth."""
    depths, models = view.names("layers"), view.names("model")

    def smooth(model: str, layers: int) -> Any:
        lines = view.lines(model=model, layers=layers)
        return spread([line["measures"]["smoothness"]["users"] for line in lines])

    def draw(figure: Any) -> None:
        for axes, metric in zip(figure.subplots(1, 2), METRICS, strict=True):
            right = axes.twinx()
            for place, model in enumerate(models):
                at = np.arange(len(depths)) + 0.2 * (place - (len(models) - 1) / 2)
                found = [view.spread(metric, model=model, layers=layers) for layers in depths]
                axes.bar(at, [0.0 if one is None else one.mean for one in found], 0.18, alpha=0.6, label=model)
                lines = [smooth(model, layers) for layers in depths]
                right.plot(at, [np.nan if one is None else one.mean for one in lines], marker="o", markersize=3)
            axes.set_xticks(range(len(depths)), [str(layers) for layers in depths])
            axes.set_xlabel("layers")
            axes.set_ylabel(metric)
            right.set_ylabel("smoothness of users (lower is smoother)")
        _legend(figure)

    rows = []
    for model in models:
        for layers in depths:
            which = {"model": model, "layers": layers}
            lines = view.lines(**which)
            sides = [spread([line["measures"]["smoothness"][side] for line in lines]) for side in ("users", "items")]
            smoothness = [number(None if one is None else one.mean, ",.1f") for one in sides]
            row = (*words(model, str(layers), view.seeds(**which)), *(shown(view.spread(m, **which)) for m in METRICS))
            rows.append((*row, *smoothness))
    header = ("model", "layers", "seeds", *METRICS, "smoothness, users", "smoothness, items")
    notes = ["Smoothness as LightGCN's paper defines it, of the final embeddings.", PROTOCOL_NOTE]
    chapter = [("Deep stacks", Table(header, tuple(rows), 2))]
    return Chapter(chapter, notes + hardware_note(view.recorded), draw, (11.0, 4.0))


# -- gates and users --------------------------------------------------------------------------------------------------


def correlation(view: View) -> Chapter:
    """1/α against log degree, as a histogram of the first seed, and ρ of every seed."""
    sides = ("users", "items")

    def draw(figure: Any) -> None:
        lines = view.lines()
        for axes, side in zip(figure.subplots(1, 2), sides, strict=True):
            if lines:
                _histogram(axes, lines[0]["measures"]["gate-histogram"][side])
                rho = lines[0]["measures"]["gates"][side]
                axes.set_title(f"{side}: ρ = {rho:.3f} (paper {view.paper['correlation'][side]})")
            axes.set_xlabel("log degree, scaled")
            axes.set_ylabel("1/α, scaled")

    rows = []
    for side in sides:
        found = spread([line["measures"]["gates"][side] for line in view.lines()])
        printed = view.paper["correlation"][side]
        difference = MISSING if found is None else signed(found.mean - printed)
        rows.append((*words(side, view.seeds()), shown(found), number(printed, ".3f"), *words(difference)))
    table = Table(("side", "seeds", "ρ", "paper", "difference"), tuple(rows), 1)
    notes = ["ρ: Pearson's, of 1/α in the last layer and log degree, nodes with a training pair."]
    return Chapter([("Gates and degrees", table)], notes + hardware_note(view.recorded), draw)


def _histogram(axes: Any, found: Mapping[str, Any]) -> None:
    counts = np.array(found["counts"], dtype=float).T
    axes.imshow(np.where(counts > 0, np.log1p(counts), np.nan), origin="lower", extent=(0, 1, 0, 1), aspect="auto")


def pattern(view: View) -> Chapter:
    """The patch of each layer, darker where more is let through."""
    lines = view.lines()

    def draw(figure: Any) -> None:
        layers = lines[0]["measures"]["pattern"]["layers"] if lines else []
        for place, axes in enumerate(figure.subplots(1, max(len(layers), 1), squeeze=False)[0]):
            if layers:
                axes.imshow(np.sqrt(np.array(layers[place])), cmap="Greys", vmin=0, vmax=1)
            axes.set_title(f"layer {place + 1}")
            axes.set_xticks([])
            axes.set_yticks([])

    rule = [f"The patch: {lines[0]['measures']['pattern']['rule']}, users first."] if lines else []
    notes = [*rule, "Each layer is divided by its greatest value; the square root is drawn, darker for more."]
    return Chapter((), notes + hardware_note(view.recorded), draw, (11.0, 3.2))


def density(view: View) -> Chapter:
    """NDCG by the number of interactions that users have, a bar for each model."""
    models, origins = view.names("model"), view.names("settings")
    lines = view.lines()
    groups = [f"≤ {group['at_most']}" for group in lines[0]["measures"]["groups"]] if lines else []

    def found(model: str, settings: str, place: int) -> Any:
        chosen = view.lines(model=model, settings=settings)
        return spread([line["measures"]["groups"][place][NDCG] for line in chosen])

    def draw(figure: Any) -> None:
        for axes, settings in zip(figure.subplots(1, len(origins), squeeze=False)[0], origins, strict=True):
            for rank, model in enumerate(models):
                means = [one.mean if (one := found(model, settings, place)) else 0.0 for place in range(len(groups))]
                axes.bar(np.arange(len(groups)) + 0.13 * (rank - (len(models) - 1) / 2), means, 0.12, label=model)
            axes.set_xticks(range(len(groups)), groups)
            axes.set_xlabel("interactions of a user")
            axes.set_ylabel(NDCG)
            axes.set_title(settings)
        _legend(figure)

    rows = [
        (
            *words(model, settings, view.seeds(model=model, settings=settings)),
            *(shown(found(model, settings, place)) for place in range(len(groups))),
        )
        for settings in origins
        for model in models
    ]
    bounds = ", ".join(map(str, view.paper["density"]["bounds"]))
    notes = [f"Groups hold about equally many interactions, all splits counted; the paper's bounds are {bounds}."]
    table = Table(("model", "settings", "seeds", *groups), tuple(rows), 2)
    return Chapter(
        [("NDCG@20 by group", table)], [*notes, PROTOCOL_NOTE, *hardware_note(view.recorded)], draw, (10.0, 4.0)
    )


# -- theory -----------------------------------------------------------------------------------------------------------


def theory(view: View) -> Chapter:
    """The four statements on every dataset, and the gap of successive steps."""
    tables = []
    for cell, line in view.cells("walks"):
        walks = {} if line is None else line["computed"]["walks"]
        rows = [
            (
                *words(name, f"{'two' if walk['two_limits'] else 'one'} ({walk['claim'].split()[0]})"),
                number(walk["limit_error"], ".0e"),
                number(walk["gap_limit_exact"], ".4f"),
                number(walk["condition"], ".4f"),
                *words("yes" if walk["within_bound"] else "NO"),
                number(walk["decay_per_step"], ".4f"),
                number(walk["flip_per_step"], ".4f"),
            )
            for name, walk in walks.items()
        ]
        header = ("matrix", "limits (the paper)", "error", "lasting gap", "‖Rπᵢ − πᵤ‖", "≤ bound", "decay", "flip")
        tables.append((cell.source.title, Table(header, tuple(rows), 1)))

    def draw(figure: Any) -> None:
        found = view.cells("walks")
        for axes, (cell, line) in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
            for name, walk in {} if line is None else line["computed"]["walks"].items():
                axes.semilogy(np.maximum(walk["gaps"], 1e-16), label=name)
            axes.set_title(cell.source.name)
            axes.set_xlabel("step")
        figure.axes[0].set_ylabel("gap of successive steps")
        figure.axes[0].legend(fontsize="small")

    notes = [
        "1. Where a graph is not bipartite (all but L) the walk ends at degree / 2|E|: the error is the largest of its "
        "end against that closed form. 2. On L, even and odd steps have two limits, a lasting gap apart; it vanishes "
        "where ‖Rπᵢ − πᵤ‖ does. 3. No gap exceeds the paper's bound. 4. With cross-hop edges one limit is left.",
        "The paper also says that self-loops leave two limits. They leave one: L + I and A + I settle. Flip: by what "
        "factor a step shrinks the part that changes its sign. On L + I there is none; A + I shrinks it, but less "
        "than L + Lc does.",
        "Walks start from the uniform distribution, on the largest component, in float64. Decay: by what factor a step "
        "shrinks the distance to the limit in the long run.",
        *_unsettled(view),
    ]
    return Chapter(tables, notes + hardware_note(view.recorded), draw, (13.0, 3.6))


def _unsettled(view: View) -> list[str]:
    """Which walks were stopped on their way."""
    found = {
        line["data"]["name"]: [name for name, walk in line["computed"]["walks"].items() if not walk["settled"]]
        for line in view.lines("walks")
    }
    told = [f"{data} ({', '.join(names)})" for data, names in found.items() if names]
    return [f"Stopped before they stood still: {'; '.join(told)}."] if told else []
