// The panel of one item: why it is recommended, split over its sources, and what resembles it.

import { get, path, post, replaced } from "./api.js";
import { fill, h, icon, newId } from "./dom.js";
import { counted, learn, short, titleOf } from "./format.js";
import { empty, failed, notesOf, say, settle, skeleton } from "./feedback.js";
import { KINDS, bar, kindName, partName, scaleOf, shareOf, swatch, toneOfKind } from "./reasons.js";
import { address, change } from "./route.js";

const TOP = 8;
const SIMILAR = 12;

/** A dialog at the side. `source()` says for whom a score is explained; `acts` are as in a list of results. */
export class Panel {
  constructor({ source, acts }) {
    Object.assign(this, { source, acts });
    Object.assign(this, { request: null, shown: null, item: null, origin: null });
    this.heading = h("h2", { id: newId("panel"), class: "panel-title", tabindex: -1 });
    this.facts = h("p", { class: "muted panel-facts" });
    this.buttons = h("div", { class: "panel-acts" });
    this.views = h("div", { class: "segments", role: "group", "aria-label": "What to show of this item" });
    this.body = h("div", { class: "panel-body" });
    const close = () => change({ item: null, view: null });
    this.element = h(
      "dialog",
      { class: "panel", "aria-labelledby": this.heading.id },
      h("div", { class: "panel-head" }, this.heading, h("button", { type: "button", class: "icon-button", "aria-label": "Close", on: { click: close } }, icon("close"))),
      this.facts,
      this.buttons,
      this.views,
      this.body,
    );
    this.element.addEventListener("cancel", (event) => {
      event.preventDefault();
      close();
    });
    this.element.addEventListener("close", () => this.item !== null && close()); // by the browser, without a cancel event
    this.element.addEventListener("click", (event) => event.target === this.element && close());
  }

  /** Show what the address names, or close. */
  update(params) {
    const item = params.get("item");
    if (item === null) {
      this.close();
      return;
    }
    const view = params.get("view") === "similar" ? "similar" : "why";
    const key = JSON.stringify([item, view, this.source()]);
    if (!this.element.open) this.show();
    if (key === this.shown) return;
    const other = this.item !== item;
    this.shown = key;
    this.item = item;
    this.draw(item, view, other);
  }

  close() {
    this.request?.abort();
    this.shown = null;
    this.item = null;
    if (!this.element.open) return;
    this.element.close();
    settle();
    if (this.origin?.isConnected) this.origin.focus();
  }

  show() {
    this.origin = document.activeElement;
    this.element.showModal();
    this.heading.focus();
    settle();
  }

  draw(item, view, other) {
    this.request?.abort();
    this.request = new AbortController();
    const segment = (name, label) => h("button", { type: "button", "aria-pressed": String(view === name), on: { click: () => change({ view: name }, { replace: true }) } }, label);
    const focused = this.views.contains(document.activeElement);
    fill(this.views, segment("why", "Why this"), segment("similar", "Similar items"));
    if (focused) this.views.querySelector("[aria-pressed=true]").focus();
    this.heading.textContent = titleOf(item);
    if (other) {
      fill(this.facts, `id ${item}`);
      this.element.scrollTop = 0;
    }
    this.drawActs(item);
    this.about(item, this.request.signal);
    this.load(() => (view === "why" ? this.explain(item) : this.similar(item)));
  }

  drawActs(item) {
    const row = { item, title: titleOf(item) };
    fill(this.buttons, this.acts.map((act) => h("button", { type: "button", class: "secondary", on: { click: () => act.run(row) } }, icon(act.icon), act.word)));
  }

  async about(item, signal) {
    try {
      const about = await get(path("items", item), {}, { signal });
      if (signal.aborted) return;
      learn(item, about.title);
      this.heading.textContent = titleOf(item, about.title);
      fill(this.facts, `id ${item}`, " · ", `${counted(about.users ?? 0, "user")} in training`, attributes(about.attributes));
    } catch {
      // The body says what failed.
    }
  }

  async load(draw) {
    const { signal } = this.request;
    this.body.setAttribute("aria-busy", "true");
    fill(this.body, skeleton("bones-lines", 6));
    try {
      const content = await draw();
      if (signal.aborted) return;
      fill(this.body, content);
    } catch (error) {
      if (replaced(error) || signal.aborted) return;
      fill(this.body, failed(error, () => this.load(draw)));
    }
    this.body.removeAttribute("aria-busy");
  }

