// A search field for items: an ARIA combobox with a list of titles, by keyboard and pointer.

import { get, replaced } from "./api.js";
import { fill, h, icon, newId } from "./dom.js";
import { counted, learn, titleOf } from "./format.js";

const WAIT = 140;
const PAGE = 12;

/** Return `{element, input}`: a labelled field that calls `pick(item, title)`; `emptied()` is Backspace in an empty field. */
export function itemSearch({ label, placeholder, pick, emptied = () => {}, taken = () => new Set(), tone = "" }) {
  const ids = { input: newId("search"), list: newId("options"), state: newId("matches") };
  const input = h("input", {
    id: ids.input, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", maxlength: 200, placeholder,
    "aria-expanded": "false", "aria-controls": ids.list, "aria-autocomplete": "list", "aria-describedby": ids.state,
  });
  const list = h("ul", { id: ids.list, role: "listbox", "aria-label": label });
  const state = h("p", { id: ids.state, class: "unseen", role: "status" });
  const pop = h("div", { class: "options", hidden: true }, list);
  const element = h(
    "div",
    { class: `search ${tone}` },
    h("label", { for: ids.input, class: "field-label" }, label),
    h("div", { class: "search-box" }, icon("search"), input, pop),
    state,
  );
  connect(new Choice({ input, list, pop, state, pick, emptied, taken }), element);
  return { element, input };
}

function connect(choice, element) {
  const { input } = choice;
  input.addEventListener("input", () => choice.later());
  input.addEventListener("click", () => choice.pop.hidden && choice.later(0));
  input.addEventListener("keydown", (event) => choice.key(event));
  element.addEventListener("focusout", (event) => {
    if (!element.contains(event.relatedTarget)) choice.close();
  });
}

class Choice {
  constructor(parts) {
    Object.assign(this, parts);
    this.rows = [];
    this.next = null;
    this.at = -1;
    this.timer = null;
    this.request = null;
  }

  later(wait = WAIT) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), wait);
  }

  async load(cursor = null) {
    this.request?.abort();
    this.request = new AbortController();
    const query = this.input.value.trim();
    try {
      const answer = await get("items", { q: query, cursor, limit: PAGE }, { signal: this.request.signal });
      const rows = answer.items.filter((row) => !row.hidden && !this.taken().has(String(row.item)));
      this.rows = cursor ? [...this.rows, ...rows] : rows;
      this.next = answer.next;
      this.show(query, cursor ? this.at : -1);
    } catch (error) {
      if (!replaced(error)) this.message(error.message);
    }
  }

  show(query, at) {
    if (!this.input.matches(":focus")) return;
    for (const row of this.rows) learn(row.item, row.title);
    if (!this.rows.length) {
      this.message(query ? `No title matches “${query}”.` : "There are no other items.");
      return;
    }
    fill(this.list, this.rows.map((row, index) => this.option(row, index, query)));
    this.open();
    this.mark(at);
    this.state.textContent = `${counted(this.rows.length, "match", "matches")}${this.next ? ", more below" : ""}.`;
  }

  option(row, index, query) {
    const choose = (event) => {
      event.preventDefault(); // keeps the focus in the field
      this.choose(index);
    };
    return h(
      "li",
      { role: "option", id: `${this.list.id}-${index}`, "aria-selected": "false", on: { pointerdown: choose } },
      h("span", { class: "option-title" }, marked(titleOf(row.item, row.title), query)),
      h("span", { class: "option-users" }, counted(row.users ?? 0, "user")),
    );
  }

  message(text) {
    this.rows = [];
    this.at = -1;
    this.input.removeAttribute("aria-activedescendant");
    fill(this.list, h("li", { class: "no-option", role: "option", "aria-disabled": "true", "aria-selected": "false" }, text));
    this.open();
    this.state.textContent = text;
  }

  open() {
    this.pop.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  close() {
    clearTimeout(this.timer);
    this.request?.abort();
    this.pop.hidden = true;
    this.at = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  mark(index) {
    this.list.children[this.at]?.setAttribute("aria-selected", "false");
    this.at = index;
    const option = this.rows[index] && this.list.children[index];
    if (option) {
      option.setAttribute("aria-selected", "true");
      option.scrollIntoView({ block: "nearest" });
      this.input.setAttribute("aria-activedescendant", option.id);
    } else {
      this.input.removeAttribute("aria-activedescendant");
    }
  }

  async step(by) {
    if (this.pop.hidden) {
      await this.load();
      return;
    }
    if (by > 0 && this.at === this.rows.length - 1 && this.next) await this.load(this.next);
    const last = this.rows.length - 1;
    const to = this.at + by;
    this.mark(to > last ? 0 : to < 0 ? last : to);
  }

  choose(index) {
    const row = this.rows[index];
    if (!row) return;
    this.input.value = "";
    this.close();
    this.pick(String(row.item), titleOf(row.item, row.title));
  }

  key(event) {
    if (event.isComposing) return;
    const open = !this.pop.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.step(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter" && open && this.rows.length) {
      this.choose(Math.max(this.at, 0));
    } else if (event.key === "Escape" && (open || this.input.value)) {
      if (!open) this.input.value = "";
      this.close();
    } else if (event.key === "Backspace" && !this.input.value) {
      this.emptied();
      return;
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Return a title with what was typed marked in it. */
function marked(title, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const lower = title.toLowerCase();
  if (!words.length || lower.length !== title.length) return title;
  const hits = words.map((word) => [lower.indexOf(word), word.length]).filter(([start]) => start >= 0).sort((a, b) => a[0] - b[0]);
  const pieces = [];
  let done = 0;
  for (const [start, length] of hits) {
    if (start < done) continue;
    pieces.push(title.slice(done, start), h("mark", {}, title.slice(start, start + length)));
    done = start + length;
  }
  return [...pieces, title.slice(done)];
}
