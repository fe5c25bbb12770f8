"""Checking, compacting, exporting and importing stores."""

from __future__ import annotations

import base64
import fcntl
import io
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lmdb
import pytest

from stompkit.server.interfaces import (
    CreateLane,
    Delivered,
    Mark,
    MessageStore,
    Operation,
    Put,
    Remove,
    SetRecord,
    StoredMessage,
    StoreError,
    StoreFullError,
)
from stompkit.server.stores import LmdbStore, MemoryStore
from stompkit.server.stores.maintenance import backup, check, compact, export_store, import_store
from tests.server.stores.conftest import Place

ODD_TEXT = "caf\udce9 \0 \U0001f600 \\ ' \" \n"
MANY = 2_345


def put(lane: int, place: int, body: bytes = b"body") -> Put:
    return Put(lane, place, len(body) + 10, place, 2 * place, f"id-{place}", b"a:b\n", body)


#: Contents of every kind.
CONTENTS: list[Operation] = [
    CreateLane(1, "/queue/a", 4),
    *(put(1, place) for place in range(2, MANY)),
    Delivered(1, 100),
    Mark(1, 50, 3),
    Mark(1, 200, 2),
    CreateLane(2, ODD_TEXT, 10),
    Put(2, 7, 0, 2**52, 0, ODD_TEXT, b"a:\xff\xe9\n", bytes(range(256)) * 40),
    CreateLane(3, "/queue/gone", 0),
    put(3, 9),
    Delivered(3, 9),
    Remove(3, 9),
    CreateLane(4, "/queue/new", 4),
    SetRecord("a", b"\0\xff"),
    SetRecord(ODD_TEXT, b""),
]


def ignore(done: int, total: int) -> None:
    """Ignore the progress."""


def contents(store: MessageStore) -> tuple[object, object, list[Sequence[StoredMessage]]]:
    lanes = sorted(store.lanes())
    messages = [store.read(lane.lane, 0, 1_000_000, 1_000_000_000) for lane in lanes]
    return lanes, dict(store.records()), [list(each) for each in messages]


def model() -> MemoryStore:
    """Return an in-memory store with contents of every kind."""
    store = MemoryStore()
    store.open()
    store.apply(CONTENTS)
    return store


def exported(store: MessageStore) -> list[bytes]:
    """Return the lines of an export."""
    file = io.BytesIO()
    export_store(store, file, ignore)
    return file.getvalue().splitlines(keepends=True)


def empty() -> MemoryStore:
    store = MemoryStore()
    store.open()
    return store


# Export and import.


def test_what_is_exported_can_be_imported_into_any_store(store: MessageStore) -> None:
    import_store(store, io.BytesIO(b"".join(exported(model()))), ignore)
    assert contents(store) == contents(model())
    assert sorted(exported(store)) == sorted(exported(model()))


def test_a_store_that_was_imported_is_there_after_reopening(place: Place) -> None:
    store = place.store()
    store.open()
    import_store(store, io.BytesIO(b"".join(exported(model()))), ignore)
    store.close()
    store.open()
    assert contents(store) == contents(model())
    store.close()


def test_an_empty_store_can_be_exported_and_imported() -> None:
    lines = exported(empty())
    target = empty()
    import_store(target, io.BytesIO(b"".join(lines)), ignore)
    assert [json.loads(line)["kind"] for line in lines] == ["store", "end"]
    assert contents(target) == ([], {}, [])


def test_the_format_is_the_one_that_is_documented() -> None:
    store = empty()
    store.apply(
        [CreateLane(1, "/queue/é", 4), put(1, 3), Delivered(1, 3), SetRecord("key", b"value")]
    )
    assert [json.loads(line) for line in exported(store)] == [
        {"kind": "store", "version": 1, "lanes": 1, "messages": 1, "records": 1},
        {
            "kind": "lane",
            "lane": 1,
            "queue": "/queue/é",
            "part": 4,
            "last_place": 3,
            "delivered_place": 3,
        },
        {
            "kind": "message",
            "place": 3,
            "deliveries": 1,
            "size": 14,
            "expires_ms": 3,
            "due_ms": 6,
            "id": "id-3",
            "lines": "a:b\n",
            "body": base64.b64encode(b"body").decode(),
        },
        {"kind": "record", "key": "key", "value": base64.b64encode(b"value").decode()},
        {"kind": "end", "lanes": 1, "messages": 1, "records": 1},
    ]
    assert all(line.isascii() for line in exported(store))


