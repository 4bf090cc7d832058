"""Headless Chromium, Debian's package, on the page of a real service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect, sync_playwright

from dgcf.evaluate.validation import validator
from dgcf.recommend.loading import save_recommender
from dgcf.train import Run, resolve, train
from tests.serve.models import films

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium; install Debian's package chromium")
PHONE, DESKTOP = (390, 844), (1440, 900)
SECONDS = 15
expect.set_options(timeout=SECONDS * 1000)
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
_RUN_AXE = """async (rules) => (await axe.run(document, rules ? {runOnly: rules} : {})).violations.map(
    (rule) => `${rule.impact} ${rule.id}: ${rule.nodes[0].html} ${rule.nodes[0].failureSummary}`)"""
# A composed model with gates, cross-hop edges, a prior and a loss curve, so that every chart and kind of part has data.
SETTINGS = {"layers": 2, "dim": 16, "epochs": 6, "min_epochs": 2, "evaluate_every": 2, "learning_rate": 1e-2}
BLEND = {"blend": "ease(l2=200)+popularity", "blend_weights": "0.5+0.2"}


def train_run(folder: Path) -> Path:
    """Train a small composed model as ``dgcf train`` does, and return the folder of the run."""
    dataset = films()
    dataset.save(folder / "films")
    recipe = resolve("dgcf", preset="default", settings={**SETTINGS, **BLEND}, dataset=dataset.name)
    run = Run.create(folder / "run", dataset, recipe, seed=0, device="cpu", source=str(folder / "films"))
    validate = validator(dataset, recipe.train.metric)
    trained = train(dataset, recipe, device="cpu", validate=validate, run=run)
    assert save_recommender(trained, dataset) is None
    return run.path


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser; it is ended with the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A tab with its own storage. ``errors``: what the console and uncaught exceptions said."""

    _SCHEMES: tuple[tuple[Literal["light", "dark"], list[str] | None], ...] = (
        ("dark", ["color-contrast"]),
        ("light", None),
    )

    def __init__(self, browser: Browser, url: str, size: tuple[int, int] = DESKTOP) -> None:
        self.url, self.errors = url, list[str]()
        viewport: Any = {"width": size[0], "height": size[1]}
        self.context: BrowserContext = browser.new_context(
            viewport=viewport, reduced_motion="reduce", has_touch=size == PHONE
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(SECONDS * 1000)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.text} {message.location.get('url', '')}")

    def open(self, address: str = "") -> Page:
        """Load the page anew at an address such as ``#/model``."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/{address}")
        return self.page

    def rows(self) -> Locator:
        """Return the rows of the list of recommendations."""
        return self.page.locator(".rows > .row")

    def titles(self) -> list[str]:
        """Return the recommended titles, when the list is there and complete."""
        self.rows().first.wait_for()
        expect(self.page.locator("[aria-busy]")).to_have_count(0)
        return self.page.locator(".row .title-button").all_inner_texts()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def search(self, text: str, label: str = "Things you like") -> Locator:
        """Type into a search field, and return the options that it offers."""
        field = self.page.get_by_role("combobox", name=label)
        field.click()
        field.fill(text)
        listed = self.page.get_by_role("listbox", name=label)
        listed.wait_for()
        return listed.get_by_role("option")

    def violations(self) -> list[str]:
        """Return what axe-core finds, of any impact, in light and dark colours."""
        violations = list[str]()
        for scheme, rules in self._SCHEMES:
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
            violations += [f"{scheme}: {violation}" for violation in self.page.evaluate(_RUN_AXE, rules)]
        return violations

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        wide: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return wide

    def close(self) -> None:
        self.context.close()


def titles_of(answer: Mapping[str, Any]) -> list[str]:
    """Return the titles of an answer of the service."""
    return [row["title"] for row in answer["recommendations"]]
