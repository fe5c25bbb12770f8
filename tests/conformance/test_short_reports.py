"""The Markdown summary and the badge."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stompkit.conformance.report import Report
from stompkit.conformance.report.badge import to_badge
from stompkit.conformance.report.markdown import to_markdown
from stompkit.conformance.verdict import Verdict
from stompkit.testing import RunningBroker
from tests.conformance.broken_messages import send_needs_no_destination
from tests.conformance.conftest import Serve, Suite
from tests.conformance.proxy import behind
from tests.conformance.reports import CLEAN, HOSTILE, a_report, result


def whole(**numbers: int) -> Report:
    """Return a complete run, with this number of cases of each verdict."""
    report = a_report(CLEAN)
    report.complete, report.cut_short, report.errors = True, "", []
    report.better_than_expected = []
    report.results = [
        result(f"1.2/{verdict}/{number}", verdict)
        for verdict in Verdict
        for number in range(numbers.get(verdict.name, 0))
    ]
    return report


def cut_short() -> Report:
    """Return a run that ended early, without an error of the suite."""
    report = whole(OK=1)
    report.complete, report.cut_short = False, "gone"
    return report


def sections(report: Report, *, strict: bool = False) -> dict[str, list[str]]:
    """Return the lists of the Markdown, by their headings."""
    parts = to_markdown(report, strict=strict).decode().split("\n### ")
    return {part.splitlines()[0]: part.splitlines()[2:] for part in parts[1:]}


def test_summary_has_the_judgement_and_a_table_by_chapter() -> None:
    report = whole(OK=2)
    report.target.server = "Alpha/1"
    report.results.insert(0, result("1.0/a/b", Verdict.FAILED, "bad"))
    assert to_markdown(report).decode() == (
        "## STOMP conformance of `Alpha 1`\n\n"
        "1 of 3 cases failed, in 1.5 seconds\n\n"
        "| chapter | OK | NON-STRICT | FAILED | UNSUPPORTED | INFORMATIONAL |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| 1.0 | 0 | 0 | 1 | 0 | 0 |\n"
        "| 1.2 | 2 | 0 | 0 | 0 | 0 |\n"
        "| all | 2 | 0 | 1 | 0 | 0 |\n\n"
        "### Failures\n\n"
        "- FAILED `1.0/a/b` (MUST): `bad`\n"
    )


def test_what_is_no_failure_is_listed_apart() -> None:
    report = whole()
    report.results = [
        result("1.2/a/bad", Verdict.FAILED, "x"),
        result("1.2/a/known", Verdict.FAILED, "y", expected="it's *so*"),
        result("1.2/a/lax", Verdict.NON_STRICT, "z"),
        result("1.2/a/good", Verdict.OK),
    ]
    bad, known, lax = (
        "- FAILED `1.2/a/bad` (MUST): `x`",
        "- FAILED `1.2/a/known` (MUST): `y`, expected: it's \\*so\\*",
        "- NON-STRICT `1.2/a/lax` (MUST): `z`",
    )
    assert sections(report) == {"Failures": [bad], "Not OK, but no failure": [known, lax]}
    assert sections(report, strict=True) == {
        "Failures": [bad, lax],
        "Not OK, but no failure": [known],
    }


def test_profile_is_the_last_table() -> None:
    report = whole(OK=2)
    report.results[1].profile = {"what *it* is about": "@octocat | https://stomp.example/"}
    text = to_markdown(report).decode()
    head = "| about | does |\n| --- | --- |\n"
    table = f"{head}| what \\*it\\* is about | `@octocat \\| https://stomp.example/` |\n"
    assert text.endswith(f"\n\n### Profile\n\n{table}")


def test_unexpected_passes_and_errors_of_the_suite_are_told() -> None:
    report = whole(OK=1)
    report.better_than_expected, report.errors = ["1.2/OK/0"], ["a\n`b`"]
    assert sections(report) == {
        "Better than expected": ["- `1.2/OK/0`"],
        "Errors of the suite itself": ["- `` a `b` ``"],
    }


def test_what_the_target_says_means_nothing_in_markdown() -> None:
    """Each text is one code span, or has its special characters escaped; none ends a line."""
    nasty = f"{HOSTILE} `code` ``` @somebody | [x](y) # *b*\n\n# heading\n- item"
    data = to_markdown(a_report(nasty)).decode()
    lines = data.splitlines()
    assert sum(line.startswith("#") for line in lines) == 6
    assert sum(line.startswith("- ") for line in lines) == 5
    outside = re.sub(r"(?<![`\\])(`+)(?!`).+?(?<!`)\1(?!`)", "", data)
    assert not re.search(r"(?<!\\)[<`\[]", outside)


@pytest.mark.parametrize(
    ("report", "strict", "message", "color"),
    [
        (whole(OK=300, INFORMATIONAL=16), False, "316 of 316", "brightgreen"),
        (whole(OK=10, UNSUPPORTED=5), False, "10 of 10", "brightgreen"),
        (whole(OK=99, NON_STRICT=1), False, "100 of 100", "green"),
        (whole(OK=99, NON_STRICT=1), True, "99 of 100", "yellowgreen"),
        (whole(OK=94, FAILED=6), False, "94 of 100", "yellow"),
        (whole(OK=8, FAILED=2), False, "8 of 10", "orange"),
        (whole(OK=1, FAILED=1), False, "1 of 2", "red"),
        (whole(UNSUPPORTED=1), False, "no result", "lightgrey"),
        (cut_short(), False, "no result", "lightgrey"),
        (a_report(CLEAN), False, "no result", "lightgrey"),
    ],
)
def test_badge(
    report: Report,
    strict: bool,  # noqa: FBT001 (a parameter of the test)
    message: str,
    color: str,
) -> None:
    badge = json.loads(to_badge(report, strict=strict))
    is_error = badge.pop("isError", False)
    assert badge == {
        "schemaVersion": 1,
        "label": "STOMP conformance",
        "message": message,
        "color": color,
    }
    assert is_error is (message == "no result")


def test_badge_counts_a_known_deviation_as_one() -> None:
    report = whole(OK=3)
    report.results.append(result("1.2/a/b", Verdict.FAILED, expected="known"))
    assert json.loads(to_badge(report))["message"] == "3 of 4"


def test_run_writes_both(suite: Suite, serve: Serve, broker: RunningBroker, tmp_path: Path) -> None:
    server = serve(behind(send_needs_no_destination, broker.host, broker.port))
    files = ("--markdown", "r.md", "--badge", "badge.json")
    cases = ("1.2/send/destination-required", "1.2/send/delivers", "1.2/receipt")
    done = suite("--mq", server.address, *files, *cases)
    assert done.status == 1, done.told
    assert "wrote r.md\nwrote badge.json\n" in done.out
    text = (tmp_path / "r.md").read_text("utf-8")
    (failure,) = re.findall("^- .*", text, re.MULTILINE)
    assert failure.startswith("- FAILED `1.2/send/destination-required` (MUST): `")
    (total,) = re.findall("^1 of ([0-9]+) cases failed", text, re.MULTILINE)
    badge = json.loads((tmp_path / "badge.json").read_bytes())
    assert badge["message"] == f"{int(total) - 1} of {total}"
