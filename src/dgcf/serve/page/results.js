// The list of recommendations: rank, title, reasons, a bar of the score and what can be done with each.

import { fill, h, icon } from "./dom.js";
import { learn, short, titleOf } from "./format.js";
import { bar, completed, legend, partName, reasonList, scaleOf } from "./reasons.js";

const MOVE = 320;

/** A list that remembers what it showed, so that a change is seen: new rows, rows that moved. */
export class Results {
  /** `acts`: `{icon, label(title), run(row)}` for each button of a row; `explain(row)`, `open(row)`: the bar and the title. */
  constructor({ acts, explain, open }) {
    Object.assign(this, { acts, explain, open });
    this.element = h("div", { class: "results" });
    this.ranks = null;
  }

  /** Show an answer; `compare`: whether rows say how they moved since the answer before. */
  show(rows, { compare = false } = {}) {
    const before = compare ? this.ranks : null;
    const places = positions(this.element);
    const focus = focusIn(this.element);
    for (const row of rows) learn(row.item, row.title);
    const bars = rows.map((row) => completed(row.reasons ?? [], row.score));
    const scale = scaleOf(bars);
    const explained = bars.some((parts) => parts.length);
    fill(
      this.element,
      explained && legend(bars),
      h("ol", { class: explained ? "rows" : "rows bare" }, rows.map((row) => this.row(row, scale, before))),
    );
    this.ranks = new Map(rows.map((row) => [String(row.item), row.rank]));
    refocus(this.element, focus);
    animate(this.element, places);
  }

  /** Stand in `out` between two elements or none; the list itself stays where it is, and keeps the focus. */
  into(out, before, after) {
    for (const child of [...out.childNodes]) if (child !== this.element) child.remove();
    if (this.element.parentNode !== out) out.append(this.element);
    if (before) this.element.before(before);
    if (after) this.element.after(after);
  }

  /** Forget what was shown, for another user. */
  forget() {
    this.ranks = null;
    fill(this.element);
  }

  row(row, scale, before) {
    const title = titleOf(row.item, row.title);
    const parts = row.reasons ?? [];
    return h(
      "li",
      { class: "row", "data-item": row.item },
      h("span", { class: "rank" }, row.rank),
      h(
        "div",
        { class: "row-body" },
        h("div", { class: "row-title" }, h("button", { type: "button", class: "title-button", on: { click: () => this.open(row) } }, title), moved(row, before)),
        parts.length ? reasonList(parts, row.score) : row.why && h("p", { class: "why" }, without(row.why, `${title}: `)),
      ),
      parts.length ? this.meter(row, parts, scale, title) : null,
      h(
        "div",
        { class: "row-acts" },
        this.acts.map((act) => h("button", { type: "button", class: "icon-button", "data-act": act.icon, title: act.label(title), "aria-label": act.label(title), on: { click: () => act.run(row) } }, icon(act.icon))),
      ),
    );
  }

  meter(row, parts, scale, title) {
    const spoken = [...parts].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 3);
    const label = `Explain ${title}: score ${short(row.score)}, of ${spoken.map((part) => `${partName(part)} ${short(part.value)}`).join(", ")}`;
    return h(
      "button",
      { type: "button", class: "meter", "aria-label": label, title: "Explain the score", on: { click: () => this.explain(row) } },
      bar(completed(parts, row.score), scale),
      h("span", { class: "score" }, short(row.score)),
    );
  }
}

function without(text, start) {
  return text.startsWith(start) ? text.slice(start.length) : text;
}

function moved(row, before) {
  if (before === null) return null;
  const rank = before.get(String(row.item));
  if (rank === undefined) return h("span", { class: "moved new" }, "new");
  if (rank === row.rank) return null;
  const up = rank > row.rank;
  const by = Math.abs(rank - row.rank);
  return h(
    "span",
    { class: `moved ${up ? "up" : "down"}` },
    h("span", { "aria-hidden": "true" }, `${up ? "↑" : "↓"}${by}`),
    h("span", { class: "unseen" }, `${up ? "up" : "down"} ${by} ${by === 1 ? "place" : "places"}`),
  );
}

/** Return which button of which row has the focus, or null. */
function focusIn(element) {
  const row = document.activeElement?.closest(".row");
  if (!row || !element.contains(row)) return null;
  return { item: row.dataset.item, place: [...row.parentNode.children].indexOf(row), button: [...row.querySelectorAll("button")].indexOf(document.activeElement) };
}

/** Give the focus back to the same row, or to what stands in its place. */
function refocus(element, focus) {
  if (focus === null) return;
  const rows = [...element.querySelectorAll(".row")];
  const row = rows.find((one) => one.dataset.item === focus.item) ?? rows[Math.min(focus.place, rows.length - 1)];
  row?.querySelectorAll("button")[focus.button]?.focus({ preventScroll: true });
}

function positions(element) {
  return new Map([...element.querySelectorAll(".row")].map((row) => [row.dataset.item, row.getBoundingClientRect().top]));
}

function animate(element, places) {
  if (!places.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const row of element.querySelectorAll(".row")) {
    const from = places.get(row.dataset.item);
    const by = from === undefined ? 0 : from - row.getBoundingClientRect().top;
    if (from === undefined) row.animate([{ opacity: 0 }, { opacity: 1 }], { duration: MOVE, easing: "ease-out" });
    else if (by) row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], { duration: MOVE, easing: "cubic-bezier(.2,.8,.2,1)" });
  }
}
