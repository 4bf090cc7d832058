// Discover: what a new user likes, what it leads to, and why.

import { get, post, replaced } from "./api.js";
import { itemSearch } from "./combobox.js";
import { fill, h, icon } from "./dom.js";
import { counted, learn, milliseconds, titleOf } from "./format.js";
import { empty, failed, notesOf, say, skeleton, toast } from "./feedback.js";
import { Panel } from "./panel.js";
import { colourPicks, swatch, toneOf } from "./reasons.js";
import { Results } from "./results.js";
import { change } from "./route.js";

const K = 20;
const SUGGESTED = 12;

/** Fill `root` and return the view. */
export function discover(root) {
  return new Discover(root);
}

class Discover {
  constructor(root) {
    this.likes = [];
    this.less = [];
    this.request = null;
    this.key = null;
    const acts = [
      { icon: "like", word: "Like", label: (title) => `Like ${title}`, run: (row) => this.put("like", row) },
      { icon: "less", word: "Less like this", label: (title) => `Less like ${title}`, run: (row) => this.put("less", row) },
    ];
    const similar = { icon: "similar", label: (title) => `Similar to ${title}`, run: (row) => this.show(row, "similar") };
    this.results = new Results({ acts: [...acts, similar], explain: (row) => this.show(row, "why"), open: (row) => this.show(row, "why") });
    this.panel = new Panel({ source: () => ({ items: this.likes, negative: this.less }), acts });
    this.build(root);
  }

  build(root) {
    const taken = () => new Set([...this.likes, ...this.less]);
    const field = (name, label, placeholder) =>
      itemSearch({
        label, placeholder, taken, tone: name,
        pick: (item, title) => this.put(name, { item, title }, false),
        emptied: () => this.drop(name, this.chosen(name).at(-1)),
      });
    this.fields = { like: field("like", "Things you like", "Search a title"), less: field("less", "Less like this", "Optional") };
    this.chips = { like: h("ul", { class: "chips" }), less: h("ul", { class: "chips" }) };
    this.clear = h("button", { type: "button", class: "plain small", on: { click: () => this.startOver() } }, "Start over");
    this.status = h("p", { class: "muted status" });
    this.out = h("div", { class: "out" });
    fill(
      root,
      h(
        "div",
        { class: "split" },
        h(
          "section",
          { class: "side", "aria-label": "Your taste" },
          h("h1", { tabindex: -1 }, "Discover"),
          h("p", { class: "lede" }, "Pick a few things you like. The model needs no account, and it says what each recommendation rests on."),
          this.fields.like.element,
          this.chips.like,
          this.fields.less.element,
          this.chips.less,
          this.clear,
        ),
        h("section", { class: "main", "aria-label": "Recommendations" }, h("div", { class: "main-head" }, h("h2", {}, "Recommendations"), this.status), this.out),
      ),
      this.panel.element,
    );
  }

  update(params) {
    this.likes = distinct(params.getAll("like"));
    this.less = distinct(params.getAll("less")).filter((item) => !this.likes.includes(item));
    colourPicks(this.likes);
    const key = JSON.stringify([this.likes, this.less]);
    if (key !== this.key) {
      const compare = this.key !== null && this.likes.length + this.less.length > 0;
      this.key = key;
      this.drawChips();
      this.load(compare);
    }
    this.panel.update(params);
  }

  stop() {
    this.request?.abort();
    this.panel.close();
    colourPicks([]);
  }

  chosen(name) {
    return name === "like" ? this.likes : this.less;
  }

  put(name, row, undoable = true) {
    const item = String(row.item);
    const title = titleOf(item, row.title);
    learn(item, row.title);
    const before = { like: this.likes, less: this.less };
    const rest = (from) => from.filter((other) => other !== item);
    const next = { like: rest(this.likes), less: rest(this.less) };
    next[name].push(item);
    change({ ...next, item: null, view: null });
    const text = name === "like" ? `You like ${title}.` : `Less like ${title}.`;
    if (undoable) toast(text, { label: "Undo", run: () => change(before) });
    else say(text);
  }

  drop(name, item) {
    if (item === undefined) return;
    change({ [name]: this.chosen(name).filter((other) => other !== item) });
    say(`${titleOf(item)} removed.`);
    this.fields[name].input.focus();
  }

  startOver() {
    const before = { like: this.likes, less: this.less };
    change({ like: null, less: null, item: null, view: null });
    toast("Started over.", { label: "Undo", run: () => change(before) });
    this.fields.like.input.focus();
  }

  show(row, view) {
    change({ item: String(row.item), view });
  }

  drawChips() {
    for (const [name, items] of [["like", this.likes], ["less", this.less]]) {
      fill(this.chips[name], items.map((item) => this.chip(name, item)));
      this.chips[name].hidden = !items.length;
    }
    this.clear.hidden = !this.likes.length && !this.less.length;
  }

  chip(name, item) {
    const title = titleOf(item);
    const drop = () => this.drop(name, item);
    return h("li", { class: `chip ${name}` }, swatch(toneOf({ kind: name === "like" ? "item" : "negative", id: item })), h("span", { class: "chip-title" }, title), h("button", { type: "button", "aria-label": `Remove ${title}`, title: "Remove", on: { click: drop } }, icon("close")));
  }

  async load(compare) {
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    const some = this.likes.length + this.less.length > 0;
    this.out.setAttribute("aria-busy", "true");
    if (!this.out.contains(this.results.element) || !some) fill(this.out, skeleton(some ? "bones-rows" : "bones-cards", some ? 8 : 6));
    try {
      if (some) await this.recommend(signal, compare);
      else await this.suggest(signal);
    } catch (error) {
      if (replaced(error) || signal.aborted) return;
      this.status.textContent = "";
      fill(this.out, failed(error, () => this.load(false)));
    }
    this.out.removeAttribute("aria-busy");
  }

  async recommend(signal, compare) {
    const began = performance.now();
    const body = { items: this.likes, negative: this.less, k: K, why: true };
    const answer = await post("recommend", body, { signal });
    const took = performance.now() - began;
    if (signal.aborted) return;
    for (const used of [...(answer.items ?? []), ...(answer.negative ?? [])]) learn(used.item, used.title);
    this.drawChips();
    const rows = answer.recommendations;
    this.status.textContent = `${counted(rows.length, "title")} in ${milliseconds(took)}`;
    say(`${counted(rows.length, "recommendation")} from ${counted(this.likes.length, "thing")} you like.`);
    const none = !rows.length && empty("Nothing left to recommend", "All items are excluded. Remove one of your choices.");
    this.results.into(this.out, notesOf(answer.notes), none);
    this.results.show(rows, { compare });
    dispatchEvent(new CustomEvent("dgcf-model", { detail: answer.model }));
  }

  async suggest(signal) {
    const answer = await get("items", { limit: SUGGESTED }, { signal });
    if (signal.aborted) return;
    this.results.forget();
    this.status.textContent = "";
    const rows = answer.items.filter((row) => !row.hidden);
    for (const row of rows) learn(row.item, row.title);
    const add = (row) => h("li", {}, h("button", { type: "button", class: "suggestion", on: { click: () => this.put("like", row, false) } }, h("span", {}, titleOf(row.item, row.title)), h("small", {}, counted(row.users ?? 0, "user"))));
    fill(this.out, empty("Start with something you know", "Search on the left, or take one of the most popular here. Two or three are enough.", h("ul", { class: "suggestions" }, rows.map(add))));
  }
}

function distinct(items) {
  return [...new Set(items)];
}
