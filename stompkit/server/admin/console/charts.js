// Small charts, drawn as SVG that is stretched to its place; words and numbers are beside it.

import { h, say, svg } from "./dom.js";
import { brief, duration } from "./format.js";

const WIDTH = 100;
const HEIGHT = 100;

/** The least of 1, 2, 3, 4, 6, 8, 10, 20, ... that is not below a value: its quarters read well. */
function ceiling(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}

/** So many values are needed before a peak among them can be cut off, and so much above the others it has to be. */
const FEW = 20;
const SPIKE = 3;
const USUAL = 0.95;

/**
 * The top of the scale: the highest value, or that of the usual ones where a short spike would flatten them.
 * A spike is at most one value in twenty, and at least three times as high as the others.
 */
export function scale(values) {
  const busy = values.filter((value) => value > 0).sort((a, b) => a - b);
  const peak = busy.at(-1) ?? 0;
  const usual = busy[Math.ceil(busy.length * USUAL) - 1] ?? 0;
  const isSpiky = busy.length >= FEW && peak > SPIKE * usual;
  return { peak, top: isSpiky ? usual * 1.25 : peak, isSpiky };
}

/** The parts of a line that are above the top, as a path along it. */
function cutOff(values, places, top) {
  const step = WIDTH / Math.max(1, places - 1);
  const start = WIDTH - step * (values.length - 1);
  return values
    .map((value, index) => [value, start + index * step])
    .filter(([value]) => value > top)
    .map(([, x]) => `M${Math.max(0, x - step / 2).toFixed(2)},0H${Math.min(WIDTH, x + step / 2).toFixed(2)}`)
    .join("");
}

/** The points of a line; the newest value is at the right, `places` values fill the width. */
function line(values, places, top) {
  const step = WIDTH / Math.max(1, places - 1);
  const start = WIDTH - step * (values.length - 1);
  return values.map((value, index) => {
    const y = HEIGHT - (HEIGHT * Math.min(value ?? 0, top)) / top;
    return `${(start + index * step).toFixed(2)},${y.toFixed(2)}`;
  });
}

function canvas(attributes, ...children) {
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true", ...attributes },
    children,
  );
}

/** A line without words: `draw(values)`, of which `places` have room. */
export function sparkline(places = 60, kind = "first") {
  const area = svg("polygon", { class: `area ${kind}` });
  const path = svg("polyline", { class: `line ${kind}` });
  const element = canvas({ class: "spark" }, area, path);
  return {
    element,
    draw(values) {
      // Less than one a second is shown as little, not blown up.
      const points = line(values, places, Math.max(1, scale(values).top) * 1.08);
      path.setAttribute("points", points.join(" "));
      area.setAttribute("points", closed(points));
    },
  };
}

function closed(points) {
  if (!points.length) return "";
  const x = (point) => point.slice(0, point.indexOf(","));
  return `${x(points[0])},${HEIGHT} ${points.join(" ")} ${x(points.at(-1))},${HEIGHT}`;
}

/**
 * A chart of one or more `series` ({label, kind}) over so many seconds: `draw(lists, interval_s)`.
 * The legend has the values under the pointer. A short spike is cut off at the top, where a line marks
 * it, and a button shows it whole.
 */
export function chart(title, series, { span_s = 300, write = brief } = {}) {
  let places = span_s;
  const top = h("span", { class: "top" });
  const left = h("span", { class: "from" });
  // One area only: where several lie over each other, none can be told.
  const area = svg("polygon", { class: `area ${series[0].kind}` });
  const lines = series.map(({ kind }) => svg("polyline", { class: `line ${kind}` }));
  const grid = [0, 25, 50, 75, 100].map((y) =>
    svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }),
  );
  const mark = svg("line", { class: "mark", y1: 0, y2: HEIGHT, visibility: "hidden" });
  const spikes = svg("path", { class: "spikes" });
  const picture = canvas({}, grid, area, lines, spikes, mark);
  let isWhole = false;
  const peak = h("button", { type: "button", class: "small peak", hidden: true, "aria-pressed": "false" });
  peak.addEventListener("click", () => {
    isWhole = !isWhole;
    redraw();
  });
  const values = series.map(() => h("b", {}));
  const when = h("span", { class: "quiet" });
  const legend = series.map(({ label, kind }, index) =>
    h("span", { class: `key ${kind}` }, `${label} `, values[index]),
  );
  const plot = h("div", { class: "plot" }, picture, top, left, h("span", { class: "to" }, "now"));
  const element = h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("span", { class: "title" }, title), legend, when, peak),
    plot,
  );
  let lists = series.map(() => []);
  let interval = 1;
  let pointer = null;

  const tell = () => {
    const step = WIDTH / Math.max(1, places - 1);
    const back = pointer == null ? 0 : Math.round((WIDTH - pointer) / step);
    const isPast = pointer != null && back < lists[0].length;
    values.forEach((value, index) => say(value, write(lists[index].at(isPast ? -1 - back : -1) ?? 0)));
    say(when, isPast && back ? `${duration(back * interval)} ago` : "");
    mark.setAttribute("visibility", isPast ? "visible" : "hidden");
    if (isPast) ["x1", "x2"].forEach((name) => mark.setAttribute(name, WIDTH - back * step));
  };
  plot.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    pointer = Math.min(WIDTH, Math.max(0, ((event.clientX - box.left) / box.width) * WIDTH));
    tell();
  });
  plot.addEventListener("pointerleave", () => {
    pointer = null;
    tell();
  });

  return {
    element,
    draw(given, interval_s) {
      places = Math.max(2, Math.round(span_s / interval_s));
      lists = given.map((list) => list.slice(-places));
      interval = interval_s;
      say(left, `${duration(span_s)} ago`);
      redraw();
    },
  };

  function redraw() {
    const found = scale(lists.flat());
    const highest = ceiling(isWhole ? found.peak : found.top);
    lists.forEach((list, index) => {
      const points = line(list, places, highest);
      lines[index].setAttribute("points", points.join(" "));
      if (!index) area.setAttribute("points", closed(points));
    });
    spikes.setAttribute("d", lists.map((list) => cutOff(list, places, highest)).join(""));
    peak.hidden = !found.isSpiky;
    peak.setAttribute("aria-pressed", isWhole);
    say(peak, isWhole ? "Usual values" : `Peak ${write(found.peak)}`);
    peak.title = isWhole ? "Scale the chart to the usual values" : "Scale the chart to the peak, which is cut off";
    say(top, write(highest));
    tell();
  }
}
