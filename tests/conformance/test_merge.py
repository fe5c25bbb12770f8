"""``merge``: several reports combined in one page, one table, or one file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stompkit.conformance.report import FORMAT, Merged, Report, to_json
from stompkit.conformance.report.expectations import UsageError
from stompkit.conformance.report.html_matrix import to_matrix
from stompkit.conformance.report.markdown import to_markdown_matrix
from stompkit.conformance.report.merge import read
from stompkit.conformance.verdict import Verdict, WireEvent
from tests.conformance.conftest import Suite
from tests.conformance.reports import CLEAN, HOSTILE, Page, a_report, result


def run_on(server: str, **verdicts: Verdict) -> Report:
    """Return a complete run, with cases of the name 1.2/topic/NAME."""
    report = a_report(CLEAN)
    report.target.server = server
    report.complete, report.cut_short, report.errors = True, "", []
    report.better_than_expected = []
    report.results = [
        result(
            f"1.2/topic/{name}",
            verdict,
            detail=f"{server} did {name}",
            notes=[f"{server} notes {name}"],
            wire=[WireEvent(1, 0, "<", f"{server} sends {name}")],
        )
        for name, verdict in verdicts.items()
    ]
    return report


ALPHA = run_on("Alpha/1.5", one=Verdict.OK, two=Verdict.FAILED)
BETA = run_on("Beta/2.0 (x)", two=Verdict.NON_STRICT, three=Verdict.OK)


def cells(page: str) -> list[list[str]]:
    """Return the texts of the rows of a Markdown table."""
    rows = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("text", [CLEAN, HOSTILE])
def test_page_is_whole_and_needs_nothing_else(text: str) -> None:
    data = to_matrix([a_report(text), a_report(text), ALPHA])
    links = Page(data).check_self_contained(data)
    # One for each of the eight cases, one for each result, the chapters, and the parts of the page.
    assert len(links) == 8 + 6 + 6 + 2 + 3 + 3


def test_page_shows_what_the_target_said_as_text() -> None:
    told = "<script>alert(1)</script> </details> ]]> & \" ' <!-- $name ${style}"
    page = Page(to_matrix([a_report(told)]))
    assert page.text.count(told) > 40
    assert page.attributes.count(("title", told)) == 6


def test_page_has_a_column_for_each_target_and_a_row_for_each_case() -> None:
    data = to_matrix([ALPHA, BETA]).decode()
    assert '<th title="[::1]:61613">Alpha<br><span class="dim">1.5</span></th>' in data
    assert '<th title="[::1]:61613">Beta<br><span class="dim">2.0</span></th>' in data
    _, table = data.split('<table class="targets marks">')
    rows = {
        row.split("<code>")[1].partition("<")[0]: row.split("<td")[1:]
        for row in table.partition("</table>")[0].split("<tr ")[1:]
        if "<code>" in row
    }
    assert list(rows) == ["1.2/topic/one", "1.2/topic/two", "1.2/topic/three"]
    verdicts = {
        case: [cell.partition("</")[0].rpartition(">")[2] for cell in row]
        for case, row in rows.items()
    }
    assert verdicts == {
        "1.2/topic/one": ["OK", "-"],
        "1.2/topic/two": ["FAILED", "NON-STRICT"],
        "1.2/topic/three": ["-", "OK"],
    }


def test_each_cell_leads_to_reason_notes_and_wire_log_of_its_target() -> None:
    data = to_matrix([ALPHA, BETA]).decode()
    for number, server, case in ((1, "Alpha/1.5", "two"), (2, "Beta/2.0 (x)", "two")):
        anchor = f"{number}/1.2/topic/{case}"
        assert f'href="#{anchor}"' in data
        details = data.split(f'<div id="{anchor}">')[1].partition("</details>")[0]
        for what in ("did", "notes", "sends"):
            assert f"{server} {what} {case}" in details


def test_wire_logs_of_what_is_ok_are_left_out_unless_asked_for() -> None:
    """A cell without details links to the description of the case."""
    gamma = run_on("Gamma/1", one=Verdict.OK, two=Verdict.FAILED, three=Verdict.INFORMATIONAL)
    gamma.results[0].detail, gamma.results[0].notes = "", []
    compact = to_matrix([gamma]).decode()
    assert "Gamma/1 sends two" in compact
    assert "Gamma/1 sends one" not in compact
    assert "Gamma/1 sends three" not in compact
    assert "Gamma/1 notes three" in compact
    assert '<a class="v OK" href="#1.2/topic/one"' in compact
    assert "Alpha/1.5 notes one" in to_matrix([gamma, ALPHA]).decode()
    whole = to_matrix([gamma], all_logs=True).decode()
    for case in ("one", "two", "three"):
        assert f"Gamma/1 sends {case}" in whole
    assert '<a class="v OK" href="#1/1.2/topic/one"' in whole


def test_profiles_are_side_by_side() -> None:
    """A key that is missing for a target has no text there."""
    one, other = run_on("One/1", a=Verdict.OK, b=Verdict.OK), run_on("Two/2", a=Verdict.OK)
    one.results[0].profile = {"same": "x", "own": "1", "other": "y"}
    other.results[0].profile = {"same": "x", "other": "z"}
    page = Page(to_matrix([one, other]))
    assert "ProfileWhat the targets do where they have the choice; no verdict." in page.text
    assert "otheryzown1-samexx" in page.text
    rows = cells(to_markdown_matrix([one, other]).decode())
    assert rows[-5:] == [
        ["about", "`One 1`", "`Two 2`"],
        ["---", "---", "---"],
        ["other", "`y`", "`z`"],
        ["own", "`1`", "-"],
        ["same", "`x`", "`x`"],
    ]


def test_run_that_was_cut_short_is_told() -> None:
    report = a_report("gone <b>")
    assert b"cut short: gone &lt;b&gt;" in to_matrix([report])
    assert "### Cut short\n\n- `gone <b>`: `gone <b>`\n" in to_markdown_matrix([report]).decode()


def test_table_lists_the_cases_that_deviate_anywhere() -> None:
    rows = cells(to_markdown_matrix([ALPHA, BETA]).decode())
    assert rows[2:4] == [
        ["`Alpha 1.5`", "1", "0", "1", "0", "0"],
        ["`Beta 2.0`", "1", "1", "0", "0", "0"],
    ]
    assert rows[4] == ["case", "`Alpha 1.5`", "`Beta 2.0`"]
    assert rows[6:] == [["`1.2/topic/two`", "FAILED", "NON-STRICT"]]


def test_name_of_a_target_does_not_break_the_table() -> None:
    text = to_markdown_matrix([run_on("a`|b", one=Verdict.OK)]).decode()
    assert "| `` a`\\|b `` | 1 | 0 | 0 | 0 | 0 |\n" in text


def test_files_are_read_in_the_order_given_and_written(suite: Suite, tmp_path: Path) -> None:
    """The output of merge --json is accepted as an input."""
    (tmp_path / "a.json").write_bytes(to_json(ALPHA))
    (tmp_path / "b.json").write_bytes(to_json(BETA))
    done = suite("merge", "b.json", "a.json", "--json", "ba.json")
    assert done.status == 0, done.told
    assert done.out == "wrote ba.json\n"
    merged = msgspec.json.decode((tmp_path / "ba.json").read_bytes(), type=Merged)
    assert merged == Merged(reports=[BETA, ALPHA])
    files = ("--html", "m/t.html", "--markdown", "m/t.md", "--all-wire-logs")
    done = suite("merge", "ba.json", "a.json", *files)
    assert done.status == 0, done.told
    assert (tmp_path / "m" / "t.html").read_bytes() == to_matrix(
        [BETA, ALPHA, ALPHA], all_logs=True
    )
    assert (tmp_path / "m" / "t.md").read_bytes() == to_markdown_matrix([BETA, ALPHA, ALPHA])


UNREADABLE = {
    "newer": (b'{"format": 2, "all": "is new"}', f"has format 2; .* knows format {FORMAT} only"),
    "newer within": (
        b'{"format": 1, "reports": [{"format": 7}]}',
        f"has format 7; .* knows format {FORMAT} only",
    ),
    "no format": (b"{}", "is no report of this suite: .*`format`"),
    "something else": (b'{"format": 1}', "is no report of this suite: .*`suite_version`"),
    "none inside": (b'{"format": 1, "reports": []}', "holds no report"),
    "no JSON": (b"<html>", "is no report of this suite: "),
    "no text": (b"\xff\xfe", "is no report of this suite: "),
    "empty": (b"", "is no report of this suite: "),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_file_that_can_not_be_read_is_told_by_its_name(name: str, tmp_path: Path) -> None:
    data, message = UNREADABLE[name]
    path = tmp_path / "it.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=rf"^merge: \S*it\.json {message}"):
        read(path)


def test_mistakes_are_wrong_usage(suite: Suite, tmp_path: Path) -> None:
    """After an error in the arguments, no file is written."""
    (tmp_path / "a.json").write_bytes(to_json(ALPHA))
    (tmp_path / "new.json").write_bytes(UNREADABLE["newer"][0])
    for arguments, message in (
        (["a.json", "new.json", "--html", "t.html"], "new.json has format 2"),
        (["a.json", "nosuch.json", "--html", "t.html"], "cannot read nosuch.json: No such file"),
        (["a.json"], "what shall it write?"),
        (["--html", "t.html"], "missing: REPORT"),
        (["a.json", "--html", "."], ". is a folder"),
    ):
        done = suite("merge", *arguments)
        assert done.status == 2, done.told
        assert message in done.err
    assert not (tmp_path / "t.html").exists()


def test_help_of_merge_fits_the_terminal(suite: Suite) -> None:
    done = suite("merge", "--help", COLUMNS="80")
    assert done.status == 0, done.told
    assert max(map(len, done.out.splitlines())) <= 80
