"""Compare a training without any setting, `dgcf train DATA`, with baselines at their defaults and after tuning.

    python -m benchmarks.defaults [--only retail] [--models dgcf,ease] [--skip-tuned] [--out results/defaults.jsonl]

Each data set is prepared in ``--folder``, by the ordinary ``load``. Each baseline is trained with ``dgcf train`` at its
defaults, and again with what ``dgcf tune --trials 30 --metric ndcg@20`` finds, which reads only validation. The model
under test, dgcf, is trained by ``dgcf train DATA`` alone and not tuned: the question is what somebody gets who sets
nothing. Each training and study is a command in a process of its own, with seed 0. The run folders remain, so that
`dgcf compare RUN RUN` tests two models on the same users.

A record is one JSON line: the data set with its fingerprint, the model, ``default`` or ``tuned``, the settings, the
metrics on validation and test, and the seconds. What ``--out`` holds already is not measured again, except with
``--again``; the last record of a kind counts. ``--tables`` prints the tables of ``--out`` and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.generated import Log, movies, retail
from benchmarks.measure import hardware, markdown
from dgcf.data import Dataset, load
from dgcf.data.catalog import fetch
from dgcf.data.prepare import Preparation
from dgcf.data.splits import Split
from dgcf.experiments.jobs import numbered

Record = dict[str, Any]

BASELINES = ("popularity", "item-knn", "ease", "ials")
UNTUNABLE = ("popularity",)
"""Models without a setting to search."""
UNDER_TEST = "dgcf"
"""What ``dgcf train`` trains if it is told nothing."""
TRIALS, METRIC, SEED = 30, "ndcg@20", 0
SHOWN = {
    "test recall@20": ("test", "recall@20"),
    "test ndcg@20": ("test", "ndcg@20"),
    "validation ndcg@20": ("validation", METRIC),
}


# -- data sets --------------------------------------------------------------------------------------------------------


def temporal(name: str) -> Callable[[Path], Dataset]:
    """Return MovieLens with a split by time: the first 70% of all ratings for training, the last 20% for test."""
    return lambda _: load(fetch(name)["ratings"], Preparation(split=Split("temporal")))


def generated(name: str, draw: Callable[[], Log]) -> Callable[[Path], Dataset]:
    return lambda folder: load(draw().write(folder / f"{name}.csv"))


DATASETS: Mapping[str, Callable[[Path], Dataset]] = {
    "ml-100k": lambda _: load("ml-100k"),
    "ml-100k-temporal": temporal("ml-100k"),
    "ml-1m": lambda _: load("ml-1m"),
    "ml-1m-temporal": temporal("ml-1m"),
    "deoscirec/ml-100k": lambda _: load("deoscirec/ml-100k"),
    "deoscirec/ml-1m": lambda _: load("deoscirec/ml-1m"),
    "retail": generated("retail", retail),
    "movies": generated("movies", movies),
}


def prepared(name: str, folder: Path) -> tuple[Path, Dataset]:
    """Prepare a data set in ``folder``; return the folder of the prepared data set, and the data set."""
    dataset = DATASETS[name](folder).renamed(name)
    return dataset.save(folder / "prepared", overwrite=True), dataset


# -- measurements -----------------------------------------------------------------------------------------------------


def dgcf(*words: str) -> dict[str, Any]:
    """Run a command of dgcf in a new process; return its JSON answer."""
    process = subprocess.run([sys.executable, "-m", "dgcf", *words, "--json"], capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"dgcf {' '.join(words)} failed:\n{process.stderr}")
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer


def tune(data: str, model: str, device: str, study: Path) -> tuple[list[str], dict[str, Any]]:
    """Tune a model on validation; return the options to train it with, and what the record says of the study."""
    shared = ["--model", model, "--seed", str(SEED), "--device", device]
    tuned = dgcf("tune", data, *shared, "--trials", str(TRIALS), "--metric", METRIC, "--out", str(study))
    return ["--config", tuned["config"]], {
        "trials": tuned["trials"],
        "tuning_seconds": sum(trial["seconds"] for trial in read(study / "trials.jsonl")),
        "tuned": list(tuned["best"]["settings"]),
    }


def measure(name: str, fingerprint: str, model: str, variant: str, folder: Path, device: str) -> Record:
    """Tune a model if ``variant`` is ``tuned``, train it, and return the record; ``folder`` is that of the data set."""
    data = str(folder / "prepared")
    settings = [] if model == UNDER_TEST else ["--model", model, "--seed", str(SEED)]
    study: dict[str, Any] = {}
    if variant == "tuned":
        config, study = tune(data, model, device, folder / "tune" / model)
        settings += config
    run = next(path for path in numbered(folder / "runs" / f"{model}-{variant}") if not path.exists())
    trained = dgcf("train", data, *settings, "--device", device, "--out", str(run))
    if trained["model"] != model:
        raise SystemExit(f"dgcf train without --model trained {trained['model']}, not {model}; correct UNDER_TEST.")
    return {
        "dataset": name,
        "fingerprint": fingerprint,
        "model": model,
        "variant": variant,
        "settings": trained["settings"],
        "seed": SEED,
        "mask": trained["mask"],
        "users": trained["users_evaluated"],
        "metrics": {split: trained[split] for split in ("validation", "test")},
        "epochs": trained["epochs"],
        "seconds": trained["seconds"],
        **study,
        "hardware": machine(device),
    }


def machine(device: str) -> str:
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    return f"{hardware()}, OMP_NUM_THREADS {threads}"


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


# -- tables -----------------------------------------------------------------------------------------------------------


def latest(records: Iterable[Record]) -> list[Record]:
    """Return the last record of each data set, model and variant, in the order in which the kinds first appear.

    Records of an earlier edition of a data set, with another fingerprint than its last record, are left out.
    """
    records = list(records)
    fingerprints = {record["dataset"]: record["fingerprint"] for record in records}
    last = {
        (record["dataset"], record["model"], record["variant"]): record
        for record in records
        if record["fingerprint"] == fingerprints[record["dataset"]]
    }
    return list(last.values())


def best_baseline(records: Iterable[Record]) -> dict[str, Record]:
    """Return for each metric the baseline with the largest value, whether at its defaults or tuned.

    The best on test is not a choice that anybody could make before the test: it is the highest bar for dgcf.
    """
    baselines = [record for record in records if record["model"] in BASELINES]
    return {label: max(baselines, key=lambda record: value(record, label)) for label in SHOWN} if baselines else {}


def value(record: Record, label: str) -> float:
    split, metric = SHOWN[label]
    return float(record["metrics"][split][metric])


def table(records: Sequence[Record]) -> str:
    """Return the table of the records of one data set, the best baseline of each metric in bold."""
    best, first = best_baseline(records), records[0]
    rows = []
    for record in records:
        cells = [f"{value(record, label):.4f}" for label in SHOWN]
        marked = [
            f"**{cell}**" if best.get(label) is record else cell for label, cell in zip(SHOWN, cells, strict=True)
        ]
        seconds = [f"{record['seconds']:.1f}", f"{record['tuning_seconds']:.0f}" if "tuning_seconds" in record else ""]
        rows.append([record["model"], found(record), *marked, *seconds])
    title = f"{first['dataset']}: mask {first['mask']}, {first['users']:,} users"
    header = ["model", "settings", *SHOWN, "s", "s of tuning"]
    return f"{title}\n\n{markdown(header, rows)}\n\n{standing(records)}".strip()


def found(record: Record) -> str:
    """Return the settings that tuning found, as ``--set`` takes them."""
    if record["variant"] == "default":
        return "defaults"
    settings = record["settings"]
    return ", ".join(
        f"{name}={settings[name]:.4g}" if isinstance(settings[name], float) else f"{name}={settings[name]}"
        for name in record["tuned"]
    )


def standing(records: Sequence[Record]) -> str:
    """Return one sentence: each metric of dgcf without settings, divided by that of the best baseline."""
    best = best_baseline(records)
    ours = next((record for record in records if record["model"] == UNDER_TEST), None)
    if ours is None or not best:
        return ""
    ratios = (f"{label} {value(ours, label) / value(best[label], label):.3f}" for label in SHOWN)
    return f"{UNDER_TEST} without settings ÷ best baseline: {', '.join(ratios)}."


def tables(records: Iterable[Record]) -> str:
    """Return the tables of all data sets."""
    by_dataset: dict[str, list[Record]] = {}
    for record in latest(records):
        by_dataset.setdefault(record["dataset"], []).append(record)
    return "\n\n".join(map(table, by_dataset.values()))


# -- the command ------------------------------------------------------------------------------------------------------


def planned(models: Sequence[str], *, skip_tuned: bool) -> list[tuple[str, str]]:
    """Return the models and variants to measure; only baselines with a setting to search are tuned."""
    variants = {
        model: ["default"] if skip_tuned or model not in BASELINES or model in UNTUNABLE else ["default", "tuned"]
        for model in models
    }
    return [(model, variant) for model in models for variant in variants[model]]


def run(args: argparse.Namespace) -> None:
    for name in args.only or DATASETS:
        folder = args.folder / name.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        _, dataset = prepared(name, folder)
        for model, variant in planned(args.models, skip_tuned=args.skip_tuned):
            kind = (name, dataset.fingerprint, model, variant)
            if not args.again and kind in map(kind_of, read(args.out)):
                continue
            record = measure(name, dataset.fingerprint, model, variant, folder, args.device)
            append(args.out, record)
            shown = ", ".join(f"{label} {value(record, label):.4f}" for label in SHOWN)
            print(f"{name} {model} {variant}: {shown}, {record['seconds']:.1f} s", file=sys.stderr, flush=True)


def kind_of(record: Record) -> tuple[str, str, str, str]:
    return record["dataset"], record["fingerprint"], record["model"], record["variant"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(DATASETS), metavar="DATASET", help="repeatable")
    parser.add_argument("--models", type=lambda text: text.split(","), default=[*BASELINES, UNDER_TEST])
    parser.add_argument("--skip-tuned", action="store_true")
    parser.add_argument("--again", action="store_true", help="measure what --out holds already")
    parser.add_argument("--tables", action="store_true", help="print the tables of --out, measure nothing")
    parser.add_argument("--out", type=Path, default=Path("results/defaults.jsonl"))
    parser.add_argument("--folder", type=Path, default=Path("runs/defaults"), help="data sets, studies and runs")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if not args.tables:
        run(args)
    records = [record for record in read(args.out) if not args.only or record["dataset"] in args.only]
    print(tables(records))


if __name__ == "__main__":
    main()
