// The overview: what the broker does, has and needs, and what somebody should look at.

import { get } from "./api.js";
import { chart, sparkline } from "./charts.js";
import { atMostEvery, facts, fill, h, say } from "./dom.js";
import { count, duration, octets, rate, things } from "./format.js";
import { KEPT, live } from "./live.js";
import { attempt } from "./notices.js";
import { to } from "./routes.js";
import { link, table } from "./table.js";

const RATES = [
  ["received", "Received", "first"],
  ["delivered", "Delivered", "second"],
  ["settled", "Settled", "third"],
  ["dead_lettered", "Dead-lettered", "fourth"],
];
const LISTED = 8;
const REFRESH_MS = 3_000;

export function mount(root, params, signal) {
  const tiles = RATES.map(([name, label, kind]) => tile(name, label, kind));
  const course = chart("Messages a second", [
    { label: "Received", kind: "first" },
    { label: "Delivered", kind: "second" },
  ], { span_s: KEPT, write: rate });
  const numbers = facts();
  const process = facts();
  const lease = facts();
  const sharing = titled("High availability", lease);
  sharing.hidden = true;
  const trouble = h("div", { role: "alert", class: "trouble", hidden: true });
  const fullest = listed("Longest queues", "destinations", { kind: "queue", sort: "ready", order: "desc" }, "No queue has messages.");
  const dead = listed("Dead letters", "dead-letters", { kind: "dlq", sort: "ready", order: "desc" }, "No dead letters.");
  fill(
    root,
    h("h1", { class: "unseen" }, "Overview"),
    trouble,
    h("div", { class: "tiles" }, tiles.map((each) => each.element)),
    h("div", { class: "columns" }, h("section", { class: "card wide" }, course.element), titled("Now", numbers)),
    h("div", { class: "columns" }, fullest.element, dead.element),
    sharing,
    titled("Process", process),
  );

  const draw = () => {
    const now = live.overview;
    if (!now) return;
    tiles.forEach((each) => each.draw(now));
    course.draw([history("received"), history("delivered")], 1);
    numbers.show([
      ["Destinations", count(now.destinations)],
      ["Connections", count(now.connections)],
      ["Subscriptions", count(now.subscriptions)],
      ["Ready", count(now.ready)],
      ["In flight", count(now.in_flight)],
      ["Delayed", count(now.delayed)],
    ]);
    process.show([
      ["Version", `${now.version}${now.is_compiled ? ", compiled" : ""}`],
      ["Up for", duration(now.uptime_s)],
      ["Process id", String(now.pid)],
      ["Memory", octets(now.memory_octets)],
      ["Descriptors", count(now.descriptors)],
      ...store(now.store),
    ]);
    sharing.hidden = !now.lease;
    if (now.lease) lease.show(leased(now.lease));
    trouble.hidden = !now.store.failure;
    say(trouble, now.store.failure ? `The store has failed: ${now.store.failure}` : "");
  };
  const lists = () => attempt(() => Promise.all([fullest.load(signal), dead.load(signal)]));
  draw();
  lists();
  live.addEventListener("overview", draw, { signal });
  live.addEventListener("overview", atMostEvery(REFRESH_MS, lists, signal), { signal });
}

const store = ({ kind, octets: size, failure }) =>
  kind === "none"
    ? [["Store", "none: messages are in memory"]]
    : [["Store", kind], ["Store size", octets(size)], ["Store state", failure ? "failed" : "works"]];
const ago = (seconds, age_s) => (seconds == null ? "–" : `${duration(seconds + (age_s ?? 0))} ago`);
const leased = (lease) => [
  ["This broker", `${lease.name}, ${lease.is_active ? "active" : "passive"}`],
  ["Owner of the lease", lease.owner ?? "none"],
  ["Epoch", count(lease.epoch)],
  ["Last renewal", ago(lease.renewed_s, lease.age_s)],
  ["Last change", lease.epoch ? ago(lease.held_s, lease.age_s) : "–"],
  ["Database", lease.failure ? `does not answer: ${lease.failure}` : "answers"],
  ["Brokers", lease.brokers.map((each) => `${each.name} (${each.role})`).join(", ")],
];
const titled = (title, list) => h("section", { class: "card" }, h("h2", {}, title), list.element);
const history = (name) => live.history.map((rates) => rates[name]);

function tile(name, label, kind) {
  const now = h("b", {});
  const total = h("span", { class: "quiet" });
  const course = sparkline(60, kind);
  return {
    element: h(
      "section",
      { class: `card tile ${kind}`, "aria-label": label, "data-rate": name },
      h("h2", {}, label),
      h("p", {}, now, h("span", { class: "unit" }, "/s")),
      total,
      course.element,
    ),
    draw(overview) {
      say(now, rate(overview.rates[name]));
      say(total, `${count(overview.totals[name])} in total`);
      course.draw(history(name).slice(-60));
    },
  };
}

function listed(title, view, query, empty) {
  const rows = table(title, [
    {
      id: "name",
      label: "Name",
      draw: (cell, row) => link(cell, row.name, to(view, { name: row.name, host: row.host }), { class: "long" }),
    },
    { id: "ready", label: "Ready", kind: "number", text: (row) => count(row.ready) },
    { id: "rate", label: "In/s", kind: "number", text: (row) => rate(row.rates?.in) },
    { id: "rate", label: "Out/s", kind: "number", text: (row) => rate(row.rates?.out) },
  ], { key: (row) => JSON.stringify([row.host, row.name]), empty });
  const more = h("a", { href: to(view) }, "All");
  return {
    element: h(
      "section",
      { class: "card" },
      h("div", { class: "heading" }, h("h2", {}, title), more),
      rows.element,
    ),
    async load(signal) {
      const found = await get("destinations", { ...query, limit: LISTED }, signal);
      rows.show(found.destinations.filter((row) => row.ready > 0));
      more.setAttribute("aria-label", `All, ${things(found.total, "destination")}`);
    },
  };
}
