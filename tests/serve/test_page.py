"""The page in a browser: real clicks and keys on the real service, compared with what the service answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.serve.page_browser import DESKTOP, PHONE, Tab, chromium, needs_chromium, titles_of, train_run
from tests.serve.service import Service, wait_for

pytestmark = needs_chromium
SIZES = pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["390", "1440"])
MARKUP = "<script>document.title = 'run'</script> & <img src=x onerror=\"document.title='run'\">"
WIDTHS = "(pieces) => pieces.map((piece) => parseFloat(piece.getAttribute('width')))"
Open = Callable[..., Tab]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("page")
    with Service(train_run(folder), folder / "data") as service:
        yield service


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser, service: Service) -> Iterator[Open]:
    """Return a function that opens tabs; none of them may write an error to the console."""
    tabs: list[Tab] = []

    def open_tab(*options: Any) -> Tab:
        tabs.append(Tab(browser, service.url, *options))
        return tabs[-1]

    yield open_tab
    errors = [error for tab in tabs for error in tab.errors]
    for tab in tabs:
        tab.close()
    assert errors == []


def popular(service: Service, count: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = service.get(f"/v1/items?limit={count}").json()["items"]
    return items


def recommended(service: Service, liked: list[Any], negative: list[Any] | None = None) -> dict[str, Any]:
    body = {"items": liked, "negative": negative or [], "k": 20, "why": True}
    answer: dict[str, Any] = service.request("POST", "/v1/recommend", json=body).json()
    return answer


def of_user(service: Service, user: str) -> list[str]:
    return titles_of(service.get(f"/v1/recommend/{user}?k=20").json())


@SIZES
def test_three_picks_lead_to_recommendations_with_reasons_and_a_like_changes_them(
    tab: Open, service: Service, size: tuple[int, int]
) -> None:
    one, two, three = popular(service, 3)
    shown = tab(size)
    page = shown.open()
    shown.search(one["title"][:9]).filter(has_text=one["title"]).click()
    page.locator(".chip").first.wait_for()
    shown.search(str(two["item"])).filter(has_text=two["title"]).click()
    shown.search(three["title"]).filter(has_text=three["title"]).click()
    expect(page.locator(".chip.like")).to_have_count(3)
    liked = [row["item"] for row in (one, two, three)]
    answer = recommended(service, liked)
    expect(shown.rows()).to_have_count(20)
    wait_for(lambda: shown.titles() == titles_of(answer))
    check_reasons(page, answer)

    first = answer["recommendations"][0]
    shown.button(f"Like {first['title']}").click()
    expect(page.locator(".chip.like")).to_have_count(4)
    after = titles_of(recommended(service, [*liked, first["item"]]))
    assert first["title"] not in after
    assert after != titles_of(answer)
    wait_for(lambda: shown.titles() == after)
    expect(page.locator(".moved").first).to_be_visible()

    shown.button("Undo").click()
    expect(page.locator(".chip.like")).to_have_count(3)
    wait_for(lambda: shown.titles() == titles_of(answer))
    page.reload()  # the address has the state
    wait_for(lambda: shown.titles() == titles_of(answer))
    expect(page.locator(".chip.like .chip-title").first).to_have_text(one["title"])
    assert shown.overflow() <= 0


def check_reasons(page: Page, answer: dict[str, Any]) -> None:
    """Each row names its largest reasons, and its bar has a piece for each part of the score, on one scale."""
    scales: list[float] = []
    for place, row in enumerate(answer["recommendations"]):
        shown = page.locator(".row").nth(place)
        reasons = sorted((part for part in row["reasons"] if part["value"]), key=lambda part: -abs(part["value"]))
        assert shown.locator(".reason-name").all_inner_texts() == [part["title"] for part in reasons[:3]]
        widths = shown.locator("rect.piece").evaluate_all(WIDTHS)
        sizes = [abs(part["value"]) for part in reasons]
        rest = abs(row["score"] - sum(part["value"] for part in reasons))
        sizes += [rest] if rest > 1e-3 * row["score"] else []
        scales += [width / size for width, size in zip(sorted(widths), sorted(sizes), strict=True) if width > 1]
    assert scales == pytest.approx([scales[0]] * len(scales), rel=1e-2)


def test_less_like_this_takes_away_from_what_resembles_it(tab: Open, service: Service) -> None:
    one, two = popular(service, 2)
    shown = tab()
    page = shown.open(f"#/discover?like={one['item']}")
    shown.titles()
    shown.search(two["title"], "Less like this").filter(has_text=two["title"]).click()
    answer = recommended(service, [one["item"]], [two["item"]])
    wait_for(lambda: shown.titles() == titles_of(answer))
    lowered = [row for row in answer["recommendations"] if any(part["value"] < 0 for part in row["reasons"])]
    assert len(lowered) > 0
    row = page.locator(f'.row[data-item="{lowered[0]["item"]}"]')
    expect(row.locator("rect.negative")).not_to_have_count(0)
    expect(row.locator(".reasons")).to_contain_text("lowers by")

    raised = raised_by(service, one["item"], two["item"])
    shown.open(f"#/discover?like={one['item']}&less={two['item']}&item={raised}")
    group = page.locator(".parts", has=page.get_by_role("heading", name="Less like this"))
    expect(group.locator(".sum")).to_contain_text("raises by")
    expect(group.locator("h3 .swatch.unlike")).to_have_count(1)
    assert shown.violations() == []
    page.keyboard.press("Escape")
    shown.button("Start over").click()
    expect(page.locator(".suggestion").first).to_be_visible()


def raised_by(service: Service, liked: Any, avoided: Any) -> Any:
    """Return an item whose score an item to avoid raises, because it is unlike it."""
    for row in service.get("/v1/items?limit=100").json()["items"]:
        body = {"items": [liked], "negative": [avoided], "item": row["item"], "top": 1}
        answer = service.request("POST", "/v1/explain", json=body).json()
        if answer["score"] > 0 and answer["by_kind"]["negative"] > 0.01 * answer["score"]:
            return row["item"]
    raise AssertionError("no item is unlike the one to avoid")


def test_each_prior_of_a_composed_model_has_its_name(tab: Open, service: Service) -> None:
    row = service.get("/v1/recommend/u00007?k=1&why=true").json()["recommendations"][0]
    answer = service.get(f"/v1/explain/u00007/{row['item']}").json()
    titles = [part["title"] for part in answer["parts"] if part["kind"] == "prior"]
    assert sorted(titles) == ["popularity among all users", "your own prior"]
    named = [part["title"] for part in row["reasons"] if part["kind"] == "prior"]
    assert len(named) == len(set(named)) > 0
    page = tab().open(f"#/user?id=u00007&item={row['item']}")
    group = page.locator(".parts", has=page.get_by_role("heading", name="Prior"))
    expect(group.locator(".part-name")).to_have_text(titles)


@SIZES
def test_similar_items_are_followed_and_back_leads_back(tab: Open, service: Service, size: tuple[int, int]) -> None:
    item = popular(service, 1)[0]
    shown = tab(size)
    page = shown.open(f"#/discover?like={item['item']}")
    title = shown.titles()[0]
    shown.button(f"Similar to {title}").click()
    panel = page.get_by_role("dialog", name=title)
    raw_id = recommended(service, [item["item"]])["recommendations"][0]["item"]
    similar = service.get(f"/v1/similar/items/{raw_id}?k=12").json()["similar"]
    expect(panel.locator(".similar-title")).to_have_text([row["title"] for row in similar])
    assert shown.violations() == []

    following = similar[1]
    panel.get_by_role("button", name=following["title"]).first.click()
    other = page.get_by_role("dialog", name=following["title"])
    second = service.get(f"/v1/similar/items/{following['item']}?k=12").json()["similar"]
    expect(other.locator(".similar-title")).to_have_text([row["title"] for row in second])
    page.go_back()
    expect(panel).to_be_visible()
    panel.get_by_role("button", name="Why this").click()
    answer = service.request("POST", "/v1/explain", json={"items": [item["item"]], "item": raw_id, "top": 8}).json()
    expect(panel.locator(".sentence")).to_have_text(answer["text"])
    expect(panel.locator(".parts")).not_to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(shown.button(f"Similar to {title}")).to_be_focused()
    assert "item=" not in page.url


@SIZES
def test_a_user_is_looked_up_and_hides_and_likes_count_at_once(
    tab: Open, service: Service, size: tuple[int, int]
) -> None:
    user = f"u00{size[0] % 90:03}"
    before, about = of_user(service, user), service.get(f"/v1/users/{user}").json()
    shown = tab(size)
    page = shown.open("#/user")
    page.get_by_label("User id").fill(user)
    shown.button("Look up").click()
    assert shown.titles() == before
    if size == PHONE:
        page.locator(".history summary").click()
    expect(page.locator(".history .link")).to_have_text([row["title"] for row in about["history"]])

    shown.button(f"Hide {before[0]} from this user").click()
    expect(page.locator(".event-title")).to_have_text([before[0]])
    assert before[0] not in shown.titles()
    assert [event["kind"] for event in service.get(f"/v1/users/{user}").json()["events"]] == ["hide"]
    shown.button("Undo").click()
    expect(page.locator(".event-title")).to_have_count(0)
    wait_for(lambda: shown.titles() == before)
    assert service.get(f"/v1/users/{user}").json()["events"] == []

    shown.button(f"Like {before[1]} for this user").click()
    expect(page.locator(".event-title")).to_have_text([before[1]])
    liked = of_user(service, user)
    assert liked != before
    wait_for(lambda: shown.titles() == liked)
    shown.button(f"Undo like of {before[1]}").click()
    wait_for(lambda: shown.titles() == before)
    assert shown.overflow() <= 0


def test_an_unknown_user_gets_popular_items_and_becomes_known_with_a_like(tab: Open, service: Service) -> None:
    shown = tab()
    page = shown.open("#/user?id=a%20new%2Fuser")
    expect(page.locator(".badge-line")).to_have_text("Unknown")
    expect(page.locator(".notes li")).to_have_text(
        ["nothing is known of this user yet; popular items are recommended."]
    )
    expect(page.locator(".history")).to_be_empty()
    first = shown.titles()[0]
    shown.button(f"Like {first} for this user").click()
    expect(page.locator(".badge")).to_have_text("With new events")
    assert first not in shown.titles()
    events = service.get("/v1/users/a%20new%2Fuser").json()["events"]
    assert [event["title"] for event in events] == [first]
    # The browser reports the 404 that says that nothing was known of the user.
    shown.errors = [error for error in shown.errors if "404" not in error]


def test_keyboard_alone(tab: Open, service: Service) -> None:
    shown = tab()
    page = shown.open()
    page.locator(".suggestion").first.wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    field = page.get_by_role("combobox", name="Things you like")
    expect(field).to_be_focused()
    page.keyboard.press("ArrowDown")
    options = page.get_by_role("option")
    options.first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    title = options.nth(1).locator(".option-title").inner_text()
    expect(field).to_have_attribute("aria-activedescendant", str(options.nth(1).get_attribute("id")))
    page.keyboard.press("Enter")
    expect(page.locator(".chip.like")).to_have_text([title])
    before = shown.titles()

    like = shown.button(f"Like {before[2]}")
    tab_to(page, f"Like {before[2]}")
    page.keyboard.press("Enter")
    expect(page.locator(".chip.like")).to_have_count(2)
    expect(like).to_have_count(0)
    place = page.evaluate("[...document.querySelectorAll('.row')].indexOf(document.activeElement.closest('.row'))")
    assert place == 2  # the focus is on the row that came up
    page.keyboard.press("Control+z")
    wait_for(lambda: shown.titles() == before)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    field.focus()
    page.keyboard.press("Backspace")
    expect(page.locator(".chip.like")).to_have_count(0)


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the element of a name has the focus."""
    for _ in range(60):
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to {name!r}")


