// How numbers, sizes and times are written.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A count, in full: 12,345. */
export const count = (value) => (value == null ? "–" : whole.format(value));

/** A count where there is little room: 12.3K. */
export const brief = (value) => (value < 10_000 ? whole.format(value) : short.format(value));

/** A number per second; small ones have a decimal. */
export function rate(value) {
  if (value == null) return "–";
  if (value > 0 && value < 0.05) return "<0.1";
  return value < 100 ? tenth.format(value) : brief(value);
}

/** A size in octets. */
export function octets(value) {
  if (value == null) return "–";
  if (value < 1024) return `${whole.format(value)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value / 1024;
  let unit = 0;
  while (size >= 1023.95 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size < 100 ? tenth.format(size) : whole.format(size)} ${units[unit]}`;
}

/** A time in seconds, in its two largest units: 3 d 4 h. */
export function duration(seconds) {
  const parts = [
    ["d", Math.floor(seconds / 86400)],
    ["h", Math.floor(seconds / 3600) % 24],
    ["min", Math.floor(seconds / 60) % 60],
    ["s", Math.floor(seconds) % 60],
  ];
  const first = parts.findIndex(([, value]) => value > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([, value]) => value > 0)
    .map(([unit, value]) => `${value} ${unit}`)
    .join(" ");
}

/** How long ago something was, in one unit: 3 min. */
export function ago(seconds) {
  return seconds < 1 ? "1 s" : duration(Math.floor(seconds)).split(" ").slice(0, 2).join(" ");
}

/** The name of a protocol: STOMP 1.2, or beanstalk. */
export const protocol = (version) =>
  version == null ? "none" : /^1\.\d$/.test(version) ? `STOMP ${version}` : version;

/** Words for a number of things: 1 message, 2 messages. */
export const things = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A point in time, as ISO 8601, in local time. */
export function moment(iso) {
  if (!iso) return "–";
  const date = new Date(iso);
  if (Number.isNaN(date.valueOf())) return String(iso);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  return new Date().toDateString() === date.toDateString() ? time : `${day} ${time}`;
}

/** The time of day, with milliseconds. */
export function clock(iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.valueOf())) return "";
  const two = (value) => String(value).padStart(2, "0");
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  return `${time}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
