// Numbers, durations and names as text.

const WHOLE = new Intl.NumberFormat("en");
const titles = new Map();

/** Return a whole number with separators. */
export function count(number) {
  return number === null || number === undefined ? "–" : WHOLE.format(number);
}

/** Return "1 user", "2,000 users". */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Return a number with about three significant digits, without an exponent where it can be read. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.001 || size >= 1e6) return minus(value.toExponential(1));
  if (Number.isInteger(value)) return minus(WHOLE.format(value));
  return minus(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3));
}

/** Return a value with four decimals, as metrics are printed. */
export function metric(value) {
  return typeof value === "number" && Number.isFinite(value) ? (Number.isInteger(value) ? count(value) : minus(value.toFixed(value >= 10 ? 1 : 4))) : "–";
}

function minus(text) {
  return text.replace("-", "−");
}

/** Return a share as a percentage. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  return Math.abs(share) < 0.005 ? "<1%" : minus(`${Math.round(share * 100)}%`);
}

/** Return milliseconds as text. */
export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10_000 ? 0 : 1)} s`;
  return `${value >= 10 ? Math.round(value) : value.toFixed(1)} ms`;
}

/** Return a duration in its two largest units. */
export function duration(seconds) {
  const units = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
  let rest = Math.max(0, Math.floor(seconds ?? 0));
  const words = [];
  for (const [name, size] of units) {
    const number = Math.floor(rest / size);
    rest -= number * size;
    if (number || words.length || size === 1) words.push(`${number} ${name}`);
    if (words.length === 2) break;
  }
  return words.join(" ");
}

/** Return a time as date and time of day, from seconds since 1970 or ISO 8601. */
export function moment(time) {
  const date = new Date(typeof time === "number" ? time * 1000 : time);
  if (Number.isNaN(date.getTime())) return String(time ?? "–");
  return date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** Remember the title of an item. */
export function learn(item, title) {
  if (title) titles.set(String(item), title);
}

/** Return the title of an item, or its id where none is known. */
export function titleOf(item, title) {
  return title || titles.get(String(item)) || String(item);
}

/** Return a time of day with seconds, from milliseconds since 1970. */
export function clock(time) {
  return new Date(time).toLocaleTimeString("en-GB");
}

/** Return a number of bytes as text. */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  const at = number < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(number) / 3));
  const value = number / 1000 ** at;
  return `${at && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}
