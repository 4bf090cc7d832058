"""Measure the recommendations for new users: how they differ between tastes, and their quality for held-out users.

    python -m benchmarks.tastes [deoscirec/ml-100k …] [--model dgcf] [--set epochs=200] [--draws 5] [--only tastes]

1. Tastes. Train on MovieLens 100K (all ratings as interactions). Ask ``recommend_for`` for the top 10 of 20 invented
   new users, who have four to six films of one kind each. Measure the overlap of the lists, the popularity of the
   films in them, and the number of distinct films. A model that recommends popular films to everybody has a high
   overlap, a high popularity and few distinct films. These numbers do not measure quality: random lists have the
   least overlap.
2. Held-out users. Train with and without 120 users, and fold them in, as ``benchmarks.foldin`` does. Measure
   Recall@20 and NDCG@20 on their test items. Training items are masked. One draw of 120 users moves a ratio by ±.06,
   so there are several draws, each with its own users and seed, and the means are compared.

The settings are for the model under test. The other models have their defaults.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch

from benchmarks.foldin import drawn_users, fit_both, held_out_lists, mean_metric
from benchmarks.measure import hardware, markdown
from dgcf.config import parse_settings
from dgcf.data import Dataset, load
from dgcf.evaluate.metrics import ndcg, recall
from dgcf.recommend import Recommender

FILMS = "ml-100k"
SHOWN = 10
PEERS = ("ease", "ials", "item-knn", "popularity")
METRICS = {"recall@20": recall, "ndcg@20": ndcg}
METHODS = ("fold-in", "trained with them")

TASTES: Mapping[str, tuple[str, ...]] = {
    "cartoons": (
        "Snow White and the Seven Dwarfs (1937)",
        "Pinocchio (1940)",
        "Dumbo (1941)",
        "Cinderella (1950)",
        "Beauty and the Beast (1991)",
    ),
    "horror": (
        "Night of the Living Dead (1968)",
        "Carrie (1976)",
        "Omen, The (1976)",
        "Shining, The (1980)",
        "Nightmare on Elm Street, A (1984)",
    ),
    "science fiction": (
        "Forbidden Planet (1956)",
        "2001: A Space Odyssey (1968)",
        "Alien (1979)",
        "Blade Runner (1982)",
        "Terminator, The (1984)",
    ),
    "westerns": (
        "High Noon (1952)",
        "Magnificent Seven, The (1954)",
        "Good, The Bad and The Ugly, The (1966)",
        "Wild Bunch, The (1969)",
        "Once Upon a Time in the West (1969)",
        "Unforgiven (1992)",
    ),
    "film noir": (
        "Maltese Falcon, The (1941)",
        "Laura (1944)",
        "Big Sleep, The (1946)",
        "Sunset Blvd. (1950)",
        "Touch of Evil (1958)",
    ),
    "musicals": (
        "American in Paris, An (1951)",
        "Singin' in the Rain (1952)",
        "Gigi (1958)",
        "My Fair Lady (1964)",
        "Sound of Music, The (1965)",
    ),
    "war": (
        "Bridge on the River Kwai, The (1957)",
        "Patton (1970)",
        "Apocalypse Now (1979)",
        "Platoon (1986)",
        "Full Metal Jacket (1987)",
    ),
    "romantic comedies": (
        "When Harry Met Sally... (1989)",
        "Pretty Woman (1990)",
        "Sleepless in Seattle (1993)",
        "Four Weddings and a Funeral (1994)",
        "While You Were Sleeping (1995)",
    ),
    "Hitchcock": (
        "Dial M for Murder (1954)",
        "Rear Window (1954)",
        "Vertigo (1958)",
        "North by Northwest (1959)",
        "Psycho (1960)",
        "Birds, The (1963)",
    ),
    "Star Trek": (
        "Star Trek: The Motion Picture (1979)",
        "Star Trek: The Wrath of Khan (1982)",
        "Star Trek III: The Search for Spock (1984)",
        "Star Trek IV: The Voyage Home (1986)",
        "Star Trek VI: The Undiscovered Country (1991)",
    ),
    "spy films": (
        "Hunt for Red October, The (1990)",
        "Clear and Present Danger (1994)",
        "GoldenEye (1995)",
        "Mission: Impossible (1996)",
        "Tomorrow Never Dies (1997)",
    ),
    "French cinema": (
        "Diva (1981)",
        "Jean de Florette (1986)",
        "Manon of the Spring (Manon des sources) (1986)",
        "Cyrano de Bergerac (1990)",
        "Delicatessen (1991)",
        "Three Colors: Blue (1993)",
    ),
    "documentaries": (
        "Thin Blue Line, The (1988)",
        "Paris Is Burning (1990)",
        "Crumb (1994)",
        "Hoop Dreams (1994)",
        "When We Were Kings (1996)",
        "Fast, Cheap & Out of Control (1997)",
    ),
    "courtroom dramas": (
        "12 Angry Men (1957)",
        "To Kill a Mockingbird (1962)",
        "Primal Fear (1996)",
        "Time to Kill, A (1996)",
        "Rainmaker, The (1997)",
    ),
    "Shakespeare": (
        "Henry V (1989)",
        "Much Ado About Nothing (1993)",
        "Othello (1995)",
        "Richard III (1995)",
        "Hamlet (1996)",
    ),
    "action blockbusters": (
        "Die Hard (1988)",
        "Speed (1994)",
        "True Lies (1994)",
        "Con Air (1997)",
        "Face/Off (1997)",
    ),
    "family films": (
        "Home Alone (1990)",
        "Mrs. Doubtfire (1993)",
        "Secret Garden, The (1993)",
        "Babe (1995)",
        "Matilda (1996)",
    ),
    "crime": (
        "Godfather, The (1972)",
        "GoodFellas (1990)",
        "Reservoir Dogs (1992)",
        "Casino (1995)",
        "Donnie Brasco (1997)",
    ),
    "classic epics": (
        "Gone with the Wind (1939)",
        "Giant (1956)",
        "Ben-Hur (1959)",
        "Lawrence of Arabia (1962)",
        "Gandhi (1982)",
    ),
    "black comedy": (
        "Dr. Strangelove or: How I Learned to Stop Worrying and Love the Bomb (1963)",
        "Harold and Maude (1971)",
        "Raising Arizona (1987)",
        "Heathers (1989)",
        "To Die For (1995)",
    ),
}


def mean_overlap(lists: Sequence[Sequence[Any]]) -> float:
    """Return the share of common members, ``|A ∩ B| / k``, averaged over all pairs of lists of length k."""
    return float(np.mean([len(set(a) & set(b)) / len(a) for a, b in combinations(lists, 2)]))


def n_distinct(lists: Sequence[Sequence[Any]]) -> int:
    """Return the number of distinct members of all lists."""
    return len(set().union(*lists))


def on_tastes(rec: Recommender, dataset: Dataset) -> dict[str, Any]:
    """Return overlap, popularity and number of distinct films of the lists for all tastes, and the lists as titles."""
    rec = Recommender(**rec.get_params()).fit(dataset)
    tables = [rec.recommend_for(list(titles), k=SHOWN) for titles in TASTES.values()]
    lists = [[rec.snapshot.items.index_of(item) for item in table["item"]] for table in tables]
    users = rec.snapshot.train.item_degrees[np.concatenate(lists)]
    return {
        "model": rec.model,
        "overlap": mean_overlap(lists),
        "popularity": float(users.mean()),
        "distinct": n_distinct(lists),
        "epochs": rec.snapshot.about["epochs"],
        "lists": {taste: table["title"] for taste, table in zip(TASTES, tables, strict=True)},
    }


def on_held_out(rec: Recommender, dataset: Dataset, seed: int) -> dict[str, dict[str, float]]:
    """Return each metric of one draw of held-out users, by fold-in and by training with them."""
    held_out = drawn_users(dataset, seed)[1]
    whole, part = fit_both(Recommender(**{**rec.get_params(), "seed": seed}), dataset, held_out)
    lists, _ = held_out_lists(whole, part, dataset.train, held_out)
    relevant = dataset.test.take(held_out)
    return {
        name: {method: mean_metric(metric, lists[method], relevant) for method in METHODS}
        for name, metric in METRICS.items()
    }


def mean_of(draws: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, Any]]:
    """Return the means over draws, the ratio of the means, and the ratios of the draws."""
    means: dict[str, dict[str, Any]] = {}
    for name in draws[0]:
        folded, trained = (np.array([draw[name][method] for draw in draws]) for method in METHODS)
        means[name] = {
            **dict(zip(METHODS, (float(folded.mean()), float(trained.mean())), strict=True)),
            "fold-in / trained": float(folded.mean() / trained.mean()),
            "of draws": (folded / trained).tolist(),
        }
    return means


def taste_table(results: Sequence[Mapping[str, Any]]) -> str:
    header = ["model", "overlap of two lists", "training users of a recommended film", "distinct films"]
    rows = [
        [result["model"], f"{result['overlap']:.3f}", f"{result['popularity']:.0f}", str(result["distinct"])]
        for result in results
    ]
    return markdown(header, rows)


def held_out_table(results: Sequence[Mapping[str, Any]]) -> str:
    header = ["model"]
    for name in ("Recall@20", "NDCG@20"):
        header += [f"{name}: fold-in", "trained", "÷ trained", "draws"]
    rows = []
    for result in results:
        row = [result["model"]]
        for name in METRICS:
            values = result[name]
            row += [f"{values[method]:.4f}" for method in METHODS]
            row += [
                f"{values['fold-in / trained']:.3f}",
                f"{min(values['of draws']):.3f}–{max(values['of draws']):.3f}",
            ]
        rows.append(row)
    return markdown(header, rows)


def held_out_results(models: Sequence[Recommender], dataset: Dataset, draws: int) -> list[dict[str, Any]]:
    """Return the means over draws of each model."""
    return [
        {"model": rec.model, **mean_of([on_held_out(rec, dataset, seed) for seed in range(draws)])} for rec in models
    ]


def as_text(report: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    settings = [f"{key}={value}" for key, value in report["settings"].items()]
    parts = [", ".join([report["model"], f"preset {report['preset']}", *settings, report["machine"]])]
    if "tastes" in report:
        parts += [f"{len(TASTES)} tastes, {FILMS}, top {SHOWN}:", taste_table(report["tastes"])]
    for name, results in report["held-out"].items():
        parts += [f"Held-out users, {name}, {report['draws']} draws:", held_out_table(results)]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=["deoscirec/ml-100k"], help="data of the held-out users")
    parser.add_argument("--model", default="dgcf")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--only", choices=["tastes", "held-out"])
    parser.add_argument("--json", action="store_true", help="also the lists of each taste")
    args = parser.parse_args()
    settings: dict[str, Any] = parse_settings(args.settings)
    models = [Recommender(args.model, preset=args.preset, device=args.device, **settings)]
    models += [Recommender(peer, device=args.device) for peer in PEERS if peer != args.model]
    on_gpu = torch.cuda.is_available() and args.device != "cpu"
    report: dict[str, Any] = {
        "model": args.model,
        "preset": args.preset,
        "settings": settings,
        "draws": args.draws,
        "machine": torch.cuda.get_device_name() if on_gpu else hardware(),
        "held-out": {},
    }
    if args.only != "held-out":
        report["tastes"] = [on_tastes(rec, load(FILMS)) for rec in models]
    if args.only != "tastes":
        report["held-out"] = {name: held_out_results(models, load(name), args.draws) for name in args.data}
    print(json.dumps(report) if args.json else as_text(report))


if __name__ == "__main__":
    main()
