// A dialog with a form: a heading, what it is about, and a button to go on or not.

import { fill, h, newId } from "./dom.js";

/** Show a form over the page; return whether it was sent. `verb` and `cancel` are on its buttons. */
export function confirmed({ title, content, verb, cancel = "Not now" }) {
  return new Promise((resolve) => {
    const heading = newId("ask");
    const dialog = h("dialog", { class: "ask", "aria-labelledby": heading });
    const close = (event, sent) => {
      event.preventDefault();
      dialog.close();
      dialog.remove();
      resolve(sent);
    };
    const leave = (event) => close(event, false);
    const buttons = h("div", { class: "ask-buttons" }, h("button", { type: "button", class: "plain", on: { click: leave } }, cancel), h("button", { type: "submit", class: "primary" }, verb));
    fill(dialog, h("form", { on: { submit: (event) => close(event, true) } }, h("h2", { id: heading }, title), content, buttons));
    dialog.addEventListener("cancel", leave);
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("input, .plain").focus();
  });
}
