// Requests to the broker, and the token that they carry.

const KEY = "stompkit.token";

/** Dispatches `login` when a token is missing or was refused. */
export const access = new EventTarget();

/** An error of the broker, with its `code` and `status`; the status is 0 if it did not answer. */
export class ApiError extends Error {
  constructor(message, code, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** The sender of requests, whose role is null until it is known: only an operator may change anything, as the broker checks itself. */
export const me = { role: null };
export const mayChange = () => me.role === "operator";

export const token = () => sessionStorage.getItem(KEY) ?? "";

export function remember(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** The headers of a request. */
export function authorised(headers = {}) {
  return token() ? { ...headers, authorization: `Bearer ${token()}` } : headers;
}

/** Send a GET request; empty parameters are omitted. */
export function get(path, query = {}, signal = undefined) {
  return ask(`api/v1/${path}${search(query)}`, { headers: authorised(), signal });
}

/** Send a POST request. */
export function post(path, body) {
  return ask(`api/v1/${path}`, {
    method: "POST",
    headers: authorised({ "content-type": "application/json" }),
    body: JSON.stringify(body),
  });
}

export function search(query) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** Raise the error in an answer. */
export async function refused(response) {
  const said = await response.json().catch(() => ({}));
  const { code = `http-${response.status}`, message = `the broker answers ${response.status}` } =
    said.error ?? {};
  if (response.status === 401) access.dispatchEvent(new Event("login"));
  throw new ApiError(message, code, response.status);
}

async function ask(url, options) {
  let response;
  try {
    response = await fetch(url, { cache: "no-store", credentials: "omit", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the broker does not answer", "unreachable", 0);
  }
  if (!response.ok) await refused(response);
  return response.json();
}
