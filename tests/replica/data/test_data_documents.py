"""Documents: JSON objects whose members are the columns of replication."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from stompkit.replica.data import Wanted
from stompkit.replica.data.documents import (
    DocumentData,
    DocumentError,
    Documents,
    document_of,
    values_of,
)
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value, row_from_json, row_to_json
from tests.effort import drawn
from tests.replication.sinks.sql_targets import Target, database_url, target

__all__ = ["database_url", "target"]


class Shelf:
    """Documents whose changes are written unchanged, and recorded."""

    def __init__(self, engine: Engine) -> None:
        """Create the table."""
        self.engine = engine
        self.data = DocumentData()
        self.data.create(engine)
        self.written: list[tuple[list[RowChange], str, str]] = []
        self.documents = Documents(self.data, engine, self._write)

    def _write(self, changes: Sequence[RowChange], author: str, comment: str) -> int:
        self.written.append((list(changes), author, comment))
        with self.engine.begin() as connection:
            rows = [self._wanted(connection, change) for change in changes]
            assert self.data.write(connection, rows) == {}
        return len(self.written)

    def _wanted(self, connection: Any, change: RowChange) -> Wanted:
        """Return the wanted row after the change has been encoded and decoded."""
        if change.action == "delete":
            return Wanted(change.identity, change.name, change.key, None)
        before = self.data.read_one(connection, change.name, change.key) or {}
        after = row_from_json(json.loads(json.dumps(row_to_json(change.after or {}))))
        return Wanted(change.identity, change.name, change.key, {**before, **after})

    @property
    def last(self) -> RowChange:
        """Return the only change of the last transaction."""
        ((change,), _, _) = self.written[-1]
        return change


@pytest.fixture
def shelf(target: Target) -> Shelf:
    """An empty shelf in each kind of database."""
    return Shelf(target.engine)


@pytest.fixture
def memory() -> Iterator[Shelf]:
    """An empty shelf in memory."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    yield Shelf(engine)
    engine.dispose()


NOTE = {"title": "Milk", "tags": ["a", "b"], "size": {"w": 1.5}, "done": False, "owner": None}


# Single documents.


def test_a_document_is_read_as_it_was_put(shelf: Shelf) -> None:
    shelf.documents.put("notes", "n1", NOTE)
    assert shelf.documents.get("notes", "n1") == NOTE
    assert shelf.documents.get("notes", "n2") is None
    assert shelf.documents.get("others", "n1") is None


def test_putting_a_document_removes_members_that_it_does_not_have(shelf: Shelf) -> None:
    shelf.documents.put("notes", "n1", NOTE)
    shelf.documents.put("notes", "n1", {"title": "Bread"})
    assert shelf.documents.get("notes", "n1") == {"title": "Bread"}


def test_a_patch_changes_and_removes_members_and_leaves_the_others(shelf: Shelf) -> None:
    shelf.documents.put("notes", "n1", NOTE)
    shelf.documents.patch("notes", "n1", {"title": "Bread", "new": 1}, remove=["tags", "nothing"])
    expected = {**NOTE, "title": "Bread", "new": 1}
    del expected["tags"]
    assert shelf.documents.get("notes", "n1") == expected


def test_a_patch_of_no_document_makes_one(memory: Shelf) -> None:
    memory.documents.patch("notes", "n1", {"title": "Milk"}, remove=["tags"])
    assert memory.documents.get("notes", "n1") == {"title": "Milk"}
    assert memory.last.action == "write"


def test_a_document_can_be_deleted(shelf: Shelf) -> None:
    shelf.documents.put("notes", "n1", NOTE)
    shelf.documents.delete("notes", "n1")
    assert shelf.documents.get("notes", "n1") is None


def test_an_empty_document_is_one(shelf: Shelf) -> None:
    shelf.documents.put("notes", "n1", {})
    assert shelf.documents.get("notes", "n1") == {}
    shelf.documents.delete("notes", "n1")
    assert shelf.documents.get("notes", "n1") is None


# The recorded changes.


