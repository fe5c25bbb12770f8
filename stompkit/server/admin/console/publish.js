// The form that publishes a message. It stays open, with what was typed, until the broker has accepted it.

import { post } from "./api.js";
import { button, field, h, say } from "./dom.js";
import { notice, open, sentence } from "./notices.js";

/** A button that opens the form; `name` and `host` are the destination, if there is one. */
export function publishButton({ name = "", host = "" } = {}, published = () => {}) {
  return button("Publish…", () => publish({ name, host }, published), { "data-action": "publish" });
}

function publish({ name, host }, published) {
  const destination = h("input", { name: "destination", required: true, value: name, autocomplete: "off", spellcheck: "false", placeholder: "such as /queue/orders" });
  const type = h("input", { name: "type", autocomplete: "off", spellcheck: "false", placeholder: "such as application/json" });
  const headers = h("textarea", { name: "headers", rows: 3, autocomplete: "off", spellcheck: "false", placeholder: "name: value" });
  const body = h("textarea", { name: "body", rows: 8, autocomplete: "off", spellcheck: "false" });
  const isBinary = h("input", { name: "binary", type: "checkbox" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "publish-title" }, "Publish a message"),
    field("Destination", destination),
    field("Content type", type),
    field("Headers", headers, "One header per line."),
    field("Body", body),
    h("label", { class: "choice" }, isBinary, " The body is base64"),
    wrong,
    h(
      "div",
      { class: "buttons" },
      h("button", { value: "", type: "submit", formnovalidate: true }, "Cancel"),
      h("button", { value: "yes", type: "submit", class: "primary", "aria-keyshortcuts": "Control+Enter" }, "Publish"),
    ),
  );
  let isSending = false;
  form.addEventListener("submit", async (event) => {
    if (event.submitter?.value !== "yes") return;
    event.preventDefault();
    if (isSending) return;
    isSending = true;
    say(wrong, "");
    try {
      const to = destination.value.trim();
      const given = [...parsed(headers.value), ...(type.value.trim() ? [["content-type", type.value.trim()]] : [])];
      const content = isBinary.checked ? { body_base64: body.value.replace(/\s+/g, "") } : { body: body.value };
      await post("publish", { destination: to, host, headers: given, ...content });
      dialog.close("yes");
      notice(`A message to ${to} is published`);
      published();
    } catch (error) {
      say(wrong, said(error));
    } finally {
      isSending = false;
    }
  });
  form.addEventListener("keydown", (event) => {
    const isSubmit = event.key === "Enter" && (event.ctrlKey || event.metaKey || event.target.tagName === "INPUT");
    if (!isSubmit) return;
    event.preventDefault();
    form.requestSubmit(form.querySelector("button[value=yes]"));
  });
  const dialog = open(form, "publish-title");
  (name ? body : destination).focus();
}

/** What to tell about an error, after which the text is still in the form. */
function said(error) {
  if (error.status === 401) return "You are signed out. Copy the message, close this form and sign in again.";
  if (error.status === 0) return "The broker does not answer. It may have published the message.";
  return sentence(error.message);
}

/** The headers in a text of lines; raises an error that names the wrong line. */
export function parsed(text) {
  const lines = text.split("\n").map((line, index) => [line.replace(/\r$/, ""), index + 1]);
  return lines.filter(([line]) => line.trim()).map(([line, number]) => {
    const [, name, value] = /^([^:]+):[ \t]?(.*)$/s.exec(line) ?? [];
    if (!name?.trim()) throw new Error(`Line ${number} of the headers is not NAME: VALUE.`);
    return [name.trim(), value];
  });
}
