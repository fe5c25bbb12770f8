"""Reports with results of all kinds, and a parser for pages made of them."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from stompkit.conformance.report import Report, TargetInfo
from stompkit.conformance.verdict import CaseResult, Ending, Verdict, WireEvent

#: Characters with a meaning in XML, HTML or a terminal, or not permitted there.
HOSTILE = (
    "<script>alert(1)</script> </details> ]]> & \" ' <!-- $name ${style} \\N{} {}"
    "\x00\x01\x08\x0b\x0c\x1b[31m\x7f\x85\u202e\ud800\udcff\ufffe\uffff\r\n\t\U0001f600"
)
CLEAN = "a clean text"


def result(name: str, verdict: Verdict, text: str = "", **more: Any) -> CaseResult:
    """Return a result with this text in every field for texts."""
    fields: dict[str, Any] = {
        "id": name,
        "version": name.partition("/")[0],
        "chapter": name.partition("/")[0],
        "section": text,
        "level": "MUST",
        "requirements": [name, text],
        "statement": text,
        "expectation": text,
        "verdict": verdict,
        "ending": Ending.CLEAN,
        "detail": text,
        "notes": [text, text],
        "wire": [
            WireEvent(1, 0, ">", text),
            WireEvent(1, 2, "<", "\n\n"),
            WireEvent(1, 3, ".", ""),
        ],
        **more,
    }
    return CaseResult(**fields)


def a_report(text: str) -> Report:
    """Return a report with results of all kinds."""
    results = [
        result(f"1.{number % 3}/topic/case-{number}", verdict, text, profile={text: text})
        for number, verdict in enumerate(Verdict)
    ]
    results.append(result("1.2/other/known", Verdict.FAILED, text, expected=f"known {text}"))
    return Report(
        suite_version="1",
        target=TargetInfo(address="[::1]:61613", server=text, versions=["1.0", "1.2"]),
        started="2026-01-02T03:04:05+00:00",
        duration_s=1.5,
        complete=False,
        cut_short=text,
        selected=9,
        results=results,
        better_than_expected=[text],
        errors=[text],
    )


class Page(HTMLParser):
    """Parses a page: checks that tags are balanced, and collects texts, attributes and ids."""

    VOID = frozenset({"meta", "br", "input"})

    def __init__(self, page: bytes) -> None:
        """Parse a page."""
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(page.decode("utf-8"))
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a tag."""
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Match an end tag with its start tag."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Record a text."""
        self.text += data

    def check_self_contained(self, data: bytes) -> list[str]:
        """Check that the page loads nothing and that its links resolve; return the links."""
        assert not self.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
        assert not [
            value
            for name, value in self.attributes
            if name in ("src", "srcset", "style", "action") or name.startswith("on")
        ]
        assert b"@import" not in data
        assert b"url(" not in data
        ids = [value for name, value in self.attributes if name == "id"]
        links = [value for name, value in self.attributes if name == "href"]
        assert len(ids) == len(set(ids))
        assert all(link.startswith("#") and link[1:] in ids for link in links)
        return links
