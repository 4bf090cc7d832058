// The token of this tab: requested when the server wants one, kept in sessionStorage, never in the address.

import { confirmed } from "./dialog.js";
import { h, newId } from "./dom.js";

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
  const text = refused ? "The token was refused. Give another one." : "Ask whoever runs the server for one.";
  return requestToken("This server asks for a token", text);
}

/** Show the field for a token; return the token, which is kept, or null if none is given. */
export function requestToken(title, text) {
  pending ??= ask(title, text).finally(() => {
    pending = null;
  });
  return pending;
}

async function ask(title, text) {
  const field = newId("token");
  const input = h("input", { id: field, type: "password", autocomplete: "off", spellcheck: "false", required: true, pattern: ".*\\S.*" });
  const kept = h("p", { class: "muted" }, `${text} It is kept for this tab only, until you close it.`);
  const content = [kept, h("label", { for: field }, "Token"), input];
  if (!(await confirmed({ title, content, verb: "Use this token" }))) return null;
  sessionStorage.setItem(KEY, input.value.trim());
  dispatchEvent(new Event("dgcf-token"));
  return input.value.trim();
}
