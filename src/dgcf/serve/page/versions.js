// The versions of the model: which one is served, how each came, its model card, and the way back to it.

import { fill, h } from "./dom.js";
import { count, metric, moment, short } from "./format.js";

const ORIGINS = { start: "with the start", reload: "by a reload", refresh: "by a refresh", forget: "by forgetting users" };
const MAIN = "main";

export class Versions {
  /** `rollBack(row)`: serves a version again, after a question. */
  constructor(rollBack) {
    Object.assign(this, { rollBack, open: new Set() });
    this.heading = h("h2", { id: "versions-title", tabindex: -1 }, "Versions of the model");
    this.acts = h("div", {});
    this.list = h("ul", { class: "versions" });
    this.element = h("section", { class: "card", "aria-labelledby": "versions-title" }, h("div", { class: "chart-head" }, this.heading, this.acts), this.list);
  }

  /** `shadows`: the arms whose lists nobody sees. */
  update(models, shadows) {
    this.shadows = shadows;
    const rows = [...models].sort((a, b) => b.version - a.version);
    const focused = this.element.contains(document.activeElement);
    const before = beforeServed(rows);
    const served = servedIn(rows);
    fill(this.acts, before && this.button("Roll back", before, "secondary small", `Roll back to v${before.version}, the version before`));
    fill(this.list, rows.map((row) => this.row(row, rows, served)));
    if (focused && !this.element.contains(document.activeElement)) this.heading.focus({ preventScroll: true });
  }

  button(text, row, tone, label) {
    return h("button", { type: "button", class: tone, "aria-label": label, on: { click: () => this.rollBack(row) } }, text);
  }

  row(row, rows, served) {
    const arm = armOf(row);
    const [name, value] = mainMetric(row.card);
    const back = row.available && !arm && row.sha256 !== served?.sha256;
    return h(
      "li",
      { class: "version-row", "data-version": row.version },
      h("div", { class: "version-name" }, h("strong", {}, `v${row.version}`), this.badge(row, arm)),
      h("div", { class: "version-how" }, moment(row.published), h("small", { class: "muted" }, originOf(row, rows))),
      h("div", { class: "version-how" }, value === null ? "–" : metric(value), h("small", { class: "muted" }, name)),
      h("div", { class: "version-act" }, back ? this.button("Serve again", row, "plain small", `Serve v${row.version} again`) : !row.available && h("small", { class: "muted" }, "File deleted")),
      this.card(row, rows),
    );
  }

  badge(row, arm) {
    const name = arm === null ? "Served" : `${this.shadows.includes(arm) ? "Shadow" : "Arm"} ${arm}`;
    return (row.serving || arm !== null) && h("span", { class: row.serving ? "badge" : "badge popular" }, name);
  }

  card(row, rows) {
    const details = h("details", { class: "as-table", open: this.open.has(row.version) }, h("summary", {}, "Model card", h("span", { class: "unseen" }, ` of v${row.version}`)), cardOf(row, rows));
    details.addEventListener("toggle", () => (details.open ? this.open.add(row.version) : this.open.delete(row.version)));
    return details;
  }
}

/** Return the version that the service rolls back to: another model, published before the served one, as its route does. */
function beforeServed(rows) {
  const loaded = rows.filter((row) => row.origin !== "rollback" && armOf(row) === null);
  const served = servedIn(rows);
  const place = loaded.findIndex((row) => row.sha256 === served?.sha256);
  const before = place < 0 ? null : loaded.slice(place).find((row) => row.sha256 !== served.sha256);
  return before?.available ? before : null;
}

function servedIn(rows) {
  return rows.find((row) => row.serving && armOf(row) === null);
}

function armOf(row) {
  return row.arm && row.arm !== MAIN ? row.arm : null;
}

/** Return how a version came. */
function originOf(row, rows) {
  if (row.origin !== "rollback") return ORIGINS[row.origin] ?? row.origin ?? "";
  const same = rows.findLast((one) => one.sha256 === row.sha256);
  return `by a roll-back to v${same.version}`;
}

/** Return name and value of what tells best how good a version is: the check of its refresh, or its first metric. */
function mainMetric(card) {
  const check = card?.refresh?.check;
  if (check) return [`ndcg@${check.k} on new events, ${metric(check.served)} before`, check.candidate];
  const values = Object.entries(card?.metrics?.[0]?.values ?? {});
  const [name, value] = values.find(([one]) => one.startsWith("ndcg")) ?? values[0] ?? ["not measured", null];
  return [name, value];
}

function cardOf(row, rows) {
  const { card } = row;
  if (!card) return h("p", { class: "muted" }, "This version has no card: it was published by an older version of dgcf.");
  const { data, updated_from: parent } = card;
  const origin = {
    Model: [card.model, card.preset && `preset ${card.preset}`].filter(Boolean).join(", "),
    Trained: card.trained_at && moment(card.trained_at),
    Data: data.name,
    "Training pairs": `${count(data.pairs)}, ${count(data.users)} users, ${count(data.items)} items`,
    "Data window": data.window && `${moment(data.window.first)} to ${moment(data.window.last)}`,
    Split: data.split && wordsOf(data.split),
    "Updated from": parent && `${parentOf(parent, rows)}, ${count(parent.new_pairs)} new pairs, ${count(parent.new_users)} new users, ${count(parent.new_items)} new items`,
    Refresh: card.refresh && `${count(card.refresh.new_pairs)} new pairs of ${count(card.refresh.events)} events, in ${short(card.refresh.seconds)} s`,
    Check: card.refresh?.check && checkOf(card.refresh.check),
    dgcf: card.dgcf,
    Fingerprint: data.fingerprint,
    "Artefact SHA-256": row.sha256,
  };
  const known = Object.entries(origin).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const pair = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: String(value).length > 40 && !String(value).includes(" ") ? "code" : "" }, String(value)));
  return h("div", { class: "version-card" }, h("dl", { class: "origin" }, known.map(pair)), (card.metrics ?? []).map(measurement), h("dl", { class: "settings" }, Object.entries(card.settings ?? {}).map(pair)));
}

/** Return the comparison of a refresh with the version before as text. */
function checkOf({ users, pairs, served, candidate, interval, k }) {
  const [low, high] = interval.map(metric);
  return `${count(pairs)} newest pairs of ${count(users)} users: ndcg@${k} ${metric(candidate)}, of the version before ${metric(served)} (95% interval of the difference ${low} to ${high})`;
}

/** Return the version that an update continued, or the name of its file or run. */
function parentOf(parent, rows) {
  const known = rows.findLast((row) => `${row.sha256}.dgcf` === parent.name);
  return known ? `v${known.version}` : (parent.name ?? "a model");
}

function measurement(one) {
  const users = one.users === null || one.users === undefined ? "" : `, ${count(one.users)} users`;
  const cells = Object.entries(one.values).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, metric(value))));
  return [h("p", { class: "fine" }, `Metrics on ${one.split}, ${one.mask} items not ranked${users}`), h("dl", { class: "origin values" }, cells)];
}

function wordsOf(value) {
  return typeof value === "object" ? Object.entries(value).map(([name, one]) => `${name} ${typeof one === "object" ? JSON.stringify(one) : one}`).join(", ") : String(value);
}
