// One connection: its client, its session and its subscriptions.

import { get } from "./api.js";
import { atMostEvery, button, facts, fill, h } from "./dom.js";
import { count, duration, moment, protocol } from "./format.js";
import { brokerTime, live } from "./live.js";
import { attempt } from "./notices.js";
import { to } from "./routes.js";
import { link, table } from "./table.js";

const REFRESH_MS = 2_000;

export function client(id, { close, signal }) {
  const title = h("h2", { id: "pane-title", tabindex: -1, class: "long" }, "Connection");
  const session = facts();
  const numbers = facts();
  const subscriptions = table("Subscriptions", [
    { id: "subscription", label: "Id", text: (row) => row.id ?? "none" },
    {
      id: "destination",
      label: "Destination",
      draw: (cell, row) => link(cell, row.destination, to("destinations", { contains: row.destination }), { class: "long" }),
    },
    { id: "ack", label: "Ack", text: (row) => row.ack },
    { id: "prefetch", label: "Prefetch", kind: "number", text: (row) => count(row.prefetch) },
    { id: "in-flight", label: "In flight", kind: "number", text: (row) => count(row.in_flight) },
    { id: "selector", label: "Selector", text: (row) => row.selector || "none" },
  ], { key: (row) => JSON.stringify([row.id, row.destination]), empty: "No subscriptions." });
  const inside = h("div", {});
  const element = h(
    "section",
    { class: "pane card", "aria-labelledby": "pane-title" },
    h("div", { class: "heading" }, title, button("Close", close, { class: "small", "aria-keyshortcuts": "Escape" })),
    inside,
  );
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    close();
  });
  let isOver = false;
  const draw = (now) => {
    title.textContent = now.address;
    if (!session.element.isConnected) {
      fill(inside, session.element, h("h3", {}, "Now"), numbers.element, h("h3", {}, "Subscriptions"), subscriptions.element);
    }
    session.show([
      ["User", now.user || "anonymous"],
      ["Groups", now.groups.join(", ") || "none"],
      ["Client id", now.client_id ?? "none"],
      ["Session", now.session ?? "none"],
      ["Protocol", protocol(now.version)],
      ["Virtual host", now.host || "default"],
      ["Heart-beats to the client", beat(now.heart_beat_ms?.[0])],
      ["Heart-beats from the client", beat(now.heart_beat_ms?.[1])],
      ["Connected since", moment(now.connected)],
      ["Connection id", now.id],
    ]);
    const seconds = brokerTime() == null ? null : (brokerTime() - Date.parse(now.connected)) / 1000;
    numbers.show([
      ["State", now.is_blocked ? "blocked: a queue is full" : now.state],
      ["Connected for", seconds == null ? "–" : duration(seconds)],
      ["Subscriptions", count(now.subscriptions)],
      ["In flight", count(now.in_flight)],
      ["Open transactions", count(now.transactions)],
    ]);
    subscriptions.show(now.subscription_details);
  };
  const load = async () => {
    try {
      draw(await get("connection", { connection: id }, signal));
    } catch (error) {
      if (error.status !== 404) return attempt(() => Promise.reject(error));
      isOver = true;
      fill(inside, h("p", { class: "empty" }, "This connection has ended."));
    }
  };
  load().then(() => title.focus({ preventScroll: false }));
  const again = atMostEvery(REFRESH_MS, load, signal);
  live.addEventListener("overview", () => isOver || again(), { signal });
  return element;
}

/** An interval of heart-beats. */
const beat = (ms) => (ms == null ? "–" : ms ? `every ${ms / 1000} s` : "none");