def test_progress_is_told_from_nothing_to_everything() -> None:
    told: list[tuple[int, int]] = []
    file = io.BytesIO()
    export_store(model(), file, lambda *numbers: told.append(numbers))
    total = MANY - 2 + 1
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert len(told) > 3
    file.seek(0)
    told_of_import: list[tuple[int, int]] = []
    import_store(empty(), file, lambda *numbers: told_of_import.append(numbers))
    assert told_of_import[0] == (0, total)
    assert told_of_import[-1] == (total, total)
    assert len(told_of_import) > 3


@pytest.mark.parametrize("there", [CreateLane(9, "/queue/a", 4), SetRecord("a", b"1")])
def test_nothing_is_imported_into_a_store_that_has_something(there: Operation) -> None:
    store = empty()
    store.apply([there])
    before = contents(store)
    with pytest.raises(StoreError, match="not empty"):
        import_store(store, io.BytesIO(b"".join(exported(model()))), ignore)
    assert contents(store) == before


Lines = list[bytes]


def changed(line: bytes, **changes: object) -> bytes:
    """Return a line with other values; ``None`` removes one."""
    values = {**json.loads(line), **changes}
    return json.dumps({k: v for k, v in values.items() if v is not None}).encode() + b"\n"


def with_line(number: int, **changes: object) -> Callable[[Lines], Lines]:
    """Return a function that changes one line of an export; negative numbers count from the end."""

    def change(lines: Lines) -> Lines:
        return [*lines[:number], changed(lines[number], **changes), *lines[number:][1:]]

    return change


#: Faults of an export, with the expected error messages. Its second line is lane 1, and its third
#: the message at place 2.
FAULTS: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "empty": (lambda lines: [], "cut off after line 0"),
    "no end": (lambda lines: lines[:-1], "cut off after line"),
    "cut in two": (lambda lines: lines[:1_500], "cut off after line 1500"),
    "cut in a line": (lambda lines: [*lines[:1_500], lines[1_500][:20]], "cut off in line 1501"),
    "line missing": (lambda lines: [*lines[:1_500], *lines[1_501:]], "not complete"),
    "lane missing": (lambda lines: [lines[0], *lines[2:]], "line 2 .* has to follow its lane"),
    "no beginning": (lambda lines: lines[1:], "line 1 .* does not begin like this"),
    "two beginnings": (lambda lines: [lines[0], *lines], "line 2 .* one beginning"),
    "more after the end": (lambda lines: [*lines, lines[1]], "more after the end"),
    "newer": (with_line(0, version=2), "line 1 .* version 2, and this stompkit knows 1"),
    "no JSON": (lambda lines: [*lines[:1_500], b"}\n", *lines[1_500:]], "line 1501 .* wrong"),
    "nested": (lambda lines: [*lines[:9], b"[" * 99_999 + b"\n"], "line 10 .* wrong"),
    "no object": (lambda lines: [*lines[:9], b"7\n"], "line 10 .* wrong"),
    "no UTF-8": (lambda lines: [*lines[:9], b'"\xff"\n'], "line 10 .* wrong"),
    "unknown kind": (with_line(9, kind="frame"), "line 10 .*frame"),
    "no kind": (with_line(9, kind=None), "line 10 .*kind"),
    "field missing": (with_line(9, body=None), "line 10 .*body"),
    "unknown field": (with_line(9, more=1), "line 10 .*more"),
    "wrong type": (with_line(9, size="large"), "line 10 .*size"),
    "no base64": (with_line(9, body="?"), "line 10 .*body"),
    "negative": (with_line(9, size=-1), "line 10 .*size"),
    "too large": (with_line(9, expires_ms=2**63), "line 10 .*expires_ms"),
    "no place": (with_line(2, place=0), "line 3 .*place"),
    "place twice": (with_line(3, place=2), "line 4 .* place 2 is out of order"),
    "place too high": (with_line(3, place=MANY + 1), "line 4 .* last place"),
    "no header lines": (with_line(9, lines="\ud800"), "line 10 .* header lines"),
    "record twice": (lambda lines: [*lines[:-1], lines[-2], lines[-1]], "comes twice"),
    "lane twice": (lambda lines: [*lines[:-1], lines[1], lines[-1]], "lane 1 comes twice"),
    "lanes counted wrong": (with_line(-1, lanes=5), "not complete"),
    "messages counted wrong": (with_line(-1, messages=5), "not complete"),
    "records counted wrong": (with_line(-1, records=5), "not complete"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_of_an_export_that_is_wrong_nothing_is_imported(fault: str) -> None:
    change, message = FAULTS[fault]
    store = empty()
    with pytest.raises(StoreError, match=f"(?s){message}"):
        import_store(store, io.BytesIO(b"".join(change(exported(model())))), ignore)
    assert contents(store) == ([], {}, [])


@pytest.mark.parametrize("fault", ["cut in two", "records counted wrong"])
def test_every_store_is_empty_after_an_import_that_failed(store: MessageStore, fault: str) -> None:
    change, _ = FAULTS[fault]
    with pytest.raises(StoreError):
        import_store(store, io.BytesIO(b"".join(change(exported(model())))), ignore)
    assert contents(store) == ([], {}, [])
    import_store(store, io.BytesIO(b"".join(exported(model()))), ignore)
    assert contents(store) == contents(model())


def test_an_import_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, max_octets=256 * 1024)
    store.open()
    with pytest.raises(StoreFullError):
        import_store(store, io.BytesIO(b"".join(exported(model()))), ignore)
    assert contents(store) == ([], {}, [])
    store.close()


