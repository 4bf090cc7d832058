// The state of the page in the hash of its address: #/discover?like=50&like=181&item=172

export const TABS = ["discover", "user", "model", "operations"];

/** Return the tab and the parameters that the address names. */
export function current() {
  const hash = location.hash.replace(/^#\/?/, "");
  const [name, query = ""] = hash.split(/\?(.*)/s);
  return { tab: TABS.includes(name) ? name : "discover", params: new URLSearchParams(query) };
}

/** Return the address of a tab with parameters; a list is a parameter repeated, null is none. */
export function address(tab, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  const text = query.toString();
  return `#/${tab}${text ? `?${text}` : ""}`;
}

/** Go to a tab with parameters; `replace` leaves no entry in the history. */
export function go(tab, params, { replace = false } = {}) {
  const target = address(tab, params);
  if (target === location.hash) return;
  if (replace) {
    history.replaceState(null, "", target);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = target;
  }
}

/** Return parameters as an object of lists. */
export function listed(params) {
  const lists = {};
  for (const name of new Set(params.keys())) lists[name] = params.getAll(name);
  return lists;
}

/** Change some parameters of the present address; null removes one. */
export function change(changes, options) {
  const { tab, params } = current();
  go(tab, { ...listed(params), ...changes }, options);
}
