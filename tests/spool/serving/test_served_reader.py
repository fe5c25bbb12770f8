"""Reading a spool from its server: the same messages by the same ordinals as from its folder."""

from __future__ import annotations

import pickle
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit._common.metrics import Address
from stompkit.spool import (
    BrokenSpoolError,
    DataLostError,
    OtherSpoolError,
    Record,
    SpoolError,
    SpoolReader,
    SpoolUnavailableError,
    SpoolWriter,
)
from stompkit.spool.readers import listed
from stompkit.spool.retention import retain
from stompkit.spool.sealing import seal, unsealed
from stompkit.spool.segments.records import ORIGIN
from stompkit.spool.serving.server import spool_server
from tests.effort import drawn, effort
from tests.ports import free_ports
from tests.server.certificates import Authority
from tests.spool.made import BEGIN_S, between, fill, logs, record, several
from tests.spool.serving.servers import (
    LOOPBACK,
    TOKEN,
    ServerProcess,
    access,
    served,
    token_file,
)


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool with 60 messages in blocks and segments of several sizes."""
    folder = tmp_path_factory.mktemp("served") / "spool"
    fill(folder, 1, 9, 3, 20, 2, 10, 15, segment_bytes=900)
    return folder


@pytest.fixture(scope="module")
def url(spool: Path) -> Iterator[str]:
    with served(spool) as found:
        yield found


def outcome(ask: Callable[[SpoolReader], Any], reader: SpoolReader) -> Any:
    """Return the answer to a question, or what both readers' errors have in common."""
    try:
        return ask(reader)
    except DataLostError as error:
        return type(error), error.partition, error.asked, error.there
    except SpoolError as error:
        return type(error)


#: Changes of a spool: messages to append, a format to seal the oldest segment in, and a number of
#: segments to keep.
_CHANGES = st.lists(
    st.one_of(
        st.integers(1, 30), st.sampled_from(["arrow", "parquet"]), st.sampled_from(["keep 1"])
    ),
    min_size=1,
    max_size=8,
)


