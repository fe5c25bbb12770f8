// Notices at the edge of the page, and questions before what cannot be undone.

import { button, h } from "./dom.js";

const SHOWN_MS = 8_000;
const KEPT = 4;

/** Say what was done. */
export const notice = (text) => show(text, "status", "done");

/** Say what went wrong; it stays until it is put away. */
export function complaint(error) {
  if (error.name === "AbortError" || error.status === 401) return;
  show(error.message ?? String(error), "alert", "wrong");
}

function show(text, role, kind) {
  const region = document.getElementById("notices");
  const element = h("div", { role, class: `notice ${kind}` }, h("span", {}, sentence(text)));
  element.append(button("×", () => element.remove(), { "aria-label": "Put away", class: "plain" }));
  region.append(element);
  while (region.children.length > KEPT) region.firstChild.remove();
  if (kind === "done") setTimeout(() => element.remove(), SHOWN_MS);
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Do something and say what came of it; whether it was done. */
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

/**
 * Ask, with fields if there are any; the values by their names, or null for "no".
 * The focus is where nothing happens, or at the first field, and comes back to where it was.
 */
export function ask(title, { text = "", details = [], fields = [], yes, danger = false }) {
  const before = document.activeElement;
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "question" }, title),
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
  const dialog = h("dialog", { "aria-labelledby": "question" }, form);
  // Enter in a field means what the dialog is about, not the first button, which is to cancel.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    form.requestSubmit(form.querySelector("button[value=yes]"));
  });
  document.body.append(dialog);
  dialog.showModal();
  form.querySelector("input, select")?.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const answer = dialog.returnValue === "yes" ? Object.fromEntries(new FormData(form)) : null;
      dialog.remove();
      if (before?.isConnected) before.focus();
      resolve(answer);
    });
  });
}
