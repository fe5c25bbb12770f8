"""Printing of changes, from changesets that are sent as publishers send them."""

from __future__ import annotations

import gc
import io
import json
import os
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.signals import CHANGESET, emit
from stompkit.replication.sinks.forwarders import print_sub
from tests.replication.made import changesets

Start = Callable[..., io.StringIO]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a subscriber, and stop it after the test; return its output."""
    started = []

    def start(tables: Collection[str] | None, **arguments: Any) -> io.StringIO:
        file = io.StringIO()
        started.append(print_sub(tables, file=file, **arguments))
        return file

    yield start
    for printer in started:
        printer.close()


def change(table: str, action: Any, key: object, **arguments: Any) -> RowChange:
    """Return a change of a row with one column as its key."""
    return RowChange(table=table, action=action, key={"id": key}, **arguments)


def send(*changes: RowChange) -> Changeset:
    """Send the signals of one changeset."""
    changeset = make_changeset(
        "o", 7, changes, Source(kind="test"), id="c", timestamp=datetime(2026, 11, 21, tzinfo=UTC)
    )
    emit(changeset)
    return changeset


def test_each_line_names_its_own_event(start: Start) -> None:
    printed = start(["users", "orders"])
    send(change("users", "write", 1), change("orders", "delete", 2), change("users", "update", 3))
    assert printed.getvalue() == "users_write -> 1\norders_delete -> 2\nusers_update -> 3\n"


def test_other_tables_are_not_printed_also_those_that_begin_with_the_name(start: Start) -> None:
    printed = start(["user"])
    send(change("user_update", "write", 1), change("user2", "write", 2), change("user", "read", 3))
    assert printed.getvalue() == "user_write -> 3\n"


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_tables_are_any_list_or_set(start: Start, kind: Callable[[Any], Any]) -> None:
    printed = start(kind(["a"]))
    send(change("a", "write", 1))
    assert printed.getvalue() == "a_write -> 1\n"


@pytest.mark.parametrize("tables", ["users", b"users", 3, [3], iter(["users"]), {"users": 1}])
def test_what_is_no_list_of_names_is_refused(tables: Any) -> None:
    with pytest.raises(ValueError, match="tables"):
        print_sub(tables)


def test_an_unknown_format_is_refused() -> None:
    wrong: Any = "xml"
    with pytest.raises(ValueError, match="'xml'"):
        print_sub(["a"], format=wrong)


def test_none_is_all_tables_with_their_schemas(start: Start) -> None:
    printed = start(None)
    send(change("users", "write", 1, schema="shop"), change("users", "write", 2))
    assert printed.getvalue() == "shop.users_write -> 1\nusers_write -> 2\n"


def test_a_table_is_named_as_it_was_asked_for(start: Start) -> None:
    qualified = start(["shop.users"])
    short = start(["users"])
    send(change("users", "write", 1, schema="shop"), change("users", "write", 2, schema="other"))
    assert qualified.getvalue() == "shop.users_write -> 1\n"
    assert short.getvalue() == "users_write -> 1\nusers_write -> 2\n"


def test_a_changed_key_is_a_delete_and_a_write(start: Start) -> None:
    printed = start(["a"])
    send(change("a", "update", 2, old_key={"id": 1}))
    assert printed.getvalue() == "a_delete -> 1\na_write -> 2\n"


def test_keys_of_several_columns_can_be_told_from_text(start: Start) -> None:
    printed = start(["a"])
    composite = {"x": 2, "y": "hello world", "z": Decimal("1.50")}
    send(
        RowChange(table="a", action="write", key=composite),
        change("a", "write", "hello world"),
        change("a", "write", 0),
        RowChange(table="a", action="write", key={}),
    )
    assert printed.getvalue().splitlines() == [
        "a_write -> (2, 'hello world', Decimal('1.50'))",
        "a_write -> hello world",
        "a_write -> 0",
        "a_write -> None",
    ]


def test_truncations_and_changes_of_schemas_have_lines(start: Start) -> None:
    printed = start(["a"])
    statement = "ALTER TABLE a\nADD b int"
    send(
        RowChange(table="a", action="truncate", key={}),
        RowChange(table="a", action="schema", key={}, after={"statement": statement}),
    )
    assert printed.getvalue() == "a_truncate\na_schema -> ALTER TABLE a\\nADD b int\n"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb_write -> 9", r"a\nb_write -> 9"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\x7f\u2028\ue000\ud800", r"\x7f\u2028\ue000\ud800"),
        (r"\n", r"\\n"),
        ("Zoë 愛", "Zoë 愛"),
    ],
)
def test_text_of_a_row_can_not_control_a_terminal(start: Start, key: str, shown: str) -> None:
    printed = start(["a"])
    send(change("a", "write", key))
    assert printed.getvalue() == f"a_write -> {shown}\n"


@given(changeset=changesets, format=st.sampled_from(["text", "json"]))
def test_whatever_a_changeset_holds_lines_are_printable(changeset: Changeset, format: Any) -> None:
    file = io.StringIO()
    printer = print_sub(None, file=file, format=format)
    try:
        emit(changeset)
    finally:
        printer.close()
    lines = file.getvalue().split("\n")
    assert lines.pop() == ""
    assert all(line.isprintable() for line in lines)
    if format == "json":
        assert len(lines) == len(changeset.changes)
        assert [json.loads(line)["table"] for line in lines] == [
            change.table for change in changeset.changes
        ]


def test_json_has_the_rows(start: Start) -> None:
    printed = start(["a"], format="json")
    row = {"id": 1, "price": Decimal("1.50"), "note": None, "text": "\x1b\x7f"}
    send(
        change("a", "update", 1, before={"note": "x"}, after=row, schema="s"),
        change("b", "write", 1),
    )
    (line,) = printed.getvalue().splitlines()
    assert json.loads(line) == {
        "changeset": "c",
        "origin": "o",
        "sequence": 7,
        "timestamp": "2026-11-21T00:00:00+00:00",
        "schema": "s",
        "table": "a",
        "action": "update",
        "key": {"id": 1},
        "before": {"note": "x"},
        "after": {"id": 1, "price": {"$decimal": "1.50"}, "note": None, "text": "\x1b\x7f"},
    }


def test_a_value_that_has_no_json_is_shown_all_the_same(start: Start) -> None:
    printed = start(["a"], format="json")
    send(change("a", "write", 1, after={"id": 1, "point": complex(1, 2)}))
    assert json.loads(printed.getvalue())["after"] == {"id": "1", "point": "(1+2j)"}


def test_a_printer_that_nobody_holds_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(CHANGESET.receivers)
    # Standard output is looked up at each print.
    print_sub(["a"])
    gc.collect()
    send(change("a", "write", 1))
    assert capsys.readouterr().out == "a_write -> 1\n"
    (name,) = set(CHANGESET.receivers) - before
    printer: Any = CHANGESET.receivers[name]
    printer.close()
    send(change("a", "write", 2))
    assert capsys.readouterr().out == ""


def test_a_file_of_ascii_gets_escapes(start: Start) -> None:
    octets = io.BytesIO()
    printer = print_sub(["a"], file=io.TextIOWrapper(octets, encoding="ascii"))
    try:
        send(change("a", "write", "Zoë"))
        assert octets.getvalue() == b"a_write -> Zo\\xeb\n"
    finally:
        printer.close()


def test_a_broken_pipe_ends_printing_and_nothing_else(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError), os.fdopen(writing, "w") as file:
        printer = print_sub(["a"], file=file)
        other = start(["a"])
        send(change("a", "write", 1))
        assert printer.is_closed
        assert "printing of changes ends" in caplog.text
        send(change("a", "write", 2))
        assert other.getvalue() == "a_write -> 1\na_write -> 2\n"
        # Closing the file tries to write the rest once more.


def test_nothing_is_printed_after_close() -> None:
    file = io.StringIO()
    printer = print_sub(["a"], file=file)
    send(change("a", "write", 1))
    assert not printer.is_closed
    printer.close()
    assert printer.is_closed
    send(change("a", "write", 2))
    assert file.getvalue() == "a_write -> 1\n"
    assert not file.closed