@given(_CHANGES, st.data())
@settings(max_examples=drawn(25), deadline=None)
def test_both_readers_read_the_same_of_a_spool_that_changes(
    tmp_path_factory: pytest.TempPathFactory, changes: list[int | str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("changing") / "spool"
    count = 0
    with SpoolWriter(folder, partitions=2, segment_bytes=700, sync=False) as writer:
        with served(folder) as url:
            readers = SpoolReader(folder), SpoolReader(url, access=access())
            for change in changes:
                if isinstance(change, int):
                    some = [of_partition(each) for each in range(count, count + change)]
                    writer.append(some)
                    count += change
                elif change.startswith("keep"):
                    retain(writer, max_bytes=1000)
                else:
                    for partition, segment in unsealed(folder)[:1]:
                        seal(writer, partition, segment, form=change)  # type: ignore[arg-type]
                number = data.draw(st.integers(0, 1))
                bounds = st.integers(0, count + 3)
                start, end = sorted((data.draw(bounds), data.draw(bounds)))
                for ask in questions(number, start, end):
                    local, remote = (outcome(ask, each) for each in readers)
                    assert local == remote


def questions(number: int, start: int, end: int) -> list[Callable[[SpoolReader], Any]]:
    """Return what both readers are asked."""
    return [
        lambda each: (each.id, each.partitions, each.head(), each.floor()),
        lambda each: between(each, start, end, number),
        lambda each: each.size(number, start, min(end, each.head()[number])),
        lambda each: each.split(each.floor(), each.head(), 3),
        lambda each: each.bytes_limit(each.floor(), 50 * (end + 1)),
        lambda each: each.position_at(BEGIN_S + start),
    ]


def of_partition(number: int) -> Record:
    return record(number, headers=((ORIGIN, f"origin-{number % 3}"),))


def test_a_reader_goes_to_another_process_with_what_the_server_requires(url: str) -> None:
    reader = SpoolReader(url, access=access())
    again = pickle.loads(pickle.dumps(reader))
    assert (again.place, again.id, again.access) == (url, reader.id, access())
    assert between(again, 0, 60) == several(0, 60)
    assert TOKEN not in repr(again.access)
    with pytest.raises(SpoolError, match="on another machine"):
        _ = again.folder


def test_a_message_larger_than_a_range_is_read(tmp_path: Path) -> None:
    large = record(0, body=bytes(range(256)) * 80_000)
    with SpoolWriter(tmp_path / "spool") as writer:
        writer.append([large])
    with served(tmp_path / "spool") as url:
        assert between(SpoolReader(url, access=access()), 0, 1) == [large]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_reading_goes_on_when_a_segment_is_sealed_between_two_blocks(
    tmp_path: Path, form: Any
) -> None:
    # Two blocks are too large to be read together.
    made = [record(number, body=b"x" * 700_000) for number in range(4)]
    with SpoolWriter(tmp_path / "spool") as writer:
        for each in made[:3]:
            writer.append([each])
        writer.append([])
    with SpoolWriter(tmp_path / "spool", segment_bytes=1) as writer:
        writer.append([made[3]])
    with served(tmp_path / "spool") as url:
        blocks = SpoolReader(url, access=access()).blocks(0, 0, 4)
        found = list(next(blocks).records())
        seal(tmp_path / "spool", 0, 0, form=form)
        found += [one for block in blocks for one in block.records()]
    assert found == made


def test_messages_that_retention_removes_between_two_blocks_are_lost_with_their_place(
    tmp_path: Path,
) -> None:
    made = [record(number, body=b"x" * 700_000) for number in range(3)]
    with SpoolWriter(tmp_path / "spool") as writer:
        for each in made[:2]:
            writer.append([each])
    with SpoolWriter(tmp_path / "spool", segment_bytes=1) as writer:
        writer.append([made[2]])
        with served(tmp_path / "spool") as url:
            blocks = SpoolReader(url, access=access()).blocks(0, 0, 3)
            assert list(next(blocks).records()) == made[:1]
            assert retain(writer, max_bytes=1).segments == 1
            with pytest.raises(DataLostError, match=r"is not in http://.* any more") as lost:
                next(blocks)
    assert (lost.value.asked, lost.value.there) == (1, 2)


def test_readers_are_registered_by_the_server(spool: Path, url: str) -> None:
    reader = SpoolReader(url, access=access())
    assert reader.register("shop.replicate", (7,)).positions == (7,)
    assert reader.register("shop.replicate", (9,)).positions == (7,)
    assert reader.progress("shop.replicate", (11,)).positions == (11,)
    assert reader.readers() == listed(spool)
    assert set(listed(spool)) == {"shop.replicate"}
    for wrong in ("", "../x", "a/b", "ä", "x" * 101):
        with pytest.raises(ValueError, match="is no name of a reader"):
            reader.progress(wrong, (1,))
    with pytest.raises(SpoolError, match="2 positions for the 1 partitions"):
        reader.progress("shop.replicate", (1, 2))


# Errors.


def test_a_wrong_token_is_refused_with_what_to_do(url: str) -> None:
    with pytest.raises(SpoolError, match="does not accept the token: set spoolToken") as refused:
        SpoolReader(url, access=access(token="another-token-0123456789"))
    assert "another-token" not in str(refused.value)
    with pytest.raises(SpoolError, match="needs its token"):
        SpoolReader(url)


@pytest.mark.parametrize(
    "wrong", ["http://host", "http://host:1/path", "https://:7", "http://a:b@host:1", "http://h:x"]
)
def test_a_wrong_url_is_refused(wrong: str) -> None:
    with pytest.raises(SpoolError, match="http://HOST:PORT"):
        SpoolReader(wrong, access=access())


def test_a_server_that_is_away_is_named_with_the_machine_and_what_to_do() -> None:
    with free_ports() as (port,):
        with pytest.raises(SpoolUnavailableError) as away:
            SpoolReader(f"http://{LOOPBACK}:{port}", access=access(patience_s=0))
    text = str(away.value)
    assert text.startswith(f"the machine {socket.gethostname()} cannot read the spool")
    assert "Connection refused" in text
    assert "`stompkit spool serve`" in text


def test_something_else_at_the_address_is_no_server_of_a_spool() -> None:
    def answer() -> None:
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with closing(socket.create_server((LOOPBACK, 0))) as server:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(SpoolError, match="is not the server of a spool"):
            SpoolReader(f"http://{LOOPBACK}:{server.getsockname()[1]}", access=access())
        thread.join()


def test_another_spool_behind_the_same_address_is_not_read(tmp_path: Path) -> None:
    for name in ("first", "second"):
        fill(tmp_path / name, 5)
    with free_ports() as (port,):
        first = ServerProcess(tmp_path / "first", port, tmp_path)
        first.start()
        reader = first.reader()
        first.stop()
        second = ServerProcess(tmp_path / "second", port, tmp_path)
        second.start()
        try:
            for ask in (reader.head, reader.floor, lambda: pickle.loads(pickle.dumps(reader))):
                with pytest.raises(OtherSpoolError, match="its ordinals are others"):
                    ask()
        finally:
            second.stop()


def test_damage_on_the_disk_of_the_server_is_damage_for_the_reader(tmp_path: Path) -> None:
    fill(tmp_path / "spool", 5)
    (log,) = logs(tmp_path / "spool")
    octets = bytearray(log.read_bytes())
    octets[-20] ^= 1
    log.write_bytes(octets)
    with served(tmp_path / "spool") as url:
        reader = SpoolReader(url, access=access())
        with pytest.raises(BrokenSpoolError, match=r"p0/0{20}\.log is damaged"):
            between(reader, 0, 5)


#: Places in the body of an answer where a bit changes.
PLACES = effort(range(0, 400, 100), range(0, 400, 20))


def test_octets_that_change_on_the_way_are_read_again(spool: Path, url: str) -> None:
    address = url.removeprefix("http://").split(":")
    flips = iter(PLACES)
    changed: list[int] = []

    def relay() -> None:
        """Pass an answer on, with a flipped bit in most of them."""
        with suppress(OSError):
            while True:
                connection, _ = between_them.accept()
                with connection, socket.create_connection((address[0], int(address[1]))) as server:
                    server.sendall(connection.recv(65_536))
                    octets = bytearray(whole_answer(server))
                    body = octets.index(b"\r\n\r\n") + 4
                    place = body + next(flips, len(octets))
                    if place < len(octets):
                        octets[place] ^= 1
                        changed.append(place)
                    connection.sendall(octets)

    with closing(socket.create_server((LOOPBACK, 0))) as between_them:
        thread = threading.Thread(target=relay, daemon=True)
        thread.start()
        reader = SpoolReader(f"http://{LOOPBACK}:{between_them.getsockname()[1]}", access=access())
        assert between(reader, 0, 60) == several(0, 60)
    assert changed


def whole_answer(server: socket.socket) -> bytes:
    octets = b""
    while (head := octets.partition(b"\r\n\r\n"))[1] == b"" or len(head[2]) < length_in(head[0]):
        octets += server.recv(1 << 20)
    return octets


def length_in(head: bytes) -> int:
    found = re.search(rb"(?i)content-length: (\d+)", head)
    assert found is not None
    return int(found[1])


def test_a_server_that_is_killed_and_started_again_interrupts_nothing(tmp_path: Path) -> None:
    made = [record(number, body=b"x" * 300_000) for number in range(40)]
    with SpoolWriter(tmp_path / "spool", segment_bytes=2_000_000) as writer:
        for each in made:
            writer.append([each])
    with free_ports() as (port,):
        server = ServerProcess(tmp_path / "spool", port, tmp_path)
        server.start()
        try:
            blocks = server.reader().blocks(0, 0, 40)
            found: list[Record] = []
            for number in range(40):
                if number in (1, 17):
                    server.kill()
                    # The reader retries meanwhile.
                    again = threading.Thread(target=server.start)
                    again.start()
                found += next(blocks).records()
                if number in (1, 17):
                    again.join()
        finally:
            server.stop()
    assert found == made


# TLS.


def test_tls_needs_an_authority_that_the_reader_trusts(spool: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with served(spool, certificate=authority.server(LOOPBACK)) as url:
        reader = SpoolReader(url, access=access(authorities=authority.file.read_text()))
        assert between(reader, 0, 60) == several(0, 60)
        with pytest.raises(SpoolError, match=r"certificate is not trusted.*option spoolCa"):
            SpoolReader(url, access=access())
        with pytest.raises(SpoolUnavailableError):
            SpoolReader(url.replace("https", "http"), access=access(patience_s=0))


def test_a_server_says_what_is_wrong_with_its_files(spool: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.pem"
    file.write_text("nothing")
    with (
        pytest.raises(SpoolError, match="is not a PEM file with a certificate"),
        served(spool, certificate=file),
    ):
        pass
    token_file(spool.parent, "short")
    with (
        pytest.raises(SpoolError, match="is not a token, which has 16 or more"),
        spool_server(spool, Address(LOOPBACK, 0), token_file=spool.parent / "token"),
    ):
        pass
