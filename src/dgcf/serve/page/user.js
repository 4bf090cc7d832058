// User: the history of one user beside the recommendations, and events that take effect at once.

import { get, path, post, remove, replaced } from "./api.js";
import { fill, h, icon, newId } from "./dom.js";
import { count, counted, learn, milliseconds, moment, titleOf } from "./format.js";
import { complain, empty, failed, notesOf, say, skeleton, toast } from "./feedback.js";
import { Panel } from "./panel.js";
import { Results } from "./results.js";
import { address, change, go } from "./route.js";

const K = 20;
const HISTORY = 100;
const RECENT = "dgcf-users";
const MOST_RECENT = 6;
const VERBS = { like: "likes", hide: "hides", dislike: "dislikes", view: "viewed", click: "clicked", cart: "put in the cart", purchase: "bought", rating: "rated", other: "took" };
const SOURCES = {
  model: ["In the model", "Answers come from the trained model."],
  events: ["With new events", "Answers take the events since the training into account."],
  popular: ["Unknown", ""], // the notes of the answer say what is shown instead
};

/** Fill `root` and return the view. */
export function user(root) {
  return new User(root);
}

class User {
  constructor(root) {
    this.id = null;
    this.request = null;
    const event = (kind) => (row) => this.send(kind, row);
    const acts = [
      { icon: "like", word: "Like", label: (title) => `Like ${title} for this user`, run: event("like") },
      { icon: "hide", word: "Hide", label: (title) => `Hide ${title} from this user`, run: event("hide") },
    ];
    const similar = { icon: "similar", label: (title) => `Similar to ${title}`, run: (row) => this.show(row, "similar") };
    this.results = new Results({ acts: [...acts, similar], explain: (row) => this.show(row, "why"), open: (row) => this.show(row, "why") });
    this.panel = new Panel({ source: () => ({ user: this.id, items: [], negative: [], version: this.version }), acts });
    this.version = 0;
    this.build(root);
  }

  build(root) {
    const field = newId("user");
    this.input = h("input", { id: field, type: "text", autocomplete: "off", spellcheck: "false", placeholder: "Id as in the training data", name: "user" });
    const look = (event) => {
      event.preventDefault();
      if (this.input.value.trim()) go("user", { id: this.input.value.trim() });
    };
    this.badge = h("p", { class: "badge-line" });
    this.history = h("div", { class: "history" });
    this.status = h("p", { class: "muted status" });
    this.out = h("div", { class: "out" });
    fill(
      root,
      h(
        "div",
        { class: "split" },
        h(
          "section",
          { class: "side", "aria-label": "The user" },
          h("h1", { tabindex: -1 }, "User"),
          h("p", { class: "lede" }, "Look up a user: what the model was trained on beside what it recommends. Likes and hides count at once."),
          h("form", { class: "lookup", role: "search", on: { submit: look } }, h("label", { for: field, class: "field-label" }, "User id"), h("div", { class: "lookup-row" }, this.input, h("button", { type: "submit", class: "primary" }, "Look up"))),
          this.badge,
          this.history,
        ),
        h("section", { class: "main", "aria-label": "Recommendations" }, h("div", { class: "main-head" }, h("h2", {}, "Recommendations"), this.status), this.out),
      ),
      this.panel.element,
    );
  }

  update(params) {
    const id = params.get("id");
    if (id !== this.id || id === null) {
      this.id = id;
      this.input.value = id ?? "";
      this.results.forget();
      if (id === null) this.start();
      else this.load();
    }
    if (id !== null) this.panel.update(params);
    else this.panel.close();
  }

  stop() {
    this.request?.abort();
    this.panel.close();
  }

  show(row, view) {
    change({ item: String(row.item), view });
  }

  fresh() {
    this.request?.abort();
    this.request = new AbortController();
    return this.request.signal;
  }

  async load(compare = false) {
    const signal = this.fresh();
    const known = this.out.contains(this.results.element) && compare;
    this.out.setAttribute("aria-busy", "true");
    if (!known) {
      fill(this.out, skeleton("bones-rows", 8));
      fill(this.history, skeleton("bones-lines", 8));
      fill(this.badge);
    }
    try {
      await this.draw(signal, compare);
    } catch (error) {
      if (replaced(error) || signal.aborted) return;
      this.status.textContent = "";
      fill(this.history);
      fill(this.out, failed(error, () => this.load()));
    }
    this.out.removeAttribute("aria-busy");
  }

