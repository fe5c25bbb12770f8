// Connections, one of them beside the list, and durable subscriptions.

import { get, mayChange, post } from "./api.js";
import { client } from "./client.js";
import { afterPause, atMostEvery, button, field, fill, h } from "./dom.js";
import { count, moment, protocol, things } from "./format.js";
import { live } from "./live.js";
import { ask, attempt } from "./notices.js";
import { note, to } from "./routes.js";
import { link, pages, table } from "./table.js";

const PAGE = 50;
/** The most connections that the broker puts into one answer. */
const MOST = 1_000;
const REFRESH_MS = 2_000;

export function connections(root, params, signal) {
  const number = (id, label, value) => ({
    id, label, kind: "number", sort: { by: id, first: "desc" }, value, text: (row) => count(value(row)),
  });
  const word = (id, label, value, kind = "") => ({ id, label, kind, sort: { by: id }, value, text: value });
  const columns = (address) => [
    {
      ...word("address", "Address", (row) => row.address),
      text: null,
      draw: (cell, row) => link(cell, row.address, to("connections", address({ id: row.id })), { class: "long" }),
    },
    word("user", "User", (row) => row.user || "anonymous"),
    word("client", "Client id", (row) => row.client_id ?? "none", "extra"),
    word("version", "Protocol", (row) => protocol(row.version), "extra"),
    word("host", "Host", (row) => row.host || "default", "extra"),
    word("state", "State", (row) => (row.is_blocked ? "blocked" : row.state)),
    number("subscriptions", "Subscriptions", (row) => row.subscriptions),
    number("in_flight", "In flight", (row) => row.in_flight),
    { ...word("connected", "Since", (row) => row.connected ?? "", "extra"), text: (row) => moment(row.connected) },
  ];
  const close = async (row) => {
    const text = `${row.user || "An anonymous client"}, with ${things(row.subscriptions, "subscription")}. Its unacknowledged messages are delivered again.`;
    const fields = [field("Reason for the client", h("input", { name: "reason", autocomplete: "off", placeholder: "none" }))];
    const answer = await ask(`Close the connection of ${row.address}?`, { text, fields, yes: "Close it", danger: true });
    if (!answer) return false;
    const body = { connection: row.id };
    if (answer.reason.trim()) body.reason = answer.reason.trim();
    return attempt(() => post("close", body), () => `The connection of ${row.address} is closed`);
  };
  return listing(root, params, signal, {
    view: "connections",
    title: "Connections",
    columns,
    sort: "address",
    detail: client,
    action: ["Close…", close, (row) => `Close the connection of ${row.address}`],
    empty: "No client is connected.",
    load: async (contains) => {
      const { total, connections } = await get("connections", { contains, limit: MOST }, signal);
      return { rows: connections, total };
    },
    key: (row) => String(row.id),
    words: (row) => `${row.id} ${row.address} ${row.user} ${row.client_id ?? ""} ${row.host}`,
  });
}

export function durables(root, params, signal) {
  const word = (id, label, value) => ({ id, label, sort: { by: id }, value, text: value });
  const columns = () => [
    {
      ...word("name", "Name", (row) => row.name),
      text: null,
      draw: (cell, row) => link(cell, row.name, to("destinations", { kind: "durable", contains: row.name })),
    },
    word("destination", "Destination", (row) => row.destination),
    word("client", "Client id", (row) => row.client_id || "none"),
    word("owner", "Owner", (row) => row.owner ?? "none"),
    word("host", "Host", (row) => row.host || "default"),
    { id: "ready", label: "Ready", kind: "number", sort: { by: "ready", first: "desc" }, value: (row) => row.ready, text: (row) => count(row.ready) },
    word("connected", "Consumer", (row) => (row.is_connected ? "connected" : "away")),
  ];
  const remove = async (row) => {
    const text = `Its ${things(row.ready, "message")} are deleted, too.`;
    if (!(await ask(`Delete the durable subscription ${row.name}?`, { text, yes: "Delete", danger: true }))) return false;
    return attempt(() => post("durables/delete", { host: row.host, name: row.name }), () => `${row.name} is deleted`);
  };
  return listing(root, params, signal, {
    view: "durables",
    title: "Durable subscriptions",
    columns,
    sort: "name",
    action: ["Delete…", remove, (row) => `Delete the durable subscription ${row.name}`],
    empty: "No durable subscriptions.",
    load: async () => {
      const { durables } = await get("durables", {}, signal);
      return { rows: durables, total: durables.length };
    },
    key: (row) => JSON.stringify([row.host, row.name]),
    words: (row) => `${row.name} ${row.destination} ${row.client_id ?? ""} ${row.owner ?? ""} ${row.host}`,
  });
}