def test_a_title_with_markup_is_text(tab: Open, service: Service) -> None:
    plain, marked = popular(service, 2)
    path = f"/v1/items/{marked['item']}"
    assert service.request("PUT", path, json={"title": MARKUP, "hidden": False}).is_success
    try:
        shown = tab()
        page = shown.open()
        expect(page.locator(".suggestion span").nth(1)).to_have_text(MARKUP)
        expect(shown.search("script").locator(".option-title")).to_have_text([MARKUP])
        page.keyboard.press("Enter")
        expect(page.locator(".chip-title")).to_have_text(MARKUP)
        expect(page.locator(".reason-name").first).to_have_text(MARKUP)
        page = shown.open(f"#/discover?like={plain['item']}&item={marked['item']}")
        expect(page.get_by_role("dialog").locator("h2")).to_have_text(MARKUP)
        assert page.locator("main script, main img, dialog img").count() == 0
        assert page.title() == "Discover · dgcf"
    finally:
        assert service.request("DELETE", path).is_success


def test_the_model_tab_shows_the_figures_of_the_model(tab: Open, service: Service) -> None:
    about, charts = service.get("/v1/model").json(), service.get("/v1/model/charts").json()
    shown = tab()
    page = shown.open("#/model")
    expect(page.locator(".mask")).to_have_text("Measured on validation pairs; training items are not ranked")
    density = 100 * about["pairs"] / (about["users"] * about["items"])
    expect(page.locator(".facts")).to_contain_text(f"{density:.2f}% of all users × items")
    tiles = page.locator(".metric strong")
    expect(tiles).to_have_count(len(about["metrics"]))
    assert tiles.first.inner_text() == f"{next(iter(about['metrics'].values())):.4f}"
    page.locator("figure svg .line").first.wait_for()

    bins = [bin for bin in charts["gates"]["bins"] if bin["side"] == "user"]
    assert len(bins) > 8
    gates = page.locator("figure", has=page.get_by_role("heading", name="Gates of users against degree"))
    assert gates.locator("circle.dot").count() == len(bins)
    gates.locator("summary").click()
    first = f"{bins[0]['mean']:.3f} ({bins[0]['low']:.3f} to {bins[0]['high']:.3f})"
    expect(gates.locator("tbody td").first).to_have_text(first)
    gaps = page.locator("figure", has=page.get_by_role("heading", name="Oscillation gap"))
    assert gaps.locator("path.line").count() == len(charts["oscillation"]["gaps"]) == 2
    loss = page.locator("figure", has=page.get_by_role("heading", name="Training loss"))
    loss.locator("summary").click()
    expect(loss.locator(".marker-label")).to_have_text(f"best: {charts['loss']['best']}")
    expect(loss.locator("tbody td")).to_have_text([f"{row['loss']:.4f}" for row in charts["loss"]["epochs"]])
    expect(page.locator(".weight-name")).to_contain_text([part["name"][:4] for part in charts["blend"]["parts"]])
    expect(page.locator(".settings")).to_contain_text("blend_weights")
    expect(page.locator(".origin")).to_contain_text(about["sha256"])