def test_only_members_that_differ_are_told_with_what_they_were(memory: Shelf) -> None:
    memory.documents.put("notes", "n1", {"a": 1, "b": [1], "c": 3})
    change = memory.last
    assert (change.action, change.name, change.key) == ("write", "doc.notes", {"id": "n1"})
    assert change.after == {"a": 1, "b": [1], "c": 3}
    memory.documents.put("notes", "n1", {"a": 1, "b": [2], "d": 4})
    change = memory.last
    assert change.action == "update"
    assert change.before == {"b": [1], "c": 3, "d": None}
    assert change.after == {"b": [2], "c": None, "d": 4}
    memory.documents.delete("notes", "n1")
    change = memory.last
    assert (change.action, change.before) == ("delete", {"a": 1, "b": [2], "d": 4})


def test_nothing_is_written_where_nothing_has_changed(memory: Shelf) -> None:
    memory.documents.put("notes", "n1", NOTE)
    memory.documents.put("notes", "n1", NOTE)
    memory.documents.patch("notes", "n1", {"title": "Milk"}, remove=["nothing"])
    memory.documents.delete("notes", "n2")
    assert len(memory.written) == 1


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), (None, False)])
def test_values_that_python_takes_for_the_same_are_told_apart(
    memory: Shelf, one: object, other: object
) -> None:
    memory.documents.put("notes", "n1", {"a": one})
    memory.documents.put("notes", "n1", {"a": other})
    assert len(memory.written) == 2
    found = memory.documents.get("notes", "n1")
    assert found is not None
    assert type(found["a"]) is type(other)


# Transactions.


def test_a_transaction_writes_all_at_its_end_with_its_author(memory: Shelf) -> None:
    with memory.documents.transaction(author="ann", comment="tidy up") as transaction:
        transaction.put("notes", "n1", NOTE)
        transaction.patch("notes", "n2", {"title": "Bread"})
        transaction.delete("notes", "n3")
        assert memory.documents.get("notes", "n1") is None
        assert memory.written == []
    ((changes, author, comment),) = memory.written
    assert [change.key["id"] for change in changes] == ["n1", "n2"]
    assert (author, comment) == ("ann", "tidy up")
    assert transaction.result == 1


def test_a_transaction_reads_what_it_has_changed(memory: Shelf) -> None:
    memory.documents.put("notes", "n1", {"a": 1})
    with memory.documents.transaction() as transaction:
        transaction.patch("notes", "n1", {"b": 2})
        assert transaction.get("notes", "n1") == {"a": 1, "b": 2}
        transaction.delete("notes", "n1")
        assert transaction.get("notes", "n1") is None
        transaction.put("notes", "n1", {"a": 2})
    assert memory.last.after == {"a": 2}
    assert memory.last.before == {"a": 1}


def test_a_transaction_that_fails_writes_nothing(memory: Shelf) -> None:
    with pytest.raises(ZeroDivisionError), memory.documents.transaction() as transaction:
        transaction.put("notes", "n1", NOTE)
        _ = 1 / 0
    assert memory.written == []
    assert memory.documents.get("notes", "n1") is None


def test_what_a_program_changes_afterwards_is_not_written(memory: Shelf) -> None:
    document: dict[str, Any] = {"tags": ["a"]}
    with memory.documents.transaction() as transaction:
        transaction.put("notes", "n1", document)
        document["tags"].append("b")
        read = transaction.get("notes", "n1")
        assert read is not None
        read["tags"].append("c")
    assert memory.documents.get("notes", "n1") == {"tags": ["a"]}


def test_what_the_writer_raises_comes_out_of_the_transaction(memory: Shelf) -> None:
    def refuse(changes: object, author: str, comment: str) -> None:
        raise PermissionError("read-only")

    documents = Documents(memory.data, memory.engine, refuse)
    with pytest.raises(PermissionError):
        documents.put("notes", "n1", {})
    documents.delete("notes", "n1")


# Many documents.


def test_documents_are_found_by_how_their_ids_begin_in_order(shelf: Shelf) -> None:
    names = ["a", "A", "a ", "a%", "a_1", "aa", "ab", "b", "ä", "\U0001f600", "a\U0010ffff", "a퟿"]
    with shelf.documents.transaction() as transaction:
        for name in names:
            transaction.put("notes", name, {"is": name})
        transaction.put("other", "a", {})
    assert [name for name, _ in shelf.documents.find("notes")] == sorted(names)
    assert dict(shelf.documents.find("notes", "a")) == {
        name: {"is": name} for name in names if name.startswith("a")
    }
    for prefix in ("a%", "a_", "A", "a\U0010ffff", "a퟿", "\U0010ffff"):
        found = [name for name, _ in shelf.documents.find("notes", prefix)]
        assert found == sorted(name for name in names if name.startswith(prefix))
    assert shelf.documents.collections() == ["notes", "other"]


