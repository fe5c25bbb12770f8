"""The report of the job *analytics*: a self-contained HTML page without scripts."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from string import Template
from typing import Any, Final

from stompkit.spark.jobs.results.base import CHANGES, KEYS, LAG, Results
from stompkit.spark.jobs.results.chart import Series, columns, lines
from stompkit.spark.jobs.results.counting import OPERATIONS, Lag

__all__ = ["made_report"]

_MINUTE_S: Final = 60
#: Maximum number of tables shown separately, and maximum length of a key.
_MOST_TABLES: Final = 30
_MOST_KEY: Final = 200
_PAGE: Final = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --dim: #57606a; --line: #8884; --c0: #0969da; --c1: #bc4c00;
  --c2: #8250df; --c3: #1a7f37; --c4: #bf3989; --c5: #7d4e00; --c6: #57606a; --c7: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --dim: #9ca3af; --c0: #58a6ff; --c1: #f0883e;
  --c2: #bc8cff; --c3: #3fb950; --c4: #f778ba; --c5: #d29922; --c6: #9ca3af; --c7: #ff7b72; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem;
  overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; }
p { margin: .25rem 0; } .dim, .legend, summary { color: var(--dim); font-size: .9rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 11px; fill: var(--dim); text-anchor: end; }
svg .time { text-anchor: middle; }
svg line { stroke: var(--line); }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .75em; height: .75em; margin-right: .35em; }
$colors
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .15rem .75rem .15rem 0; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tbody th { font-weight: normal; } tbody tr { border-top: 1px solid var(--line); }
code { font-family: ui-monospace, monospace; }
</style></head><body>
$content
</body></html>
""")
_COLORS: Final = "\n".join(
    f"svg .c{n} {{ fill: var(--c{n}); }} svg .l{n} {{ stroke: var(--c{n}); }}"
    f" i.c{n} {{ background: var(--c{n}); }}"
    for n in range(8)
)
_LAGS: Final = tuple(name for name in Lag._fields if name != "changes")