class BreaksDown(MemoryStore):
    """A store that accepts a limited number of batches."""

    def __init__(self, batches: int) -> None:
        """Accept ``batches`` batches."""
        super().__init__()
        self._batches = batches

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply a batch, or fail."""
        self._batches -= 1
        if self._batches < 0:
            raise StoreError("broken down")
        super().apply(operations)


def test_what_can_not_be_removed_again_is_told() -> None:
    store = BreaksDown(2)
    store.open()
    with pytest.raises(StoreError, match=r"broken down; and what was imported .* part of the"):
        import_store(store, io.BytesIO(b"".join(exported(model()))), ignore)


def test_an_import_that_is_interrupted_leaves_nothing_behind() -> None:
    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    store = empty()
    with pytest.raises(KeyboardInterrupt):
        import_store(store, io.BytesIO(b"".join(exported(model()))), interrupt)
    assert contents(store) == ([], {}, [])


# Checking and compacting.


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A broker's data directory, with an LMDB store of contents of every kind."""
    store = LmdbStore(tmp_path)
    store.open()
    store.apply(CONTENTS)
    store.close()
    return tmp_path


def edit(directory: Path, database: bytes, key: bytes, value: bytes | None) -> None:
    """Change a store directly, to damage it."""
    env = lmdb.open(str(directory / "messages.lmdb"), max_dbs=8)
    with env.begin(write=True) as txn:
        handle = env.open_db(database, txn=txn)
        if value is None:
            assert txn.delete(key, db=handle)
        else:
            txn.put(key, value, db=handle)
    env.close()


