// Operations: requests, latency, events and workers of the service, fetched anew while the page is visible. Below them
// is what an administrator may see and do.

import { Administration } from "./admin.js";
import { get, replaced } from "./api.js";
import { Chart } from "./chart.js";
import { fill, h } from "./dom.js";
import { failed, say, skeleton } from "./feedback.js";
import { bytes, clock, count, counted, duration, milliseconds, moment, short } from "./format.js";
import { ends, logEnds } from "./plot.js";

const SECONDS = 5;

/** Fill `root` and return the view. */
export function operations(root) {
  return new Operations(root);
}

class Operations {
  constructor(root) {
    Object.assign(this, { timer: null, request: null, paused: false, stopped: false, shown: false, answered: null });
    this.state = h("p", { class: "live", role: "status" });
    this.button = h("button", { type: "button", class: "secondary small", on: { click: () => this.pause() } }, "Pause");
    this.tiles = h("dl", { class: "facts" });
    this.requests = new Chart({ title: "Requests", height: 200 });
    this.latency = new Chart({ title: "Latency", height: 200 });
    this.routes = h("tbody");
    this.statuses = h("ul", { class: "statuses" });
    this.out = h("div", { class: "out" });
    this.admin = new Administration();
    const head = h("div", { class: "page-head" }, h("div", {}, h("h1", { tabindex: -1 }, "Operations"), h("p", { class: "lede" }, "All workers together, since the start of the service.")), h("div", { class: "live-box" }, this.state, this.button));
    fill(root, h("div", { class: "page" }, head, this.out, this.admin.element));
    fill(this.out, skeleton("bones-cards", 6));
    this.seen = () => (document.hidden ? this.wait() : this.load());
    this.entered = () => (this.paused ? this.pause() : this.load());
    document.addEventListener("visibilitychange", this.seen);
    for (const name of ["dgcf-token", "dgcf-admin"]) addEventListener(name, this.entered);
    this.load();
  }

  update() {} // the address has no parameters

  stop() {
    this.stopped = true;
    this.wait();
    document.removeEventListener("visibilitychange", this.seen);
    for (const name of ["dgcf-token", "dgcf-admin"]) removeEventListener(name, this.entered);
  }

  /** Ask no more until there is a reason to. */
  wait() {
    clearTimeout(this.timer);
    this.request?.abort();
  }

  pause() {
    this.paused = !this.paused;
    this.button.textContent = this.paused ? "Resume" : "Pause";
    this.state.className = this.paused ? "live paused" : "live";
    this.state.textContent = this.paused ? "Paused" : "Live";
    if (this.paused) this.wait();
    else this.load();
  }

  async load() {
    this.wait();
    if (this.stopped || this.paused || document.hidden) return;
    this.request = new AbortController();
    const { signal } = this.request;
    try {
      const data = await get("operations", {}, { signal });
      if (signal.aborted) return;
      this.draw(data);
      this.live("live", "Live");
      await this.admin.load(signal);
      if (signal.aborted) return;
    } catch (error) {
      if (replaced(error) || signal.aborted) return;
      this.fail(error);
      if (error.status === 401 || error.status === 403) return; // only another token helps
    }
    this.timer = setTimeout(() => this.load(), SECONDS * 1000);
  }

  live(tone, text) {
    if (this.state.textContent === text) return; // said once, not with every answer
    this.state.className = tone;
    this.state.textContent = text;
  }

  fail(error) {
    if (!this.shown) fill(this.out, failed(error, () => this.load()));
    else this.live("live bad", `${error.offline ? "No answer" : error.title || "Failed"} since ${clock(this.answered)}`);
  }

  draw(data) {
    if (!this.shown) this.build();
    this.answered = Date.now();
    fill(this.tiles, tiles(data));
    this.requests.update(requestSpec(data.history));
    this.latency.update(latencySpec(data.history));
    fill(this.routes, data.requests.by_route.map(routeRow));
    fill(this.statuses, Object.entries(data.requests.by_status).filter(([name, number]) => number || name !== "3xx").map(([name, number]) => h("li", { class: `status-${name}` }, h("span", {}, STATUSES[name] ?? name), h("b", {}, count(number)))));
    dispatchEvent(new CustomEvent("dgcf-model", { detail: data.model }));
  }

