// A chart: a heading, a legend, a drawing that follows the width of its place, and the same figures as a table.

import { fill, h, newId, s } from "./dom.js";
import { plotted } from "./plot.js";

/**
 * A figure. `update(spec)` draws it:
 * `summary`: a sentence for those who do not see it; `note`: a sentence for all; `x`, `y`: `{label, low, high, format}`,
 * `x` possibly with `categories`; `series`: `{name, tone, points: [{x, y, low, high}], area, dots}`; `markers`: `{x, label}`.
 */
export class Chart {
  constructor({ title, height = 230 }) {
    Object.assign(this, { title, height, spec: null, drawn: null });
    const heading = newId("chart");
    this.legend = h("ul", { class: "legend" });
    this.svg = s("svg", { class: "plot-svg", role: "img" });
    this.readout = h("div", { class: "readout", "aria-hidden": "true", hidden: true });
    this.plot = h("div", { class: "plot" }, this.svg, this.readout);
    this.unit = h("p", { class: "chart-unit" });
    this.note = h("p", { class: "fine" });
    this.table = h("table", { "aria-labelledby": heading });
    const scroller = h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": `${title}, as a table` }, this.table);
    this.details = h("details", { class: "as-table" }, h("summary", {}, "Show as a table", h("span", { class: "unseen" }, `: ${title}`)), scroller);
    this.details.addEventListener("toggle", () => this.tabulate());
    this.element = h("figure", { class: "chart card", "aria-labelledby": heading }, h("div", { class: "chart-head" }, h("h3", { id: heading }, title), this.legend), this.unit, this.plot, this.note, this.details);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.unpoint());
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  update(spec) {
    this.spec = spec;
    this.unit.textContent = spec.y.label;
    this.note.textContent = spec.note ?? "";
    this.note.hidden = !spec.note;
    this.svg.setAttribute("aria-label", `${this.title}. ${spec.summary}`);
    this.legend.hidden = spec.series.length < 2;
    if (!this.legend.hidden) fill(this.legend, spec.series.map((one) => h("li", {}, h("span", { class: `swatch ${one.tone}`, "aria-hidden": "true" }), one.name)));
    this.draw();
    this.tabulate();
    return this;
  }

  draw() {
    const width = Math.round(this.plot.clientWidth);
    if (!this.spec || width < 40) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", this.height);
    this.drawn = plotted(this.spec, width, this.height);
    this.cursor = s("line", { class: "cursor", y1: this.drawn.frame.top, y2: this.drawn.frame.bottom, visibility: "hidden" });
    fill(this.svg, this.cursor, this.drawn.children);
    if (this.at !== undefined) this.read(this.at);
  }

  point(event) {
    if (!this.drawn) return;
    const left = this.plot.getBoundingClientRect().left;
    const { xs, place } = this.drawn;
    const near = (a, b) => (Math.abs(place(a) - event.clientX + left) <= Math.abs(place(b) - event.clientX + left) ? a : b);
    if (xs.length) this.read(xs.reduce(near));
  }

  read(x) {
    this.at = x;
    const { place, frame } = this.drawn;
    const values = this.spec.series.map((one) => [one, one.points.find((point) => point.x === x)]).filter(([, point]) => point);
    if (!values.length) {
      this.unpoint();
      return;
    }
    fill(this.readout, h("strong", {}, this.nameOf(x)), values.map(([one, point]) => h("span", {}, h("span", { class: `swatch ${one.tone}` }), `${one.name} `, h("b", {}, this.valueOf(point)))));
    this.readout.hidden = false;
    const at = place(x);
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, at);
    this.cursor.setAttribute("visibility", "visible");
    const width = this.readout.offsetWidth;
    const right = at + 12 + width > frame.right ? Math.max(0, at - 12 - width) : at + 12;
    this.readout.style.transform = `translate(${Math.round(right)}px, ${frame.top}px)`;
  }

  unpoint() {
    this.at = undefined;
    this.readout.hidden = true;
    this.cursor?.setAttribute("visibility", "hidden");
  }

  nameOf(x) {
    const { x: axis } = this.spec;
    return axis.categories ? `${axis.label} ${axis.categories[x]}` : (axis.long ?? ((value) => `${axis.label} ${axis.format(value)}`))(x);
  }

  valueOf(point) {
    const format = this.spec.y.exact ?? this.spec.y.format;
    if (!Number.isFinite(point?.y)) return "–";
    return point.low === undefined ? format(point.y) : `${format(point.y)} (${format(point.low)} to ${format(point.high)})`;
  }

  tabulate() {
    if (!this.spec || !this.details.open) return;
    const { series, x: axis } = this.spec;
    const xs = [...new Set(series.flatMap((one) => one.points.map((point) => point.x)))].sort((a, b) => a - b);
    const named = (x) => (axis.categories ? axis.categories[x] : (axis.exact ?? axis.format)(x));
    const row = (x) => h("tr", {}, h("th", { scope: "row" }, named(x)), series.map((one) => h("td", {}, this.valueOf(one.points.find((point) => point.x === x)))));
    fill(
      this.table,
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, axis.label), series.map((one) => h("th", { scope: "col" }, one.name)))),
      h("tbody", {}, xs.map(row)),
    );
  }
}

/** Return what stands in place of a chart that there are no data for. */
export function noChart(title, text) {
  return h("section", { class: "chart card none" }, h("h3", {}, title), h("p", { class: "muted" }, text));
}