def test_a_model_without_metrics_says_that_it_was_not_measured(tab: Open, service: Service) -> None:
    about = {**service.get("/v1/model").json(), "metrics": {}, "mask": None}
    shown = tab()
    charts = service.get("/v1/model/charts").json()
    charts["loss"]["epochs"] = [{**row, "metric": None} for row in charts["loss"]["epochs"]]
    shown.page.route("**/v1/model", lambda route: route.fulfill(json=about))
    shown.page.route("**/v1/model/charts", lambda route: route.fulfill(json=charts))
    page = shown.open("#/model")
    expect(page.locator(".metrics")).to_contain_text("has not been measured")
    expect(page.locator(".metric, .mask")).to_have_count(0)
    page.get_by_role("heading", name="Training loss").wait_for()
    expect(page.locator(".marker-label")).to_have_count(0)
    expect(page.get_by_role("heading", name="Validation")).to_have_count(0)
    assert shown.violations() == []


def test_a_link_leads_to_the_routes(tab: Open, service: Service) -> None:
    page = tab().open("#/model")
    page.get_by_role("link", name="API").click()
    expect(page).to_have_url(f"{service.url}/docs")
    expect(page.get_by_text("/v1/recommend/{user}").first).to_be_visible()


def test_the_operations_tab_follows_the_service_while_it_is_seen(tab: Open, service: Service) -> None:
    shown = tab()
    requests: list[str] = []
    shown.page.on("request", lambda request: note(request, requests))
    shown.page.clock.install()
    page = shown.open("#/operations")
    routes = page.locator(".routes tbody tr")
    routes.first.wait_for()
    answer = service.get("/v1/operations").json()
    assert {row["route"] for row in answer["requests"]["by_route"]} >= set(routes.locator("th").all_inner_texts())
    fact = page.locator(".fact", has_text=re.compile("^Workers"))
    expect(fact.locator("dd")).to_contain_text("1 of 1 ready")
    assert page.locator("figure svg[role=img]").count() == 2

    wait_for(lambda: len(requests) == 1)
    page.clock.run_for(5_500)
    wait_for(lambda: len(requests) == 2)
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.clock.run_for(30_000)
    assert len(requests) == 2
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    wait_for(lambda: len(requests) == 3)
    shown.button("Pause").click()
    page.clock.run_for(30_000)
    assert len(requests) == 3
    shown.button("Resume").click()
    wait_for(lambda: len(requests) == 4)


