// What the page says of itself: live region, toasts, loading, empty and error states.

import { add, fill, h, icon } from "./dom.js";
import { storedToken, forgetToken } from "./token.js";

const TOAST_SECONDS = 8;
const SAID_SECONDS = 4;

/** Put the live region and the toasts where they can be used: an open panel makes all else inert. */
export function settle() {
  const place = document.querySelector("dialog.panel[open]") ?? document.body;
  for (const id of ["toasts", "said"]) {
    const element = document.getElementById(id);
    if (element.parentNode !== place) place.append(element);
  }
}

/** Say a sentence to a screen reader; sentences that come together are all said. */
export function say(text) {
  const sentence = h("p", {}, text);
  document.getElementById("said").append(sentence);
  settle();
  setTimeout(() => sentence.remove(), SAID_SECONDS * 1000);
}

/** Let Ctrl+Z, outside of fields, do what the button of the toast does. */
export function undoByKey() {
  addEventListener("keydown", (event) => {
    const button = document.querySelector(".toast-act");
    if (event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
    if (!button || event.target.matches?.("input:not(:placeholder-shown)")) return;
    event.preventDefault();
    button.click();
  });
}

/** Show a sentence for some seconds, with an action such as undoing; a new toast replaces the old one. */
export function toast(text, action = null, tone = "") {
  const box = document.getElementById("toasts");
  const dismiss = () => {
    const focused = note.contains(document.activeElement);
    note.remove();
    if (focused) document.getElementById("main").focus({ preventScroll: true });
  };
  const act = () => {
    dismiss();
    action.run();
  };
  const note = h(
    "div",
    { class: `toast ${tone}` },
    h("span", {}, text),
    action && h("button", { type: "button", class: "toast-act", on: { click: act } }, action.label),
    h("button", { type: "button", class: "icon-button quiet", "aria-label": "Dismiss", on: { click: dismiss } }, icon("close")),
  );
  let timer = setTimeout(dismiss, TOAST_SECONDS * 1000);
  const hold = () => clearTimeout(timer);
  const release = () => {
    clearTimeout(timer);
    timer = setTimeout(dismiss, TOAST_SECONDS * 1000);
  };
  note.addEventListener("pointerenter", hold);
  note.addEventListener("pointerleave", release);
  note.addEventListener("focusin", hold);
  note.addEventListener("focusout", release);
  fill(box, note);
  settle();
  say(action ? `${text} Ctrl+Z: ${action.label}.` : text);
}

/** Say what failed in a toast. */
export function complain(error) {
  const other = { label: "Use another token", run: forgetToken };
  toast(error.message, error.token && storedToken() ? other : null, "bad");
}

/** Return what stands where an answer would be: what failed and a button to try again. */
export function failed(error, again) {
  const title = error.offline ? "No answer from the server" : error.title || "This did not work";
  const token = error.token && storedToken() !== null;
  const renew = () => {
    forgetToken();
    again();
  };
  return h(
    "div",
    { class: "state bad", role: "alert" },
    icon("alert"),
    h("h3", {}, title),
    h("p", {}, error.message),
    h(
      "div",
      { class: "state-acts" },
      h("button", { type: "button", class: "secondary", on: { click: again } }, "Try again"),
      token && h("button", { type: "button", class: "plain", on: { click: renew } }, "Use another token"),
    ),
  );
}

/** Return what stands where there is nothing yet. */
export function empty(title, text, ...more) {
  return h("div", { class: "state" }, h("h3", {}, title), h("p", {}, text), ...more);
}

/** Return grey lines in the shape of what is loading. */
export function skeleton(kind, lines) {
  const rows = Array.from({ length: lines }, () => h("div", { class: "bone-row" }, h("span", { class: "bone" }), h("span", { class: "bone" }), h("span", { class: "bone" })));
  return h("div", { class: `skeleton ${kind}`, "aria-hidden": "true" }, rows);
}

/** Return a list of notes of the server. */
export function notesOf(notes) {
  return notes?.length ? add(h("ul", { class: "notes" }), notes.map((note) => h("li", {}, note))) : null;
}
