// Tables whose rows are changed in place, so that neither focus nor selection is lost.

import { fill, h, say } from "./dom.js";

/** Texts above this length have a tooltip, since they may be cut. */
const LONG = 40;

/**
 * A table with `columns`: {id, label, kind?, sort?, text?(row), draw?(cell, row)}.
 *
 * `sort` says by which name the broker sorts by it, and which order comes first. `draw` gets the
 * same cell again when its row has changed. The roles are explicit, since a narrow window shows rows
 * as cards, which browsers do not treat as rows. Arrows up and down go from row to row.
 */
export function table(label, columns, { key, empty, sorted = null, mark = null }) {
  const order = { by: "", is: "asc" };
  const sorters = new Map();
  const heads = columns.map((column) => {
    const name = column.label;
    if (!column.sort) {
      const hidden = column.quiet ? h("span", { class: "unseen" }, name) : name;
      return h("th", { role: "columnheader", scope: "col", class: `${classes(column)} plain` }, hidden);
    }
    const head = h("th", { role: "columnheader", scope: "col", class: classes(column) });
    const press = () => {
      const first = column.sort.first ?? "asc";
      const other = first === "asc" ? "desc" : "asc";
      sorted({ by: column.sort.by, is: order.by === column.sort.by && order.is === first ? other : first });
    };
    head.append(h("button", { type: "button", onclick: press }, name));
    sorters.set(column.sort.by, head);
    return head;
  });
  const body = h("tbody", { role: "rowgroup" });
  const element = h(
    "table",
    { role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
    body,
  );
  const nothing = h("p", { class: "empty", hidden: true }, empty);
  const rows = new Map();

  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    const to = {
      ArrowDown: () => row.nextElementSibling,
      ArrowUp: () => row.previousElementSibling,
      Home: () => body.firstElementChild,
      End: () => body.lastElementChild,
    }[event.key];
    if (!row || !to || event.target.matches("input:not([type=checkbox]), textarea, select")) return;
    const place = [...row.querySelectorAll("a, button, input")].indexOf(event.target);
    const there = to()?.querySelectorAll("a, button, input");
    if (!there?.length) return;
    event.preventDefault();
    (there[place] ?? there[0]).focus();
  });

  return {
    element: h("div", { class: "table" }, element, nothing),

    /** Show which order the rows have. */
    order(by, is) {
      Object.assign(order, { by, is });
      for (const [name, head] of sorters) {
        if (name === by) head.setAttribute("aria-sort", is === "asc" ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      }
    },

    /** Show exactly these rows. */
    show(list) {
      const wanted = list.map((row) => {
        const name = key(row);
        if (!rows.has(name)) rows.set(name, made(columns));
        draw(rows.get(name), columns, row, mark);
        return [name, rows.get(name)];
      });
      const names = new Set(wanted.map(([name]) => name));
      for (const [name, row] of rows) {
        if (names.has(name)) continue;
        row.element.remove();
        rows.delete(name);
      }
      // Only what is out of place is moved: what is moved loses the focus.
      let next = body.firstElementChild;
      for (const [, row] of wanted) {
        if (row.element === next) next = next.nextElementSibling;
        else body.insertBefore(row.element, next);
      }
      nothing.hidden = list.length > 0;
      element.hidden = !list.length;
    },

    /** Show what has become of one row, if it is here. */
    change(row) {
      const known = rows.get(key(row));
      if (known) draw(known, columns, row, mark);
      return Boolean(known);
    },

    /** The element of a row. */
    row: (name) => rows.get(name)?.element,
  };
}

const classes = (column) => `${column.kind ?? ""} ${column.id}`.trim();

function made(columns) {
  const cells = columns.map((column) =>
    h("td", { role: "cell", class: classes(column), "data-label": column.quiet ? null : column.label }),
  );
  return { element: h("tr", { role: "row" }, cells), cells };
}

function draw({ element, cells }, columns, row, mark) {
  columns.forEach((column, index) => {
    if (column.draw) column.draw(cells[index], row);
    else write(cells[index], column.text(row), column.kind?.includes("number"));
  });
  if (mark) element.className = mark(row);
}

/** Set the text of a cell; a long one is cut to two lines, and whole in the tooltip. */
function write(cell, text, isNumber) {
  if (isNumber) return say(cell, text);
  if (!cell.firstChild) cell.append(h("span", { class: "long" }));
  const span = cell.firstChild;
  say(span, text);
  if (text.length > LONG) span.title = text;
  else span.removeAttribute("title");
}

/** Buttons to the pages of a list: `show(offset, shown, total)`; `turn(offset)` is called. */
export function pages(size, turn) {
  const words = h("span", { role: "status" });
  let at = 0;
  const step = (by) => () => turn(Math.max(0, at + by));
  const back = h("button", { type: "button", class: "small", onclick: step(-size) }, "Previous");
  const on = h("button", { type: "button", class: "small", onclick: step(size) }, "Next");
  return {
    element: h("div", { class: "pages" }, words, back, on),
    show(offset, shown, total) {
      at = offset;
      const write = (number) => number.toLocaleString("en");
      say(words, total ? `${write(offset + 1)}–${write(offset + shown)} of ${write(total)}` : "none");
      back.disabled = offset === 0;
      on.disabled = offset + shown >= total;
      back.hidden = on.hidden = total <= size && offset === 0;
    },
  };
}

/** The text of a cell as a link; the same element each time. A long text is also its tooltip. */
export function link(cell, text, href, attributes = {}) {
  let element = cell.querySelector("a");
  if (!element) fill(cell, (element = h("a", attributes)));
  say(element, text);
  if (text.length > LONG) element.title = text;
  else element.removeAttribute("title");
  if (element.getAttribute("href") !== href) element.setAttribute("href", href);
  return element;
}
