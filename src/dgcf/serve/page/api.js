// Requests to the service. What fails becomes a Problem with one sentence for the reader.

import { askToken, storedToken } from "./token.js";

const BASE = new URL("../v1/", import.meta.url);
const SECONDS = 30;

/** An answer that is none: `status` 0 if the server did not answer at all; `token`: whether another one may help. */
export class Problem extends Error {
  constructor(status, detail, title = "", token = false) {
    super(detail);
    Object.assign(this, { status, title, token });
  }

  get offline() {
    return this.status === 0;
  }
}

/** Return the path of an address with each part encoded as one segment. */
export function path(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/** Return the JSON answer of a GET request. */
export function get(where, query = {}, options = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, value);
  }
  const text = search.toString();
  return request("GET", text ? `${where}?${text}` : where, undefined, options);
}

/** Return the JSON answer of a POST request. */
export function post(where, body, options) {
  return request("POST", where, body, options);
}

/** Send a DELETE request. */
export function remove(where, options) {
  return request("DELETE", where, undefined, options);
}

/** `ask`: whether the reader is asked for a token if the server wants one. */
async function request(method, where, body, { signal, ask = true } = {}) {
  const token = storedToken();
  const response = await sent(method, where, body, token, signal);
  if (response.status === 401 && ask) {
    const next = await askToken(token !== null, token);
    if (next !== null) return request(method, where, body, { signal });
  }
  if (!response.ok) throw await problemOf(response);
  if (response.status === 204) return null;
  return answerOf(response, signal);
}

async function sent(method, where, body, token, signal) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  const limit = AbortSignal.timeout(SECONDS * 1000);
  const options = {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
    cache: "no-cache",
    credentials: "omit",
  };
  try {
    return await fetch(new URL(where, BASE), options);
  } catch (error) {
    throw failure(error, signal);
  }
}

async function answerOf(response, signal) {
  try {
    return await response.json();
  } catch (error) {
    throw failure(error, signal);
  }
}

function failure(error, signal) {
  if (signal?.aborted) return error;
  if (error.name === "TimeoutError") return new Problem(0, `The server did not answer within ${SECONDS} seconds.`);
  return new Problem(0, "The server does not answer. It may be stopped or restarting.");
}

async function problemOf(response) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy between page and server may answer with something else.
  }
  const wait = response.headers.get("Retry-After");
  const detail = problem.detail ?? `The server answered with status ${response.status}.`;
  const again = response.status === 429 && wait ? ` Try again in ${wait} s.` : "";
  const token = response.headers.has("WWW-Authenticate"); // not where the route is off for every token
  return new Problem(response.status, sentence(detail) + again, problem.title ?? "", token);
}

function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

/** Return whether an error only says that a newer request replaced this one. */
export function replaced(error) {
  return error?.name === "AbortError";
}
