"""The paper's figures, each with a table of its numbers where it has any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgcf.experiments.measure import MeanStd
from dgcf.experiments.report import Row, Table
from dgcf.experiments.reproduce.cells import Line, Walks
from dgcf.experiments.reproduce.cells.computed import REFERENCE
from dgcf.experiments.reproduce.measures import METRICS
from dgcf.experiments.reproduce.report.tables import PROTOCOL_NOTE
from dgcf.experiments.reproduce.report.view import MISSING, Section, View, difference, mean_std, number, shown
from dgcf.experiments.reproduce.stats.amplitude import amplitude, amplitude_interval, differences, swap_test
from dgcf.text import counted

RECALL, NDCG = METRICS


def _by_setting(
    view: View, name: str, axis: str, draw: Callable[[Any, list[Any], list[Any]], None], title: str
) -> Section:
    """Recall and NDCG of DGCF by the values of one setting: two panels and a table."""
    points = view.names(name)

    def both(figure: Any) -> None:
        for axes, metric in zip(figure.subplots(1, 2), METRICS, strict=True):
            draw(axes, points, [view.mean(metric, **{name: point}) for point in points])
            axes.set(xlabel=axis, ylabel=metric)

    rows = [(f"{point:g}", view.seeds(**{name: point}), *view.accuracy(**{name: point})) for point in points]
    table = Table.of((name, "seeds", *METRICS), rows, 1)
    return Section([(title, table)], [PROTOCOL_NOTE], both)


def _curve(axes: Any, points: Sequence[Any], values: Sequence[MeanStd | None], label: str | None = None) -> None:
    """Draw the recorded means with their deviations, joined by a line."""
    recorded = [(point, value) for point, value in zip(points, values, strict=True) if value is not None]
    if recorded:
        means, stds = [value.mean for _, value in recorded], [value.std or 0.0 for _, value in recorded]
        axes.errorbar([point for point, _ in recorded], means, stds, marker="o", capsize=3, label=label)


def _bars(axes: Any, points: list[Any], values: list[MeanStd | None]) -> None:
    """Draw bars on an axis that starts just below the lowest value, so that differences are visible."""
    means = [0.0 if value is None else value.mean for value in values]
    stds = [0.0 if value is None else value.std or 0.0 for value in values]
    axes.bar(range(len(points)), means, yerr=stds, capsize=3)
    axes.set_xticks(range(len(points)), [f"{point:g}" for point in points])
    if recorded := [(value.mean, value.std or 0.0) for value in values if value is not None]:
        low, high = min(mean - std for mean, std in recorded), max(mean + std for mean, std in recorded)
        axes.set_ylim(0.95 * low, 1.01 * high)


def drop_edge(view: View) -> Section:
    """Accuracy by the share of edges dropped."""
    return _by_setting(view, "edge_dropout", "share of edges dropped", _curve, "DGCF, 4 layers, by the share dropped")


def epsilon(view: View) -> Section:
    """Accuracy by ε."""
    return _by_setting(view, "epsilon", "ε", _bars, "DGCF, 12 layers, by ε")


def layers(view: View) -> Section:
    """Recall by depth, a line for each model."""
    depths, models = view.names("layers"), view.names("model")

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for model in models:
            _curve(axes, depths, [view.mean(RECALL, model=model, layers=depth) for depth in depths], model)
        axes.set(xticks=depths, xlabel="layers", ylabel=RECALL)
        axes.legend()

    rows = [(model, *(shown(view.mean(RECALL, model=model, layers=depth)) for depth in depths)) for model in models]
    table = Table.of(("model", *(counted(depth, "layer") for depth in depths)), rows, 1)
    return Section([("Recall@20 by depth", table)], [PROTOCOL_NOTE], draw, (5.5, 4.0))


def _legend(figure: Any) -> None:
    """Put the legend of the first panel above all panels, where it hides no bar."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(len(labels), 1), fontsize="small")


