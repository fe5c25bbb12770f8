// Frames as they come and go. Nothing is kept but the last ones, and only while one looks.

import { afterPause, button, field, fill, h, say } from "./dom.js";
import { clock, count, octets, things } from "./format.js";
import { follow, live } from "./live.js";
import { note } from "./routes.js";

const KEPT = 500;
const COMMANDS = [
  "CONNECT", "STOMP", "CONNECTED", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "MESSAGE", "ACK", "NACK",
  "BEGIN", "COMMIT", "ABORT", "RECEIPT", "DISCONNECT", "ERROR",
];

export function mount(root, params, signal) {
  const list = h("ol", { class: "frames", tabindex: 0, "aria-label": "Frames, the newest last" });
  const state = h("p", { class: "quiet", role: "status" });
  const more = h("span", { class: "quiet" });
  const peer = entry("peer", params, "such as 127.0.0.1");
  const destination = entry("destination", params, "part of a name");
  const command = h("select", { name: "command" }, h("option", { value: "" }, "all"), COMMANDS.map((name) =>
    h("option", { value: name, selected: name === params.get("command") }, name)));
  const waiting = [];
  let isPaused = false;
  let isOpen = false;
  let dropped = 0;
  let drawing = 0;

  const wanted = () => ({ peer: peer.value.trim(), destination: destination.value.trim() });
  const filtered = afterPause(300, () => {
    note("frames", { ...wanted(), command: command.value });
    begin();
  });
  peer.addEventListener("input", filtered);
  destination.addEventListener("input", filtered);
  command.addEventListener("change", () => {
    note("frames", { ...wanted(), command: command.value });
    for (const row of list.children) row.hidden = !matches(row.dataset.command);
  });
  const begin = () => {
    isOpen = false;
    tell();
    follow(wanted());
  };
  const matches = (name) => !command.value || name === command.value;

  const pause = button("Pause", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", isPaused);
    tell();
    if (!isPaused) draw();
  }, { "aria-pressed": "false", "data-action": "pause" });
  const clear = button("Clear", () => {
    waiting.length = 0;
    dropped = 0;
    fill(list);
    tell();
  }, { "data-action": "clear" });

  const tell = () => {
    say(state, isPaused ? "Paused" : list.children.length ? "" : isOpen ? "Waiting for frames" : "Beginning");
    const left = dropped ? `${things(dropped, "frame")} left out: too many a second` : "";
    const held = isPaused && waiting.length ? `${count(waiting.length)}${waiting.length === KEPT ? " or more" : ""} since the pause` : "";
    say(more, [held, left].filter(Boolean).join("; "));
  };
  const draw = () => {
    drawing = 0;
    if (signal.aborted) return;
    if (isPaused) return tell();
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    const rows = waiting.splice(0).map((frame) => shown(frame, matches(frame.command)));
    list.append(...rows);
    while (list.children.length > KEPT) list.firstChild.remove();
    if (isAtEnd) list.scrollTop = list.scrollHeight;
    tell();
  };
  // A page that is not seen draws nothing, and keeps no more than can be shown.
  const soon = () => (drawing ||= requestAnimationFrame(draw));

  live.addEventListener("open", () => {
    isOpen = true;
    tell();
  }, { signal });
  live.addEventListener("frame", ({ detail }) => {
    if ("dropped" in detail) dropped += detail.dropped;
    else waiting.push(detail);
    if (waiting.length > KEPT) waiting.shift();
    soon();
  }, { signal });
  signal.addEventListener("abort", () => follow(null));

  fill(
    root,
    h("h1", {}, "Frames"),
    h("div", { class: "filters" }, field("Peer", peer), field("Destination", destination), field("Command", command), h("div", { class: "actions" }, pause, clear)),
    h("div", { class: "card" }, list, h("div", { class: "pages" }, state, more)),
  );
  begin();
}

function entry(name, params, placeholder) {
  return h("input", {
    type: "search", name, value: params.get(name) ?? "", placeholder, autocomplete: "off",
    spellcheck: "false", "aria-keyshortcuts": name === "peer" ? "/" : null,
  });
}

/** A frame: `<` is what a client has sent, `>` what it was sent. */
function shown(frame, isWanted) {
  const isReceived = frame.direction === "<";
  const headers = Array.isArray(frame.headers) ? frame.headers : Object.entries(frame.headers);
  const value = (name) => headers.find(([each]) => each === name)?.[1];
  // What a frame is about, as far as it says so.
  const about = ["destination", "message", "receipt-id", "id", "message-id", "version"];
  const opened = h("details", {}, h("summary", {},
    h("time", { datetime: frame.time }, clock(frame.time)),
    h("span", { class: `way ${isReceived ? "in" : "out"}` }, isReceived ? "received" : "sent"),
    h("b", { class: frame.command === "ERROR" ? "wrong" : "" }, frame.command),
    h("span", { class: "where" }, about.map(value).find(Boolean) ?? ""),
    h("span", { class: "quiet peer" }, frame.peer),
    h("span", { class: "quiet size" }, frame.body_octets ? octets(frame.body_octets) : ""),
  ));
  opened.addEventListener("toggle", () => {
    if (opened.open && opened.children.length === 1) {
      opened.append(h("pre", { class: "body", tabindex: 0 }, headers.map(([name, value]) => `${name}: ${value}`).join("\n") || "no headers"));
    }
  });
  return h("li", { "data-command": frame.command, hidden: !isWanted }, opened);
}
