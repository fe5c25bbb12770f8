// Notices at the edge of the page, dialogs, and questions before something that cannot be undone.

import { button, h } from "./dom.js";

const SHOWN_MS = 8_000;
const KEPT = 4;

/** Say what was done. */
export const notice = (text) => show(text, "status", "done");

/** Say what went wrong; it stays until it is dismissed, or until `recovered` for a failure of the broker. */
export function complaint(error) {
  if (error.name === "AbortError" || error.status === 401) return;
  const isOutage = error.status === 0 || error.status >= 500;
  show(error.message ?? String(error), "alert", "wrong", isOutage);
}

/** Remove the notices about a broker that did not answer, since it answers again. */
export function recovered() {
  for (const each of document.querySelectorAll("#notices [data-outage]")) each.remove();
}

function show(text, role, kind, isOutage = false) {
  const region = document.getElementById("notices");
  const said = sentence(text);
  // The same again is no news.
  for (const each of region.children) if (each.firstChild.textContent === said) each.remove();
  const element = h(
    "div",
    { role, class: `notice ${kind}`, "data-outage": isOutage },
    h("span", { class: "long", title: said.length > 200 ? said : null }, said),
  );
  element.append(button("×", () => element.remove(), { "aria-label": "Dismiss", class: "plain" }));
  region.append(element);
  while (region.children.length > KEPT) region.firstChild.remove();
  if (kind === "done") setTimeout(() => element.remove(), SHOWN_MS);
}

/** A text that begins with a capital letter. */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Do something and say the result; true if it was done. */
export async function attempt(action, said = null) {
  try {
    const result = await action();
    if (said) notice(said(result));
    return true;
  } catch (error) {
    complaint(error);
    return false;
  }
}

/** Open a dialog; `closed` is called with its return value, after the focus is back where it was. */
export function open(content, labelledBy, closed = () => {}) {
  const before = document.activeElement;
  const dialog = h("dialog", { "aria-labelledby": labelledBy }, content);
  dialog.addEventListener("close", () => {
    dialog.remove();
    // A login may have taken the place of the view.
    (before?.isConnected ? before : document.getElementById("token"))?.focus();
    closed(dialog.returnValue);
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Ask, with fields if there are any; the values by their names, or null for "no".
 * The focus is where nothing happens, or at the first field, and comes back to where it was.
 */
export function ask(title, { text = "", details = [], fields = [], yes, danger = false }) {
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "question", class: "long", title }, title),
    text && h("p", {}, text),
    details,
    fields,
    h(
      "div",
      { class: "buttons" },
      h("button", { value: "", type: "submit", formnovalidate: true, autofocus: !fields.length }, "Cancel"),
      h("button", { value: "yes", type: "submit", class: danger ? "danger" : "primary" }, yes),
    ),
  );
  // Enter in a field confirms; the first button would cancel.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    form.requestSubmit(form.querySelector("button[value=yes]"));
  });
  return new Promise((resolve) => {
    open(form, "question", (value) =>
      resolve(value === "yes" ? Object.fromEntries(new FormData(form)) : null),
    );
    form.querySelector("input, select")?.focus();
  });
}
