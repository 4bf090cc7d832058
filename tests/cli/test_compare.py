"""``dgcf compare``: its table, its files, and resuming after Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dgcf.cli import application
from dgcf.data.synthetic import planted
from tests.conftest import hear_ctrl_c

MODELS = ("lightgcn", "bpr-mf", "popularity")
QUICK = ("--set", "epochs=4", "--set", "evaluate_every=2", "--set", "dim=8", "--set", "batch_size=256")
WORDS = ("--models", ",".join(MODELS), "--seeds", "2", "--seed", "3", *QUICK, "--device", "cpu")


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(application(), ["compare", *map(str, words)], env={"COLUMNS": "120"})


def refusal(*words: str | Path) -> str:
    done = invoke(*words)
    assert done.exit_code in (1, 2), done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return str(done.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dataset and of a comparison on it in every format."""
    folder = tmp_path_factory.mktemp("compare")
    planted(120, 60).renamed("data <&> _x_ $a$").save(folder / "data")
    files = {"--html": "t.html", "--latex": "t.tex", "--markdown": "t.md", "--plot": "t.png"}
    words = [word for name, file in files.items() for word in (name, folder / file)]
    done = invoke(folder / "data", *WORDS, "--out", folder / "out", *words, "--json")
    assert done.exit_code == 0, done.stderr
    (folder / "answer.json").write_text(done.stdout)
    return folder


@pytest.fixture
def result(folder: Path) -> dict[str, Any]:
    result = json.loads((folder / "answer.json").read_text())
    assert isinstance(result, dict)
    return result


def test_json_has_all_models_and_comparisons(folder: Path, result: dict[str, Any]) -> None:
    fields = {"dataset", "fingerprint", "mask", "split", "reference", "users_evaluated", "seeds", "models"}
    assert set(result) == fields | {"comparisons"}
    assert (result["split"], result["mask"], result["reference"], result["seeds"]) == (
        "test",
        "train",
        "lightgcn",
        [3, 4],
    )
    assert [row["model"] for row in result["models"]] == list(MODELS)
    for row in result["models"]:
        seeds = [3] if row["model"] == "popularity" else [3, 4]
        assert row["seeds"] == seeds
        assert row["runs"] == [str(folder / "out" / f"{row['model']}-seed{seed}") for seed in seeds]
        assert row["epochs"] == ([1] if row["model"] == "popularity" else [4, 4])
        for split in ("test", "validation"):
            assert {"recall@20", "ndcg@20"} <= set(row[split])
            assert all(set(spread) == {"mean", "std"} for spread in row[split].values())
        assert (row["test"]["recall@20"]["std"] == 0) == (row["model"] == "popularity")
        assert row["seconds"] > 0
        assert row["peak_mb"] > 10
        assert row["preset"] == "default"
    assert result["models"][0]["settings"]["dim"] == 8
    means = {row["model"]: row["test"] for row in result["models"]}
    pairs = [(comparison["model"], comparison["metric"]) for comparison in result["comparisons"]]
    assert pairs == [(model, metric) for model in MODELS[1:] for metric in ("recall@20", "ndcg@20")]
    for comparison in result["comparisons"]:
        assert comparison["reference"] == "lightgcn"
        assert comparison["users"] == result["users_evaluated"]
        assert comparison["first"] == pytest.approx(means["lightgcn"][comparison["metric"]]["mean"])
        assert comparison["second"] == pytest.approx(means[comparison["model"]][comparison["metric"]]["mean"])
        assert comparison["difference"] == pytest.approx(comparison["second"] - comparison["first"])
        assert comparison["interval"][0] <= comparison["difference"] <= comparison["interval"][1]
        assert comparison["p_permutation"] <= comparison["p_holm"] <= 1
        assert 0 <= comparison["p_seeds"] <= 1


def test_run_equals_that_of_train(folder: Path, result: dict[str, Any], tmp_path: Path) -> None:
    words = ("--model", "bpr-mf", *QUICK, "--seed", "4", "--device", "cpu", "--out", tmp_path / "run", "--json")
    done = CliRunner().invoke(application(), ["train", str(folder / "data"), *map(str, words)])
    alone = json.loads(done.stdout)
    runs = folder / "out" / "bpr-mf-seed4"
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == (runs / "best.safetensors").read_bytes()
    assert alone["peak_mb"] > 10
    again = json.loads(invoke(runs, tmp_path / "run", "--device", "cpu", "--json").stdout)
    assert again["models"][0]["test"]["recall@20"] == {"mean": alone["test"]["recall@20"], "std": None}
    assert {comparison["p_permutation"] for comparison in again["comparisons"]} == {1.0}


