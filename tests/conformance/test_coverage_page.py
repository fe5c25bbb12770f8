"""The page that lists the cases of each statement is generated from the cases, and up to date."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stompkit.conformance.case import Case
from stompkit.conformance.requirements import Requirement, catalogue
from tests.conformance.command import ROOT

SCRIPT = ROOT / "docs" / "make_coverage.py"
ANY = catalogue()["1.2/send/delivers"]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def case(name: str, *covers: str) -> Case:
    """Return a case that covers these requirements."""
    return Case(
        id=name,
        version="1.2",
        requirements=covers,
        level="MUST",
        informational=False,
        statement="",
        expectation="",
        section="",
    )


def requirement(name: str, **fields: str) -> Requirement:
    """Return a requirement of STOMP 1.2, of level MUST."""
    defaults = {"version": "1.2", "level": "MUST", "section": "S", "statement": "It is so."}
    defaults["sentence"] = ""
    return msgspec.structs.replace(ANY, id=name, **{**defaults, **fields})


def parts(page: str) -> dict[str, str]:
    """Return the text for each requirement."""
    found = re.findall(r"^``(\S+)`` \(\w+\)\n((?:    .*\n|\n)+)", page, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def counts(page: str) -> dict[str, list[int]]:
    """Return the numbers in the table, by version and level."""
    found = re.findall(r"^   (\S+, \w+), (\d[\d, ]*)$", page, re.MULTILINE)
    return {name: [int(each) for each in numbers.split(", ")] for name, numbers in found}


def test_each_statement_has_its_cases_or_a_reason(script: dict[str, Any]) -> None:
    page = script["page"](
        [
            requirement("1.2/a/tested", sentence="It *MUST* be so."),
            requirement("1.2/a/both", statement="A *b* `c` d_ \\n |e|"),
            requirement("1.2/a/again", kind="ref", how="As a/tested."),
            requirement("1.2/a/free", kind="none", how="Nothing to assert; see there."),
            requirement("1.2/a/duty", kind="none", how="Client duty."),
            requirement("1.2/a/other", kind="none", how="Something else."),
            requirement("1.2/a/missing", kind="check", how="Do it.", level="SHOULD"),
        ],
        [
            case("1.2/a/tested", "1.2/a/tested", "1.2/a/both"),
            case("behaviour/x", "1.2/a/both"),
            case("client/y", "1.2/a/both"),
        ],
    )
    assert parts(page) == {
        "1.2/a/tested": 'It is so. "It \\*MUST\\* be so." Tested by ``1.2/a/tested``.',
        "1.2/a/both": "A \\*b\\* \\`c\\` d\\_ \\\\n \\|e\\|"
        " Tested by ``1.2/a/tested``, ``behaviour/x``, ``client/y``.",
        "1.2/a/again": "It is so. Tested with another: As a/tested.",
        "1.2/a/free": "It is so. Nothing to test; see there.",
        "1.2/a/duty": "It is so. A duty of clients that no case can ask for.",
        "1.2/a/other": "It is so. Something else.",
        "1.2/a/missing": "It is so. There is no case yet.",
    }
    assert counts(page)["1.2, MUST"] == [6, 2, 1, 1, 3, 0]
    assert counts(page)["1.2, SHOULD"] == [1, 0, 0, 0, 0, 1]
    assert counts(page)["1.2, all"] == counts(page)["all, all"] == [7, 2, 1, 1, 3, 1]
    assert counts(page)["1.0, all"] == [0] * 6


def test_page_has_every_statement_of_the_catalogue(script: dict[str, Any]) -> None:
    page = script["page"](list(catalogue().values()), script["all_cases"]())
    assert list(parts(page)) == list(catalogue())
    assert "Without a case" in page


def test_every_statement_that_can_be_tested_has_a_case(script: dict[str, Any]) -> None:
    page = script["page"](list(catalogue().values()), script["all_cases"]())
    assert [name for name, said in parts(page).items() if "There is no case yet" in said] == []


def test_page_is_that_of_the_cases(
    script: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script["main"](["--check"]) == 0, capsys.readouterr().err


def test_page_that_is_not_of_the_cases_is_told(
    script: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script["main"](["--check", "--into", str(tmp_path)]) == 1
    assert script["main"](["--into", str(tmp_path)]) == 0
    assert script["main"](["--check", "--into", str(tmp_path)]) == 0
    page = tmp_path / "conformance-coverage.rst"
    page.write_text(page.read_text().replace("client/connect/login", "client/connect/logout"))
    assert script["main"](["--check", "--into", str(tmp_path)]) == 1
    assert "make_coverage.py" in capsys.readouterr().err
