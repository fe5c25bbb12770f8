// Elements made from data. What is shown comes from clients, so that it is never read as markup:
// children are nodes, or text that stays text.

const SVG = "http://www.w3.org/2000/svg";

/** An element; attributes that are functions listen, those that are null or false are left out. */
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for the names of SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** Set the text of an element, which costs nothing where it is the same. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Replace what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
}

/** A button that does something; it cannot be pressed again before that is done. */
export function button(label, action, attributes = {}) {
  const element = h("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", async () => {
    if (element.getAttribute("aria-disabled") === "true") return;
    // Not `disabled`, which would take the focus away.
    element.setAttribute("aria-disabled", "true");
    try {
      await action(element);
    } finally {
      element.removeAttribute("aria-disabled");
    }
  });
  return element;
}

/** An input with its label above or beside it. */
export function field(label, input, hint = "") {
  return h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
}

/** Call a function some time after the last of several calls. */
export function afterPause(delay_ms, action) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(action, delay_ms, ...values);
  };
}

/** Call a function at once, or as soon as the last call is long enough ago. */
export function atMostEvery(interval_ms, action, signal) {
  let last = -Infinity;
  let timer = 0;
  signal?.addEventListener("abort", () => clearTimeout(timer));
  return () => {
    if (timer || signal?.aborted) return;
    timer = setTimeout(() => {
      timer = 0;
      last = performance.now();
      action();
    }, Math.max(0, last + interval_ms - performance.now()));
  };
}

/** A list of terms and what they are: `show(pairs)`, in place where there are as many as before. */
export function facts(pairs = []) {
  const element = h("dl", { class: "facts" });
  const show = (list) => {
    while (element.children.length > list.length) element.lastChild.remove();
    while (element.children.length < list.length) element.append(h("div", {}, h("dt"), h("dd")));
    list.forEach(([term, value], index) => {
      say(element.children[index].firstChild, term);
      say(element.children[index].lastChild, String(value));
    });
  };
  show(pairs);
  return { element, show };
}