/**
 * A list that comes at once: sorted, filtered and divided into pages here; a detail may be beside it.
 * If the broker has more than `load` returns, a line below the title says so.
 */
function listing(root, params, signal, about) {
  const at = { contains: params.get("contains") ?? "", sort: about.sort, order: "asc", offset: 0 };
  const address = (more = {}) => ({ contains: at.contains, ...more });
  const columns = about.columns(address);
  let opened = null;
  let all = [];
  const [label, action, described] = about.action;
  const last = {
    id: "action",
    label: "Action",
    quiet: true,
    draw(cell, row) {
      // The row of now, which may have changed since the button was made.
      cell.row = row;
      if (cell.firstChild) return;
      const press = async () => (await action(cell.row)) && load();
      fill(cell, button(label, press, { class: "small danger", "aria-label": described(row) }));
    },
  };
  const rows = table(about.title, mayChange() ? [...columns, last] : columns, {
    key: about.key,
    empty: about.empty,
    mark: (row) => (opened === about.key(row) ? "chosen" : ""),
    sorted: ({ by, is }) => change({ sort: by, order: is }),
  });
  const more = h("p", { class: "quiet", role: "status", hidden: true });
  const turning = pages(PAGE, (offset) => change({ offset }));
  const text = h("input", {
    type: "search", name: "contains", value: at.contains, autocomplete: "off", spellcheck: "false",
    placeholder: "part of a line", "aria-keyshortcuts": "/",
  });
  text.addEventListener("input", afterPause(100, () => {
    change({ contains: text.value.trim() });
    note(about.view, address(opened ? { id: opened } : {}));
    load();
  }));
  const change = (values) => {
    Object.assign(at, { offset: 0 }, values);
    show();
  };
  const show = () => {
    const wanted = at.contains.toLowerCase();
    const found = all.filter((row) => about.words(row).toLowerCase().includes(wanted));
    const { value } = columns.find((column) => column.sort?.by === at.sort);
    const sign = at.order === "asc" ? 1 : -1;
    found.sort((a, b) => sign * compared(value(a), value(b)));
    if (at.offset >= found.length) at.offset = 0;
    const page = found.slice(at.offset, at.offset + PAGE);
    rows.show(page);
    rows.order(at.sort, at.order);
    turning.show(at.offset, page.length, found.length);
  };
  const load = () =>
    attempt(async () => {
      const { rows, total } = await about.load(at.contains);
      all = rows;
      more.hidden = total <= all.length;
      more.textContent = more.hidden
        ? ""
        : `Only the oldest ${count(all.length)} of ${count(total)} are shown and sorted. The filter searches all.`;
      show();
    });
  let opening = new AbortController();
  const open = (id) => {
    opening.abort();
    opening = new AbortController();
    signal.addEventListener("abort", () => opening.abort(), { signal: opening.signal });
    const before = opened;
    opened = id;
    root.classList.toggle("split", Boolean(id));
    root.querySelector(".pane")?.remove();
    show();
    if (id) root.append(about.detail(id, { close, signal: opening.signal }));
    else if (before) (rows.row(before)?.querySelector("a") ?? root).focus();
  };
  const close = () => (location.hash = to(about.view, address()));
  fill(
    root,
    h(
      "section",
      { class: "list", "aria-label": about.title },
      h("h1", {}, about.title),
      h("div", { class: "filters" }, field("Filter", text)),
      more,
      h("div", { class: "card" }, rows.element, turning.element),
    ),
  );
  load();
  if (about.detail && params.get("id")) open(params.get("id"));
  live.addEventListener("overview", atMostEvery(REFRESH_MS, load, signal), { signal });
  return {
    /** Open another detail, or none; false if the list has to be another one. */
    navigate(next) {
      if (!about.detail || (next.get("contains") ?? "") !== at.contains) return false;
      open(next.get("id"));
      return true;
    },
  };
}

function compared(a, b) {
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