def test_second_call_gives_the_same_answer_without_training(
    folder: Path, result: dict[str, Any], tmp_path: Path
) -> None:
    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*")}

    before = state()
    svg = [tmp_path / f"{n}.svg" for n in "ab"]
    for picture in svg:
        done = invoke(folder / "data", *WORDS, "--out", folder / "out", "--plot", picture, "--json")
        assert json.loads(done.stdout) == result
    assert state() == before
    assert svg[0].read_bytes() == svg[1].read_bytes()
    assert ET.parse(svg[0]).getroot().tag.endswith("svg")
    assert (folder / "t.png").read_bytes().startswith(b"\x89PNG")


def test_table_shows_all_models(folder: Path) -> None:
    done = invoke(folder / "data", *WORDS, "--out", folder / "out", "--reference", "popularity")
    assert done.exit_code == 0, done.stderr
    for word in (*MODELS, "recall@20", "ndcg@20", "any seed", "2 seeds", " MB", "±", "mask train"):
        assert word in done.stdout
    assert "differs from popularity" in done.stdout
    assert "preset default; dim 8, epochs 4; seeds 3, 4" in done.stdout
    assert max(map(len, done.stdout.split("below a mean")[0].splitlines())) <= 80


def shown(spread: dict[str, float]) -> str:
    """Return a mean with its deviation; a model without seeds has none."""
    return f"{spread['mean']:.4f}" + (f" ± {spread['std']:.4f}" if spread["std"] else "")


def test_best_value_is_marked_in_plain_text(folder: Path, result: dict[str, Any]) -> None:
    """A pipe or a file shows no bold, so the best mean stands between double asterisks."""
    done = invoke(folder / "data", *WORDS, "--out", folder / "out")
    for metric in ("recall@20", "ndcg@20"):
        spreads = [model["test"][metric] for model in result["models"]]
        best = max(spread["mean"] for spread in spreads)
        for spread in spreads:
            assert (f"**{shown(spread)}" in done.stdout) == (spread["mean"] == best)


def test_deviation_of_a_model_without_seeds_is_not_shown(folder: Path) -> None:
    done = invoke(folder / "data", *WORDS, "--out", folder / "out")
    for text in (done.stdout, *((folder / f"t.{kind}").read_text() for kind in ("md", "tex", "html"))):
        assert "popularity" in text
        assert "± 0.0000" not in text
        assert r"$\pm$ 0.0000" not in text


