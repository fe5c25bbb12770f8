// Users and rights, as they are in force. They are changed in files, not here.

import { get } from "./api.js";
import { afterPause, atMostEvery, facts, field, fill, h } from "./dom.js";
import { count } from "./format.js";
import { live } from "./live.js";
import { attempt } from "./notices.js";
import { note, to } from "./routes.js";
import { link, table } from "./table.js";

const REFRESH_MS = 5_000;

export function mount(root, params, signal) {
  const login = facts();
  const users = table("Users", [
    { id: "name", label: "Name", text: (row) => row.name },
    { id: "groups", label: "Groups", text: (row) => row.groups.join(", ") || "none" },
    {
      id: "connections",
      label: "Connections",
      kind: "number",
      draw: (cell, row) => link(cell, count(row.connections), to("connections", { contains: row.name })),
    },
  ], { key: (row) => row.name, empty: "No users are known." });
  const rights = table("Rights", [
    { id: "destination", label: "Destination", text: (row) => row.destination },
    { id: "allow", label: "Allowed", text: (row) => row.allow.join(", ") },
    { id: "who", label: "For", text: whom },
    { id: "hosts", label: "Virtual hosts", text: (row) => row.hosts.join(", ") || "all" },
  ], { key: (row) => JSON.stringify(row), empty: "There are no rules: every client may do everything." });
  const more = h("p", { class: "quiet", role: "status" });
  const filter = h("input", {
    type: "search", name: "contains", value: params.get("contains") ?? "", autocomplete: "off", spellcheck: "false",
    placeholder: "part of a name", "aria-keyshortcuts": "/",
  });
  let known = null;
  const show = () => {
    if (!known) return;
    const wanted = filter.value.trim().toLowerCase();
    const has = (...words) => words.flat().join(" ").toLowerCase().includes(wanted);
    const found = known.users.filter((row) => has(row.name, row.groups));
    login.show(loginFacts(known));
    users.show(found);
    rights.show(known.rights.filter((row) => has(row.destination, row.users, row.groups)));
    more.textContent = known.total > known.users.length
      ? `The first ${count(known.users.length)} of ${count(known.total)} users are shown.`
      : "";
  };
  const load = () =>
    attempt(async () => {
      known = await get("access", {}, signal);
      show();
    });
  filter.addEventListener("input", afterPause(100, () => {
    note("access", { contains: filter.value.trim() });
    show();
  }));
  fill(
    root,
    h("h1", {}, "Users and rights"),
    h("section", { class: "card" }, h("h2", {}, "Login"), login.element),
    h("div", { class: "filters" }, field("Filter", filter)),
    h("section", { class: "card" }, h("h2", {}, "Users"), users.element, more),
    h("section", { class: "card" }, h("h2", {}, "Rights"), rights.element),
    h("p", { class: "quiet" }, "Users and rights are changed in the configuration file, and with ", h("code", {}, "stompkit passwd"), "."),
  );
  load();
  live.addEventListener("overview", atMostEvery(REFRESH_MS, load, signal), { signal });
}

function loginFacts(known) {
  if (!known.is_checked) return [["Logins", "not checked: every client is accepted"]];
  return [
    ["Logins", "checked"],
    ["Checked by", known.service ?? (known.checkers.join(", ") || "certificates")],
    ["Without login", known.is_anonymous_allowed ? "accepted" : "refused"],
    ["Client certificates", known.is_certificate_login ? "log in" : "not used"],
  ];
}

function whom(row) {
  if (!row.users.length && !row.groups.length) return "everybody";
  const users = row.users.map((name) => (name === "*" ? "all users" : name));
  return [...users, ...row.groups.map((name) => `group ${name}`)].join(", ");
}