def loss_curve(view: View) -> Section:
    """Loss and validation recall by epoch, a thin line for each seed."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        right = axes.twinx()
        for place, line in enumerate(view.lines()):
            curve = line["measures"]["curve"]
            loss, recall = ({} if place else {"label": name} for name in ("training loss", f"validation {RECALL}"))
            axes.plot(curve["epochs"], curve["loss"], color="tab:gray", linewidth=1, **loss)
            right.plot(curve["epochs"], curve["validation"], color="tab:blue", linewidth=1, **recall)
        axes.set(xlabel="epoch", ylabel="training loss")
        right.set_ylabel(f"validation {RECALL}")
        figure.legend(loc="outside upper center", ncols=2)

    rows = []
    for cell, line in view.cells():
        counts = [MISSING] * 2 if line is None else [str(line["epochs"]), str(line["best_epoch"])]
        value = None if line is None else line["validation"].get(RECALL)
        rows.append((str(cell.seed), *counts, number(value)))
    table = Table.of(("seed", "epochs", "best epoch", f"validation {RECALL}"), rows, 1)
    return Section([("DGCF on ML1M", table)], (), draw, (6.0, 4.0))


# -- oscillation ------------------------------------------------------------------------------------------------------


def oscillation_diff(view: View) -> Section:
    """Differences between successive depths, and the amplitude of each model with its interval and a test."""
    own = {model: view.names("layers", model=model) for model in view.names("model")}  # not every model can be as deep
    recalls = {model: view.by_depth(RECALL, depths, model) for model, depths in own.items()}

    def p_value(model: str) -> str:
        first, second = view.by_depth(RECALL, own[model], REFERENCE), recalls[model]
        if model == REFERENCE or first is None or second is None or len(first) != len(second) or len(first) < 2:
            return MISSING
        return f"{swap_test(first, second):.2g}"

    rows = [
        (model, f"{depths[0]} to {depths[-1]}", *_amplitude(recalls[model]), p_value(model))
        for model, depths in own.items()
    ]
    header = ("model", "layers", "seeds", "amplitude", "95 % interval", f"p against {REFERENCE}")
    notes = [
        "Amplitude: the mean over successive depths of |difference of mean recall|; interval by bootstrap over the "
        f"seeds; p by swapping a model's and {REFERENCE}'s series of a seed, at the depths of the model. Noise of the "
        "seeds is part of every amplitude, and models have equally many of them.",
        PROTOCOL_NOTE,
    ]
    table = Table.of(header, rows, 1)

    def draw(figure: Any) -> None:
        axes, depths = figure.subplots(), view.names("layers")
        axes.axhline(0.0, color="black", linewidth=0.8)
        for model, values in recalls.items():
            if values is not None:
                places = [depths.index(deeper) for deeper in own[model][1:]]
                axes.plot(places, differences(values), marker="o", markersize=3, label=model)
        axes.set_xticks(range(1, len(depths)), [f"{a}→{b}" for a, b in pairwise(depths)])
        axes.set(xlabel="layers", ylabel=f"difference of mean {RECALL}")
        axes.legend(fontsize="small")

    return Section([("Amplitude of the oscillation", table)], notes, draw)


def _amplitude(recalls: NDArray[np.float64] | None) -> tuple[str, str, str]:
    if recalls is None:
        return ("0", MISSING, MISSING)
    low, high = amplitude_interval(recalls)
    return (str(len(recalls)), f"{amplitude(recalls):.4f}", f"{low:.4f} … {high:.4f}")


def depth(view: View) -> Section:
    """Bars of recall and NDCG, lines of smoothness, by depth."""
    depths, models, rows = view.names("layers"), view.names("model"), []
    for model, layers in product(models, depths):
        which = {"model": model, "layers": layers}
        means = [_smoothness(view, side, **which) for side in ("users", "items")]
        smoothness = [number(None if value is None else value.mean, ",.1f") for value in means]
        rows.append((model, str(layers), view.seeds(**which), *view.accuracy(**which), *smoothness))
    header = ("model", "layers", "seeds", *METRICS, "smoothness, users", "smoothness, items")
    notes = ["Smoothness as LightGCN's paper defines it, of the final embeddings.", PROTOCOL_NOTE]
    tables = [("Deep stacks", Table.of(header, rows, 2))]

    def draw(figure: Any) -> None:
        for axes, metric in zip(figure.subplots(1, 2), METRICS, strict=True):
            right = axes.twinx()
            for place, model in enumerate(models):
                at = np.arange(len(depths)) + 0.2 * (place - (len(models) - 1) / 2)
                means = [view.mean(metric, model=model, layers=layers) for layers in depths]
                axes.bar(at, [0.0 if value is None else value.mean for value in means], 0.18, alpha=0.6, label=model)
                smooth = [_smoothness(view, "users", model=model, layers=layers) for layers in depths]
                right.plot(at, [np.nan if value is None else value.mean for value in smooth], marker="o", markersize=3)
            axes.set_xticks(range(len(depths)), [str(layers) for layers in depths])
            axes.set(xlabel="layers", ylabel=metric)
            right.set_ylabel("smoothness of users (lower is smoother)")
        _legend(figure)

    return Section(tables, notes, draw, (11.0, 4.0))


def _smoothness(view: View, side: str, **which: Any) -> MeanStd | None:
    return mean_std([line["measures"]["smoothness"][side] for line in view.lines(**which)])


# -- gates and users --------------------------------------------------------------------------------------------------


def correlation(view: View) -> Section:
    """1/α by log degree, as a histogram of the first seed, and ρ over all seeds."""
    sides = ("users", "items")

    def draw(figure: Any) -> None:
        lines = view.lines()
        for axes, side in zip(figure.subplots(1, 2), sides, strict=True):
            if lines:
                counts = np.array(lines[0]["measures"]["gate-histogram"][side]["counts"], dtype=float).T
                shades = np.where(counts > 0, np.log1p(counts), np.nan)
                axes.imshow(shades, origin="lower", extent=(0, 1, 0, 1), aspect="auto")
                rho = lines[0]["measures"]["gates"][side]
                axes.set_title(f"{side}: ρ = {rho:.3f} (paper {view.paper['correlation'][side]})")
            axes.set(xlabel="log degree, scaled", ylabel="1/α, scaled")

    rows = []
    for side in sides:
        rho = mean_std([line["measures"]["gates"][side] for line in view.lines()])
        printed = view.paper["correlation"][side]
        rows.append((side, view.seeds(), shown(rho), number(printed, ".3f"), difference(rho, printed)))
    table = Table.of(("side", "seeds", "ρ", "paper", "difference"), rows, 1)
    notes = ["ρ: Pearson's, of 1/α in the last layer and log degree, nodes with a training pair."]
    return Section([("Gates and degrees", table)], notes, draw)


def pattern(view: View) -> Section:
    """The patch of each layer, darker for larger values."""
    lines = view.lines()

    def draw(figure: Any) -> None:
        layers = lines[0]["measures"]["pattern"]["layers"] if lines else []
        for place, axes in enumerate(figure.subplots(1, max(len(layers), 1), squeeze=False)[0]):
            if layers:
                axes.imshow(np.sqrt(np.array(layers[place])), cmap="Greys", vmin=0, vmax=1)
            axes.set(title=f"layer {place + 1}", xticks=[], yticks=[])

    rule = [f"The patch: {lines[0]['measures']['pattern']['rule']}, users first."] if lines else []
    notes = [*rule, "Each layer is divided by its greatest value; the square root is drawn, darker for more."]
    return Section((), notes, draw, (11.0, 3.2))


def density(view: View) -> Section:
    """NDCG by the number of interactions of users, a bar for each model."""
    models, origins, lines = view.names("model"), view.names("settings"), view.lines()
    groups = [f"≤ {group['at_most']}" for group in lines[0]["measures"]["groups"]] if lines else []

    def means(model: str, settings: str) -> list[MeanStd | None]:
        chosen = [line["measures"]["groups"] for line in view.lines(model=model, settings=settings)]
        return [mean_std([values[place][NDCG] for values in chosen]) for place in range(len(groups))]

    def draw(figure: Any) -> None:
        for axes, settings in zip(figure.subplots(1, len(origins), squeeze=False)[0], origins, strict=True):
            for rank, model in enumerate(models):
                heights = [value.mean if value else 0.0 for value in means(model, settings)]
                axes.bar(np.arange(len(groups)) + 0.13 * (rank - (len(models) - 1) / 2), heights, 0.12, label=model)
            axes.set_xticks(range(len(groups)), groups)
            axes.set(xlabel="interactions of a user", ylabel=NDCG, title=settings)
        _legend(figure)

    rows = []
    for settings, model in product(origins, models):
        seeds = view.seeds(model=model, settings=settings)
        rows.append((model, settings, seeds, *map(shown, means(model, settings))))
    bounds = ", ".join(map(str, view.paper["density"]["bounds"]))
    notes = [f"Groups hold about equally many interactions, all splits counted; the paper's bounds are {bounds}."]
    tables = [("NDCG@20 by group", Table.of(("model", "settings", "seeds", *groups), rows, 2))]
    return Section(tables, [*notes, PROTOCOL_NOTE], draw, (10.0, 4.0))


# -- theory -----------------------------------------------------------------------------------------------------------


def theory(view: View) -> Section:
    """The four statements on every dataset, and the gaps between successive steps."""
    header = ("matrix", "limits (the paper)", "error", "lasting gap", "‖Rπᵢ − πᵤ‖", "≤ bound", "decay", "flip")
    tables = [
        (cell.source.title, Table.of(header, [_walk(name, walk) for name, walk in _walks(line).items()], 1))
        for cell, line in view.cells(Walks)
    ]
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

    def draw(figure: Any) -> None:
        cells = view.cells(Walks)
        for axes, (cell, line) in zip(figure.subplots(1, len(cells), squeeze=False)[0], cells, strict=True):
            for name, walk in _walks(line).items():
                axes.semilogy(np.maximum(walk["gaps"], 1e-16), label=name)
            axes.set(title=cell.source.name, xlabel="step")
        figure.axes[0].set_ylabel("gap of successive steps")
        figure.axes[0].legend(fontsize="small")

    return Section(tables, notes, draw, (13.0, 3.6))


def _walks(line: Line | None) -> dict[str, dict[str, Any]]:
    return {} if line is None else line["computed"]["walks"]


def _walk(name: str, walk: Mapping[str, Any]) -> Row:
    return (
        name,
        f"{'two' if walk['two_limits'] else 'one'} ({walk['claim'].split()[0]})",
        number(walk["limit_error"], ".0e"),
        number(walk["gap_limit_exact"], ".4f"),
        number(walk["condition"], ".4f"),
        "yes" if walk["within_bound"] else "NO",
        number(walk["decay_per_step"], ".4f"),
        number(walk["flip_per_step"], ".4f"),
    )


def _unsettled(view: View) -> list[str]:
    """Return a note on the walks that were stopped before they converged."""
    texts = []
    for line in view.lines(Walks):
        names = [name for name, walk in _walks(line).items() if not walk["settled"]]
        texts += [f"{line['data']['name']} ({', '.join(names)})"] if names else []
    return [f"Stopped before they stood still: {'; '.join(texts)}."] if texts else []