  build() {
    this.shown = true;
    const columns = ["Route", "Requests", "Errors", "Median", "99th percentile"];
    const head = h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name))));
    fill(
      this.out,
      this.tiles,
      h("h2", { class: "unseen" }, "The last ten minutes"),
      h("div", { class: "charts" }, this.requests.element, this.latency.element),
      h(
        "section",
        { class: "card", "aria-labelledby": "routes-title" },
        h("div", { class: "chart-head" }, h("h2", { id: "routes-title" }, "By route"), this.statuses),
        h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Requests by route" }, h("table", { class: "routes" }, head, this.routes)),
      ),
    );
    say("The figures are shown, and renewed every few seconds.");
  }
}

const STATUSES = { "2xx": "Answered", "3xx": "Unchanged", "4xx": "Refused", "5xx": "Failed" };

function tiles(data) {
  const fact = (name, value, more, tone = "") => h("div", { class: `fact ${tone}` }, h("dt", {}, name), h("dd", {}, value, more && h("small", {}, more)));
  const { requests, latency_ms: latency, events } = data;
  const missing = data.ready_workers < data.workers;
  return [
    fact("Requests", `${short(requests.per_second)} / s`, `${count(requests.total)} in ${duration(data.uptime_seconds)}`),
    fact("Median latency", milliseconds(latency.p50), `90th percentile ${milliseconds(latency.p90)}`),
    fact("99th percentile", milliseconds(latency.p99)),
    fact("Events", count(events.stored), `${count(events.last_minute)} in the last minute, ${counted(events.duplicates, "duplicate")}, ${bytes(events.store_bytes)}`),
    fact("Model", `v${data.model}`, `loaded ${moment(data.model_loaded)}`),
    fact("Workers", `${count(data.ready_workers)} of ${count(data.workers)} ready`, `${bytes(data.memory_bytes)}, dgcf ${data.dgcf}`, missing ? "bad" : ""),
  ];
}

function timeAxis(history) {
  const times = history.map((row) => Date.parse(row.time));
  const minute = 60_000;
  const high = times.length ? Math.max(...times) : Date.now();
  const low = Math.min(high - 2 * minute, ...times);
  const step = [0.25, 0.5, 1, 2, 5, 10].find((minutes) => (high - low) / (minutes * minute) <= 6) ?? 10;
  const marks = [];
  for (let at = Math.ceil(low / (step * minute)) * step * minute; at <= high; at += step * minute) marks.push(at);
  return { label: "Time", low, high, format: step < 1 ? clock : (at) => clock(at).slice(0, 5), exact: clock, long: clock, ticks: marks.length ? marks : [low] };
}

function requestSpec(history) {
  const points = (name) => history.map((row) => ({ x: Date.parse(row.time), y: row[name] ?? NaN }));
  const rates = history.map((row) => row.requests_per_second ?? 0);
  const errors = history.filter((row) => row.errors > 0);
  const last = rates.at(-1) ?? 0;
  return {
    summary: rates.length ? `Requests a second over the last ${counted(rates.length, "interval")} of 10 s: now ${short(last)}, at most ${short(Math.max(...rates))}.` : "There are no requests yet.",
    note: errors.length ? `${counted(errors.reduce((sum, row) => sum + row.errors, 0), "error")} in these minutes, at ${errors.slice(-3).map((row) => clock(Date.parse(row.time))).join(", ")}.` : null,
    x: timeAxis(history),
    y: { label: "Requests a second", low: 0, high: ends([...rates, 1], { zero: true })[1], format: short },
    series: [{ name: "Requests a second", tone: "tone-2", area: true, points: points("requests_per_second") }],
    markers: errors.slice(-1).map((row) => ({ x: Date.parse(row.time), label: counted(row.errors, "error") })),
  };
}

function latencySpec(history) {
  const points = (name) => history.map((row) => ({ x: Date.parse(row.time), y: row[name] ?? NaN }));
  const series = [
    { name: "99th percentile", tone: "tone-user", points: points("p99_ms") },
    { name: "Median", tone: "tone-2", points: points("p50_ms") },
  ];
  const known = series.flatMap((one) => one.points.map((point) => point.y)).filter(Number.isFinite);
  const last = history.at(-1) ?? {};
  const [low, high] = logEnds(known);
  return {
    summary: known.length ? `In the last interval, the median is ${milliseconds(last.p50_ms)} and the 99th percentile ${milliseconds(last.p99_ms)}.` : "There are no requests yet.",
    x: timeAxis(history),
    y: { label: "Milliseconds, logarithmic", low, high, log: true, format: String, exact: milliseconds },
    series,
  };
}

function routeRow(row) {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("code", {}, row.route)),
    h("td", {}, count(row.requests)),
    h("td", { class: row.errors ? "bad" : "" }, count(row.errors)),
    h("td", {}, milliseconds(row.p50_ms)),
    h("td", {}, milliseconds(row.p99_ms)),
  );
}
