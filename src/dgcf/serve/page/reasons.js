// The parts of a score: their kinds, a bar of them and a legend.

import { h, s } from "./dom.js";
import { percent, short, titleOf } from "./format.js";

/** The kinds of parts in the order of a bar, with the name of each and a sentence on it. */
export const KINDS = {
  weights: ["Your items, by item weights", "What goes with your items in the training data, without the graph."],
  item: ["Your items", "What your items pass on through the graph."],
  user: ["Similar users", "What users with the same taste pass on through the graph."],
  prior: ["Prior", "What rests on none of your items: what the model has learned of this user, and how popular the item is."],
  negative: ["Less like this", "What you want less of lowers what resembles it, and raises what is unlike it."],
  other: ["All else", "The smaller parts together."],
};

/** An item to avoid that raises the score has a colour of its own, since it is no penalty. */
const UNLIKE = "unlike";
const { other, ...named } = Object.fromEntries(Object.entries(KINDS).map(([kind, [name]]) => [kind, name]));
const TONES = { ...named, [UNLIKE]: "Unlike what you want less of", other };
const COLOURS = 6;
let picks = [];

/** Give each of a few items a colour of its own in all bars; many share one. */
export function colourPicks(items) {
  picks = items.length <= COLOURS ? items : [];
}

/** Return the class that colours a part. */
export function toneOf(part) {
  const pick = part.kind === "item" || part.kind === "weights" ? picks.indexOf(String(part.id)) : -1;
  return pick < 0 ? toneOfKind(part) : `pick-${pick}`;
}

/** Return the class that colours a part by its kind alone. */
export function toneOfKind(part) {
  return part.kind === "negative" && part.value > 0 ? UNLIKE : part.kind;
}

/** Return the share of a part in a score; where the sign matters, a word says it. */
export function shareOf(part, score) {
  const word = part.value < 0 ? "lowers" : part.kind === "negative" ? "raises" : "";
  if (!(score > 0)) return word;
  const share = percent(Math.abs(part.value) / score);
  return word ? `${word} by ${share}` : share;
}

/** Return the name of a kind as it is said in one word. */
export function kindName(kind) {
  return KINDS[kind]?.[0] ?? kind;
}

/** Return the name of a part. */
export function partName(part) {
  return part.id === null || part.id === undefined ? part.title || kindName(part.kind) : titleOf(part.id, part.title);
}

/** Return parts in the order of a bar: by kind and pick, the largest first; parts without a kind come last. */
export function ordered(parts) {
  const order = Object.keys(KINDS);
  const place = (part) => (order.indexOf(part.kind) + order.length + 1) % (order.length + 1);
  const pick = (part) => picks.indexOf(String(part.id));
  return [...parts].sort((a, b) => place(a) - place(b) || pick(a) - pick(b) || Math.abs(b.value) - Math.abs(a.value));
}

/** Return the parts of a recommendation, with what is missing to its score as one more; parts of nothing are left out. */
export function completed(parts, score) {
  const rest = score - parts.reduce((total, part) => total + part.value, 0);
  const known = parts.filter((part) => part.value !== 0);
  if (!known.length || Math.abs(rest) < 1e-3 * Math.abs(score)) return known;
  return [...known, { kind: "other", id: null, title: kindName("other"), value: rest }];
}

/** Return where a scale that holds all these bars begins and ends. */
export function scaleOf(bars) {
  const ends = bars.map((parts) => [sum(parts, (value) => value < 0), sum(parts, (value) => value > 0)]);
  const low = Math.min(0, ...ends.map((end) => end[0]));
  const high = Math.max(0, ...ends.map((end) => end[1]));
  return high > low ? { low, high } : { low: 0, high: 1 };
}

function sum(parts, wanted) {
  return parts.reduce((total, part) => (wanted(part.value) ? total + part.value : total), 0);
}

/** Return a bar with a piece for each part, to the right of zero what raises the score, to the left what lowers it. */
export function bar(parts, scale, tone = toneOf) {
  const width = scale.high - scale.low;
  const at = (value) => (100 * (value - scale.low)) / width;
  const ends = { up: 0, down: 0 };
  const pieces = ordered(parts).map((part, index) => {
    const side = part.value < 0 ? "down" : "up";
    const [from, to] = [ends[side], ends[side] + part.value];
    ends[side] = to;
    const x = at(Math.min(from, to));
    const size = Math.max(0, at(Math.max(from, to)) - x);
    return s(
      "rect",
      { class: `piece ${tone(part)} ${index % 2 ? "odd" : "even"}`, x: `${x.toFixed(3)}%`, y: 0, width: `${size.toFixed(3)}%`, height: "100%" },
      s("title", {}, `${partName(part)}: ${short(part.value)}`),
    );
  });
  const zero = scale.low < 0 ? s("line", { class: "zero", x1: `${at(0)}%`, x2: `${at(0)}%`, y1: 0, y2: "100%" }) : null;
  return s("svg", { class: "bar", "aria-hidden": "true", focusable: "false" }, pieces, zero);
}

/** Return a swatch in the colour of a class. */
export function swatch(tone) {
  return h("span", { class: `swatch ${tone}`, "aria-hidden": "true" });
}

/** Return the names of the kinds that occur in the bars; picks are named beside each bar. */
export function legend(bars) {
  const present = new Set(bars.flat().filter((part) => part.value !== 0).map(toneOf));
  const tones = Object.keys(TONES).filter((tone) => present.has(tone));
  if (!tones.length) return null;
  return h("ul", { class: "legend", "aria-label": "Colours of the bars" }, tones.map((tone) => h("li", {}, swatch(tone), TONES[tone])));
}

/** Return the largest reasons in words: a swatch, a name and a share of the score. */
export function reasonList(parts, score, most = 3) {
  const merged = new Map();
  for (const part of parts.filter((one) => one.value !== 0)) {
    const own = part.kind === "weights" ? "item" : part.kind;
    const key = own === "user" ? "user" : JSON.stringify([own, part.id, part.id === null ? part.title : null]);
    const known = merged.get(key);
    if (known) known.value += part.value;
    else merged.set(key, { ...part, kind: own, value: part.value, name: own === "user" ? part.title ?? "similar users" : partName(part) });
  }
  const shown = [...merged.values()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, most);
  return h(
    "ul",
    { class: "reasons" },
    shown.map((part) =>
      h("li", {}, swatch(toneOf(part)), h("span", { class: "reason-name", title: part.name }, part.name), h("span", { class: "reason-share" }, shareOf(part, score))),
    ),
  );
}
