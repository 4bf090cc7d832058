// What the page says of itself: live region, toasts, loading, empty and error states.

import { add, fill, h, icon } from "./dom.js";
import { storedToken, forgetToken } from "./token.js";

const TOAST_SECONDS = 8;

/** Say a sentence to a screen reader. */
export function say(text) {
  const region = document.getElementById("said");
  region.textContent = "";
  setTimeout(() => {
    region.textContent = text;
  }, 60);
}

/** Show a sentence for some seconds, with an action such as undoing; a new toast replaces the old one. */
export function toast(text, action = null, tone = "") {
  const box = document.getElementById("toasts");
  const gone = () => note.remove();
  const act = () => {
    gone();
    action.run();
  };
  const note = h(
    "div",
    { class: `toast ${tone}` },
    h("span", {}, text),
    action && h("button", { type: "button", class: "toast-act", on: { click: act } }, action.label),
    h("button", { type: "button", class: "icon-button quiet", "aria-label": "Dismiss", on: { click: gone } }, icon("close")),
  );
  let timer = setTimeout(gone, TOAST_SECONDS * 1000);
  const hold = () => clearTimeout(timer);
  const release = () => {
    clearTimeout(timer);
    timer = setTimeout(gone, TOAST_SECONDS * 1000);
  };
  note.addEventListener("pointerenter", hold);
  note.addEventListener("pointerleave", release);
  note.addEventListener("focusin", hold);
  note.addEventListener("focusout", release);
  fill(box, note);
  say(text);
}

/** Say what failed in a toast. */
export function complain(error) {
  const other = { label: "Use another token", run: forgetToken };
  toast(error.message, error.status === 403 && storedToken() ? other : null, "bad");
}

/** Return what stands where an answer would be: what failed and a button to try again. */
export function failed(error, again) {
  const title = error.offline ? "No answer from the server" : error.title || "This did not work";
  const token = (error.status === 401 || error.status === 403) && storedToken() !== null;
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