def key(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def test_a_sound_store_has_no_problems(directory: Path) -> None:
    told: list[tuple[int, int]] = []
    assert check(directory, lambda *numbers: told.append(numbers)) == []
    assert told[0] == (0, MANY - 1)
    assert told[-1] == (MANY - 1, MANY - 1)


CHECK = """
import sys
from pathlib import Path
from stompkit.server.stores.maintenance import check
print(check(Path(sys.argv[1]), lambda done, total: None))
"""


def test_a_store_that_a_broker_uses_can_be_checked(directory: Path) -> None:
    store = LmdbStore(directory)
    store.open()
    # One process cannot open the same file twice.
    result = subprocess.run(
        [sys.executable, "-c", CHECK, str(directory)], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
    store.apply([put(1, MANY)])
    store.close()


@pytest.mark.parametrize(
    ("database", "where", "value", "problems"),
    [
        (
            b"messages",
            key(1, 5),
            None,
            [
                f"lane 1 ('/queue/a') says that it has {MANY - 2} messages, not {MANY - 3}",
                f"lane 1 ('/queue/a') says that it has {(MANY - 2) * 14} octets,"
                f" not {(MANY - 3) * 14}",
            ],
        ),
        (
            b"lanes",
            key(2),
            None,
            ["lane 2 is not there, but 1 messages of it are"],
        ),
        (
            b"messages",
            key(9, 5),
            bytes(32),
            ["lane 9 is not there, but 1 messages of it are"],
        ),
        (
            b"messages",
            key(4, 5),
            bytes(32),
            [
                "lane 4 ('/queue/new') says that it has 0 messages, not 1",
                "lane 4 ('/queue/new') ends at place 0, its messages at 5",
            ],
        ),
        (
            b"marks",
            key(1, MANY + 1),
            key(3),
            [f"there is a mark, but no message, at place {MANY + 1} of lane 1"],
        ),
        (b"marks", key(1, 2), b"x", [f"mark {key(1, 2).hex()} cannot be read"]),
        (b"marks", b"x", key(3), ["mark 78 cannot be read"]),
        (b"lanes", b"x", b"", ["lane 78 cannot be read"]),
        (b"records", b"x", key(1) + b"a", ["record 'a' is not where it should be"]),
        (b"records", b"x", key(9), ["record 78 cannot be read"]),
        (b"messages", b"x", b"", ["message 78 cannot be read"]),
    ],
)
def test_what_is_wrong_with_a_store_is_told(
    directory: Path, database: bytes, where: bytes, value: bytes | None, problems: list[str]
) -> None:
    edit(directory, database, where, value)
    found = check(directory, ignore)
    assert len(found) == len(problems)
    for said, expected in zip(found, problems, strict=True):
        assert said.startswith(expected)


def test_a_message_that_can_not_be_read_is_told_and_not_counted(directory: Path) -> None:
    edit(directory, b"messages", key(2, 7), b"?")
    unreadable, messages, octets_ = [*check(directory, ignore), ""][:3]
    assert unreadable.startswith(f"message {key(2, 7).hex()} cannot be read")
    assert "messages, not 0" in messages
    assert octets_ == ""


def test_very_many_problems_are_counted(directory: Path) -> None:
    env = lmdb.open(str(directory / "messages.lmdb"), max_dbs=8)
    with env.begin(write=True) as txn:
        for place in range(1, 1_001):
            txn.put(key(8, place), b"?", db=env.open_db(b"messages", txn=txn))
    env.close()
    found = check(directory, ignore)
    assert len(found) == 101
    assert found[-1] == "900 more problems"


def overwrite(directory: Path, first: float, last: float) -> None:
    """Damage the pages of a part of a store's file."""
    data = directory / "messages.lmdb" / "data.mdb"
    octets = bytearray(data.read_bytes())
    start, end = int(len(octets) * first), int(len(octets) * last)
    octets[start:end] = b"\xff" * (end - start)
    data.write_bytes(octets)


def test_damaged_pages_are_a_problem(directory: Path) -> None:
    # Neither the pages of the first transaction, nor those of the last, which refer to the others.
    overwrite(directory, 0.25, 0.5)
    (problem,) = check(directory, ignore)
    assert problem.startswith(f"not everything can be read: the store {directory}")


def test_a_store_that_can_not_be_opened_is_not_checked(directory: Path) -> None:
    overwrite(directory, 0.5, 1)
    with pytest.raises(StoreError, match="cannot be used"):
        check(directory, ignore)


@pytest.mark.parametrize("command", [lambda path: check(path, ignore), compact])
def test_a_directory_without_a_store_is_refused(
    tmp_path: Path, command: Callable[[Path], object]
) -> None:
    with pytest.raises(StoreError, match=f"no store in {tmp_path}"):
        command(tmp_path)
    assert list(tmp_path.iterdir()) == []


def thinned(directory: Path) -> tuple[Any, ...]:
    """Remove nearly all messages from a store; return the contents left."""
    store = LmdbStore(directory)
    store.open()
    store.apply([Remove(1, place) for place in range(2, MANY - 10)])
    left = contents(store)
    store.close()
    return left


# Backups.


def test_a_backup_has_everything_and_only_its_owner_reads_it(
    directory: Path, tmp_path: Path
) -> None:
    left = thinned(directory)
    target = tmp_path / "backup"
    octets = backup(directory, target)
    files = [path for path in target.rglob("*") if path.is_file()]
    assert octets == sum(path.stat().st_size for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert check(target, ignore) == []
    store = LmdbStore(target)
    store.open()
    assert contents(store) == left
    store.close()
    assert [path.name for path in target.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("target", "words"),
    [("there", "exists already: remove it"), ("none/backup", "cannot be written: No such file")],
)
def test_a_backup_that_is_refused_leaves_nothing(
    target: str, words: str, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoreError, match=words):
        backup(directory, tmp_path / target)
    assert sorted(tmp_path.iterdir()) == before


def test_a_backup_without_space_leaves_nothing(directory: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(StoreError):
            backup(directory, tmp_path / "backup")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(tmp_path.iterdir()) == before


def test_without_a_store_there_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store in"):
        backup(tmp_path / "none", tmp_path / "backup")


def test_a_compacted_store_is_smaller_and_has_the_same(directory: Path) -> None:
    left = thinned(directory)
    data = directory / "messages.lmdb" / "data.mdb"
    size = data.stat().st_size
    before, after = compact(directory)
    assert (before, after) == (size, data.stat().st_size)
    assert after < before / 2
    assert stat.S_IMODE(data.stat().st_mode) == 0o600
    assert {path.name for path in data.parent.iterdir()} == {
        "changes.log",
        "data.mdb",
        "lock.mdb",
    }
    assert check(directory, ignore) == []
    store = LmdbStore(directory)
    store.open()
    assert contents(store) == left
    store.apply([put(1, MANY + 1)])
    store.close()
    assert check(directory, ignore) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
@pytest.mark.parametrize("is_restored", [False, True])
def test_commands_of_root_leave_the_files_to_the_owner_of_the_store(
    directory: Path, *, is_restored: bool
) -> None:
    store = directory / "messages.lmdb"
    if is_restored:
        # A backup has no locks.
        for lock in (store / "lock.mdb", directory / "lock"):
            lock.unlink(missing_ok=True)
    for path in (directory, *directory.rglob("*")):
        os.chown(path, 1234, 2345)
    (store / "data.mdb").chmod(0o640)
    assert check(directory, ignore) == []
    compact(directory)
    assert stat.S_IMODE((store / "data.mdb").stat().st_mode) == 0o640
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in directory.rglob("*")}
    assert {"data.mdb", "lock.mdb", "lock"} <= set(owners)
    assert set(owners.values()) == {(1234, 2345)}


def test_a_store_that_a_broker_uses_is_not_compacted(directory: Path) -> None:
    data = directory / "messages.lmdb" / "data.mdb"
    before = data.read_bytes()
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=r"a broker is using .*: stop it first"):
            compact(directory)
    assert data.read_bytes() == before
    compact(directory)


def test_a_store_that_can_not_be_compacted_is_left_as_it_is(directory: Path) -> None:
    left = thinned(directory)
    data = directory / "messages.lmdb" / "data.mdb"
    before = data.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(StoreError):
            compact(directory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert data.read_bytes() == before
    assert {path.name for path in data.parent.iterdir()} == {
        "changes.log",
        "data.mdb",
        "lock.mdb",
    }
    store = LmdbStore(directory)
    store.open()
    assert contents(store) == left
    store.close()
