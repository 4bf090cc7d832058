// The refresh of the model: whether one runs, what came of the last one, and a button that starts one.

import { fill, h } from "./dom.js";
import { say } from "./feedback.js";
import { duration, moment } from "./format.js";

const RESULTS = { published: "Published", unchanged: "Nothing new", refused: "Refused", failed: "Failed" };

const STEPS = { export: "reading events", read: "reading the model", check: "comparing on held-out events", update: "learning from the events", save: "saving", publish: "publishing" };

export class Refresh {
  /** `start()`: begins a refresh. */
  constructor(start) {
    this.running = null;
    this.button = h("button", { type: "button", class: "primary small", on: { click: () => this.running || start() } }, "Refresh now");
    this.state = h("p", { class: "live" });
    this.facts = h("dl", { class: "origin" });
    this.element = h(
      "section",
      { class: "card", "aria-labelledby": "refresh-title" },
      h("div", { class: "chart-head" }, h("h2", { id: "refresh-title" }, "Refresh of the model"), h("div", { class: "live-box" }, this.state, this.button)),
      h("p", { class: "fine" }, "The model learns the events since the last refresh, is compared with the served one on the newest of them, and is served if it is not worse."),
      this.facts,
    );
  }

  update(data) {
    const running = data.state === "running";
    if (this.running !== null && running !== this.running) say(running ? "A refresh runs." : `The refresh has ended: ${resultOf(data.last)}`);
    this.running = running;
    this.button.setAttribute("aria-disabled", String(running));
    this.state.className = running ? "live" : "live paused";
    this.state.textContent = running ? `Running${data.step ? `: ${STEPS[data.step] ?? data.step}` : ""}` : "Idle";
    fill(this.facts, factsOf(data).map(([name, value, tone]) => h("div", {}, h("dt", {}, name), h("dd", { class: tone ?? null }, value))));
  }
}

function factsOf(data) {
  const { last } = data;
  const bad = last && (last.result === "refused" || last.result === "failed");
  return [
    data.state === "running" && ["Running since", moment(data.started)],
    ["Last result", resultOf(last), bad ? "bad" : null],
    last && ["Ended", `${moment(last.ended)}, after ${duration((Date.parse(last.ended) - Date.parse(last.started)) / 1000)}`],
    ["Every", data.every === null ? "only when started here or by the API" : duration(data.every).replace(/ 0 \w+$/, "")],
    data.every !== null && data.state === "idle" && ["Next", data.next ? moment(data.next) : "none after a roll-back, until one is started here"],
  ].filter(Boolean);
}

function resultOf(last) {
  if (!last) return "none yet";
  const version = last.version === null ? "" : ` v${last.version}`;
  return `${RESULTS[last.result] ?? last.result}${version}${last.detail ? `: ${last.detail}` : ""}`;
}
