"""JSON, JUnit and HTML reports of a run are valid, whatever text the target has sent."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from stompkit.conformance.report import Report, check_writable, to_json, write
from stompkit.conformance.report.html import to_html
from stompkit.conformance.report.junit import to_junit
from stompkit.conformance.verdict import CaseResult, Verdict, WireEvent
from tests.conformance.reports import CLEAN, HOSTILE, Page, a_report, result


def test_json_comes_back_as_it_was() -> None:
    """Lone surrogates are exempt: JSON cannot contain them, and the suite replaces them before."""
    report = a_report(HOSTILE.replace("\ud800\udcff", ""))
    data = to_json(report)
    assert msgspec.json.decode(data, type=Report) == report
    assert data.endswith(b"}\n")


@pytest.mark.parametrize("text", [CLEAN, HOSTILE])
@pytest.mark.parametrize("strict", [False, True])
def test_junit_counts(text: str, strict: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    """NON-STRICT is passed unless strict; UNSUPPORTED and expected deviations are skipped."""
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


@pytest.mark.parametrize("text", [CLEAN, HOSTILE])
def test_html_is_whole_and_needs_nothing_else(text: str) -> None:
    data = to_html(a_report(text))
    page = Page(data)
    links = page.check_self_contained(data)
    # One mark in the matrix for each case, and one line for each of the three that are not OK. Then
    # the chapters, and the parts of the page.
    assert len(links) == 6 + 3 + 3 + 4


def test_html_shows_what_the_target_said_as_text() -> None:
    told = "<script>alert(1)</script> </details> ]]> & \" ' <!-- $name ${style}"
    page = Page(to_html(a_report(told)))
    assert page.text.count(told) > 50


def test_html_shows_line_ends() -> None:
    """Line ends around frames are heart-beats, or the subject of a case."""
    log = [WireEvent(1, 0, "<", text) for text in ("\n", "\n\nMESSAGE\n\nx^@\n", "\n" * 50, "")]
    report = a_report(CLEAN)
    report.results = [result("1.2/a/b", Verdict.OK, wire=log)]
    page = Page(to_html(report))
    for shown in ("<↵", "<↵↵MESSAGE\n\nx^@↵", "<↵ x 50"):
        assert shown in page.text


def profiled(case: str, version: str, **profile: str) -> CaseResult:
    """Return a result with a profile."""
    return result(case, Verdict.INFORMATIONAL, version=version, profile=profile)


def test_profile_has_one_text_where_the_versions_agree() -> None:
    report = a_report(CLEAN)
    report.results = [
        profiled("behaviour/1.0/a", "1.0", same="x", differs="x", once="o"),
        profiled("behaviour/1.1/a", "1.1", same="x", differs="x", Few="f"),
        profiled("behaviour/1.2/a", "1.2", same="x", differs="y", Few="g"),
        profiled("behaviour/b", "1.2", same="x", differs="z"),
    ]
    assert list(report.profile().items()) == [
        ("differs", "1.0, 1.1: x; 1.2: y, z"),
        ("Few", "1.1: f; 1.2: g"),
        ("once", "o"),
        ("same", "x"),
    ]


def test_html_has_the_profile() -> None:
    report = a_report(CLEAN)
    report.results = [profiled("behaviour/a", "1.2", about="does")]
    assert "<tr><th>about</th><td>does</td></tr>" in to_html(report).decode()
    report.results = [result("1.2/a/b", Verdict.OK)]
    assert 'id="profile"' not in to_html(report).decode()


def test_matrix_of_one_target_has_a_row_for_each_topic_and_a_column_for_each_version() -> None:
    report = a_report(CLEAN)
    ids = ("robustness/ack/c", "behaviour/1.2/ack/b", "1.2/ack/a", "1.0/ack/a", "behaviour/ack/x")
    report.results = [result(each, Verdict.OK) for each in ids]
    table = to_html(report).decode().split('<table class="matrix">')[1].split("</table>")[0]
    assert "<th>topic</th><th>1.0</th><th>1.2</th><th>any</th>" in table
    rows = [re.findall(r'href="#([^"]*)"|(<td></td>)', row) for row in table.split("<tr>")]
    assert [[link or None for link, _ in row] for row in rows if row] == [
        ["1.0/ack/a", "1.2/ack/a", None],
        [None, None, "robustness/ack/c"],
        [None, "behaviour/1.2/ack/b", "behaviour/ack/x"],
    ]
    groups = re.findall(r'<th class="chapter" colspan="4">(.*?)</th>', table)
    assert groups == ["specifications", "robustness", "behaviour"]
    report.results = [result("robustness/ack/c", Verdict.OK)]
    assert '<th class="chapter" colspan="2">robustness</th>' in to_html(report).decode()


def test_report_goes_into_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "report.json"
    check_writable(path)
    assert not path.parent.exists()
    write(path, b"x")
    check_writable(path)
    assert path.read_bytes() == b"x"


def test_deviation_that_did_not_show_is_a_failure_in_junit() -> None:
    """An unexpected pass is a failure of the run, too."""
    report = a_report(CLEAN)
    report.results = [result("1.2/a/b", Verdict.OK), result("1.2/a/c", Verdict.OK)]
    report.better_than_expected = ["1.2/a/c"]
    root = ElementTree.fromstring(to_junit(report))
    failed = root.findall("testsuite/testcase[failure]")
    assert [case.get("name") for case in failed] == ["1.2/a/c"]
    assert root.findall("testsuite/testcase/failure")[0].get("message") == "better than expected"
