// Model: what is served, how good it is under which mask, and what its parts have learned.

import { get, replaced } from "./api.js";
import { Chart, noChart } from "./chart.js";
import { fill, h } from "./dom.js";
import { failed, say, skeleton } from "./feedback.js";
import { count, metric, moment, short } from "./format.js";
import { ends } from "./plot.js";
import { bar } from "./reasons.js";

const METRICS = {
  recall: "Share of a user’s held-out items that are in the list",
  ndcg: "As recall, but a hit counts more the higher it ranks",
  precision: "Share of the list that are hits",
  hit: "Share of users with at least one hit",
  mrr: "Mean of 1 / rank of the first hit",
  map: "Mean precision at the ranks of the hits",
  popularity: "Mean number of users of a recommended item",
  coverage: "Share of all items that are in some list",
};
const LETTERS = ["ndcg", "mrr", "map"];

/** Fill `root` and return the view. */
export function model(root) {
  return new Model(root);
}

class Model {
  constructor(root) {
    this.request = null;
    this.lede = h("p", { class: "lede" }, "What answers the requests, how good it is, and what its parts have learned.");
    this.out = h("div", { class: "out" });
    fill(root, h("div", { class: "page" }, h("h1", { tabindex: -1 }, "Model"), this.lede, this.out));
    this.load();
  }

  update() {} // the address has no parameters

  stop() {
    this.request?.abort();
  }

  async load() {
    this.stop();
    this.request = new AbortController();
    const { signal } = this.request;
    fill(this.out, skeleton("bones-cards", 6));
    this.out.setAttribute("aria-busy", "true");
    try {
      const about = await get("model", {}, { signal });
      const charts = h("div", { class: "charts" }, skeleton("bones-charts", 4));
      fill(this.out, facts(about), metrics(about), h("h2", {}, "What it has learned"), charts, settings(about));
      say(`Model ${about.model}, version ${about.version}.`);
      dispatchEvent(new CustomEvent("dgcf-model", { detail: about.version }));
      await this.drawCharts(charts, about, signal);
    } catch (error) {
      if (replaced(error) || signal.aborted) return;
      fill(this.out, failed(error, () => this.load()));
    }
    this.out.removeAttribute("aria-busy");
  }

  async drawCharts(place, about, signal) {
    try {
      const data = await get("model/charts", {}, { signal });
      if (!signal.aborted) fill(place, gates(data.gates), oscillation(data.oscillation), loss(data.loss), blend(data.blend));
    } catch (error) {
      if (replaced(error) || signal.aborted) return;
      fill(place, failed(error, () => this.load()));
    }
  }
}

function facts(about) {
  const fact = (name, value, more) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, value, more && h("small", {}, more)));
  const trained = [about.preset && `preset ${about.preset}`, about.dataset?.name && `trained on ${about.dataset.name}`];
  return h(
    "dl",
    { class: "facts" },
    fact("Model", about.model.toUpperCase(), trained.filter(Boolean).join(", ")),
    fact("Version", `v${about.version}`, `loaded ${moment(about.loaded)}`),
    fact("Users", count(about.users)),
    fact("Items", count(about.items)),
    fact("Interactions", count(about.pairs), `${short((100 * about.pairs) / (about.users * about.items))}% of all users × items`),
  );
}

function metrics(about) {
  const rows = Object.entries(about.metrics ?? {}).filter(([, value]) => typeof value === "number");
  const content = rows.length
    ? h("ul", { class: "metric-grid" }, rows.map(([name, value]) => metricTile(name, value)))
    : h("p", { class: "muted" }, "This model has not been measured: its data held out no pairs, as after an update without any, or it was saved without metrics.");
  return h(
    "section",
    { class: "card metrics", "aria-labelledby": "metrics-title" },
    h("div", { class: "chart-head" }, h("h2", { id: "metrics-title" }, "Metrics"), rows.length > 0 && about.mask && h("p", { class: "mask" }, `Measured on ${about.mask}`)),
    content,
  );
}

function metricTile(name, value) {
  const [kind, k] = name.split("@");
  const word = LETTERS.includes(kind) ? kind.toUpperCase() : kind.charAt(0).toUpperCase() + kind.slice(1);
  const share = value <= 1 && kind !== "popularity";
  return h(
    "li",
    { class: "metric" },
    h("span", { class: "metric-name" }, word, k && h("small", {}, `@${k}`)),
    h("strong", {}, metric(value)),
    share ? bar([{ kind: "item", id: null, title: word, value }], { low: 0, high: 1 }) : h("span", { class: "bar none" }),
    h("span", { class: "fine" }, METRICS[kind] ?? ""),
  );
}

function gates(data) {
  if (!data?.bins?.length) return noChart("Gates against degree", "This model has no gates: every node takes the same share of each layer.");
  return ["user", "item"].map((side) => gateChart(side, data)).filter(Boolean);
}

