// The stream of server-sent events. It is read with fetch(), since an EventSource sends no token.

import { authorised, get, refused, search } from "./api.js";

/** After how long without a word the stream counts as broken. */
const SILENCE_MS = 10_000;
const HIDDEN_MS = 60_000;
const WAITS_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];
/** So many seconds are kept of the broker's rates. */
export const KEPT = 300;

/**
 * Tells `open` when a stream begins, `overview`, `destinations` and `frame` with what has come as `detail`, `state`
 * when `live.state` is another one: connecting, live, lost or refused.
 */
export const live = new EventTarget();
live.state = "connecting";
live.overview = null;
live.history = [];

let arrived = 0;

/** The time of the broker's clock in milliseconds, which may differ from the browser's; null if unknown. */
export function brokerTime() {
  if (!live.overview) return null;
  const { started, uptime_s: uptime } = live.overview;
  return Date.parse(started) + uptime * 1000 + (arrived ? performance.now() - arrived : 0);
}

let filter = null;
let running = null;
let failures = 0;
let timer = 0;
let hiding = 0;

/** Start, or start over, with frames where a filter of them is given. */
export function follow(frames = filter) {
  filter = frames;
  running?.abort();
  clearTimeout(timer);
  timer = 0;
  running = new AbortController();
  read(running);
}

/** End it, since one may not have it. */
export function leave() {
  unfollow();
  tell("refused");
}

function unfollow() {
  running?.abort();
  clearTimeout(timer);
  timer = 0;
  running = null;
}

/** Take it up when the page is seen again, and let go of it a while after it was hidden. */
export function followWhileSeen() {
  const rest = () => {
    if (!running && !timer) return;
    unfollow();
    live.history.length = 0;
    tell("connecting");
    const resume = () => {
      if (document.hidden) return;
      ["visibilitychange", "pageshow"].forEach((name) => removeEventListener(name, resume, true));
      follow();
    };
    ["visibilitychange", "pageshow"].forEach((name) => addEventListener(name, resume, true));
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    // A browser has few connections to a host, and each stream that nobody sees takes one.
    if (document.hidden) hiding = setTimeout(rest, HIDDEN_MS);
  });
  // What is kept for the way back would keep its connection as well.
  addEventListener("pagehide", rest);
}

function tell(state) {
  if (live.state === state) return;
  live.state = state;
  live.dispatchEvent(new Event("state"));
}

async function read(control) {
  let heard = Date.now();
  const watch = setInterval(() => {
    if (Date.now() - heard > SILENCE_MS) control.abort();
  }, 1_000);
  if (live.state !== "live") tell(failures ? "lost" : "connecting");
  try {
    const query = filter ? { frames: 1, ...filter } : {};
    const response = await fetch(`api/v1/events${search(query)}`, {
      headers: authorised({ accept: "text/event-stream" }),
      cache: "no-store",
      credentials: "omit",
      signal: control.signal,
    });
    if (!response.ok) await refused(response);
    await recall(control.signal);
    live.dispatchEvent(new Event("open"));
    const parse = parser(deliver);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done || control !== running) break;
      heard = Date.now();
      parse(value);
    }
  } catch (error) {
    if (error.status === 401) {
      clearInterval(watch);
      if (control === running) tell("refused");
      return;
    }
  }
  clearInterval(watch);
  if (control !== running) return;
  tell("lost");
  timer = setTimeout(() => follow(), WAITS_MS[Math.min(failures, WAITS_MS.length - 1)]);
  failures += 1;
}

/** Take what the broker remembers of its rates, but the latest ones: the stream begins with them. */
async function recall(signal) {
  const { rates } = await get("history", {}, signal);
  live.history = rates.slice(0, -1).slice(-KEPT);
}

function deliver(type, data) {
  let detail;
  try {
    detail = JSON.parse(data);
  } catch {
    return;
  }
  failures = 0;
  tell("live");
  if (type === "overview") {
    live.overview = detail;
    arrived = performance.now();
    live.history.push(detail.rates);
    if (live.history.length > KEPT) live.history.shift();
  }
  live.dispatchEvent(new CustomEvent(type, { detail }));
}

/** Takes pieces of a stream of events, cut anywhere, and calls with the type and data of each. */
export function parser(call) {
  let rest = "";
  let type = "";
  let lines = [];
  const take = (line) => {
    if (line === "") {
      if (lines.length) call(type || "message", lines.join("\n"));
      type = "";
      lines = [];
      return;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (name === "event") type = value;
    else if (name === "data") lines.push(value);
  };
  return (text) => {
    rest += text;
    // A CR at the end may be half of a line's end.
    const cut = rest.endsWith("\r") ? rest.slice(0, -1) : rest;
    const parts = cut.split(/\r\n|\r|\n/);
    rest = parts.pop() + rest.slice(cut.length);
    parts.forEach(take);
  };
}
