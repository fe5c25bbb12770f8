"""The check of prose finds what it should, and nothing else; `make lint` runs it on all pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from docs.check_prose import check, main, pages, read_words

LONG = "This sentence goes on and on " * 5


@pytest.fixture
def found(tmp_path: Path) -> Callable[[str], list[str]]:
    """A function that returns the texts of the findings in a page."""

    def find(text: str) -> list[str]:
        page = tmp_path / "page.rst"
        page.write_text(text, encoding="utf-8")
        return [each.text for each in check(page, read_words())]

    return find


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (f"{LONG}.", "30 words, more than 25"),
        (f"* Short. {LONG}.", "30 words, more than 25"),
        (f"==  ==\na   {LONG}\n==  ==", "30 words, more than 25"),
        (f"Title\n=====\n\n.. note::\n   {LONG}", "30 words, more than 25"),
        ("The broker doesn't stop.", '"doesn\'t": no contractions'),
        ("It\u2019s *here*.", '"It\u2019s": no contractions'),
        ("A job of its own", '"of its own": separate'),
        ("Whoever asks\n============\n", '"Whoever": each client'),
        ("What is tested\n==============\n", "What is tested: a heading is a term"),
        ("200 octets", '"octets": bytes'),
        ("It is no broker. A client is no server.", '"is no": is not'),
        ("=====  =====\nwhat   the\n       ledger\n=====  =====", '"ledger": pending'),
    ],
)
def test_a_mistake_is_found(found: Callable[[str], list[str]], text: str, finding: str) -> None:
    [only] = found(text)
    assert only.startswith(finding)


@pytest.mark.parametrize(
    "text",
    [
        "Words " * 25 + ".",
        "Twenty words and more are in this enumeration: "
        + "; ".join(["the first of its five parts has ten words"] * 4),
        "``" + "code " * 30 + "code``",
        "Codes: " + ", ".join(["``code``"] * 40),
        f"::\n\n    {LONG}",
        f".. {LONG}",
        "A `link <of-its-own.rst>`__, and ``octets``.",
        'The specification: "an octet count".',
        "It is no longer there, and there is no other.",
    ],
)
def test_what_is_right_is_not_found(found: Callable[[str], list[str]], text: str) -> None:
    assert found(text) == []


def test_a_finding_has_the_place_and_the_status_says_that_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.rst"
    page.write_text("Good.\n\nNot good: it can't be.\n")
    assert main([str(page)]) == 1
    assert capsys.readouterr().out.startswith(f'{page}:3: "can\'t": no contractions')
    page.write_text("Good.\n")
    assert main([str(page)]) == 0


def test_all_pages_are_checked() -> None:
    names = {path.name for path in pages()}
    assert {"README.rst", "CHANGES.rst", "tutorial.rst", "broker.rst", "commands.rst"} <= names
    assert len(names) > 50
