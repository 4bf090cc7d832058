// The page: tabs by the hash of the address, one view at a time.

import { get } from "./api.js";
import { discover } from "./discover.js";
import { fill, h } from "./dom.js";
import { undoByKey } from "./feedback.js";
import { model } from "./model.js";
import { operations } from "./operations.js";
import { current } from "./route.js";
import { forgetToken, storedToken } from "./token.js";
import { user } from "./user.js";

const VIEWS = { discover: ["Discover", discover], user: ["User", user], model: ["Model", model], operations: ["Operations", operations] };
const main = document.getElementById("main");
const served = document.getElementById("served");
let shown = { tab: null, view: null };
let about = null;

function update() {
  const { tab, params } = current();
  if (tab !== shown.tab) open(tab);
  shown.view.update(params);
}

function open(tab) {
  const first = shown.tab === null;
  shown.view?.stop();
  const [title, build] = VIEWS[tab];
  document.title = `${title} · dgcf`;
  for (const link of document.querySelectorAll(".tabs a")) {
    if (link.dataset.tab === tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.className = `view ${tab}`;
  shown = { tab, view: build(main) };
  if (first) return;
  scrollTo(0, 0);
  main.querySelector("h1")?.focus({ preventScroll: true });
}

function drawServed() {
  const forget = () => {
    forgetToken();
    drawServed();
  };
  fill(
    served,
    about && h("a", { href: "#/model", class: "version", title: "The model that answers" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "dataset" }, `${about.dataset?.name ?? about.model} `), `v${about.version}`),
    storedToken() !== null && h("button", { type: "button", class: "plain small", on: { click: forget } }, "Forget token"),
  );
}

async function name() {
  try {
    about = await get("model");
  } catch {
    about = null; // the view says what failed
  }
  drawServed();
}

addEventListener("hashchange", update);
addEventListener("dgcf-token", drawServed);
addEventListener("dgcf-model", (event) => {
  if (event.detail !== undefined && event.detail !== about?.version) name();
});
undoByKey();
update();
name();