class References(HTMLParser):
    """Collect the references of a page to other files."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "data", "action")]


def test_html_page_is_self_contained(folder: Path, result: dict[str, Any]) -> None:
    text = (folder / "t.html").read_text()
    reader = References()
    reader.feed(text)
    assert reader.references == []
    assert not reader.tags & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?:|url\(|@import|//", text)
    root = ET.fromstring(text)  # well-formed, whatever the dataset is called
    assert root.findtext("head/title") == f"3 models on {result['dataset']}"
    assert "data &lt;&amp;&gt;" in text
    assert len(root.findall(".//svg/rect")) == 6
    assert len(root.findall(".//svg/circle")) == 2 * (2 + 2 + 1)
    assert "prefers-color-scheme: dark" in text
    cells = ["".join(cell.itertext()) for cell in root.iter("td")]
    for row in result["models"]:
        spread = row["test"]["recall@20"]
        assert any(cell.startswith(shown(spread)) for cell in cells)


def test_markdown_and_latex_tables(folder: Path, result: dict[str, Any]) -> None:
    markdown, latex = (folder / "t.md").read_text(), (folder / "t.tex").read_text()
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) == (2 + 3) + (2 + 4)
    assert len({line.count("|") for line in lines[:5]}) == len({line.count("|") for line in lines[5:]}) == 1
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == 2
    assert latex.count("{") == latex.count("}")
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in rows} == {5, 8}
    assert r"\&" in latex.partition(r"\caption")[2]  # the dataset's name
    for row in result["models"]:
        spread = row["test"]["ndcg@20"]
        text, best = shown(spread), max(model["test"]["ndcg@20"]["mean"] for model in result["models"])
        in_latex = rf"\textbf{{{text.replace('±', chr(36) + chr(92) + 'pm' + chr(36))}}}" in latex
        assert (f"**{text}**" in markdown) == in_latex == (spread["mean"] == best)
    for text in (markdown, latex):
        assert "mask train" in text
        assert "Holm's correction over 4 comparisons" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--models", "dgcf"), "--models names only dgcf; give two or more"),
        (("--models", "dgcf,lightgcn,dgcf"), "model dgcf is named twice"),
        (("--models", "dgcf,lightgnc"), "did you mean 'lightgcn'"),
        (("--models", "dgcf,lightgcn", "--reference", "eases"), "--reference eases is not compared"),
        (("--models", "dgcf,lightgcn", "--metric", "recal"), "did you mean 'recall'"),
        (("--models", "dgcf,lightgcn", "--mask", "trian"), "the mask is 'trian'"),
        (("--models", "dgcf,lightgcn", "--k", "ten"), "--k got 'ten'"),
        (("--models", "dgcf,lightgcn", "--seed", "-1"), "seed -1 is negative"),
        (("--models", "dgcf,lightgcn", "--html", "t.pdf"), "give a name that ends in .html"),
        (("--models", "dgcf,lightgcn", "--plot", "t.jpg"), "give a name that ends in .png or .svg"),
        (("--models", "dgcf,lightgcn", "--latex", "folder.tex"), "is a folder, expected a file"),
        (("--models", "dgcf,lightgcn", "--data", "planted"), "--data is for run folders"),
        (("checkerboard", "--models", "dgcf,lightgcn"), "compares on one dataset, and 2 are given"),
        ((), "there is only planted to compare; give two or more run folders"),
        (("--seeds", "2"), "--seeds is for training with --models"),
        (("elsewhere",), "is not a run folder"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.tex").mkdir()
    assert sentence in refusal("planted", *words)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder.tex"]


def test_run_folders_are_compared(folder: Path) -> None:
    runs = [folder / "out" / name for name in ("popularity-seed3", "bpr-mf-seed3", "bpr-mf-seed4")]
    answer = json.loads(invoke(*runs, "--reference", "bpr-mf-seed3", "--device", "cpu", "--k", "5,10", "--json").stdout)
    assert [row["label"] for row in answer["models"]] == [run.name for run in runs]
    assert [row["model"] for row in answer["models"]] == ["popularity", "bpr-mf", "bpr-mf"]
    assert len(answer["comparisons"]) == 2 * 4
    assert {comparison["reference"] for comparison in answer["comparisons"]} == {"bpr-mf-seed3"}
    assert {line["metric"] for line in answer["comparisons"]} == {
        "recall@5",
        "recall@10",
        "ndcg@5",
        "ndcg@10",
    }
    assert all(comparison["p_seeds"] is None for comparison in answer["comparisons"])


def test_runs_on_different_datasets_are_refused(folder: Path, tmp_path: Path) -> None:
    words = ("train", "checkerboard", "--model", "popularity", "--out", str(tmp_path / "other"))
    assert CliRunner().invoke(application(), words).exit_code == 0
    message = refusal(folder / "out" / "popularity-seed3", tmp_path / "other")
    assert "was trained on" in message
    assert "compare runs on one dataset" in message


@pytest.mark.slow
def test_interrupted_comparison_resumes_to_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    """Interrupt the second model; the same command then trains the rest, to the same bytes."""
    words = ["compare", str(folder / "data"), "--models", "lightgcn,bpr-mf", *QUICK, "--set", "patience=0"]
    words += ["--set", "bpr-mf.epochs=150", "--device", "cpu", "--json", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dgcf", *words, str(tmp_path / "stopped")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("epoch 6/150"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(output)["error"]["kind"] == "interrupted"
    assert f"runs are saved in {tmp_path / 'stopped'}. Repeat the command to resume." in stderr
    first = (tmp_path / "stopped" / "lightgcn-seed0" / "last.safetensors").stat().st_mtime_ns
    answer, whole = (
        json.loads(CliRunner().invoke(application(), [*words, str(tmp_path / name)]).stdout)
        for name in ("stopped", "whole")
    )
    assert (tmp_path / "stopped" / "lightgcn-seed0" / "last.safetensors").stat().st_mtime_ns == first
    assert answer["comparisons"] == whole["comparisons"]
    assert answer["models"][1]["epochs"] == [150]
    for run in ("lightgcn-seed0", "bpr-mf-seed0"):
        for name in ("last.safetensors", "best.safetensors", "metrics.jsonl"):
            assert (tmp_path / "stopped" / run / name).read_bytes() == (tmp_path / "whole" / run / name).read_bytes()


def test_empty_list_of_models_is_refused(folder: Path) -> None:
    assert "--models names only nothing; give two or more" in refusal(folder / "data", "--models", ",")
