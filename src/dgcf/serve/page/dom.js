// Elements by calls: text is always a text node, so nothing that a server sends is read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; `props` are attributes, `on` listeners, and null or false leaves an attribute out. */
export function h(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** Return an SVG element. */
export function s(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, String(value));
    }
  }
  add(element, ...children);
  return element;
}

/** Append children: elements, texts and nested lists; null and false are left out. */
export function add(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return parent;
}

/** Replace the children. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  return add(parent, ...children);
}

let last = 0;

/** Return an id that no other element has. */
export function newId(prefix) {
  last += 1;
  return `${prefix}-${last}`;
}

const PATHS = {
  like: "M12 20s-7-4.6-7-10a4 4 0 0 1 7-2.6A4 4 0 0 1 19 10c0 5.4-7 10-7 10Z",
  less: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM8.5 12h7",
  hide: "M4 4l16 16M9.9 5.2A9.6 9.6 0 0 1 12 5c5 0 8.5 4.5 9.5 7a13 13 0 0 1-2.7 3.9M6.3 7.1A13 13 0 0 0 2.5 12c1 2.5 4.5 7 9.5 7a9.5 9.5 0 0 0 4-.9M10 10a3 3 0 0 0 4 4",
  similar: "M3.5 12a5.5 5.5 0 1 0 11 0 5.5 5.5 0 1 0-11 0ZM9.5 12a5.5 5.5 0 1 0 11 0 5.5 5.5 0 1 0-11 0Z",
  close: "M6 6l12 12M18 6 6 18",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM16 16l4.5 4.5",
  why: "M5 19V11M12 19V5M19 19v-5",
  undo: "M9 7 4 12l5 5M4 12h10a6 6 0 0 1 0 12",
  key: "M14 10a4 4 0 1 0-3.5 4L13 14v3h3v3h4v-3.5l-6-6Z",
  alert: "M12 4 2.5 20h19L12 4ZM12 10v4.5M12 17.4v.1",
  link: "M9 6l6 6-6 6",
};

/** Return a line icon, which says nothing to a screen reader. */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, s("path", { d: PATHS[name] }));
}
