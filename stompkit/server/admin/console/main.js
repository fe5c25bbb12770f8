// The console: which view is shown, the login, the keys, and whether the broker is there.

import { mount as accessView } from "./access.js";
import { access, get, mayChange, me, remember, token } from "./api.js";
import { connections, durables } from "./connections.js";
import { fill, h, say } from "./dom.js";
import { mount as frames } from "./frames.js";
import { follow, followWhileSeen, leave, live } from "./live.js";
import { complaint, open, recovered } from "./notices.js";
import { mount as overview } from "./overview.js";
import { deadLetters, destinations } from "./queues.js";
import { here, to } from "./routes.js";

const VIEWS = [
  ["overview", "Overview", overview],
  ["destinations", "Destinations", destinations],
  ["dead-letters", "Dead letters", deadLetters],
  ["connections", "Connections", connections],
  ["durables", "Durable", durables],
  ["frames", "Frames", frames],
  ["access", "Access", accessView],
];
const STATES = {
  connecting: "Connecting",
  live: "Live",
  lost: "Connection lost, trying again",
  refused: "Not signed in",
};

const find = (id) => document.getElementById(id);
const root = find("view");
let mounted = new AbortController();
let shown = { view: "", navigate: null };

const tabs = VIEWS.map(([name, label]) =>
  h("a", { role: "tab", id: `tab-${name}`, href: `#/${name}`, "aria-controls": "view" }, label),
);
fill(find("tabs"), tabs);
find("tabs").addEventListener("keydown", (event) => {
  const at = tabs.indexOf(event.target);
  const next = {
    ArrowRight: (at + 1) % tabs.length,
    ArrowLeft: (at + tabs.length - 1) % tabs.length,
    Home: 0,
    End: tabs.length - 1,
  }[event.key];
  if (next === undefined || at < 0) {
    if (event.key === " " && at >= 0) {
      event.preventDefault();
      tabs[at].click();
    }
    return;
  }
  event.preventDefault();
  tabs[next].focus();
  location.hash = tabs[next].hash;
});

function show() {
  const { view, params } = here();
  const index = VIEWS.findIndex(([name]) => name === view);
  const [name, label, mount] = VIEWS[index] ?? ["unknown", "No such page", unknown];
  tabs.forEach((tab, place) => {
    tab.setAttribute("aria-selected", place === index);
    tab.tabIndex = place === Math.max(0, index) ? 0 : -1;
  });
  tabs[index]?.scrollIntoView({ block: "nearest", inline: "nearest" });
  root.setAttribute("aria-labelledby", tabs[index]?.id ?? "no-such-page");
  document.title = `${params.get("name") ?? label} – stompkit`;
  if (!mounted.signal.aborted && shown.view === view && shown.navigate?.(params)) return;
  mounted.abort();
  mounted = new AbortController();
  root.className = `view-${name}`;
  fill(root);
  shown = { view, ...mount(root, params, mounted.signal) };
}

function unknown(root) {
  fill(
    root,
    h("h1", { id: "no-such-page" }, "No such page"),
    h("p", {}, "The console has no page ", h("code", {}, location.hash.slice(0, 100)), "."),
    h("p", {}, h("a", { href: to("overview") }, "Go to the overview")),
  );
}

function login() {
  leave();
  mounted.abort();
  tabs.forEach((tab) => tab.setAttribute("aria-disabled", "true"));
  if (root.querySelector("#login")) return;
  const wrong = token() ? "The broker does not accept this token." : "";
  remember("");
  find("sign-out").hidden = true;
  const input = h("input", { id: "token", name: "token", type: "password", autocomplete: "current-password", required: true, "aria-describedby": "token-hint token-wrong" });
  const form = h(
    "form",
    { id: "login", class: "card" },
    h("h1", {}, "Sign in"),
    h("label", { for: "token" }, "Token"),
    input,
    h("small", { id: "token-hint", class: "quiet" }, "The content of the file in token_file or read_token_file of [admin]. It is kept until this tab is closed."),
    h("p", { id: "token-wrong", class: "wrong", role: "alert" }, wrong),
    h("button", { type: "submit", class: "primary" }, "Sign in"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    remember(input.value.trim());
    fill(root);
    begin();
  });
  root.className = "view-login";
  fill(root, form);
  input.focus();
}

/** Ask for the role, and show it; true if it is another one. */
async function learnRole() {
  const before = me.role;
  Object.assign(me, await get("me"));
  find("role").hidden = mayChange();
  return me.role !== before;
}

/** Show the view again if the role has changed, such as with a broker that was restarted. */
async function checkRole() {
  if (!(await learnRole().catch(() => false)) || root.querySelector("#login")) return;
  mounted.abort();
  show();
}

async function begin() {
  try {
    await learnRole();
    const overview = await get("overview");
    say(find("version"), overview.version);
    live.overview ??= overview;
  } catch (error) {
    if (error.status === 401) return;
    complaint(error);
  }
  tabs.forEach((tab) => tab.removeAttribute("aria-disabled"));
  find("sign-out").hidden = !token();
  follow(null);
  show();
}

function tellState() {
  const element = find("state");
  element.dataset.state = live.state;
  say(element, STATES[live.state]);
  document.body.classList.toggle("stale", live.state === "lost");
  find("try-now").hidden = live.state !== "lost";
  if (live.state === "live") recovered();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "/" && !isTyping) {
    const filter = root.querySelector("[aria-keyshortcuts='/']");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
    filter.select();
  } else if (event.key === "Escape" && event.target.matches("input[type=search]") && !event.target.value) {
    event.target.blur();
  } else if (event.key === "?" && !isTyping) {
    explain();
  } else if (/^[1-7]$/.test(event.key) && !isTyping && !root.querySelector("#login")) {
    location.hash = tabs[event.key - 1].hash;
    tabs[event.key - 1].focus();
  }
}

function explain() {
  const lines = [
    ["1 to 7", "go to a view"],
    ["← →", "previous or next view, on the tabs"],
    ["/", "go to the filter"],
    ["↑ ↓ Home End", "go to a row, in a table"],
    ["Enter", "open the focused item"],
    ["Ctrl Enter", "publish, in the form"],
    ["Esc", "close a dialog or a detail"],
  ];
  const content = [
    h("h2", { id: "keys-title" }, "Keys"),
    h("dl", { class: "keys" }, lines.map(([key, does]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)))),
    h("form", { method: "dialog", class: "buttons" }, h("button", { type: "submit" }, "Close")),
  ];
  open(content, "keys-title");
}

window.addEventListener("hashchange", () => {
  if (!root.querySelector("#login")) show();
});
document.addEventListener("keydown", keys);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  root.focus();
});
live.addEventListener("state", tellState);
live.addEventListener("open", checkRole);
live.addEventListener("overview", () => say(find("version"), live.overview.version));
access.addEventListener("login", login);
followWhileSeen();
find("try-now").addEventListener("click", () => follow());
find("help").addEventListener("click", explain);
find("sign-out").addEventListener("click", () => {
  remember("");
  login();
});
begin();
