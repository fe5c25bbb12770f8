"""Building blocks of diagrams: fitted text, SVG elements, Graphviz statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from unicodedata import combining, east_asian_width
from xml.sax.saxutils import escape, quoteattr

from stompkit.replica.identity import branch_of

__all__ = [
    "LANES",
    "cut",
    "document",
    "dot_document",
    "duration",
    "element",
    "labels",
    "plain",
    "quoted",
    "text",
    "titled",
    "wrapped",
]

#: Number of colours; additional columns reuse them.
LANES: Final = 8

#: Colours legible on white and on nearly black, for light and dark themes.
_LANE_COLOURS: Final = (
    ("#0969da", "#58a6ff"),
    ("#b35900", "#f0a04b"),
    ("#1a7f37", "#4ac26b"),
    ("#8250df", "#c297ff"),
    ("#0e7490", "#39c5cf"),
    ("#bf3989", "#ff80c8"),
    ("#7d5a00", "#d9b340"),
    ("#57606a", "#a5afba"),
)
_COLOURS: Final = {
    "paper": ("#ffffff", "#14181f"),
    "ink": ("#1f2328", "#e6e9ef"),
    "dim": ("#59636e", "#9aa5b1"),
    "rule": ("#d8dee4", "#343c46"),
    "bad": ("#c31e2b", "#ff8078"),
}
_FONT: Final = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
#: Characters that XML cannot represent, including lone surrogates.
_UNFIT: Final = re.compile("[^\\t\\n\\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPACE: Final = re.compile(r"\s+")


# Text.


def plain(words: str) -> str:
    """Return text on one line, without characters that XML cannot represent."""
    return _SPACE.sub(" ", _UNFIT.sub("\ufffd", words)).strip()


def cut(words: str, cells: int) -> str:
    """Return text on one line of at most ``cells`` terminal cells."""
    line = plain(words)
    width = 0
    for place, character in enumerate(line):
        width += _cells(character)
        if width > cells:
            kept = line[:place]
            while kept and sum(map(_cells, kept)) > cells - 1:
                kept = kept[:-1]
            return kept.rstrip() + "…"
    return line


def wrapped(words: str, cells: int, lines: int) -> list[str]:
    """Return text wrapped to at most ``lines`` lines of ``cells`` terminal cells."""
    found: list[str] = []
    for word in plain(words).split(" "):
        longer = f"{found[-1]} {word}" if found else word
        if found and (len(found) == lines or cut(longer, cells) == longer):
            found[-1] = longer
        else:
            found.append(word)
    return [cut(line, cells) for line in found]


def _cells(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def labels(origins: Iterable[str]) -> dict[str, str]:
    """Return the shortest unambiguous names of origins: the branch, if it is unique."""
    known = list(dict.fromkeys(origins))
    branches = [branch_of(origin) for origin in known]
    return {
        origin: branch if branches.count(branch) == 1 else origin
        for origin, branch in zip(known, branches, strict=True)
    }


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


# SVG.


def element(name: str, attributes: Mapping[str, object], content: Iterable[str] = ()) -> str:
    """Return an element; ``content`` is markup already."""
    given = "".join(
        f" {key}={quoteattr(_number(value))}" for key, value in attributes.items() if value != ""
    )
    inside = "".join(content)
    return f"<{name}{given}>{inside}</{name}>" if inside else f"<{name}{given}/>"


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else plain(str(value))


def text(x: float, y: float, words: str, style: str = "", *, anchor: str = "") -> str:
    """Return a text element that begins, ends or is centred at a position."""
    attributes = {"x": x, "y": y, "class": style, "text-anchor": anchor}
    return element("text", attributes, [escape(plain(words))])


def titled(words: Iterable[str], content: Iterable[str], style: str = "") -> str:
    """Return a group with a tooltip that has one line for each of ``words``."""
    title = escape("\n".join(line for each in words if (line := plain(each))))
    return element("g", {"class": style}, [f"<title>{title}</title>", *content])


def document(
    name: str, width: float, height: float, title: str, description: str, content: Sequence[str]
) -> str:
    """Return a complete SVG; ``name`` is the prefix of the ids in it."""
    attributes = {
        "xmlns": "http://www.w3.org/2000/svg",
        "class": "sk",
        "viewBox": f"0 0 {width:.0f} {height:.0f}",
        "width": f"{width:.0f}",
        "height": f"{height:.0f}",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
    }
    head = [
        element("title", {"id": f"{name}-title"}, [escape(plain(title))]),
        element("desc", {"id": f"{name}-desc"}, [escape(plain(description))]),
        element("style", {}, [_style()]),
        element("rect", {"class": "sk-paper", "width": "100%", "height": "100%"}),
    ]
    return element("svg", attributes, ["\n" + line for line in (*head, *content, "")]) + "\n"


def _style() -> str:
    dark = f"@media(prefers-color-scheme:dark){{{_colours(1)}}}"
    return (
        f".sk{{font:12px {_FONT}}}.sk text{{stroke:none!important}}.sk .sk-name{{font-weight:600}}"
        ".sk .sk-line{fill:none;stroke-width:2}.sk .sk-far{stroke-dasharray:2 4}"
        ".sk .sk-mark,.sk .sk-ring,.sk .sk-here{stroke-width:2}" + _colours(0) + dark
    )


def _colours(which: int) -> str:
    """Return the CSS rules of one colour scheme, by class."""
    paper, ink, dim, rule, bad = (each[which] for each in _COLOURS.values())
    rules = [
        f".sk .sk-paper{{fill:{paper}}}.sk text{{fill:{ink}}}.sk .sk-dim{{fill:{dim}}}",
        f".sk .sk-rule{{stroke:{rule}}}.sk .sk-bus{{stroke:{dim}}}",
        f".sk .sk-box{{fill:{paper};stroke:{dim}}}",
        f".sk .sk-key{{fill:{dim};stroke:{dim};stroke-width:2}}.sk .sk-hollow{{fill:{paper}}}",
        f".sk .sk-bad{{stroke:{bad}}}.sk text.sk-bad{{fill:{bad}}}",
    ]
    for number, colours in enumerate(_LANE_COLOURS):
        lane, colour = f".sk .sk-{number}", colours[which]
        rules.append(f"{lane}{{stroke:{colour}}}{lane}.sk-mark{{fill:{colour}}}")
        rules.append(f"{lane}.sk-open{{fill:{paper}}}.sk text.sk-{number}{{fill:{colour}}}")
    return "".join(rules)


# Graphviz.


def quoted(words: str) -> str:
    """Return a quoted Graphviz string; newlines are kept."""
    lines = (plain(line) for line in words.splitlines())
    escaped = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{escaped}"'


def dot_document(name: str, statements: Iterable[str]) -> str:
    """Return a complete graph."""
    return "\n".join([f"digraph {name} {{", *(f"    {each};" for each in statements), "}", ""])
