// Administration: refreshes, versions of the model and experiments, for a token of the scope admin; else a way to give one.

import { get, post, replaced } from "./api.js";
import { confirmed } from "./dialog.js";
import { fill, h } from "./dom.js";
import { experimentCard } from "./experiment.js";
import { complain, say, toast } from "./feedback.js";
import { Refresh } from "./refresh.js";
import { requestToken, storedToken } from "./token.js";
import { Versions } from "./versions.js";

let refused = null; // the token that has not the scope admin: asked for once, not with every answer

export class Administration {
  constructor() {
    Object.assign(this, { shown: null, seen: "", wanted: false });
    this.refresh = new Refresh(() => this.start());
    this.versions = new Versions((row) => this.rollBack(row));
    this.experiment = h("div", {});
    this.element = h("section", { class: "out admin", "aria-label": "Administration" });
    this.show("entry");
  }

  /** Ask for what has changed, if the token allows it. Nothing is raised: the figures above do not depend on it. */
  async load(signal) {
    const token = storedToken();
    if (token === null || token === refused) return this.show("entry");
    try {
      const options = { signal, ask: false };
      const refresh = await get("admin/refresh", {}, options);
      const [models, experiment] = await Promise.all([get("models", {}, options), get("experiments", {}, options)]);
      if (!signal.aborted) this.draw(refresh, models.models, experiment);
    } catch (error) {
      if (replaced(error) || signal.aborted) return null;
      this.fail(error, token);
    }
    return null;
  }

  fail(error, token) {
    if (error.status === 401 || error.status === 403) {
      refused = token;
      this.show("entry");
    }
    if (this.wanted) complain(error);
    this.wanted = false;
  }

  /** Show the parts of an administrator, or the button that leads to them. */
  show(what) {
    if (this.shown === what) return;
    this.shown = what;
    this.seen = "";
    const enter = h("button", { type: "button", class: "secondary small", on: { click: () => this.enter() } }, "Administer…");
    fill(this.element, what === "entry" ? h("div", {}, enter) : [this.refresh.element, this.versions.element, this.experiment]);
  }

  async enter() {
    refused = null;
    this.wanted = true;
    const text = "Refreshes, versions of the model and experiments need a token of the scope admin.";
    await requestToken("Administer the service", text);
  }

  draw(refresh, models, experiment) {
    this.show("parts");
    if (this.wanted) say("Refresh, versions and experiment are shown.");
    this.wanted = false;
    const seen = JSON.stringify([refresh, models, experiment]);
    if (seen === this.seen) return; // what has the focus stays as it is
    this.seen = seen;
    this.refresh.update(refresh);
    this.versions.update(models, experiment.shadow.map((one) => one.arm));
    fill(this.experiment, experimentCard(experiment));
  }

  // -- what an administrator does ---------------------------------------------------------------------------------------

  async start() {
    await this.act(() => post("admin/refresh"), () => "The refresh has begun.");
  }

  async rollBack(row) {
    const content = h("p", { class: "muted" }, `All requests are answered by the model of v${row.version} again, under a new version number and without downtime. The model that is served now stays available, so that you can return to it.`);
    if (!(await confirmed({ title: `Roll back to v${row.version}?`, content, verb: `Serve v${row.version}` }))) return;
    await this.act(() => post("admin/rollback", { version: row.version }), (model) => `The model of v${row.version} is served again, as v${model.version}.`);
  }

  async act(send, done) {
    try {
      toast(done(await send()));
    } catch (error) {
      complain(error);
    }
    dispatchEvent(new Event("dgcf-admin"));
  }
}