function gateChart(side, data) {
  const bins = data.bins.filter((bin) => bin.side === side);
  if (!bins.length) return null;
  const named = (bin) => (bin.degree_low === bin.degree_high ? count(bin.degree_low) : `${count(bin.degree_low)}–${count(bin.degree_high)}`);
  const categories = [...new Set(bins.map(named))];
  const layers = [...new Set(bins.map((bin) => bin.layer))].sort((a, b) => a - b);
  const series = layers.map((layer) => ({
    name: `Layer ${layer}`,
    tone: `tone-${Math.min(layer, 5)}`,
    dots: true,
    points: bins.filter((bin) => bin.layer === layer).map((bin) => ({ x: categories.indexOf(named(bin)), y: bin.mean, low: bin.low, high: bin.high })),
  }));
  const [low, high] = ends(bins.flatMap((bin) => [bin.low, bin.high]));
  const means = series.map((one) => `${one.name} from ${short(one.points[0].y)} to ${short(one.points.at(-1).y)}`);
  return new Chart({ title: `Gates of ${side}s against degree` }).update({
    summary: `Mean gate from the lowest to the highest degree: ${means.join("; ")}.`,
    note: data.note,
    x: { label: `Degree (${side === "user" ? "items of a user" : "users of an item"})`, low: 0, high: categories.length - 1, categories },
    y: { label: "Gate: how much of the layer a node takes in", low: Math.max(0, low), high: Math.min(1, high), format: short, exact: (value) => value.toFixed(3) },
    series,
  }).element;
}

function oscillation(data) {
  const named = Object.entries(data?.gaps ?? {});
  if (!named.length) return noChart("Oscillation gap", "Only graph models of at most 20,000 users and items show it.");
  const own = named.length - 1;
  const series = named.map(([name, gaps], index) => ({
    name: index === own && own > 0 ? `${name} (this model)` : name,
    tone: index === own ? "tone-2" : "tone-rest",
    points: gaps.map((gap, step) => ({ x: step + 1, y: gap })),
  }));
  const all = series.flatMap((one) => one.points.map((point) => point.y));
  const text = series.map((one) => `${one.name} ends at ${short(one.points.at(-1).y)}`).join("; ");
  return new Chart({ title: "Oscillation gap" }).update({
    summary: `Gap between successive steps of a random walk: ${text}.`,
    note: `${data.note} A gap that stays is a walk that swings between users and items; cross-hop edges let it settle.`,
    x: { label: "Step of the walk", low: 1, high: Math.max(...named.map(([, gaps]) => gaps.length)), format: count, whole: true },
    y: { label: "Gap between successive steps", low: 0, high: ends(all, { zero: true })[1], format: short, exact: (value) => short(value) },
    series,
  }).element;
}

function loss(data) {
  if (!data?.epochs?.length) return noChart("Loss and validation", "Only known where the folder of a run is served; an artefact does not carry it.");
  const points = (name) => data.epochs.filter((row) => Number.isFinite(row[name])).map((row) => ({ x: row.epoch, y: row[name] }));
  const chosen = Number.isFinite(data.best) && points("metric").length > 0; // without measurements no epoch is the best
  const best = chosen ? [{ x: data.best, label: `best: ${data.best}` }] : [];
  return [
    epochChart("Training loss", "Loss", points("loss"), best),
    epochChart("Validation", data.metric.toUpperCase(), points("metric"), best),
  ];
}

function epochChart(title, label, points, markers) {
  if (!points.length) return null;
  const [low, high] = ends(points.map((point) => point.y));
  const last = points.at(-1);
  return new Chart({ title }).update({
    summary: `${label} from ${metric(points[0].y)} at epoch ${points[0].x} to ${metric(last.y)} at epoch ${last.x}.`,
    x: { label: "Epoch", low: points[0].x, high: Math.max(last.x, points[0].x + 1), format: count, whole: true },
    y: { label, low, high, format: short, exact: metric },
    series: [{ name: label, tone: "tone-2", points, dots: points.length <= 40 }],
    markers: markers.filter((marker) => marker.x >= points[0].x && marker.x <= last.x),
  }).element;
}

function blend(data) {
  if (!data?.parts?.length) return noChart("Composed ranking", "The ranking is not composed: the embeddings alone decide.");
  const high = Math.max(...data.parts.map((part) => Math.abs(part.weight)));
  const row = (part) => {
    const [name, options] = part.name.split(/\((.*)\)$/s);
    const value = { kind: part.name === "embeddings" ? "item" : "weights", id: null, title: part.name, value: Math.abs(part.weight) };
    return h("li", { class: "weight" }, h("span", { class: "weight-name" }, name, options && h("small", {}, options.replaceAll(",", ", ").replaceAll("=", " "))), bar([value], { low: 0, high }), h("span", { class: "score" }, String(Number(part.weight.toPrecision(3)))));
  };
  return h(
    "section",
    { class: "card chart weights-card", "aria-labelledby": "blend-title" },
    h("h3", { id: "blend-title" }, "Weights of the composed ranking"),
    h("ul", { class: "weight-list" }, data.parts.map(row)),
    h("p", { class: "fine" }, "A score is the sum of these parts. At weight 1, a part spreads the scores of the items as much as the embeddings do."),
  );
}

function settings(about) {
  const origin = { seed: about.seed, dgcf: about.dgcf, dataset: about.dataset?.name, "dataset fingerprint": about.dataset?.fingerprint, "artefact sha256": about.sha256 };
  const known = Object.entries(origin).filter(([, value]) => value !== null && value !== undefined);
  const pair = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: String(value).length > 40 ? "code" : "" }, String(value)));
  return h(
    "section",
    { class: "card", "aria-labelledby": "settings-title" },
    h("h2", { id: "settings-title" }, "Settings and origin"),
    h("dl", { class: "origin" }, known.map(pair)),
    h("dl", { class: "settings" }, Object.entries(about.settings ?? {}).map(pair)),
  );
}
