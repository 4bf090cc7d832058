// What a chart is made of: scales, ticks, axes and marks, as SVG elements for a width in pixels.

import { s } from "./dom.js";

const CHARACTER = 6.6;

/** Return the function from values to pixels. */
export function scale(low, high, from, to) {
  const size = high - low || 1;
  return (value) => from + ((value - low) / size) * (to - from);
}

/** Return the same on a logarithmic axis; what is below its low end stands there. */
function logScale(low, high, from, to) {
  const linear = scale(Math.log10(low), Math.log10(high), from, to);
  return (value) => linear(Math.log10(Math.max(value, low)));
}

function decades(low, high) {
  const [first, last] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
  return Array.from({ length: last - first + 1 }, (_, index) => Number(`1e${first + index}`));
}

/** Return the powers of ten that hold all values. */
export function logEnds(values) {
  const known = values.filter((value) => value > 0);
  if (!known.length) return [0.1, 10];
  const low = Math.floor(Math.log10(Math.min(...known)) + 1e-9);
  return [10 ** low, 10 ** Math.max(low + 1, Math.ceil(Math.log10(Math.max(...known)) - 1e-9))];
}

/** Return round values between two ends, both inside; `most` is about how many. */
export function ticks(low, high, most, whole = false) {
  if (!(high > low)) return [low];
  const raw = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(whole ? 1 : 0, power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999));
  const values = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1) values.push(Number((index * step).toPrecision(12)));
  return values;
}

/** Return ends of a scale that are round and hold all values. */
export function ends(values, { zero = false } = {}) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (zero) low = Math.min(0, low);
  if (!(high > low)) high = low + (Math.abs(low) || 1);
  const round = ticks(low, high, 4);
  const step = round.length > 1 ? round[1] - round[0] : high - low;
  return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
}

/** Return the marks of a chart and the places that a pointer can be at: `{children, xs, place, frame}`. */
export function plotted(spec, width, height) {
  const values = spec.y.log ? decades(spec.y.low, spec.y.high) : ticks(spec.y.low, spec.y.high, 4);
  const names = spec.y.log ? values.map(spec.y.format) : evenly(values);
  const left = 12 + CHARACTER * Math.max(...names.map((name) => name.length));
  const frame = { left, right: width - 10, top: 12, bottom: height - 42 };
  const inset = spec.x.categories ? (frame.right - frame.left) / (2 * spec.x.categories.length) : 0;
  const x = scale(spec.x.low, spec.x.high, frame.left + inset, frame.right - inset);
  const y = spec.y.log ? logScale(spec.y.low, spec.y.high, frame.bottom, frame.top) : scale(spec.y.low, spec.y.high, frame.bottom, frame.top);
  const children = [
    grid(values, names, y, frame),
    bottom(spec.x, x, frame),
    (spec.markers ?? []).map((marker) => vertical(marker, x, frame)),
    spec.series.map((one, index) => marks(one, x, y, frame, spec.x.categories ? 7 * (index - (spec.series.length - 1) / 2) : 0)),
  ];
  const xs = [...new Set(spec.series.flatMap((one) => one.points.map((point) => point.x)))].sort((a, b) => a - b);
  return { children, xs, place: x, frame };
}

/** Return values with as many decimals as their steps need. */
function evenly(values) {
  const step = values.length > 1 ? values[1] - values[0] : Math.abs(values[0]) || 1;
  const digits = Math.min(6, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return values.map((value) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−"));
}

function grid(values, names, y, frame) {
  return values.map((value, index) => [
    s("line", { class: value === 0 ? "grid base" : "grid", x1: frame.left, x2: frame.right, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: frame.left - 7, y: y(value) + 4, "text-anchor": "end" }, names[index]),
  ]);
}

function bottom(axis, x, frame) {
  const width = frame.right - frame.left;
  const values = axis.categories ? axis.categories.map((_, index) => index) : axis.ticks ?? ticks(axis.low, axis.high, Math.max(2, Math.floor(width / 60)), axis.whole);
  const name = (value) => (axis.categories ? axis.categories[value] : axis.format(value));
  const wide = CHARACTER * Math.max(...values.map((value) => name(value).length)) + 10;
  const step = Math.max(1, Math.ceil((wide * values.length) / (width + wide)));
  const shown = values.filter((_, index) => index % step === 0);
  return [
    shown.map((value) => s("text", { class: "tick", x: within(x(value), name(value), frame), y: frame.bottom + 17, "text-anchor": "middle" }, name(value))),
    s("text", { class: "axis", x: (frame.left + frame.right) / 2, y: frame.bottom + 36, "text-anchor": "middle" }, axis.label),
  ];
}

function within(place, name, frame) {
  return Math.min(place, frame.right + 8 - (CHARACTER * name.length) / 2);
}

function vertical(marker, x, frame) {
  const place = x(marker.x);
  const right = place > (frame.left + frame.right) / 2;
  return [
    s("line", { class: "marker", x1: place, x2: place, y1: frame.top, y2: frame.bottom }),
    s("text", { class: "marker-label", x: place + (right ? -6 : 6), y: frame.bottom - 10, "text-anchor": right ? "end" : "start" }, marker.label),
  ];
}

function marks(one, x, y, frame, shift) {
  const known = one.points.filter((point) => Number.isFinite(point.y));
  const at = (point) => [x(point.x) + shift, y(point.y)];
  const lines = runs(one.points).map((run) => run.map((point) => at(point).map((value) => value.toFixed(1)).join(" ")));
  const [floor, tone] = [frame.bottom, `series ${one.tone}`];
  return s(
    "g",
    { class: tone },
    one.area && lines.map((line) => s("path", { class: "area", d: `M${line[0].split(" ")[0]} ${floor}L${line.join("L")}L${line.at(-1).split(" ")[0]} ${floor}Z` })),
    known.filter((point) => point.low !== undefined).map((point) => s("line", { class: "range", x1: at(point)[0], x2: at(point)[0], y1: y(point.low), y2: y(point.high) })),
    lines.map((line) => s("path", { class: "line", d: `M${line.join("L")}` })),
    (one.dots ? known : lonely(one.points)).map((point) => s("circle", { class: "dot", cx: at(point)[0], cy: at(point)[1], r: one.dots ? 3.2 : 2.5 })),
  );
}

/** Return the stretches without a gap. */
function runs(points) {
  const stretches = [[]];
  for (const point of points) {
    if (Number.isFinite(point.y)) stretches.at(-1).push(point);
    else if (stretches.at(-1).length) stretches.push([]);
  }
  return stretches.filter((run) => run.length);
}

function lonely(points) {
  return runs(points).filter((run) => run.length === 1).flat();
}
