"""The example of the tutorial prints the expected output."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "replication" / "tutorial.py"
LONG_S = 120.0


def _changes(lines: list[str]) -> list[tuple[str, str, object, object, object]]:
    """Return the actions, tables, keys, and the rows before and after, of a printed changeset."""
    found = []
    for line in lines:
        if line.startswith("  "):
            what, _, rows = line.partition("}: ")
            action, table, key = what.split(maxsplit=2)
            before, after = map(literal_eval, rows.split(" -> "))
            found.append((action, table, literal_eval(f"{key}}}"), before, after))
    return found


def _expected(author: int) -> list[tuple[str, str, object, object, object]]:
    """Return the expected changes of the program, whose author has this number."""
    book = {"id": 1, "title": "The Dispossesed", "author_id": author}
    mended = {**book, "title": "The Dispossessed"}
    return [
        ("write", "authors", {"id": author}, None, {"id": author, "name": "Ursula"}),
        ("write", "books", {"id": 1}, None, book),
        ("update", "books", {"id": 1}, book, mended),
        ("delete", "books", {"id": 1}, mended, None),
    ]


def test_the_tutorial_shows_the_same_changes_by_signals_and_by_an_outbox() -> None:
    result = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
    )
    assert result.returncode == 0, result.stdout
    first, second = (part.splitlines() for part in result.stdout.split("\n\n"))
    assert [line for line in first if not line.startswith("  ")] == [
        "By signals:",
        "changeset 1",
        "book 1 has changed",
        "changeset 2",
        "changeset 3",
    ]
    assert [line for line in second if not line.startswith("  ")] == [
        "By an outbox:",
        "3 changesets wait in the outbox",
        "changeset 1",
        "changeset 2",
        "changeset 3",
    ]
    assert _changes(first) == _expected(1)
    # The rolled back author has left no trace, not even its number.
    assert _changes(second) == _expected(2)