def test_more_documents_are_found_than_are_read_at_once(memory: Shelf) -> None:
    statements: list[str] = []
    event.listen(
        memory.engine, "before_cursor_execute", lambda _, __, told, *___: statements.append(told)
    )
    with memory.documents.transaction() as transaction:
        for number in range(2500):
            transaction.put("notes", f"{number:05}", {"n": number})
    assert len([each for each in statements if "INSERT" in each]) == 1
    found = memory.documents.find("notes")
    assert next(found) == ("00000", {"n": 0})
    # Others may be deleted while some are read.
    memory.documents.delete("notes", "02000")
    assert [document["n"] for _, document in found] == [
        number for number in range(1, 2500) if number != 2000
    ]


# Arbitrary documents.

_TEXT = st.text(max_size=5) | st.sampled_from(["id", "~id", "~~id", "$json", "$", "\0", "a.b"])
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
)
_JSON: st.SearchStrategy[Any] = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3)
)
_DOCUMENTS = st.dictionaries(_TEXT, _JSON, max_size=4)
#: Members with unusual names, including those of values and keys.
ODD = {
    "id": 1,
    "~id": {"$json": [1]},
    "": None,
    "$date": {"$decimal": "1"},
    "a\0": "\0",
    "n": 2**80,
}


def test_members_may_be_called_anything_and_hold_any_json(target: Target) -> None:
    shelf = Shelf(target.engine)
    shelf.documents.put("notes", "n1", ODD)
    assert shelf.documents.get("notes", "n1") == ODD

    @settings(
        max_examples=drawn(60 if target.kind == "sqlite" else 30),
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(_DOCUMENTS, min_size=1, max_size=3))
    def check(documents: list[dict[str, Any]]) -> None:
        for document in documents:
            shelf.documents.put("notes", "n", document)
            found = shelf.documents.get("notes", "n")
            assert json.dumps(found, sort_keys=True) == json.dumps(document, sort_keys=True)
            with target.engine.connect() as connection:
                values = shelf.data.read_one(connection, "doc.notes", {"id": "n"})
                page = shelf.data.read(connection, "doc.notes", limit=1)
            assert values is not None
            assert "id" not in values
            assert page == [({"id": "n"}, values)]
            assert row_from_json(row_to_json(values)) == values
            assert document_of(values) == document
            assert values_of(document) == values

    check()


@pytest.mark.parametrize(
    "document",
    [
        [],
        None,
        {1: 2},
        {"a": {1: 2}},
        {"a": float("nan")},
        {"a": [float("inf")]},
        {"a": Decimal(1)},
        {"a": b"x"},
        {"a": {"b": datetime.now(UTC)}},
        {"a": "\ud800"},
        {"\ud800": 1},
        {"a": {"x"}},
    ],
)
def test_what_is_no_json_is_refused_before_anything_is_written(
    memory: Shelf, document: Any
) -> None:
    with pytest.raises(DocumentError), memory.documents.transaction() as transaction:
        transaction.put("notes", "n1", {})
        transaction.put("notes", "n2", document)
    assert memory.written == []


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0", "\ud800", 7, None])
def test_what_is_no_name_is_refused(memory: Shelf, name: Any) -> None:
    for call in (memory.documents.put, memory.documents.patch):
        with pytest.raises(DocumentError, match="text of 1 to"):
            call("notes", name, {})
        with pytest.raises(DocumentError, match="text of 1 to"):
            call(name, "n1", {})
    with pytest.raises(DocumentError, match="text of 1 to"):
        memory.documents.delete("notes", name)
    assert memory.written == []


def test_one_text_is_no_list_of_names_to_remove(memory: Shelf) -> None:
    with pytest.raises(DocumentError, match="not one text"):
        memory.documents.patch("notes", "n1", remove="title")


# The table.


def wanted(id: str, values: dict[str, Value] | None, collection: str = "notes") -> Wanted:
    return Wanted(f"{collection} {id}".encode(), f"doc.{collection}", {"id": id}, values)


