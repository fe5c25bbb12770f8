"""Input and output of ``stompkit replica``: keys, values, times, tables, and graphs."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit._commands.replica.graph import draw
from stompkit._commands.replica.status import as_json, status_lines
from stompkit._commands.shared.text import aligned, duration, when
from stompkit._commands.shared.values import (
    parse_assignment,
    parse_key,
    parse_value,
    shown_key,
    shown_value,
)
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit.replica.engine import PeerStatus, Status

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(-9, 9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.uuids()
    | st.frozensets(st.text())
    | st.lists(DOCUMENTS)
    | st.dictionaries(st.text(), DOCUMENTS)
)

# Values.


@given(VALUES)
def test_what_is_printed_of_a_value_can_be_given_back(value: Any) -> None:
    text = shown_value(value)
    assert text.isprintable()
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ('"5"', "5"),
        ("fix the roof", "fix the roof"),
        ("", ""),
        ("null", None),
        ("NaN", "NaN"),
        ("[1, 2", "[1, 2"),
        ("10.50", 10.5),
        ('{"$decimal": "10.50"}', Decimal("10.50")),
        ('{"a": 1}', {"a": 1}),
        ('["a"]', ["a"]),
        (
            '{"$uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"}',
            UUID(int=0xF8FAD5BD9CB469FA16570867728950E),
        ),
    ],
)
def test_a_value_is_json_or_else_text(text: str, value: Any) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_json_that_stands_for_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\$date does not hold"):
        parse_value('{"$date": "tomorrow"}')
    with pytest.raises(ValueError, match=r"'\$nothing' names no type"):
        parse_value('{"$nothing": 1}')


def test_an_assignment_has_a_name_and_may_have_more_signs_in_its_value() -> None:
    assert parse_assignment("title=a=b") == ("title", "a=b")
    assert parse_assignment("done=true") == ("done", True)
    for text in ("title", "=x"):
        with pytest.raises(ValueError, match="is not NAME=VALUE"):
            parse_assignment(text)


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x9b1m", "\u202eabc", "\ud800", "a\\\x07"])
def test_no_text_moves_a_terminal_s_cursor(text: str) -> None:
    assert shown(text).isprintable()
    assert shown_value(text).isprintable()
    assert shown_value({text: text}).isprintable()


def test_text_that_can_be_printed_is_shown_as_it_is() -> None:
    assert shown("Grüße 😀 C:\\x") == "Grüße 😀 C:\\x"


# Keys.


@given(st.dictionaries(st.text(min_size=1), VALUES, min_size=1, max_size=3))
def test_what_is_printed_of_a_key_can_be_given_back(key: dict[str, Any]) -> None:
    text = shown_key(key)
    assert text.isprintable()
    assert parse_key(text, ()) == parse_key(text, tuple(key)) == key


@pytest.mark.parametrize(
    ("text", "columns", "key"),
    [
        ("5", ["id"], {"id": 5}),
        ("id=5", ["id"], {"id": 5}),
        ('id="5"', [], {"id": "5"}),
        ("n1", ["id"], {"id": "n1"}),
        ("a=b", ["id"], {"id": "a=b"}),
        ('{"shop": 1, "id": "x"}', ["id", "shop"], {"shop": 1, "id": "x"}),
    ],
)
def test_a_key_is_typed_as_is_handy(text: str, columns: list[str], key: dict[str, Any]) -> None:
    assert parse_key(text, columns) == key


@pytest.mark.parametrize(
    ("text", "columns", "told"),
    [
        ("5", [], "type it as NAME=VALUE"),
        ("5", ["a", "b"], r'type it as {"a": ..., "b": ...}'),
        ('{"a": 1}', ["a", "b"], "the key of the table is a, b, not a"),
        ('{"a": 1', [], "is no key"),
        ("{}", [], "is no key"),
    ],
)
def test_what_is_no_key_is_told_with_what_to_type(text: str, columns: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_key(text, columns)


# Output for people.


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (90_000, "1 d 1 h"),
        (10_000_000, "115 d 17 h"),
    ],
)
def test_a_time_is_told_in_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_moments_are_in_utc_and_clocks_may_be_wrong() -> None:
    assert when(datetime(2026, 11, 21, 12, 0, 5, 900_000, UTC).timestamp()) == "2026-11-21 12:00:05"
    assert when(1e20) == "?"
    assert shown_value(date(2026, 1, 2)) == '{"$date": "2026-01-02"}'


def test_columns_stand_one_below_the_other() -> None:
    assert aligned([("a", "1", "x"), ("long", "1,000", "")], right=[1]) == [
        "a         1  x",
        "long  1,000",
    ]
    assert amount(1, "row") == "1 row"
    assert amount(2000, "row") == "2,000 rows"


# Graphs.


def drawn(*nodes: str) -> str:
    """Return a drawn graph; each node is its name and those of its parents."""
    pairs = [(name, parents) for name, *parents in map(str.split, nodes)]
    lines = []
    for (name, _), each in zip(pairs, draw(pairs), strict=True):
        lines += [f"{each.line} {name}", *filter(None, [each.below])]
    return "\n".join(lines)


def test_a_chain_is_one_lane() -> None:
    assert drawn("c b", "b a", "a") == "* c\n* b\n* a"


def test_two_that_did_not_know_of_each_other_are_two_lanes_until_somebody_knew_both() -> None:
    assert drawn("d b c", "c a", "b a", "a").splitlines() == [
        "* d",
        "|-.",
        "| * c",
        "* | b",
        "'-|",
        "  * a",
    ]


def test_a_lane_that_is_crossed_goes_on_below() -> None:
    assert drawn("h1 b", "h2 c", "h3 b", "c a", "b a", "a").splitlines() == [
        "* h1",
        "| * h2",
        "| | * h3",
        "|---'",
        "| * c",
        "* | b",
        "'-|",
        "  * a",
    ]


def test_three_parents_are_three_lanes() -> None:
    assert drawn("m x y z", "z", "y", "x").splitlines() == [
        "* m",
        "|-.-.",
        "| | * z",
        "| * y",
        "* x",
    ]


def test_parents_that_are_not_listed_get_no_line() -> None:
    assert drawn("b gone", "a older") == "* b\n  * a"


@given(st.randoms(use_true_random=False), st.integers(1, 30))
def test_every_line_leads_to_all_parents_and_to_nothing_else(
    chance: random.Random, count: int
) -> None:
    """The characters below each node are followed to the nodes that they reach."""
    nodes = [
        (
            str(number),
            [
                str(each)
                for each in chance.sample(
                    range(number), min(number, chance.choice((0, 1, 1, 2, 3)))
                )
            ],
        )
        for number in range(count)
    ][::-1]
    rows = []
    for (name, _), each in zip(nodes, draw(nodes), strict=True):
        rows += [(each.line, name), *([(each.below, "")] if each.below else [])]
    for start, (line, name) in enumerate(rows):
        if name:
            parents = dict(nodes)[name]
            assert reached(rows, start, line.index("*")) == set(parents), (rows, name)


def reached(rows: list[tuple[str, str]], row: int, column: int) -> set[str]:
    """Return the names that are reached from a node downwards."""
    line = rows[row + 1][0] if row + 1 < len(rows) else ""
    if row + 1 < len(rows) and not rows[row + 1][1]:
        found: set[int] = set()
        if line[column] == "|":
            found.add(column)
        # Along the dashes on both sides, to all columns that join or start there.
        for step in (2, -2):
            place = column
            while 0 <= place + step < len(line) and line[place + step // 2] == "-":
                place += step
                if line[place] in "|.":
                    found.add(place)
        return {name for each in found for name in followed(rows, row + 2, each)}
    return set(followed(rows, row + 1, column))


def followed(rows: list[tuple[str, str]], row: int, column: int) -> list[str]:
    """Return the name at the end of a column; empty if it ends before."""
    for line, name in rows[row:]:
        mark = line[column : column + 1]
        if mark == "*":
            return [name]
        if mark not in ("|", "-"):
            return []
    return []


# Status of a replica.


def test_the_status_tells_what_there_is_to_tell() -> None:
    a, b, c = "anna~00000001", "bob~00000002", "cleo~00000003"
    status = Status(
        origin=a,
        branch="anna",
        trunk="0A",
        session="s",
        vector={b: 4, a: 1200},
        heads=["0123456789abcdef", "fedcba9876543210"],
        channels=[("notes", True), ("shop", False)],
        peers=[
            PeerStatus(
                origin=b,
                vector={},
                behind=1200,
                behind_s=95.0,
                ahead=3,
                heard_at=1000.0,
                ports=[0, 1],
                direction="both",
            ),
            PeerStatus(
                origin=c,
                vector={},
                behind=0,
                behind_s=9.0,
                ahead=0,
                heard_at=0.0,
                ports=[],
                direction="send",
            ),
        ],
        held=2,
        held_bytes=5000,
        quarantined=[(f"{b}:{number}", "no such\x1b[2Jcolumn") for number in range(5, 17)],
        skipped=[(f"{b}:4", "too bad")],
        conflicts=3,
        problems=[("users", {"id": 5}, "UNIQUE constraint failed: users.name")],
        digests={"doc.notes": ("0", 1234), "users": ("0", 1)},
        diverged={},
        warnings=[],
        bootstrap="",
        counts={"sent": 2000, "held": 0, "applied": 4},
    )
    quarantine = [f"              bob~00000002:{n}  no such\\u001b[2Jcolumn" for n in range(6, 15)]
    assert status_lines(status, now=1004.0, faults=["look at that"]) == [
        "anna~00000001  trunk 0A",
        "  channels    notes  shop",
        "  vector      1,204 changesets: anna~00000001:1200  bob~00000002:4",
        "  heads       0123456789ab  fedcba987654",
        "  held back   2 changesets, 5,000 octets",
        "  quarantine  bob~00000002:5  no such\\u001b[2Jcolumn",
        *quarantine,
        "              and 2 more",
        "  skipped     bob~00000002:4  too bad",
        "  conflicts   3 rows: `stompkit replica conflicts`",
        "  problems    users id=5  UNIQUE constraint failed: users.name",
        "  rows        doc.notes: 1,234",
        "              users: 1",
        "  counts      applied 4  sent 2,000",
        "",
        "peer                        lacks  for         has more  heard      by",
        "bob~00000002                1,200  1 min 35 s         3  4.0 s ago  notes  shop",
        "cleo~00000003 (sends only)      0                     0  never      relay",
        "",
        "! look at that",
    ]


def test_what_a_program_reads_of_a_key_is_json() -> None:
    assert json.loads(as_json([{"key": {"id": Decimal("1.50")}}])) == [{"key": {"id": "1.50"}}]
