"""The operations tab for an administrator: refreshes, versions, rollbacks and experiments, compared with the routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serve.page_browser import DESKTOP, PHONE, Tab, chromium, needs_chromium
from tests.serve.service import ADMIN, READ, Service, tokens_file, wait_for

pytestmark = needs_chromium
SIZES = pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["390", "1440"])
REFRESH_SECONDS = 90.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def entered(tab: Tab, token: str) -> Page:
    """Open the operations tab, and give it a token by the button for administrators."""
    page = tab.open("#/operations")
    tab.button("Administer…").click()
    page.get_by_role("textbox", name="Token").fill(token)
    page.keyboard.press("Enter")
    return page


def versions(service: Service) -> list[dict[str, Any]]:
    """Return the versions of the model, the newest first."""
    models: list[dict[str, Any]] = service.get("/v1/models", token=ADMIN).json()["models"]
    return sorted(models, key=lambda row: -int(row["version"]))


def card_of(page: Page, title: str) -> Any:
    return page.locator(".admin .card", has=page.get_by_role("heading", name=re.compile(title)))


# -- refreshes and versions -------------------------------------------------------------------------------------------


def send_events(service: Service) -> None:
    """Send likes of known users for items that they do not have: too few users to compare the models by."""
    events = []
    for number in range(8):
        user = f"u{number:05d}"
        rows = service.get(f"/v1/recommend/{user}?k=3").json()["recommendations"]
        events += [{"user": user, "item": row["item"], "kind": "like"} for row in rows]
    answer = service.request("POST", "/v1/events", json={"events": events}, token=ADMIN)
    assert answer.json()["stored"] == len(events)


@pytest.mark.slow
@SIZES
def test_an_administrator_refreshes_and_rolls_back(
    browser: Browser, model_file: Path, tmp_path: Path, size: tuple[int, int]
) -> None:
    words = ("--tokens", str(tokens_file(tmp_path, "admin")))
    with Service(model_file, tmp_path / "data", *words) as service:
        send_events(service)
        tab = Tab(browser, service.url, size)
        page = entered(tab, ADMIN)
        rows = page.locator(".version-row")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("Served")
        expect(rows.first).to_contain_text("with the start")
        expect(tab.button("Roll back")).to_have_count(0)

        refreshed(tab, service)
        new = check_versions(page, service, ["by a refresh", "with the start"])
        assert len({row["sha256"] for row in new}) == 2
        check_card(page, new[0])
        assert tab.violations() == []
        assert tab.overflow() <= 0

        tab.button(f"Roll back to v{new[1]['version']}, the version before").click()
        dialog = page.get_by_role("dialog", name=f"Roll back to v{new[1]['version']}?")
        assert tab.violations() == []
        dialog.get_by_role("button", name="Not now").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert versions(service) == new

        tab.button(f"Serve v{new[1]['version']} again").click()
        dialog.get_by_role("button", name=f"Serve v{new[1]['version']}").click()
        expect(page.locator(".toast")).to_contain_text(f"The model of v{new[1]['version']} is served again")
        expect(rows).to_have_count(3)
        ways = [f"by a roll-back to v{new[1]['version']}", "by a refresh", "with the start"]
        back = check_versions(page, service, ways)
        assert back[0]["sha256"] == new[1]["sha256"] == service.get("/v1/model").json()["sha256"]
        expect(tab.button("Roll back")).to_have_count(0)
        assert tab.errors == []
        tab.close()


def refreshed(tab: Tab, service: Service) -> None:
    """Start a refresh by the button, and wait until its end is shown."""
    button = tab.button("Refresh now")
    expect(button).to_have_attribute("aria-disabled", "false")
    button.click()
    state = card_of(tab.page, "Refresh of the model").locator(".live")
    expect(state).to_contain_text("Running")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(state).to_have_text("Idle", timeout=REFRESH_SECONDS * 1000)
    last = service.get("/v1/admin/refresh", token=ADMIN).json()["last"]
    assert last["result"] == "published"
    facts = card_of(tab.page, "Refresh of the model").locator(".origin")
    expect(facts).to_contain_text(f"Published v{last['version']}: {last['detail']}")


def check_versions(page: Page, service: Service, ways: list[str]) -> list[dict[str, Any]]:
    """Compare the list with the answer of the service, of which the newest version is served; return the answer."""
    models = versions(service)
    rows = page.locator(".version-row")
    expect(rows).to_have_count(len(models))
    assert rows.locator("strong").all_inner_texts() == [f"v{row['version']}" for row in models]
    assert rows.locator(".version-how:nth-child(2) small").all_inner_texts() == ways
    assert [row["serving"] for row in models] == [True] + [False] * (len(models) - 1)
    expect(rows.locator(".badge")).to_have_count(1)
    expect(rows.first.locator(".badge")).to_have_text("Served")
    return models


def check_card(page: Page, row: dict[str, Any]) -> None:
    shown = page.locator(f'.version-row[data-version="{row["version"]}"]')
    shown.locator("summary").click()
    data = row["card"]["data"]
    expect(shown).to_contain_text(f"{data['pairs']:,}, {data['users']:,} users, {data['items']:,} items")
    expect(shown).to_contain_text(row["sha256"])
    expect(shown).to_contain_text(f"v1, {row['card']['updated_from']['new_pairs']:,} new pairs")
    for name in row["card"]["settings"]:
        expect(shown.locator(".settings dt").get_by_text(name, exact=True)).to_have_count(1)


# -- experiments ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@SIZES
def test_the_results_of_an_experiment_are_shown(
    browser: Browser, model_file: Path, tmp_path: Path, size: tuple[int, int]
) -> None:
    words = ["--tokens", str(tokens_file(tmp_path, "admin")), "--arm", f"b={model_file}", "--experiment", "colours"]
    words += ["--shadow", f"s={model_file}", "--shadow-share", "1"]
    with Service(model_file, tmp_path / "data", *words) as service:
        tab = Tab(browser, service.url, size)
        users = [f"visitor {number}" for number in range(400)]
        arms = expose(service, users)
        page = entered(tab, ADMIN)
        verdict = page.locator(".verdicts li").first
        expect(verdict).to_contain_text("Open")
        expect(verdict).to_contain_text("cannot be told apart yet")

        converted = [user for user in users if arms[user] == "b"]
        events = [{"user": user, "item": "i00001", "kind": "purchase"} for user in converted]
        assert service.request("POST", "/v1/events", json={"events": events}, token=ADMIN).is_success
        expect(verdict).to_contain_text("b converts more users than main")
        results = service.get("/v1/experiments", token=ADMIN).json()
        assert {row["arm"]: row["conversions"] for row in results["arms"]} == {"main": 0, "b": len(converted)}
        check_experiment(page, results)
        badges = {
            row["version"]: {"main": "Served", "b": "Arm b", "s": "Shadow s"}[row["arm"]] for row in versions(service)
        }
        assert page.locator(".version-row .badge").all_inner_texts() == list(badges.values())
        assert tab.violations() == []
        assert tab.overflow() <= 0
        assert tab.errors == []
        tab.close()


def expose(service: Service, users: list[str]) -> dict[str, str]:
    """Ask for a list of each user, and return the arm of each."""
    arms: dict[str, str] = {}
    for start in range(0, len(users), 200):
        body = {"users": users[start : start + 200], "k": 3}
        answer = service.request("POST", "/v1/recommend", json=body).json()
        arms |= {row["user"]: row["arm"] for row in answer["users"]}
    wait_for(lambda: sum(row["users"] for row in _arms(service)) == len(users))
    return arms


def _arms(service: Service) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = service.get("/v1/experiments", token=ADMIN).json()["arms"]
    return rows


def check_experiment(page: Page, results: dict[str, Any]) -> None:
    card = card_of(page, "Experiment colours")
    shown = card.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    share = {arm["arm"]: f"{arm['weight']:.0%}" for arm in results["arms"]}
    assert shown == [
        [
            arm["arm"],
            f"{100 * arm['rate']:.2f}%",
            f"{100 * arm['low']:.2f}% to {100 * arm['high']:.2f}%",
            f"{arm['users']:,}",
            f"{arm['conversions']:,}",
            share[arm["arm"]],
            f"v{arm['version']}",
        ]
        for arm in results["arms"]
    ]
    (comparison,) = results["comparison"]
    ends = f"(+{100 * comparison['low']:.2f} to +{100 * comparison['high']:.2f})"
    expect(card.locator(".verdicts li").first).to_have_text(
        f"Decidedb converts more users than main: by {100 * comparison['difference']:.2f} percentage points {ends}."
    )
    (shadow,) = results["shadow"]
    expect(card.locator(".verdicts li").last).to_contain_text("100% of the items are also in the list that was sent")
    assert shadow["overlap"] == 1.0


# -- without a token of the scope admin -------------------------------------------------------------------------------


def test_nothing_of_it_is_there_without_a_token_of_the_scope_admin(
    browser: Browser, model_file: Path, tmp_path: Path
) -> None:
    words = ("--tokens", str(tokens_file(tmp_path, "read", "admin")))
    with Service(model_file, tmp_path / "data") as service:
        tab = Tab(browser, service.url)
        page = tab.open("#/operations")
        page.locator(".routes td").first.wait_for()
        check_absent(tab)
        routes = [row["route"] for row in service.get("/v1/operations").json()["requests"]["by_route"]]
        assert [route for route in routes if "admin" in route or "experiments" in route] == []
        assert tab.errors == []
        tab.close()
    with Service(model_file, tmp_path / "data", *words) as service:
        tab = Tab(browser, service.url, PHONE)
        page = tab.open("#/operations")
        page.get_by_role("textbox", name="Token").fill(READ)
        page.keyboard.press("Enter")
        page.locator(".routes td").first.wait_for()
        check_absent(tab)
        tab.button("Administer…").click()
        page.get_by_role("textbox", name="Token").fill(READ)
        page.keyboard.press("Enter")
        expect(page.locator(".toast.bad")).to_contain_text("does not have the scope admin")
        check_absent(tab)
        # The browser reports the statuses that say so.
        assert [error for error in tab.errors if not re.search("40[13]", error)] == []
        tab.close()


def check_absent(tab: Tab) -> None:
    expect(tab.button("Administer…")).to_have_count(1)
    for name in ("Refresh now", "Roll back"):
        expect(tab.button(name)).to_have_count(0)
    expect(tab.page.locator(".version-row, .verdicts")).to_have_count(0)
    expect(tab.page.get_by_role("heading", name=re.compile("Versions|Refresh|Experiment"))).to_have_count(0)
