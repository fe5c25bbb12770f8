// A look at the messages of a queue, which takes none away, and what can be done with some of them.

import { get, mayChange, post } from "./api.js";
import { button, fill, h, say } from "./dom.js";
import { ago, count, moment, octets, things } from "./format.js";
import { brokerTime, live } from "./live.js";
import { ask, attempt } from "./notices.js";

const PAGE = 20;
const BODY_OCTETS = 16_384;
const PREVIEW = 120;

/** The result of a retry. */
export const sentBack = ({ retried, left }) =>
  `${things(retried, "message")} sent back${left ? `; ${count(left)} stay, since their queue is full or not known` : ""}`;

export function messages({ name, host, kind }, { after, signal }) {
  const list = h("ul", { class: "messages" });
  const state = h("p", { class: "empty", role: "status" });
  const more = button("More", () => attempt(() => read(next)), { class: "small", hidden: true });
  const all = h("input", { type: "checkbox", "aria-label": "Choose all that are shown" });
  const chosen = () => [...list.querySelectorAll("input:checked")].map((box) => box.value);
  const words = (verb) => (chosen().length ? `${verb} ${count(chosen().length)}` : verb);
  const tools = h("div", { class: "actions", role: "group", "aria-label": "Chosen messages" });
  let next = null;

  const act = (path, body, said) => async () => {
    const ids = chosen();
    if (await attempt(() => post(path, { host, ...body, ids }), said)) await after();
  };
  const retry = button("Retry", act("retry", { name }, sentBack), { class: "primary", "data-do": "Retry" });
  const remove = button("Delete…", async () => {
    const text = "They are deleted permanently.";
    const title = `Delete ${things(chosen().length, "message")} of ${name}?`;
    if (await ask(title, { text, yes: "Delete", danger: true })) {
      await act("delete-messages", { name }, ({ deleted }) => `${things(deleted, "message")} deleted`)();
    }
  }, { class: "danger", "data-do": "Delete" });
  const reload = button("Reload", () => load(), { class: "small" });
  const choosing = mayChange() && [h("label", { class: "choice" }, all, " all"), kind === "dlq" && retry, remove];
  fill(tools, choosing, reload);

  const choice = () => {
    const some = chosen().length;
    for (const each of [retry, remove]) {
      each.disabled = !some;
      say(each, words(each.dataset.do) + (each === remove ? "…" : ""));
    }
    const boxes = list.querySelectorAll("input[type=checkbox]").length;
    all.checked = some > 0 && some === boxes;
    all.indeterminate = some > 0 && some < boxes;
    all.disabled = !boxes;
  };
  all.addEventListener("change", () => {
    list.querySelectorAll("input[type=checkbox]").forEach((box) => (box.checked = all.checked));
    choice();
  });
  list.addEventListener("change", choice);
  list.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!steps || !event.target.matches("summary, input")) return;
    event.preventDefault();
    const all = [...list.querySelectorAll(event.target.tagName)];
    all[all.indexOf(event.target) + steps]?.focus();
  });

  const read = async (place) => {
    const query = { host, name, after: place, limit: PAGE, max_body_octets: BODY_OCTETS };
    const found = await get("messages", query, signal);
    next = found.next;
    list.append(...found.messages.map(shown));
    more.hidden = next == null || !found.messages.length;
    say(state, list.children.length ? "" : "No messages.");
    choice();
  };
  const load = () =>
    attempt(async () => {
      const hadFocus = list.contains(document.activeElement) || tools.contains(document.activeElement);
      fill(list);
      await read(null);
      if (hadFocus && !tools.contains(document.activeElement)) reload.focus();
    });
  choice();
  return {
    element: h("section", { "aria-label": "Messages" }, h("h3", {}, "Messages"), tools, list, state, more),
    load,
  };
}

/** One message: a line, and all of it when it is opened. */
function shown(message) {
  const body = message.body ?? "";
  const first = message.body == null ? "binary" : body.slice(0, PREVIEW).replace(/\s+/g, " ");
  const marks = [
    age(message),
    message.state !== "ready" && message.state,
    message.deliveries > 0 && `delivered ${things(message.deliveries, "time")}`,
    message.due && `due ${moment(message.due)}`,
    message.expires && `expires ${moment(message.expires)}`,
  ].filter(Boolean);
  const opened = h("details", {},
    h("summary", {},
      h("span", { class: "preview" }, first || "empty"),
      h("span", { class: "quiet" }, [octets(message.body_octets), ...marks].join(" · ")),
    ),
  );
  opened.addEventListener("toggle", () => {
    if (opened.open && opened.children.length === 1) opened.append(whole(message));
  });
  const label = `Choose message ${message.id}`;
  return h("li", {}, mayChange() && h("input", { type: "checkbox", value: message.id, "aria-label": label }), opened);
}

/** The age of a message; of one that is older than the broker's process, the least that it can be. */
function age(message) {
  const now = brokerTime();
  if (now == null) return null;
  if (message.received) return `${ago((now - Date.parse(message.received)) / 1000)} old`;
  return `over ${ago(live.overview.uptime_s)} old`;
}

function whole(message) {
  const received = message.received ? [["received", moment(message.received)]] : [];
  const rows = [["message-id", message.id], ...received, ...message.headers.filter(([name]) => name !== "message-id")];
  const table = h("table", { class: "headers", "aria-label": "Headers" },
    rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))));
  const kept = message.body == null ? atob(message.body_base64 ?? "").length : null;
  const note = message.is_truncated
    ? h("p", { class: "quiet" }, kept == null ? `The first ${octets(new Blob([message.body]).size)} of ${octets(message.body_octets)}` : `The first ${octets(kept)} of ${octets(message.body_octets)}`)
    : null;
  return h("div", { class: "whole" }, table, bodyOf(message), note);
}

function bodyOf(message) {
  if (message.body == null) return h("pre", { class: "body", tabindex: 0 }, dump(message.body_base64 ?? ""));
  const type = message.headers.find(([name]) => name === "content-type")?.[1] ?? "";
  return h("pre", { class: "body", tabindex: 0 }, /json/.test(type) ? indented(message.body) : message.body);
}

/** JSON with its structure; what is none stays as it is. */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Octets as a dump: place, sixteen of them, and what of these is ASCII. */
function dump(base64) {
  const octets = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < octets.length; at += 16) {
    const part = [...octets.slice(at, at + 16)];
    const hex = part.map((octet) => octet.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((octet) => (octet > 31 && octet < 127 ? String.fromCharCode(octet) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}
