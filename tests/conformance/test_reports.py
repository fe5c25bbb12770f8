"""JSON, JUnit and HTML of a run; whatever the target has said, they stay what they are."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from stompkit.conformance._html import to_html
from stompkit.conformance._junit import to_junit
from stompkit.conformance.report import Report, TargetInfo, check_writable, to_json, write
from stompkit.conformance.verdict import CaseResult, Ending, Verdict, WireEvent

#: Everything that means something to XML, HTML or a terminal, or can't be in a file of theirs.
HOSTILE = (
    "<script>alert(1)</script> </details> ]]> & \" ' <!-- $name ${style} \\N{} {}"
    "\x00\x01\x08\x0b\x0c\x1b[31m\x7f\x85\u202e\ud800\udcff\ufffe\uffff\r\n\t\U0001f600"
)
CLEAN = "a clean text"


def result(name: str, verdict: Verdict, text: str = "", **more: Any) -> CaseResult:
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
    """A report with results of all kinds."""
    results = [
        result(f"1.{number % 3}/topic/case-{number}", verdict, text)
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


def test_json_comes_back_as_it_was() -> None:
    """But for lone surrogates, which can't be in JSON; the suite replaces them before."""
    report = a_report(HOSTILE.replace("\ud800\udcff", ""))
    data = to_json(report)
    assert msgspec.json.decode(data, type=Report) == report
    assert data.endswith(b"}\n")


@pytest.mark.parametrize("text", [CLEAN, HOSTILE])
@pytest.mark.parametrize("strict", [False, True])
def test_junit_counts(text: str, strict: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    """NON-STRICT is passed unless strict; UNSUPPORTED and what was expected are skipped."""
    root = ElementTree.fromstring(to_junit(a_report(text), strict=strict))
    suite = root.find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")}
    failures = 2 if strict else 1
    assert counts == {"tests": "8", "failures": str(failures), "skipped": "2", "errors": "2"}
    for tag, name in (("failure", "failures"), ("skipped", "skipped"), ("error", "errors")):
        assert len(suite.findall(f"testcase/{tag}")) == int(counts[name] or "")
    assert len(cases) == 8
    assert {case.get("classname") for case in cases} == {
        "stomp.1_0",
        "stomp.1_1",
        "stomp.1_2",
        "stomp",
    }
    told = suite.findtext("testcase/failure") or ""
    assert told.startswith(text.partition("\0")[0][:30])


def test_run_without_a_problem_has_no_error_in_junit() -> None:
    report = a_report(CLEAN)
    report.complete, report.cut_short, report.errors = True, "", []
    suite = ElementTree.fromstring(to_junit(report)).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("errors")) == ("6", "0")


class Page(HTMLParser):
    """Checks that tags are balanced, and collects texts, attributes and ids."""

    VOID = frozenset({"meta", "br", "input"})

    def __init__(self, page: bytes) -> None:
        """Read a page."""
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(page.decode("utf-8"))
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Match it with its beginning."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text += data


@pytest.mark.parametrize("text", [CLEAN, HOSTILE])
def test_html_is_whole_and_needs_nothing_else(text: str) -> None:
    data = to_html(a_report(text))
    page = Page(data)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    loaded = [
        value
        for name, value in page.attributes
        if name in ("src", "srcset", "style", "action") or name.startswith("on")
    ]
    assert not loaded
    assert b"@import" not in data
    assert b"url(" not in data
    ids = [value for name, value in page.attributes if name == "id"]
    links = [value for name, value in page.attributes if name == "href"]
    assert len(ids) == len(set(ids))
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    # One mark in the matrix for each case, and one line for each of the three that are not OK.
    assert len(links) == 6 + 3


def test_html_shows_what_the_target_said_as_text() -> None:
    told = "<script>alert(1)</script> </details> ]]> & \" ' <!-- $name ${style}"
    page = Page(to_html(a_report(told)))
    assert page.text.count(told) > 50


def test_html_shows_line_ends() -> None:
    """Those around frames are heart-beats, or what a case is about."""
    log = [WireEvent(1, 0, "<", text) for text in ("\n", "\n\nMESSAGE\n\nx^@\n", "\n" * 50, "")]
    report = a_report(CLEAN)
    report.results = [result("1.2/a/b", Verdict.OK, wire=log)]
    page = Page(to_html(report))
    for shown in ("<↵", "<↵↵MESSAGE\n\nx^@↵", "<↵ x 50"):
        assert shown in page.text


def test_report_goes_into_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "report.json"
    check_writable(path)
    assert not path.parent.exists()
    write(path, b"x")
    check_writable(path)
    assert path.read_bytes() == b"x"
