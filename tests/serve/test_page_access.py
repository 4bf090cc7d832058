"""The page where it may not, or cannot, get an answer: tokens, and a server that stops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.serve.page_browser import PHONE, Tab, chromium, needs_chromium
from tests.serve.service import READ, WRITE, Service, tokens_file, wait_for

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    tab = Tab(browser, "")
    yield tab
    tab.close()


def test_a_token_is_requested_once_kept_for_the_tab_and_forgotten(tab: Tab, model_file: Path, tmp_path: Path) -> None:
    words = ("--tokens", str(tokens_file(tmp_path, "read", "write")))
    with Service(model_file, tmp_path / "data", *words) as service:
        tab.url = service.url
        page = tab.open("#/user?id=u00007")
        dialog = page.get_by_role("dialog", name="This server asks for a token")
        expect(dialog).to_have_count(1)
        assert tab.violations() == []
        page.get_by_role("textbox", name="Token").fill("not-the-token-of-this-server")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("refused")
        page.get_by_role("textbox", name="Token").fill(READ)
        page.keyboard.press("Enter")
        before = tab.titles()
        assert len(before) == 20
        expect(dialog).to_have_count(0)

        tab.button(f"Hide {before[0]} from this user").click()  # needs the scope write
        expect(page.locator(".toast.bad")).to_contain_text("write")
        assert tab.titles() == before
        tab.button("Use another token").click()
        tab.button(f"Hide {before[0]} from this user").click()
        page.get_by_role("textbox", name="Token").fill(WRITE)
        page.keyboard.press("Enter")
        expect(page.locator(".event-title")).to_have_text([before[0]])

        assert WRITE not in page.url
        assert page.evaluate("Object.keys(localStorage)") == []
        tab.button("Forget token").click()
        page.reload()
        expect(dialog).to_have_count(1)
        tab.button("Not now").click()
        expect(page.locator(".state.bad")).to_contain_text("token")
        assert WRITE not in service.log_file.read_text()


def test_a_route_that_is_off_for_every_token_asks_for_no_other(tab: Tab, model_file: Path, tmp_path: Path) -> None:
    with Service(model_file, tmp_path / "data", "--tokens", str(tokens_file(tmp_path, "read"))) as service:
        tab.url = service.url
        page = tab.open("#/user?id=u00007")
        page.get_by_role("textbox", name="Token").fill(READ)
        page.keyboard.press("Enter")
        tab.button(f"Like {tab.titles()[0]} for this user").click()
        expect(page.locator(".toast.bad")).to_contain_text("no write token is set")
        expect(tab.button("Use another token")).to_have_count(0)


def test_a_stopped_server_shows_as_an_error_and_trying_again_works_when_it_is_back(
    tab: Tab, model_file: Path, tmp_path: Path
) -> None:
    with Service(model_file, tmp_path / "data") as service:
        tab.url, port = service.url, service.address[1]
        page = tab.open("#/user?id=u00007")
        before = tab.titles()
    tab.button(f"Hide {before[0]} from this user").click()
    expect(page.locator(".toast.bad")).to_contain_text("does not answer")
    assert tab.titles() == before  # what was shown stays
    page.get_by_role("link", name="Discover", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("No answer from the server")
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert tab.overflow() <= 0
    assert tab.violations() == []
    for name in ("Model", "Operations"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("No answer from the server")
    page.get_by_role("link", name="Discover", exact=True).click()
    page.get_by_role("alert").wait_for()

    with Service(model_file, tmp_path / "data", "--port", str(port)):
        tab.button("Try again").click()
        wait_for(lambda: page.locator(".suggestion").count() == 12)
    assert [error for error in tab.errors if "ERR_CONNECTION_REFUSED" not in error] == []
