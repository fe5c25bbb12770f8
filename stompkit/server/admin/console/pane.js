// One destination: its rates, its policy, its consumers, its messages, and actions.

import { get, mayChange, post } from "./api.js";
import { chart } from "./charts.js";
import { atMostEvery, button, facts, field, fill, h, say } from "./dom.js";
import { count, octets, rate, things } from "./format.js";
import { live } from "./live.js";
import { messages, sentBack } from "./messages.js";
import { ask, attempt, notice } from "./notices.js";
import { publishButton } from "./publish.js";
import { to } from "./routes.js";
import { link, table } from "./table.js";

const REFRESH_MS = 2_000;

/** Whether messages wait in what is of this kind. */
const holds = (kind) => !["topic", "temp-topic", "fanout"].includes(kind);
/** Whether an operator may send to it: what is temporary belongs to a client, and durables to a topic. */
const accepts = (kind) => !["temp-queue", "temp-topic", "durable"].includes(kind);
/** Names above this length are cut, and shown whole on demand. */
const LONG_NAME = 80;

export function pane({ name, host }, { close, changed, signal }) {
  const title = h("h2", { id: "pane-title", tabindex: -1, class: "long", title: name }, name);
  const whole = name.length > LONG_NAME
    ? h("details", {}, h("summary", {}, "Whole name"), h("code", {}, name))
    : null;
  const badge = h("span", { class: "badge", hidden: true }, "paused");
  const depth = chart("Ready", [{ label: "messages", kind: "third" }]);
  const flow = chart("A second", [
    { label: "in", kind: "first" },
    { label: "out", kind: "second" },
  ], { write: rate });
  const charts = h("div", { class: "charts" });
  const numbers = facts();
  const policy = facts();
  const readers = consumers();
  const actions = h("div", { class: "actions", role: "group", "aria-label": "Actions" });
  const inside = h("div", {});
  const element = h(
    "section",
    { class: "pane card", "aria-labelledby": "pane-title" },
    h("div", { class: "heading" }, title, badge, button("Close", close, { class: "small", "aria-keyshortcuts": "Escape" })),
    whole,
    actions,
    inside,
  );
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    close();
  });

  let known = null;
  let isGone = false;
  let peek = null;
  const refresh = async () => {
    try {
      draw(await get("destination", { host, name }, signal));
    } catch (error) {
      if (error.status !== 404) return attempt(() => Promise.reject(error));
      forget();
    }
  };
  const forget = () => {
    const hadFocus = element.contains(document.activeElement) && document.activeElement !== title;
    fill(inside, h("p", { class: "empty" }, "It does not exist: it has neither messages nor consumers."));
    fill(actions);
    badge.hidden = true;
    known = null;
    isGone = true;
    if (hadFocus) title.focus();
  };
  const after = async () => {
    await Promise.all([refresh(), changed()]);
    if (known) await peek?.load();
  };
  const act = (path, body, said) => async () => {
    if (await attempt(() => post(path, { host, name, ...body }), said)) await after();
  };

  const draw = (now) => {
    isGone = false;
    if (!known) build(now);
    if (known?.is_paused !== now.is_paused) offer(now);
    known = now;
    badge.hidden = !now.is_paused;
    numbers.show([
      ["Ready", count(now.ready)],
      ["In flight", count(now.in_flight)],
      ["Delayed", count(now.delayed)],
      ["Size", octets(now.octets)],
      ["In, total", count(now.totals.in)],
      ["Out, total", count(now.totals.out)],
      ["Dead-lettered", count(now.totals.dead_lettered)],
      ["Expired", count(now.totals.expired)],
      ["Dropped", count(now.totals.dropped)],
    ]);
    policy.show(Object.entries(now.policy).map(([term, value]) => [term, written(value)]));
    charts.hidden = !now.history;
    if (now.history) {
      depth.draw([now.history.ready], now.history.interval_s);
      flow.draw([now.history.in, now.history.out], now.history.interval_s);
    }
    readers.show(now.subscriptions);
  };

  const build = (now) => {
    peek = holds(now.kind) ? messages({ name, host, kind: now.kind }, { after, signal }) : null;
    // A broker with very many destinations follows some of them.
    fill(charts, holds(now.kind) && depth.element, flow.element);
    fill(
      inside,
      charts,
      numbers.element,
      peek?.element,
      h("h3", {}, "Consumers"),
      readers.element,
      h("details", {}, h("summary", {}, "Policy"), policy.element),
    );
    peek?.load();
  };

  const offer = (now) => {
    const focused = document.activeElement?.dataset?.action;
    const action = (id, label, does, more = {}) => button(label, does, { "data-action": id, ...more });
    fill(actions, mayChange() && [
      accepts(now.kind) && publishButton({ name, host }, after),
      now.kind === "dlq" && action("retry", "Retry all", retry, { class: "primary" }),
      now.is_paused
        ? action("pause", "Resume", act("resume", {}, () => `${name} delivers again`))
        : action("pause", "Pause", act("pause", {}, () => `${name} is paused and delivers nothing`)),
      holds(now.kind) && action("move", "Move…", move),
      holds(now.kind) && action("purge", "Purge…", purge, { class: "danger" }),
      action("delete", "Delete…", remove, { class: "danger" }),
    ]);
    if (focused) actions.querySelector(`[data-action=${focused}]`)?.focus();
  };

  const purge = async () => {
    const text = `${things(known.ready + known.delayed, "message")} will be deleted permanently. Messages in flight stay with their consumers.`;
    if (!(await ask(`Purge ${name}?`, { text, yes: "Purge", danger: true }))) return;
    await act("purge", {}, ({ purged }) => `${things(purged, "message")} purged from ${name}`)();
  };
  const retry = act("retry", {}, sentBack);
  const move = async () => {
    const fields = [
      field("To", h("input", { name: "to", required: true, value: suggestion(name), autocomplete: "off", spellcheck: "false" })),
      field("At most", h("input", { name: "limit", type: "number", min: 1, placeholder: "all" })),
      field("Selector", h("input", { name: "selector", autocomplete: "off", spellcheck: "false", placeholder: "none, such as: kind = 'invoice'" })),
    ];
    const text = "Waiting messages are moved in their order. Messages in flight stay.";
    const answer = await ask(`Move messages of ${name}`, { text, fields, yes: "Move" });
    if (!answer) return;
    const body = { host, from: name, to: answer.to.trim() };
    if (answer.limit) body.limit = Number(answer.limit);
    if (answer.selector.trim()) body.selector = answer.selector.trim();
    const said = ({ moved, reason }) =>
      `${things(moved, "message")} moved to ${body.to}${reason ? `; the others stay: ${reason}` : ""}`;
    if (await attempt(() => post("move", body), said)) await after();
  };
  const remove = async () => {
    const text = `Its ${things(known.ready + known.delayed, "message")} are deleted, too. The next client that names it creates it again, if it has the right to.`;
    if (!(await ask(`Delete ${name}?`, { text, yes: "Delete", danger: true }))) return;
    if (!(await attempt(() => post("delete", { host, name })))) return;
    notice(`${name} is deleted`);
    close();
  };

  refresh().then(() => title.focus({ preventScroll: false }));
  // With each sign of life of the broker, so that nothing is asked of one that is gone.
  const again = atMostEvery(REFRESH_MS, refresh, signal);
  live.addEventListener("overview", () => isGone || again(), { signal });
  live.addEventListener("destinations", ({ detail }) => {
    const isBack = detail.changed.some((row) => row.name === name && row.host === host);
    if (isGone && isBack) again();
  }, { signal });
  return element;
}

/** Where messages are moved to most often: dead letters to their queue. */
const suggestion = (name) => (name.startsWith("/dlq/") ? `/queue/${name.slice(5)}` : "");

function written(value) {
  if (value === null) return "none";
  if (Array.isArray(value)) return value.join(", ") || "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function consumers() {
  return table("Consumers", [
    {
      id: "connection",
      label: "Connection",
      draw: (cell, row) => link(cell, String(row.connection), to("connections", { id: row.connection })),
    },
    { id: "subscription", label: "Subscription", text: (row) => row.id ?? "none" },
    { id: "ack", label: "Ack", text: (row) => row.ack },
    { id: "prefetch", label: "Prefetch", kind: "number", text: (row) => count(row.prefetch) },
    { id: "in-flight", label: "In flight", kind: "number", text: (row) => count(row.in_flight) },
    { id: "selector", label: "Selector", text: (row) => row.selector || "none" },
  ], { key: (row) => JSON.stringify([row.connection, row.id]), empty: "No consumers." });
}
