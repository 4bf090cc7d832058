// The token of this tab: requested when the server wants one, kept in sessionStorage, never in the address.

import { fill, h, newId } from "./dom.js";

const KEY = "dgcf-token";
let pending = null;

/** Return the token of this tab, or null. */
export function storedToken() {
  return sessionStorage.getItem(KEY);
}

/** Forget the token of this tab. */
export function forgetToken() {
  sessionStorage.removeItem(KEY);
  dispatchEvent(new Event("dgcf-token"));
}

/** Ask for a token and return it, or null if none is given. Requests that fail together ask once. */
export async function askToken(refused, used) {
  const stored = storedToken();
  if (stored !== null && stored !== used) return stored; // entered meanwhile, for another request
  pending ??= ask(refused).finally(() => {
    pending = null;
  });
  return pending;
}

function ask(refused) {
  return new Promise((resolve) => {
    const field = newId("token");
    const heading = newId("token-heading");
    const input = h("input", { id: field, type: "password", autocomplete: "off", spellcheck: "false", required: true });
    const dialog = h("dialog", { class: "ask", "aria-labelledby": heading });
    const close = (token) => {
      dialog.close();
      dialog.remove();
      if (token !== null) {
        sessionStorage.setItem(KEY, token);
        dispatchEvent(new Event("dgcf-token"));
      }
      resolve(token);
    };
    const submit = (event) => {
      event.preventDefault();
      if (input.value.trim()) close(input.value.trim());
    };
    const cancel = (event) => {
      event.preventDefault();
      close(null);
    };
    fill(
      dialog,
      h(
        "form",
        { on: { submit } },
        h("h2", { id: heading }, "This server asks for a token"),
        h("p", { class: "muted" }, refused ? "The token was refused. Give another one." : "Ask whoever runs the server for one. It is kept for this tab only, until you close it."),
        h("label", { for: field }, "Token"),
        input,
        h("div", { class: "ask-buttons" }, h("button", { type: "button", class: "plain", on: { click: cancel } }, "Not now"), h("button", { type: "submit", class: "primary" }, "Use this token")),
      ),
    );
    dialog.addEventListener("cancel", cancel);
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