def test_merged_documents_are_written_and_removed(shelf: Shelf, target: Target) -> None:
    data = shelf.data
    with target.engine.begin() as connection:
        rows = [wanted(id, {"a": n, "gone": None}) for n, id in enumerate("abc")]
        assert data.write(connection, rows) == {}
        again = [wanted("a", {"a": 9}), wanted("b", None), wanted("z", None), wanted("c", None)]
        assert data.write(connection, [*again, wanted("c", {"a": 5})]) == {}
        assert data.write(connection, []) == {}
        assert data.read(connection, "doc.notes") == [
            ({"id": "a"}, {"a": 9}),
            ({"id": "c"}, {"a": 5}),
        ]
        assert data.read(connection, "doc.notes", {"id": "a"}, limit=1) == [({"id": "c"}, {"a": 5})]
        assert data.read_one(connection, "doc.notes", {"id": "b"}) is None
        assert data.tables(connection) == ["doc.notes"]


def test_rows_that_can_be_no_documents_are_told_and_all_others_are_written(memory: Shelf) -> None:
    rows = [
        wanted("a", {"a": 1}),
        Wanted(b"1", "doc.notes", {"id": 7}, {}),
        Wanted(b"2", "doc.notes", {"id": "x" * 300}, {}),
        Wanted(b"3", "doc.notes", {"id": "x", "more": 1}, {}),
        Wanted(b"4", "doc.", {"id": "x"}, {}),
        Wanted(b"5", "notes", {"id": "x"}, {}),
        Wanted(b"6", "doc.notes", {"id": "x"}, {"a": "\ud800"}),
        Wanted(b"7", "doc.notes", {"id": "x"}, {"a": object()}),
    ]
    with memory.engine.begin() as connection:
        reasons = memory.data.write(connection, rows)
        assert sorted(reasons) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
        assert len(memory.data.read(connection, "doc.notes")) == 1


def test_values_that_json_has_not_are_kept(shelf: Shelf, target: Target) -> None:
    values = {"price": Decimal("1.50"), "tags": frozenset("ab"), "at": datetime(2026, 1, 2)}
    with target.engine.begin() as connection:
        assert shelf.data.write(connection, [wanted("a", dict(values))]) == {}
        assert shelf.data.read_one(connection, "doc.notes", {"id": "a"}) == values


def test_names_that_look_alike_are_different_documents(shelf: Shelf, target: Target) -> None:
    names = ["a", "A", "a ", "ä", "a\u0308", "ß", "ss"]
    with target.engine.begin() as connection:
        assert shelf.data.write(connection, [wanted(name, {"n": name}) for name in names]) == {}
        found = shelf.data.read(connection, "doc.notes")
        assert [(key["id"], values["n"]) for key, values in found] == [
            (name, name) for name in sorted(names)
        ]
        assert shelf.data.write(connection, [wanted("a", None)]) == {}
        assert len(shelf.data.read(connection, "doc.notes")) == len(names) - 1


def test_the_body_is_the_document_in_json(shelf: Shelf, target: Target) -> None:
    shelf.documents.put("notes", "n1", {**NOTE, "id": 7})
    ((body,),) = target.rows("SELECT body FROM stompkit_documents")
    assert json.loads(body) == {**NOTE, "id": 7}


def test_only_collections_that_were_named_are_replicated(memory: Shelf) -> None:
    memory.documents.put("notes", "n1", {})
    memory.documents.put("other", "n1", {})
    some = DocumentData(collections=["notes"])
    assert "doc.notes" in some.names
    assert "doc.other" not in some.names
    assert "doc.other" in memory.data.names
    assert "notes" not in memory.data.names
    with memory.engine.connect() as connection:
        assert some.tables(connection) == ["doc.notes"]
        with pytest.raises(KeyError, match=r"doc\.other"):
            some.read(connection, "doc.other")
    with pytest.raises(ValueError, match="collection's name"):
        DocumentData(collections=[""])


def test_the_table_is_made_once_whoever_makes_it(target: Target) -> None:
    problems: list[BaseException] = []
    barrier = threading.Barrier(4)

    def create() -> None:
        barrier.wait()
        try:
            DocumentData().create(target.engine)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    DocumentData().create(target.engine)
    assert problems == []
    assert target.rows("SELECT COUNT(*) FROM stompkit_documents")[0][0] == 0


def test_tables_with_other_prefixes_are_others(memory: Shelf) -> None:
    other = DocumentData("app_")
    other.create(memory.engine)
    memory.documents.put("notes", "n1", {})
    with memory.engine.begin() as connection:
        assert other.read(connection, "doc.notes") == []