def note(request: Request, requests: list[str]) -> None:
    if request.url.endswith("/v1/operations"):
        requests.append(request.url)


@pytest.mark.parametrize("size", [pytest.param(PHONE, marks=pytest.mark.slow), DESKTOP], ids=["390", "1440"])
def test_axe_finds_nothing(tab: Open, service: Service, size: tuple[int, int]) -> None:
    one, two, three = (row["item"] for row in popular(service, 3))
    shown = tab(size)
    violations: dict[str, list[str]] = {}
    ready = {
        "": ".suggestion",
        f"#/discover?like={one}&like={two}&less={three}": ".row",
        f"#/discover?like={one}&item={two}&view=why": ".total",
        "#/user": ".state",
        "#/user?id=u00007": ".row",
        "#/model": ".weight",
        "#/operations": ".routes td",
    }
    for address, selector in ready.items():
        page = shown.open(address)
        page.locator(selector).first.wait_for()
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        violations[address] = shown.violations()
        assert shown.overflow() <= 0, address
    page = shown.open()
    page.locator(".suggestion").first.click()
    shown.titles()
    page.locator("[data-act=like]").first.click()
    page.locator(".toast").wait_for()
    shown.search("the").first.wait_for()
    violations["toast and options"] = shown.violations()
    assert violations == {view: [] for view in violations}, json.dumps(violations, indent=1)