def made_report(
    pipeline: str, results: Results, span_s: int, top_keys: int, now_s: float | None = None
) -> bytes:
    """Return a page about the last ``span_s`` seconds of results."""
    latest = results.latest()
    title = f"Changes of {pipeline}"
    made = f"Made {_when(time.time() if now_s is None else now_s)}."
    parts = [f"<h1>{escape(title)}</h1>"]
    if latest is None:
        parts.append(f'<p class="dim">{made} No changes are counted yet.</p>')
    else:
        since = latest - max(span_s // _MINUTE_S - 1, 0) * _MINUTE_S
        parts += _content(results, since, latest, top_keys, made)
    text = _PAGE.substitute(title=escape(title), colors=_COLORS, content="\n".join(parts))
    return text.encode("utf-8", "backslashreplace")


def _content(results: Results, since: int, latest: int, top_keys: int, made: str) -> Iterable[str]:
    by_minute: defaultdict[int, Counter[str]] = defaultdict(Counter)
    by_table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    late = 0
    late_by_table: Counter[str] = Counter()
    rows: list[Any] = list(results.rows(CHANGES, since))
    for minute, table, operation, on_time, too_late in rows:
        # Late changes are attributed to their minute nevertheless.
        by_minute[minute][operation] += on_time + too_late
        by_table[table][operation] += on_time + too_late
        late_by_table[table] += too_late
        late += too_late
    minutes = list(range(since, latest + 1, _MINUTE_S))
    there = [each for each in OPERATIONS if any(each in found for found in by_table.values())]
    total = sum(found.total() for found in by_table.values())
    yield (
        f'<p class="dim">{made} All times are UTC. Of {_when(since)} to'
        f" {_when(latest + _MINUTE_S)}:</p><p><b>{total:,}</b> changes of"
        f" <b>{len(by_table):,}</b> {'table' if len(by_table) == 1 else 'tables'};"
        f" {late:,} of them came later than the watermark.</p>"
    )
    yield "<h2>Changes per minute</h2>"
    busiest = max(minutes, key=lambda each: by_minute[each].total())
    yield columns(
        "Changes per minute, by operation",
        f"{total:,} changes; most of them, {by_minute[busiest].total():,}, in the minute of"
        f" {_when(busiest)}. The table below has all values.",
        minutes,
        [Series(each, [by_minute[minute][each] for minute in minutes]) for each in there],
    )
    told = [minute for minute in reversed(minutes) if by_minute[minute]]
    yield _folded(
        "by minute",
        ("minute", *there),
        [(_when(each), *(by_minute[each][name] for name in there)) for each in told],
    )
    yield "<h2>Tables</h2>"
    tables = sorted(by_table, key=lambda each: (-by_table[each].total(), each))
    yield _table(
        ("table", "changes", *there, "late"),
        [
            (
                _name(each),
                by_table[each].total(),
                *(by_table[each][name] for name in there),
                late_by_table[each],
            )
            for each in tables[:_MOST_TABLES]
        ],
    )
    if len(tables) > _MOST_TABLES:
        yield f'<p class="dim">and {len(tables) - _MOST_TABLES:,} tables with fewer.</p>'
    yield from _lags(results, since, minutes)
    yield from _keys(results, since, tables[:_MOST_TABLES], top_keys)


def _lags(results: Results, since: int, minutes: Sequence[int]) -> Iterable[str]:
    rows: list[Any] = list(results.rows(LAG, since))
    found = {row[0]: Lag(*row[1:]) for row in rows}
    titles = ("median", "95 %", "longest")
    for what, title in (("received", "Commit to spool"), ("read", "Spool to batch")):
        names = [name for name in _LAGS if name.startswith(what)]
        series = [
            Series(title, [getattr(found.get(minute), name, None) for minute in minutes])
            for title, name in zip(titles, names, strict=True)
        ]
        yield f"<h2>{title}, in seconds</h2>"
        known = [each for each in series[-1].values if each is not None]
        longest = f"The longest was {max(known):,.3f} seconds." if known else "Nothing is known."
        about = f"{longest} The table below has all values."
        yield lines(f"{title}: seconds, by minute", about, minutes, series)
        yield _folded(
            "by minute",
            ("minute", *titles),
            [
                (_when(minute), *(getattr(found[minute], name) for name in names))
                for minute in reversed(minutes)
                if minute in found
            ],
        )


def _keys(results: Results, since: int, tables: Sequence[str], top_keys: int) -> Iterable[str]:
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    rows: list[Any] = list(results.rows(KEYS, since))
    for _, table, _, key, changes in rows:
        totals[table][key] += changes
    yield "<h2>Most frequent keys</h2>"
    yield (
        f'<p class="dim">Of each minute the {top_keys} most frequent keys of a table are known;'
        " these are the sums.</p>"
    )
    for table in tables:
        if totals[table]:
            found = sorted(totals[table].items(), key=lambda each: (-each[1], each[0]))
            yield f"<h3>{escape(_name(table))}</h3>"
            yield _table(("key", "changes"), [(_cut(key), n) for key, n in found[:top_keys]])


def _cut(key: str) -> str:
    return key if len(key) <= _MOST_KEY else f"{key[:_MOST_KEY]}…"


def _name(table: str) -> str:
    return table or "(no changesets)"


def _when(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M}"


def _folded(name: str, head: Sequence[str], rows: Sequence[Sequence[str | float | None]]) -> str:
    return f"<details><summary>{escape(name)}</summary>{_table(head, rows)}</details>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str | float | None]]) -> str:
    heads = "".join(
        f'<th scope="col"{" class=n" if place else ""}>{escape(each)}</th>'
        for place, each in enumerate(head)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(str(row[0]))}</th>'
        + "".join(f'<td class="n">{_number(each)}</td>' for each in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _number(value: str | float | None) -> str:
    if value is None:
        return "&ndash;"
    return f"{value:,.3f}" if isinstance(value, float) else escape(f"{value:,}")
