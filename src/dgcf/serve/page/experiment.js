// The experiment: users, conversions and rate of each arm, what is decided, and how much shadow models differ.

import { h } from "./dom.js";
import { count, counted, milliseconds, moment, percent } from "./format.js";

/** Return the card of the answer of `/v1/experiments`. */
export function experimentCard(data) {
  const title = data.experiment === null ? "Experiment" : `Experiment ${data.experiment}`;
  const runs = data.experiment !== null;
  const lines = [data.comparison.map(verdict), data.shadow.map(shadow)].flat();
  return h(
    "section",
    { class: "card", "aria-labelledby": "experiment-title" },
    h("div", { class: "chart-head" }, h("h2", { id: "experiment-title" }, title), data.since && h("p", { class: "mask" }, `since ${moment(data.since)}`)),
    runs ? table(data.arms) : h("p", { class: "muted" }, "No experiment runs: every user is answered by the same model."),
    lines.length > 0 && h("ul", { class: "verdicts" }, lines),
    runs && h("p", { class: "fine" }, how(data)),
  );
}

/** Return what counts as a conversion, and what the intervals mean. */
function how({ kinds, alpha }) {
  const what = kinds?.length ? ` (${kinds.join(", ")})` : "";
  const wrong = alpha === undefined ? "" : ` All verdicts together are wrong in at most ${percent(alpha)} of experiments.`;
  return `A user converts with an event${what} after the first list of the experiment. A verdict holds whenever and however often you look.${wrong} The 95% interval of a rate holds at one time of looking.`;
}

function table(arms) {
  const columns = ["Arm", "Rate", "95% interval", "Users", "Conversions", "Share", "Model"];
  const total = arms.reduce((sum, arm) => sum + arm.weight, 0);
  const row = (arm) =>
    h("tr", {}, h("th", { scope: "row" }, arm.arm), h("td", {}, exact(arm.rate)), h("td", {}, `${exact(arm.low)} to ${exact(arm.high)}`), h("td", {}, count(arm.users)), h("td", {}, count(arm.conversions)), h("td", {}, percent(arm.weight / total)), h("td", {}, arm.version === null ? "–" : `v${arm.version}`));
  return h(
    "div",
    { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Arms of the experiment" },
    h("table", { class: "routes" }, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, arms.map(row))),
  );
}

/** Return a share as a percentage with two decimals. */
function exact(share) {
  return share === null || share === undefined ? "–" : `${(100 * share).toFixed(2)}%`;
}

function points(share) {
  return (100 * Math.abs(share)).toFixed(2);
}

function signed(share) {
  return `${share < 0 ? "−" : "+"}${points(share)}`;
}

/** Return the sentence of a comparison: that of the sequential test. */
function verdict({ arm, against, difference, low, high, significant }) {
  const range = `(${signed(low)} to ${signed(high)})`;
  const better = difference > 0 ? "more" : "fewer";
  const text = significant ? `${arm} converts ${better} users than ${against}: by ${points(difference)} percentage points ${range}.` : `${arm} and ${against} cannot be told apart yet: the difference is ${signed(difference)} percentage points ${range}.`;
  return h("li", {}, h("span", { class: significant ? "badge" : "badge popular" }, significant ? "Decided" : "Open"), h("span", {}, text));
}

function shadow({ arm, answers, overlap, mean_ms: mean, dropped }) {
  const same = overlap === null ? "" : `; ${percent(overlap)} of the items are also in the list that was sent`;
  const time = typeof mean === "number" ? `, in ${milliseconds(mean)} each` : "";
  const left = dropped ? `; ${counted(dropped, "list")} were left out, because the service was busy` : "";
  return h("li", {}, h("span", { class: "badge popular" }, "Shadow"), h("span", {}, `${arm} has made ${counted(answers, "list")} that nobody saw${time}${same}${left}.`));
}
