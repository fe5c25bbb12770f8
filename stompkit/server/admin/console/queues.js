// Destinations and dead-letter queues: a list, and one of them beside it.

import { get, mayChange } from "./api.js";
import { sparkline } from "./charts.js";
import { afterPause, atMostEvery, field, fill, h } from "./dom.js";
import { count, octets, rate } from "./format.js";
import { live } from "./live.js";
import { attempt } from "./notices.js";
import { pane } from "./pane.js";
import { publishButton } from "./publish.js";
import { note, to } from "./routes.js";
import { link, pages, table } from "./table.js";

const PAGE = 50;
/** So many seconds are in the small chart of a row. */
const COURSE = 60;
const RELOAD_MS = 2_500;
const KINDS = ["queue", "topic", "fanout", "temp-queue", "temp-topic", "dlq", "durable"];

export const destinations = (root, params, signal) =>
  list(root, params, signal, {
    view: "destinations",
    title: "Destinations",
    empty: "No destination matches. The first SEND or SUBSCRIBE that names a destination creates it.",
    canPublish: true,
    sort: "name",
  });

export const deadLetters = (root, params, signal) =>
  list(root, params, signal, {
    view: "dead-letters",
    title: "Dead letters",
    kind: "dlq",
    empty: "No dead letters.",
    sort: "ready",
  });

export const key = (row) => JSON.stringify([row.host, row.name]);

function list(root, params, signal, about) {
  const wanted = about.sort === "name" ? "asc" : "desc";
  const at = {
    contains: params.get("contains") ?? "",
    kind: about.kind ?? params.get("kind") ?? "",
    sort: params.get("sort") ?? about.sort,
    order: params.get("order") ?? wanted,
    offset: Number(params.get("offset")) || 0,
  };
  const opened = { name: params.get("name"), host: params.get("host") ?? "" };
  const courses = new Map();
  let shown = [];

  const address = (more = {}) => ({
    contains: at.contains,
    kind: about.kind ? "" : at.kind,
    sort: at.sort === about.sort ? "" : at.sort,
    order: at.order === wanted ? "" : at.order,
    offset: at.offset || "",
    ...more,
  });
  const change = (values) => {
    Object.assign(at, { offset: 0 }, values);
    note(about.view, address(opened.name ? opened : {}));
    return load();
  };

  const rows = table(about.title, columns(about, courses, address), {
    key,
    empty: about.empty,
    sorted: ({ by, is }) => change({ sort: by, order: is }),
    mark: (row) => (opened.name === row.name && opened.host === row.host ? "chosen" : ""),
  });
  const turning = pages(PAGE, (offset) => change({ offset }));
  const element = h(
    "section",
    { class: "list", "aria-label": about.title },
    h(
      "div",
      { class: "heading" },
      h("h1", {}, about.title),
      about.canPublish && mayChange() && publishButton({}, () => load()),
    ),
    h("div", { class: "filters" }, filters(about, at, change)),
    h("div", { class: "card" }, rows.element, turning.element),
  );

  const load = () =>
    attempt(async () => {
      const found = await get("destinations", { ...at, limit: PAGE }, signal);
      // The page that was looked at may have gone.
      if (!found.destinations.length && at.offset) return change({ offset: 0 });
      show(found.destinations);
      rows.order(at.sort, at.order);
      turning.show(at.offset, found.destinations.length, found.total);
    });
  const show = (found) => {
    shown = found;
    const here = new Set(found.map(key));
    for (const name of courses.keys()) if (!here.has(name)) courses.delete(name);
    for (const row of found) {
      if (!courses.has(key(row))) courses.set(key(row), { chart: sparkline(COURSE), values: [row.rates?.in ?? 0] });
    }
    rows.show(found);
  };
  const reload = atMostEvery(RELOAD_MS, load, signal);
  live.addEventListener("destinations", ({ detail }) => {
    const news = new Map(detail.changed.map((row) => [key(row), row]));
    const isOther = [...news.keys()].some((name) => !rows.row(name));
    shown = shown.map((row) => news.get(key(row)) ?? row);
    for (const row of shown) {
      const course = courses.get(key(row));
      course.values.push(row.rates?.in ?? 0);
      if (course.values.length > COURSE) course.values.shift();
      course.chart.draw(course.values);
      if (news.has(key(row))) rows.change(row);
    }
    // What has changed may belong to this page now, or elsewhere on it; a broker with very many
    // destinations tells of some of them only.
    const isSilent = shown.some((row) => !row.rates);
    if (detail.gone.length || isOther || isSilent || (news.size && at.sort !== "name")) reload();
  }, { signal });

  let opening = new AbortController();
  const open = (name, host) => {
    opening.abort();
    opening = new AbortController();
    signal.addEventListener("abort", () => opening.abort(), { signal: opening.signal });
    const before = key(opened);
    Object.assign(opened, { name, host });
    root.classList.toggle("split", Boolean(name));
    root.querySelector(".pane")?.remove();
    rows.show(shown);
    if (name) root.append(pane(opened, { close, changed: load, signal: opening.signal }));
    else (rows.row(before)?.querySelector("a") ?? root).focus();
  };
  const close = () => (location.hash = to(about.view, address()));

  load();
  fill(root, element);
  if (opened.name) open(opened.name, opened.host);
  return {
    /** Open another destination, or none; false where the list is to be another one. */
    navigate(next) {
      const same = ["contains", "kind", "sort", "order", "offset"];
      const now = new URLSearchParams(to(about.view, address()).split("?")[1]);
      if (same.some((name) => (next.get(name) ?? "") !== (now.get(name) ?? ""))) return false;
      open(next.get("name"), next.get("host") ?? "");
      return true;
    },
  };
}