  async explain(item) {
    const options = { signal: this.request.signal };
    const { user, items, negative } = this.source();
    if (user === undefined && !items.length && !negative.length) {
      return empty("Nothing to explain yet", "A score is made of what you like. Pick something first, or look at similar items.");
    }
    const answer = user !== undefined
      ? await get(path("explain", user, item), { top: TOP }, options)
      : await post("explain", { items, negative, item, top: TOP }, options);
    return explanation(answer);
  }

  async similar(item) {
    const answer = await get(path("similar", "items", item), { k: SIMILAR }, { signal: this.request.signal });
    const best = Math.max(...answer.similar.map((row) => row.score), 0) || 1;
    for (const row of answer.similar) learn(row.item, row.title);
    say(`${counted(answer.similar.length, "item")} similar to ${titleOf(item)}.`);
    if (!answer.similar.length) return empty("Nothing resembles this item", "No other item shares enough users with it.");
    return [
      notesOf(answer.notes),
      h("ol", { class: "similar" }, answer.similar.map((row) => similarRow(row, best))),
      h("p", { class: "fine" }, "Follow one to go on from there. Back leads to where you came from."),
    ];
  }
}

function attributes(values) {
  return Object.entries(values ?? {}).map(([name, value]) => ` · ${name}: ${value}`);
}

function similarRow(row, best) {
  const follow = () => change({ item: String(row.item), view: "similar" });
  const part = [{ kind: "item", id: row.item, title: row.title, value: Math.max(row.score, 0) }];
  return h(
    "li",
    {},
    h(
      "button",
      { type: "button", class: "similar-row", on: { click: follow } },
      h("span", { class: "similar-title" }, titleOf(row.item, row.title)),
      bar(part, { low: 0, high: best }, toneOfKind),
      h("span", { class: "score" }, short(row.score)),
    ),
  );
}

/** Return an explanation: a sentence, the sum by kind, each part, and the share of each layer. */
function explanation(answer) {
  const byKind = Object.keys(KINDS).map((kind) => ({ kind, id: null, title: kindName(kind), value: answer.by_kind?.[kind] ?? 0 })).filter((part) => part.value !== 0);
  const scale = scaleOf(answer.parts.map((part) => [part]));
  say(answer.text);
  return [
    h("p", { class: "sentence" }, answer.text),
    h("div", { class: "total" }, h("span", { class: "total-label" }, "Score"), bar(byKind, scaleOf([byKind]), toneOfKind), h("strong", { class: "score" }, short(answer.score))),
    byKind.map((sum) => group(sum, answer, scale)),
    layers(answer.by_layer),
    h("p", { class: "fine" }, `The parts add up to the score; rounding leaves ${residual(answer)}.`),
  ];
}

function residual({ residual: value, score }) {
  return Math.abs(value ?? 0) <= 1e-6 * Math.abs(score) ? "nothing" : short(value);
}

function group(sum, answer, scale) {
  const parts = answer.parts.filter((part) => part.kind === sum.kind && part.value !== 0);
  const share = shareOf(sum, answer.score);
  return h(
    "section",
    { class: "parts" },
    h("h3", {}, swatch(toneOfKind(sum)), kindName(sum.kind), h("span", { class: "sum" }, share ? `${short(sum.value)}, ${share}` : short(sum.value))),
    h("p", { class: "fine" }, KINDS[sum.kind][1]),
    h("ul", {}, parts.map((part) => partRow(part, scale))),
  );
}

function partRow(part, scale) {
  return h("li", { class: part.id === null ? "part rest" : "part" }, h("span", { class: "part-name" }, partLabel(part)), bar([part], scale, toneOfKind), h("span", { class: "score" }, short(part.value)));
}

function partLabel(part) {
  if (part.id === null || part.id === undefined) return part.title;
  if (part.kind === "user") return h("a", { href: address("user", { id: part.id }) }, `User ${partName(part)}`);
  const follow = () => change({ item: String(part.id), view: "similar" });
  return h("button", { type: "button", class: "link", on: { click: follow } }, partName(part));
}

function layers(values) {
  if (!values || values.length < 2) return null;
  const parts = values.map((value) => [{ kind: "item", id: null, title: "", value }]);
  const scale = scaleOf(parts);
  const name = (layer) => (layer === 0 ? "Without the graph" : layer === 1 ? "1 step" : `${layer} steps`);
  return h(
    "section",
    { class: "parts" },
    h("h3", {}, "By distance in the graph"),
    h("ul", {}, values.map((value, layer) => h("li", { class: "part" }, h("span", { class: "part-name" }, name(layer)), bar(parts[layer], scale), h("span", { class: "score" }, short(value))))),
  );
}
