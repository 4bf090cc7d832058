"""Write the pictures of the page that the README shows: ``python -m tests.serve.page_pictures RUN``.

RUN is the folder of a run on data with titles, as ``dgcf train ml-100k --out RUN`` writes it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page

from tests.serve.page_browser import Tab, chromium
from tests.serve.service import Service

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SIZE = (1280, 800)
LIKED = ("Star Wars (1977)", "Toy Story (1995)", "Fargo (1996)")


def main(run: Path) -> None:
    """Serve a run, and take pictures of recommendations and of the model."""
    with tempfile.TemporaryDirectory() as folder, Service(run, Path(folder) / "data") as service, chromium() as browser:
        tab = Tab(browser, service.url, SIZE)
        tab.open()
        for title in LIKED:
            tab.search(title).filter(has_text=title).click()
            tab.page.locator(".chip", has_text=title).wait_for()
        tab.titles()
        tab.page.mouse.move(0, 0)
        tab.page.evaluate("document.activeElement.blur()")
        save(tab.page, "page-discover.png", "light")
        tab.open("#/model")
        tab.page.locator("figure svg .line").first.wait_for()
        tab.page.evaluate("scrollTo(0, document.querySelector('.metrics').getBoundingClientRect().top - 90)")
        save(tab.page, "page-model.png", "dark")
        tab.close()


def save(page: Page, name: str, scheme: Literal["light", "dark"]) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.screenshot(path=IMAGES / name)
    print(f"wrote {IMAGES / name}: {(IMAGES / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