function filters(about, at, change) {
  const text = h("input", {
    type: "search",
    name: "contains",
    value: at.contains,
    placeholder: "part of a name",
    "aria-keyshortcuts": "/",
    autocomplete: "off",
    spellcheck: "false",
  });
  text.addEventListener("input", afterPause(200, () => change({ contains: text.value.trim() })));
  if (about.kind) return [field("Filter", text)];
  const kind = h(
    "select",
    { name: "kind" },
    h("option", { value: "" }, "all"),
    KINDS.map((name) => h("option", { value: name, selected: name === at.kind }, name)),
  );
  kind.addEventListener("change", () => change({ kind: kind.value }));
  return [field("Filter", text), field("Kind", kind)];
}

function columns(about, courses, address) {
  const number = (id, label, text, more = {}) => ({
    id,
    label,
    kind: `number ${more.extra ? "extra" : ""}`,
    sort: { by: id, first: "desc" },
    text,
    ...more,
  });
  const found = [
    {
      id: "name",
      label: "Name",
      sort: { by: "name", first: "asc" },
      draw(cell, row) {
        const { name, host } = row;
        link(cell, name, to(about.view, address({ name, host })), { class: "long" });
        const words = [host && `host ${host}`, row.is_paused && "paused"].filter(Boolean).join(", ");
        let badge = cell.querySelector(".badge");
        if (!words) badge?.remove();
        else {
          if (!badge) cell.append((badge = h("span", { class: "badge" })));
          badge.textContent = words;
        }
      },
    },
    number("ready", "Ready", (row) => count(row.ready)),
    number("in_flight", "In flight", (row) => count(row.in_flight), { extra: true }),
    number("consumers", "Consumers", (row) => count(row.consumers), { extra: Boolean(about.kind) }),
    number("in", "In/s", (row) => rate(row.rates?.in)),
    number("out", "Out/s", (row) => rate(row.rates?.out)),
    number("octets", "Size", (row) => octets(row.octets), { extra: true }),
    {
      id: "course",
      label: "Last minute",
      kind: "extra",
      draw(cell, row) {
        const { chart, values } = courses.get(key(row));
        if (cell.firstChild !== chart.element) {
          fill(cell, chart.element);
          chart.draw(values);
        }
      },
    },
  ];
  return found;
}
