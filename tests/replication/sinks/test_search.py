"""Rows in a search index: a server that follows the documentation of the real ones."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from http.client import HTTPException
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks import ApplyError, Refused, Sink
from stompkit.replication.sinks.search import SearchError, SearchSink
from tests.replication.sinks.rows_model import (
    COLUMNS,
    Database,
    Delivery,
    Step,
    databases,
    deliver,
    deliveries,
)
from tests.replication.sinks.search_contract import SearchServer

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "replication" / "repl_elasticsearch.py"
ROW = {"id": 1, "x": "one", "y": None}
#: Temporary errors, after which an attempt is repeated.
TEMPORARY = (SearchError, OSError, HTTPException)
FAULTS = (None, None, None, "503", "429", "lost", "half", "busy", "shards")


def change(action: Any, key: Any = 1, *, table: str = "t", **arguments: Any) -> RowChange:
    made = {"id": key} if action not in ("truncate", "schema") else {}
    return RowChange(table=table, action=action, key=made, **arguments)


def changeset(sequence: int, *changes: RowChange, origin: str = "o") -> Changeset:
    return make_changeset(origin, sequence, changes, Source(kind="test"))


@pytest.fixture
def server() -> Iterator[SearchServer]:
    """A server that must not have refused a request at the end."""
    server = SearchServer()
    yield server
    server.close()
    assert server.refusals == []
    assert server.scrolls == {}


@pytest.fixture
def sink(server: SearchServer) -> Iterator[SearchSink]:
    with closing(SearchSink(server.url)) as sink:
        yield sink


def bulks(server: SearchServer) -> list[list[Any]]:
    """Return the lines of all bulk requests about the table of these tests."""
    found = [body for target, body in server.requests if "/_bulk" in target]
    return [
        [json.loads(line) for line in body.splitlines()]
        for body in found
        if b'"_index": "t"' in body
    ]


# Documents.


def test_it_is_a_sink(sink: SearchSink) -> None:
    checked: Sink = sink
    assert checked.last("o") is None
    checked.apply([])


def test_a_row_is_a_document_with_the_version_of_its_changeset(
    sink: SearchSink, server: SearchServer
) -> None:
    sink.apply([changeset(6, change("write", after=ROW), change("read", 2, after={"id": 2}))])
    assert server.sources("t") == {"1": ROW, "2": {"id": 2}}
    ((action, source, _, _),) = bulks(server)
    more = {"version": 7, "version_type": "external_gte"}
    assert action == {"index": {"_index": "t", "_id": "1", **more}}
    assert source == ROW
    assert sink.last("o") == 6


def test_values_are_what_mappings_take(sink: SearchSink, server: SearchServer) -> None:
    row = {
        "id": 1,
        "price": Decimal("1.50"),
        "at": datetime(2026, 11, 21, 12, tzinfo=UTC),
        "day": date(2026, 11, 21),
        "time": time(12, 30),
        "took": timedelta(seconds=1.5),
        "octets": b"\x00\xff",
        "uuid": UUID(int=1),
        "tags": frozenset({"b", "a"}),
        "document": {"a": [1, {"b": None}]},
        "yes": True,
        "ratio": 0.5,
        "odd": float("nan"),
        "big": 2**62 + 1,
        "text": "line\nline\u2028\x00",
    }
    sink.apply([changeset(0, change("write", after=row))])
    assert server.sources("t")["1"] == {
        **row,
        "price": "1.50",
        "at": "2026-11-21T12:00:00+00:00",
        "day": "2026-11-21",
        "time": "12:30:00",
        "took": 1_500_000,
        "octets": "AP8=",
        "uuid": "00000000-0000-0000-0000-000000000001",
        "tags": ["a", "b"],
        "odd": None,
    }


def test_an_update_that_tells_some_columns_keeps_the_others(
    sink: SearchSink, server: SearchServer
) -> None:
    sink.apply([changeset(0, change("write", after={**ROW, "n": [1], "deep": {"a": 1}}))])
    sink.apply([changeset(1, change("update", after={"x": "two", "deep": {"b": 2}}))])
    assert server.sources("t")["1"] == {**ROW, "x": "two", "n": [1], "deep": {"b": 2}}


def test_an_update_without_a_document_makes_one(sink: SearchSink, server: SearchServer) -> None:
    sink.apply([changeset(0, change("update", before={"y": 2}, after={"x": "two"}))])
    assert server.sources("t") == {"1": {"id": 1, "x": "two", "y": 2}}


def test_a_new_row_replaces_what_was_there(sink: SearchSink, server: SearchServer) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    sink.apply([changeset(1, change("write", after={"id": 1}))])
    assert server.sources("t") == {"1": {"id": 1}}


def test_a_deleted_row_is_gone_and_one_that_is_not_there_may_be_deleted(
    sink: SearchSink, server: SearchServer
) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    sink.apply([changeset(1, change("delete"), change("delete", 2), change("delete", table="u"))])
    assert server.sources("t") == {}


def test_changes_of_one_row_are_one_action(sink: SearchSink, server: SearchServer) -> None:
    sink.apply(
        [
            changeset(0, change("write", after=ROW), change("write", 2, after={"id": 2})),
            changeset(1, change("update", after={"x": "two"}), change("delete", 2)),
            changeset(2, change("update", after={"y": 3})),
        ]
    )
    ((first, source, second),) = bulks(server)
    assert first["index"]["version"] == 3
    assert source == {"id": 1, "x": "two", "y": 3}
    assert second["delete"]["version"] == 2


def test_an_update_that_changes_the_key_moves_the_document(
    sink: SearchSink, server: SearchServer
) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    sink.apply([changeset(1, change("update", 2, old_key={"id": 1}, after={"id": 2, "y": 5}))])
    assert server.sources("t") == {"2": {"id": 2, "x": "one", "y": 5}}
    assert set(server.sources("stompkit-offsets")) == {"origins", "origin:o"}


@pytest.mark.parametrize("fault", ["503", "busy", "half"])
def test_documents_that_swap_keys_survive_a_crash_at_any_request(
    server: SearchServer, fault: str
) -> None:
    writes = [change("write", n, after={"id": n, "x": n}) for n in (1, 2)]
    moves = [(1, 9), (2, 1), (9, 2)]
    steps = [change("update", to, old_key={"id": old}, after={"id": to}) for old, to in moves]
    for number in range(20):
        origin = f"o{number}"
        # Each action is a separate request.
        with closing(SearchSink(server.url, batch_bytes=1)) as sink:
            sink.apply([changeset(0, change("truncate"), *writes, origin=origin)])
            server.faults.extend([None] * number + [fault])
            with suppress(*TEMPORARY):
                sink.apply([changeset(1, *steps, origin=origin)])
            server.faults.clear()
        # Another process resumes.
        with closing(SearchSink(server.url)) as sink:
            sink.apply([changeset(1, *steps, origin=origin)])
            assert server.sources("t") == {"1": {"id": 1, "x": 2}, "2": {"id": 2, "x": 1}}


def test_truncating_empties_the_index_in_steps_and_spares_what_comes_after(
    sink: SearchSink, server: SearchServer
) -> None:
    many = [change("write", n, after={"id": n}) for n in range(2500)]
    sink.apply([changeset(0, *many, change("write", table="u", after=ROW))])
    steps = [*many, change("truncate"), change("write", 7, after={"id": 7, "x": 1})]
    sink.apply([changeset(1, *steps)])
    assert server.sources("t") == {"7": {"id": 7, "x": 1}}
    assert server.sources("u") == {"1": ROW}


def test_truncating_what_is_not_there(sink: SearchSink, server: SearchServer) -> None:
    sink.apply([changeset(0, change("truncate"))])
    assert server.sources("t") == {}
    assert sink.last("o") == 0


def test_truncating_wants_all_parts_of_the_index(sink: SearchSink, server: SearchServer) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    server.faults.append("shards")
    with pytest.raises(SearchError, match="could not be read wholly"):
        sink.apply([changeset(1, change("truncate"))])
    sink.apply([changeset(1, change("truncate"))])
    assert server.sources("t") == {}


# Names.


def test_ids_of_different_keys_are_different(sink: SearchSink, server: SearchServer) -> None:
    keys = ["", '"', '""', "a/b?c", "x" * 600, "x" * 599 + "y", "é" * 256]
    composite = RowChange(table="u", action="write", key={"a": 2, "b": "3"}, after={})
    sink.apply([changeset(0, *(change("write", key, after={}) for key in keys), composite)])
    found = server.sources("t")
    assert sorted(source["id"] for source in found.values()) == sorted(keys)
    assert {"a/b?c", "é" * 256} <= set(found)
    assert list(server.sources("u")) == ['[2, "3"]']


def test_names_of_indices_and_ids_of_ones_own(server: SearchServer) -> None:
    rows = [change("write", 1, table="A", schema="S", after={}), change("write", 1, after={})]
    with closing(SearchSink(server.url, index="cdc-{schema}-{table}")) as sink:
        sink.apply([changeset(0, *rows)])
    assert {"cdc-s-a", "cdc--t"} <= set(server.indices)
    with closing(
        SearchSink(
            server.url,
            index=lambda change: "all",
            id=lambda change: f"{change.table}/{change.key['id']}",
            offsets_index="others",
        )
    ) as sink:
        moved = change("update", 2, old_key={"id": 1}, after={"id": 2})
        sink.apply([changeset(0, *rows, moved)])
    assert set(server.sources("all")) == {"A/1", "t/2"}


@pytest.mark.parametrize("table", ["_t", "a b", "a*", ".", "t\n", "x" * 256, "stompkit-offsets"])
def test_tables_that_can_have_no_index_are_poison(
    sink: SearchSink, server: SearchServer, table: str
) -> None:
    with pytest.raises(ApplyError, match="table "):
        sink.apply([changeset(0, change("write", table=table, after=ROW))])
    assert server.indices == {}


def test_two_tables_in_one_index_are_not_mixed_up(sink: SearchSink, server: SearchServer) -> None:
    sink.apply([changeset(0, change("write", schema="a", after=ROW))])
    with pytest.raises(ApplyError, match=r"table b\.t has the same index as a\.t"):
        sink.apply([changeset(1, change("write", schema="b", after={"id": 1}))])
    assert server.sources("t") == {"1": ROW}


def test_two_tables_in_one_index_are_not_mixed_up_in_a_later_run(server: SearchServer) -> None:
    for number, name in enumerate(("t", "T", "t")):
        with closing(SearchSink(server.url)) as sink:
            sink.skip(changeset(10 * number))
            changes = [change("write", table=name, after={"id": 1, "x": number})]
            if name == "T":
                with pytest.raises(ApplyError, match="table T has the same index as t"):
                    sink.apply([changeset(10 * number + 1, *changes)])
            else:
                sink.apply([changeset(10 * number + 1, *changes)])
    assert server.sources("t") == {"1": {"id": 1, "x": 2}}


def test_tables_are_chosen_and_masked(server: SearchServer) -> None:
    tables = Tables(["t"], masks={"t.x": "drop"})
    with closing(SearchSink(server.url, tables=tables)) as sink:
        sink.apply([changeset(0, *(change("write", table=name, after=ROW) for name in "tu"))])
    assert server.sources("t") == {"1": {"id": 1, "y": None}}
    assert "u" not in server.indices


# Repeats, origins and other processes.


def test_what_comes_again_has_no_effect_also_when_deletes_are_forgotten(
    sink: SearchSink, server: SearchServer
) -> None:
    first = changeset(0, change("write", after=ROW))
    sink.apply([first, changeset(1, change("delete"))])
    server.forget_deletes()
    sink.apply([first])
    assert server.sources("t") == {}
    assert sink.last("o") == 1


def test_a_process_that_was_thought_dead_changes_nothing(server: SearchServer) -> None:
    # It has read the offsets, and continues after another one has applied more.
    late = changeset(0, change("write", after=ROW), change("write", 2, after={"id": 2}))
    with closing(SearchSink(server.url)) as sink:
        requests: list[tuple[str, str, str, bytes]] = []

        def wait_with_bulks(method: str, path: str, kind: str, body: bytes) -> tuple[int, bytes]:
            requests.append((method, path, kind, body))
            status, text = server.answer(method, path, {"Content-Type": kind}, body)
            if "/_mget" in path and len(requests) == 1:
                sink.apply([late, changeset(1, change("update", after={"x": "two"}))])
                sink.apply([changeset(2, change("delete", 2))])
            return status, json.dumps(text).encode()

        SearchSink(server.url, transport=wait_with_bulks).apply([late])
        assert len(requests) > 1
        assert server.sources("t") == {"1": {**ROW, "x": "two"}}
        assert sink.last("o") == 2


def test_an_origin_that_begins_anew_is_above_those_before(
    sink: SearchSink, server: SearchServer
) -> None:
    sink.apply([changeset(100, change("write", after=ROW), origin="old")])
    sink.apply([changeset(0, change("read", after={"id": 1}), origin="new")])
    assert server.sources("t") == {"1": {"id": 1}}
    # The server stores the numbers of origins.
    with closing(SearchSink(server.url)) as other:
        other.apply([changeset(1, change("read", after=ROW), origin="new")])
        other.apply([changeset(101, change("write", after={"id": 1}), origin="old")])
    assert server.sources("t") == {"1": ROW}
    assert (sink.last("old"), sink.last("new"), sink.last("other")) == (101, 1, None)


def recovered(*changes: RowChange) -> Changeset:
    source = Source(kind="recovery")
    return make_changeset("recovery.1", 1, list(changes), source, id="recovery.1")


def test_a_recovered_row_takes_the_later_changes_of_its_origin(
    sink: SearchSink, server: SearchServer
) -> None:
    sink.apply([changeset(1, change("write", after=ROW), change("write", 2, after={"id": 2}))])
    told = {"id": 1, "x": "recovered"}
    sink.apply(
        [
            recovered(
                change("update", after=told),
                change("delete", 2),
                change("write", 3, after={"id": 3}),
                change("delete", 4),
            )
        ]
    )
    assert server.sources("t") == {"1": {**ROW, **told}, "3": {"id": 3}}
    assert sink.last("recovery.1") == 1
    for number, text in enumerate(("second", "third"), 2):
        sink.apply(
            [changeset(number, *(change("update", n, after={"x": text}) for n in (1, 2, 3)))]
        )
        assert {each["x"] for each in server.sources("t").values()} == {text}
    assert set(server.sources("t")) == {"1", "2", "3"}


@pytest.mark.parametrize("requests", range(1, 8))
def test_a_recovered_row_that_comes_again_hides_no_later_change(
    server: SearchServer, requests: int
) -> None:
    with closing(SearchSink(server.url)) as sink:
        sink.apply([changeset(1, change("write", after=ROW), change("write", 2, after={"id": 2}))])
        again = recovered(
            change("update", after={"x": "recovered"}),
            change("delete", 2),
            change("write", 3, after={"id": 3}),
        )
        server.faults.extend([None] * requests + ["503"])
        with suppress(*TEMPORARY):
            sink.apply([again])
        server.faults.clear()
    with closing(SearchSink(server.url)) as sink:
        is_planned = "recovered" in str(server.sources("t")) or sink.last("recovery.1")
        sink.apply([changeset(2, *(change("update", n, after={"x": "later"}) for n in (1, 2, 3)))])
        sink.apply([again])
        assert sink.last("recovery.1") == 1
        if is_planned:
            assert {each["x"] for each in server.sources("t").values()} == {"later"}
        sink.apply([changeset(3, *(change("update", n, after={"x": "last"}) for n in (1, 2, 3)))])
        assert {each["x"] for each in server.sources("t").values()} == {"last"}


def test_a_batch_may_have_several_origins(sink: SearchSink, server: SearchServer) -> None:
    batch = [changeset(n, change("write", n, after={}), origin="ab"[n % 2]) for n in range(4)]
    sink.apply(batch)
    assert set(server.sources("t")) == {"0", "1", "2", "3"}
    assert (sink.last("a"), sink.last("b")) == (2, 3)


def test_a_skipped_changeset_counts_and_does_nothing(
    sink: SearchSink, server: SearchServer
) -> None:
    sink.skip(changeset(3, change("write", after=ROW)))
    sink.skip(changeset(2))
    assert sink.last("o") == 3
    assert server.sources("t") == {}


# Requests.


def test_requests_have_a_bound(server: SearchServer) -> None:
    with closing(SearchSink(server.url, batch_bytes=1000)) as sink:
        rows = [change("write", n, after={"x": "x" * 100}) for n in range(50)]
        sink.apply([changeset(0, *rows, change("write", 99, after={"x": "x" * 2000}))])
    sizes = [len(body) for target, body in server.requests if target == "POST /_bulk"]
    assert len(server.sources("t")) == 51
    assert sum(size > 1000 for size in sizes) == 1


def test_a_request_that_is_too_large_for_the_server_is_split() -> None:
    server = SearchServer(max_content_length=2000)
    with closing(server), closing(SearchSink(server.url)) as sink:
        sink.apply([changeset(0, *(change("write", n, after={"x": "x" * 100}) for n in range(50)))])
        assert len(server.sources("t")) == 50
        with pytest.raises(ApplyError, match=r'table t, key \{"id": 99\}: .* too many'):
            sink.apply([changeset(1, change("write", 99, after={"x": "x" * 2000}))])
        assert server.refusals == []


@pytest.mark.parametrize(
    ("refresh", "query"), [(False, ""), (True, "?refresh=true"), ("wait_for", "?refresh=wait_for")]
)
def test_refresh_is_asked_for(server: SearchServer, refresh: Any, query: str) -> None:
    with closing(SearchSink(server.url, refresh=refresh)) as sink:
        sink.apply([changeset(0, change("write", after=ROW))])
    targets = [target for target, body in server.requests if b'"_index": "t"' in body]
    assert targets == [f"POST /_bulk{query}"]


@pytest.mark.parametrize(
    ("user", "api_key", "header"),
    [
        ("", "secret==", "ApiKey secret=="),
        ("us%20er:pass%40%3A@", None, "Basic dXMgZXI6cGFzc0A6"),
    ],
)
def test_credentials_are_sent(user: str, api_key: str | None, header: str) -> None:
    server = SearchServer(authorization=header)
    with closing(server):
        url = f"http://{user}127.0.0.1:{server.port}/"
        with closing(SearchSink(url, api_key=api_key)) as sink:
            sink.apply([changeset(0, change("write", after=ROW))])
        assert server.refusals == []
        with (
            closing(SearchSink(server.url)) as sink,
            pytest.raises(SearchError, match=r"status 401: .*security_exception"),
        ):
            sink.last("o")


def test_https_is_spoken(server: SearchServer) -> None:
    context = ssl.create_default_context()
    url = server.url.replace("http:", "https:")
    with closing(SearchSink(url, ssl_context=context)) as sink, pytest.raises(ssl.SSLError):
        sink.last("o")
    server.requests.clear()


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("ftp://host", {}),
        ("http://", {}),
        ("http://host?x=1", {}),
        ("http://host", {"refresh": "yes"}),
        ("http://host", {"batch_bytes": 0}),
        ("http://host", {"index": "{column}"}),
        ("http://host", {"index": "{"}),
    ],
)
def test_wrong_arguments_are_refused(url: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        SearchSink(url.replace("//", "//u:secret@", 1), **arguments)
    assert "secret" not in str(caught.value)


# Errors.


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        (RowChange(table="t", action="write", key={}, after={"x": 1}), "table t has no key"),
        (change("write", 2, after={"x": object()}), 'table t, key {"id": 2}: column x'),
        (change("write", 2, after={"x": "\ud800"}), 'table t, key {"id": 2}: .*surrogates'),
        (change("write", 2, after={"x": {"a": float("inf")}}), 'key {"id": 2}: '),
    ],
)
def test_what_can_not_be_a_document_is_told_before_anything_is_written(
    sink: SearchSink, server: SearchServer, poison: RowChange, reason: str
) -> None:
    with pytest.raises(ApplyError, match=reason):
        sink.apply([changeset(0, change("write", after=ROW)), changeset(1, poison)])
    assert server.sources("t") == {}
    assert sink.last("o") is None


def test_of_a_changeset_with_poison_the_rest_is_stored(
    sink: SearchSink, server: SearchServer
) -> None:
    refused: list[Refused] = []
    poison = change("write", 2, after={"x": object()})
    sink.apply_rows(changeset(1, change("write", after=ROW), poison), refused.extend)
    assert [each.change for each in refused] == [poison]
    assert set(server.sources("t")) == {"1"}
    assert sink.last("o") == 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"id": "no number"}, "mapper_parsing_exception"),
        ({"_id": 3}, "metadata field"),
        ({"id": 2**70}, "failed to parse field"),
    ],
)
def test_what_the_index_refuses_is_told_with_table_and_key(
    server: SearchServer, wrong: dict[str, Any], error: str
) -> None:
    server.map("t", id="long")
    # One action a request: those after the refused one are applied, too.
    with closing(SearchSink(server.url, batch_bytes=1)) as sink:
        key = wrong.get("id", 2)
        rows = [change("write", n, after={"id": n}) for n in (1, 3)]
        rows.insert(1, change("write", key, after=wrong))
        with pytest.raises(ApplyError, match=f"table t, key .*{error}") as caught:
            sink.apply([changeset(0, *rows)])
        assert json.dumps(key) in str(caught.value)
        assert sink.last("o") is None
        assert set(server.sources("t")) == {"1", "3"}
        refused: list[Refused] = []
        sink.apply_rows(changeset(0, *rows), refused.extend)
        assert [each.change for each in refused] == [rows[1]]
        assert sink.last("o") == 0


@pytest.mark.parametrize("fault", ["429", "503", "500", "404", "busy"])
def test_a_server_that_is_busy_is_worth_another_try(
    sink: SearchSink, server: SearchServer, fault: str
) -> None:
    rows = [change("write", n, after={"id": n}) for n in range(4)]
    sink.apply([changeset(0, change("write", table="u", after=ROW))])
    # The first request is for the offsets.
    server.faults.extend([None, fault] if fault != "busy" else [fault])
    with pytest.raises(SearchError, match=r"status (\d+)"):
        sink.apply([changeset(1, *rows)])
    assert sink.last("o") == 0
    server.faults.clear()
    sink.apply([changeset(1, *rows)])
    assert len(server.sources("t")) == 4


def test_an_index_that_may_not_be_made_is_worth_another_try(
    sink: SearchSink, server: SearchServer
) -> None:
    sink.apply([changeset(0, change("write", table="u", after=ROW))])
    server.creates_indices = False
    with pytest.raises(SearchError, match="index_not_found_exception"):
        sink.apply([changeset(1, change("write", after=ROW))])
    # There is nothing to delete.
    sink.apply([changeset(1, change("delete"))])
    assert sink.last("o") == 1


@pytest.mark.parametrize("answer", [(200, b"<html>"), (502, b"<html>\x1b"), (200, b"\xff")])
def test_answers_of_something_else_are_problems(answer: tuple[int, bytes]) -> None:
    sink = SearchSink("http://nowhere", transport=lambda *request: answer)
    with pytest.raises(SearchError) as caught:
        sink.last("o")
    assert str(caught.value).isprintable()


def test_a_connection_that_was_closed_is_made_again(sink: SearchSink, server: SearchServer) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    for number, fault in enumerate(["lost", "half"]):
        server.faults.append(fault)
        sink.apply([changeset(1 + number, change("update", after={"x": fault}))])
        assert server.sources("t")["1"]["x"] == fault


def test_a_server_that_is_not_there_is_worth_another_try() -> None:
    server = SearchServer()
    server.close()
    with closing(SearchSink(server.url)) as sink, pytest.raises(OSError):
        sink.apply([changeset(0)])


def _step(key: int, new_key: int, told: str = "") -> Step:
    return Step(
        table="a",
        key=key,
        new_key=new_key,
        told=frozenset(told),
        values={"x": key, "y": f"{key}"},
        deletes=False,
        truncates=False,
    )


def _swap() -> Database:
    """Return a swap of the keys of rows 1 and 2, by way of 3."""
    made = Database()
    made.commit([_step(1, 1), _step(2, 2)])
    made.commit([_step(1, 3), _step(2, 1), _step(3, 2)])
    made.commit([_step(1, 1, "x")])
    return made


def _replaced() -> Database:
    """Return a row that moves to another key, and whose old key gets a new row."""
    made = Database()
    made.commit([_step(2, 2)])
    made.commit([_step(2, 1), replace(_step(2, 2), values={"x": 3, "y": "3"})])
    return made


@settings(deadline=None)
@given(
    database=databases(),
    plan=deliveries,
    faults=st.lists(st.sampled_from(FAULTS), max_size=30),
    batch_bytes=st.sampled_from([1, 300]),
)
@example(database=_swap(), plan=[], faults=[None] * 12 + ["503"], batch_bytes=1)
# The new row is written, the moved one is refused, and then the changesets come one by one.
@example(database=_replaced(), plan=[], faults=["busy", "busy"], batch_bytes=300)
def test_the_index_is_what_the_database_is_whatever_fails_and_comes_again(
    database: Database, plan: list[Delivery], faults: list[str | None], batch_bytes: int
) -> None:
    server = SearchServer()
    for name in "ab":
        server.map(name, **dict.fromkeys(COLUMNS, "keyword"))
    sink = SearchSink(server.url, batch_bytes=batch_bytes)
    try:
        server.faults.extend(faults)
        for batch, restarts in deliver(database.changesets, plan):
            if restarts:
                sink.close()
                sink = SearchSink(server.url, batch_bytes=batch_bytes)
            sink = _insist(server, sink, batch, batch_bytes)
        server.faults.clear()
        assert sink.last("o") == len(database.changesets) - 1
        for name, rows in database.tables.items():
            assert server.sources(name) == {str(key): row for key, row in rows.items()}
        # After an interrupted request a finished scroll may be requested.
        assert [each for each in server.refusals if "/_search/scroll" not in each] == []
    finally:
        sink.close()
        server.close()


def _insist(server: SearchServer, sink: SearchSink, batch: Any, batch_bytes: int) -> SearchSink:
    """Apply a batch at once, or after a fault one by one in a new process, repeatedly."""
    parts = [batch]
    tries = len(server.faults) + 100
    while parts:
        tries -= 1
        assert tries > 0, "it fails again and again"
        try:
            sink.apply(parts[0])
        except TEMPORARY:
            sink.close()
            sink = SearchSink(server.url, batch_bytes=batch_bytes)
            server.forget_deletes()
            parts = [[each] for part in parts for each in part]
        else:
            parts.pop(0)
    return sink


# The contract and the example.

_INDEX = b'{"index": {"_index": "t", "_id": "1"}}\n{"x": 1}\n'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "required"),
        (_INDEX[:-1], "terminated by a newline"),
        (b"\n" + _INDEX, "Expecting value"),
        (_INDEX.replace(b"x", b"x\n", 2), "Unterminated"),
        (_INDEX.replace(b"1}\n", b"NaN}\n"), "NaN"),
        (_INDEX.replace(b"index", b"update", 1), "Malformed"),
        (_INDEX.replace(b"_id", b"id"), "unknown parameter"),
        (_INDEX.replace(b'"1"', b'""'), "is empty"),
        (_INDEX.replace(b'"1"', b'"%s"' % (b"1" * 513)), "too long"),
        (_INDEX.replace(b'"}}', b'", "version": 1}}'), "external"),
        (_INDEX.splitlines(keepends=True)[0], "source is missing"),
    ],
)
def test_the_contract_refuses_bodies_that_the_api_does_not_take(body: bytes, reason: str) -> None:
    assert reason in _refusal("POST", "/_bulk", "application/x-ndjson", body)


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "reason"),
    [
        ("POST", "/_bulk", "application/json", _INDEX, "Content-Type"),
        ("POST", "/_bulk", None, _INDEX, "Content-Type"),
        ("POST", "/_bulk?x=1", "application/x-ndjson", _INDEX, "unrecognized parameter"),
        ("GET", "/_mget", "application/json", b"{}", "no handler"),
        ("POST", "/_mget", "application/json", b"{}", "no documents"),
        ("POST", "/t/_search", "application/json", b'{"size": 1}', "Unknown key"),
        ("PUT", "/t", "application/json", b"{}", "no handler"),
    ],
)
def test_the_contract_refuses_requests_that_the_api_does_not_take(
    method: str, path: str, kind: str | None, body: bytes, reason: str
) -> None:
    assert reason in _refusal(method, path, kind, body)


def _refusal(method: str, path: str, kind: str | None, body: bytes) -> str:
    server = SearchServer()
    try:
        status, answer = server.answer(method, path, {"Content-Type": kind}, body)
    finally:
        server.close()
    assert status in (400, 406)
    assert answer["status"] == status
    assert len(server.refusals) == 1
    assert server.indices == {}
    return str(answer["error"]["reason"])


def _run_example(argument: str) -> str:
    result = subprocess.run(
        [sys.executable, EXAMPLE, argument],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_the_example_fills_an_index(server: SearchServer) -> None:
    assert "2 changesets are in the index" in _run_example(server.url)
    rows = {source["title"]: source["price"] for source in server.sources("repl-articles").values()}
    assert rows == {"Lamp": "1", "Desk": "99.50"}


def test_the_example_runs_dry() -> None:
    *lines, last = _run_example("--dry-run").splitlines()
    assert last == "2 changesets are in the index"
    told = [json.loads(line) for line in lines]
    assert {"id": 2, "title": "Desk", "price": "99.50"} in told
    assert sum("delete" in line for line in told) == 1