  async draw(signal, compare) {
    const began = performance.now();
    const wanted = get(path("recommend", this.id), { k: K, why: true }, { signal });
    const about = get(path("users", this.id), { limit: HISTORY }, { signal }).catch((error) => {
      if (error.status === 404) return { known: false, history: [], events: [] };
      throw error;
    });
    const answer = await wanted;
    const took = performance.now() - began;
    const person = await about;
    if (signal.aborted) return;
    if (answer.known) remember(String(answer.user));
    this.drawHistory(person, answer);
    const rows = answer.recommendations;
    this.status.textContent = `${counted(rows.length, "title")} in ${milliseconds(took)}`;
    const none = !rows.length && empty("Nothing left to recommend", "This user has every item, or hides it.");
    this.results.into(this.out, notesOf(answer.notes), none);
    this.results.show(rows, { compare });
    say(`${counted(rows.length, "recommendation")} for user ${this.id}.`);
    dispatchEvent(new CustomEvent("dgcf-model", { detail: answer.model }));
  }

  drawHistory(person, answer) {
    const [word, sentence] = SOURCES[answer.source] ?? [answer.source, ""];
    fill(this.badge, h("span", { class: `badge ${answer.source}` }, word), sentence && h("span", { class: "muted" }, sentence));
    const events = [...(person.events ?? [])].sort((a, b) => seconds(b.time) - seconds(a.time));
    for (const row of [...events, ...person.history]) learn(row.item, row.title);
    fill(
      this.history,
      events.length ? [h("h2", { class: "history-title" }, "Events", h("span", { class: "sum" }, events.length)), h("ul", { class: "plain-list events" }, events.map((row) => this.eventRow(row)))] : null,
      person.history.length ? this.training(person) : answer.source !== "popular" && h("p", { class: "fine" }, "This user is not in the training data."),
    );
  }

  /** Return the items of training: open beside the recommendations, closed above them. */
  training(person) {
    this.unfolded ??= matchMedia("(min-width: 901px)").matches;
    const toggle = (event) => {
      this.unfolded = event.target.open;
    };
    return h(
      "details",
      { open: this.unfolded, on: { toggle } },
      h("summary", {}, "In training", h("span", { class: "sum" }, historySize(person))),
      h("ul", { class: "plain-list" }, person.history.map((row) => this.historyRow(row))),
    );
  }

  historyRow(row) {
    return h("li", {}, h("button", { type: "button", class: "link", on: { click: () => this.show(row, "similar") } }, titleOf(row.item, row.title)));
  }

  eventRow(row) {
    const title = titleOf(row.item, row.title);
    const undo = () => this.undo(row.key, title);
    return h(
      "li",
      {},
      h("span", { class: `event-kind ${row.kind === "hide" || row.kind === "dislike" ? "down" : "up"}` }, VERBS[row.kind] ?? row.kind),
      h("span", { class: "event-title", title: moment(row.time) }, title),
      h("button", { type: "button", class: "icon-button quiet", "aria-label": `Undo ${row.kind} of ${title}`, title: "Undo", on: { click: undo } }, icon("undo")),
    );
  }

  async send(kind, row) {
    const title = titleOf(row.item, row.title);
    const [key, id] = [newKey(), this.id];
    try {
      await post("events", { user: id, item: String(row.item), kind, key });
    } catch (error) {
      complain(error);
      return;
    }
    this.version += 1;
    toast(kind === "like" ? `User ${id} likes ${title}.` : `${title} is hidden from user ${id}.`, { label: "Undo", run: () => this.undo(key, title) });
    change({ item: null, view: null });
    if (this.id === id) await this.load(true);
  }

  async undo(key, title) {
    try {
      await remove(path("events", key));
    } catch (error) {
      if (error.status !== 404) {
        complain(error);
        return;
      }
    }
    this.version += 1;
    toast(`Undone: ${title}.`);
    if (this.id !== null) await this.load(true);
  }

  start() {
    this.fresh();
    fill(this.badge);
    fill(this.history);
    this.status.textContent = "";
    this.out.removeAttribute("aria-busy");
    const recent = recentUsers().map((id) => h("li", {}, h("a", { class: "suggestion", href: address("user", { id }) }, h("span", {}, id))));
    const list = recent.length ? [h("h3", { class: "recent" }, "Recent"), h("ul", { class: "suggestions short" }, recent)] : [];
    fill(this.out, empty("Look up a user", "Type an id as it is in the training data. An unknown id works, too: it gets popular items until it likes something.", ...list));
  }
}

/** Return the users that were looked up in this tab, the newest first. */
function recentUsers() {
  try {
    return JSON.parse(sessionStorage.getItem(RECENT) ?? "[]");
  } catch {
    return [];
  }
}

function remember(id) {
  sessionStorage.setItem(RECENT, JSON.stringify([id, ...recentUsers().filter((other) => other !== id)].slice(0, MOST_RECENT)));
}

function historySize(person) {
  const [shown, all] = [person.history.length, person.history_size ?? person.history.length];
  return shown < all ? `${count(shown)} of ${count(all)}` : count(all);
}

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function seconds(time) {
  return typeof time === "number" ? time : Date.parse(time) / 1000;
}
