"""The front end replies to the same commands in the same way as the real beanstalkd."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.server.beanstalk.peers import (
    Front,
    Peer,
    SocketPeer,
    document,
    job_id,
    real_beanstalkd,
)

TUBES = ["default", "a", "b.c", "d/e"]
#: Values for each of STOMP's priorities, with several values for some.
PRIORITIES = [0, 1, 2, 15, 1023, 1024, 1025, 65_536, 2**31, 2**31 + 7, 2**32 - 1]
#: Long enough not to end within a test.
DELAYS = [0, 0, 0, 5_000, 9_000]
CLIENTS = 3
STEPS = 150

#: Values that depend on the time or on the program, and so differ.
APART = set(
    "age time-left file pid version uptime total-connections id hostname os platform".split()
)
_NUMBER = re.compile(rb"^(INSERTED|RESERVED|FOUND) ([0-9]+)")


class Side:
    """One of the two servers, with its clients and the ids of its jobs."""

    def __init__(self, peers: list[Peer]) -> None:
        """Start without jobs."""
        self.peers = peers
        self.ids: list[int] = []

    def ask(self, client: int, command: str, job: int | None, body: bytes | None) -> object:
        """Send a command, with ``{}`` replaced by the id of a job; return a comparable reply."""
        number = 10**9 if job is None or job >= len(self.ids) else self.ids[job]
        data = command.format(number).encode() + b"\r\n"
        if body is not None:
            data += body + b"\r\n"
        answer = self.peers[client].ask(data)
        found = _NUMBER.match(answer)
        if found is not None:
            own = int(found[2])
            if found[1] == b"INSERTED":
                self.ids.append(own)
            return found[1], self.ids.index(own), answer.partition(b"\r\n")[2]
        if answer.startswith(b"OK "):
            return self._comparable(command, answer)
        return answer

    def _comparable(self, command: str, answer: bytes) -> object:
        if command.startswith("list"):
            return sorted(answer.split(b"\r\n")[1].split(b"\n"))
        return {
            # Newer versions quote the names of tubes, older ones do not.
            key: value.strip('"')
            for key, value in document(answer).items()
            if key not in APART and not key.startswith(("rusage", "binlog"))
        }


def script(seed: int) -> Iterator[tuple[int, str, int | None, bytes | None]]:
    """Yield random commands of several clients."""
    chance = random.Random(seed)
    puts = 0
    for _ in range(STEPS):
        client = chance.randrange(CLIENTS)
        job = chance.randrange(puts + 2)
        pri, delay = chance.choice(PRIORITIES), chance.choice(DELAYS)
        tube = chance.choice(TUBES)
        command = chance.choice(
            [
                *["put"] * 6,
                *["reserve-with-timeout 0"] * 5,
                *["delete {}"] * 2,
                *[f"release {{}} {pri} {delay}"] * 2,
                *[f"bury {{}} {pri}"] * 2,
                f"kick {chance.randrange(4)}",
                "kick-job {}",
                "touch {}",
                "reserve-job {}",
                f"use {tube}",
                f"watch {tube}",
                f"ignore {tube}",
                "peek {}",
                "peek-ready",
                "peek-delayed",
                "peek-buried",
                "stats",
                f"stats-tube {tube}",
                "stats-job {}",
                "list-tubes",
                "list-tube-used",
                "list-tubes-watched",
                f"pause-tube {tube} 0",
            ]
        )
        if command.startswith("pause"):
            # The replies to a pause of zero seconds differ, so it is left out.
            command = "list-tube-used"
        if command != "put":
            yield client, command, job, None
            continue
        puts += 1
        body = chance.randbytes(chance.choice([0, 1, 50]))
        yield client, f"put {pri} {delay} 5000 {len(body)}", None, body


@pytest.mark.parametrize("seed", range(10))
def test_answers_are_the_same(front: Front, seed: int) -> None:
    with real_beanstalkd() as port:
        real = [SocketPeer(port) for _ in range(CLIENTS)]
        ours = Side([front.worker() for _ in range(CLIENTS)])
        theirs = Side(list(real))
        for client in range(CLIENTS):
            # A connection counts after it has been accepted.
            assert ours.ask(client, "list-tube-used", None, None) == theirs.ask(
                client, "list-tube-used", None, None
            )
        told = []
        for client, command, job, body in script(seed):
            told.append(f"{client}: {command} [{job}]")
            mine = ours.ask(client, command, job, body)
            assert mine == theirs.ask(client, command, job, body), "\n".join(told[-40:])
        for each in real:
            each.close()


#: Commands after which a tube is deleted: it was used or watched, and another one is now.
LEAVING = [
    (b"use t", b"use default"),
    (b"watch t", b"ignore t"),
]


@pytest.mark.parametrize(("come", "go"), LEAVING)
@pytest.mark.parametrize("keeps", [False, True])
def test_a_tube_that_is_gone_and_made_again_begins_anew(
    front: Front, come: bytes, go: bytes, *, keeps: bool
) -> None:
    """A deleted tube starts again with default values, unless a job has kept it."""
    with real_beanstalkd() as port, closing(SocketPeer(port)) as real:
        peers: list[Peer] = [real, front.worker()]

        def both(line: bytes) -> bytes:
            theirs, ours = [each.ask(line + b"\r\n") for each in peers]
            if line.startswith(b"stats-tube"):
                told, mine = document(theirs), document(ours)
                # Versions differ in whether the name is in quotes, and clocks by a second.
                apart = {"name", "pause-time-left"}
                assert {key: mine[key] for key in told if key not in apart} == {
                    key: value for key, value in told.items() if key not in apart
                }
            else:
                assert _NUMBER.sub(rb"\1 N", ours) == _NUMBER.sub(rb"\1 N", theirs)
            return ours

        both(b"use t")
        both(b"put 1 0 100 1\r\nx")
        both(b"pause-tube t 100")
        if not keeps:
            for each in peers:
                job = job_id(each.ask(b"peek-ready\r\n"))
                assert each.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
        both(b"use default")
        for _ in range(2):
            both(come)
            answer = document(both(b"stats-tube t"))
            assert answer["total-jobs"] == str(int(keeps))
            assert answer["pause"] == ("100" if keeps else "0")
            both(go)


LINES = [
    b"",
    b" ",
    b"nonsense",
    b"Put 1 2 3 4",
    b"put",
    b"put 1 2 3",
    b"put a 0 1 1",
    b"put -1 0 1 1",
    b"put 4294967296 0 1 1",
    b"put 0 4294967296 1 1",
    b"put 0 0 1 99999\r\n" + b"x" * 99_999,
    b"put 0 0 1 99999 x\r\n" + b"x" * 99_999,
    b"put 0 0 1 99999x\r\n" + b"x" * 99_999,
    b"put 0 0 1 1x",
    b"put 0 0 1 " + b"0" * 25 + b"1\r\nx",
    b"put 0 0 1 " + b"1" * 25,
    b"put 0 0 0 3\r\nabcd",
    b"put  1  0  1  1\r\nx",
    b"put 1 0 1 1 \r\nx",
    b"reserve ",
    b"reserves",
    b"reserve-with-timeout",
    b"reserve-with-timeout 0 ",
    b"reserve-with-timeout 0x",
    b"reserve-with-timeout 0 1",
    b"reserve-with-timeout " + b"0" * 25,
    b"reserve-job x",
    b"delete",
    b"delete x",
    b"delete 18446744073709551615",
    b"delete 18446744073709551616",
    b"delete  7",
    b"delete " + b"0" * 30 + b"7",
    b"delete " + b"1" * 30,
    b"delete 7 ",
    b"release 1 2",
    b"release 1 2 3 4",
    b"release 1 4294967296 0",
    b"bury 1",
    b"bury 1 2",
    b"kick",
    b"kick x",
    b"kick 3 ",
    b"kick 3x",
    b"kick 3 4",
    b"kick " + b"0" * 30 + b"1",
    b"kick " + b"1" * 30,
    b"kick-job x",
    b"touch 99",
    b"use",
    b"use ",
    b"use -x",
    b"use a b",
    b"use  a",
    b"use a*",
    b"use caf\xc3\xa9",
    b"use " + b"n" * 200,
    b"use " + b"n" * 201,
    b"use " + b"n" * 500,
    b"watch x\0y",
    b"watch -",
    b"ignore default",
    b"ignore nobody-watches-it",
    b"stats-tube nothing",
    b"stats-tube",
    b"stats-job 999999",
    b"statsx",
    b"peek-ready x",
    b"list-tubes x",
    b"list-tubes-watched",
    b"pause-tube default",
    b"pause-tube nothing 1",
    b"pause-tube -x 1",
    b"pause-tube default x",
]


@pytest.fixture(scope="module")
def beanstalkd() -> Iterator[int]:
    """The port of a beanstalkd that several tests use."""
    with real_beanstalkd() as port:
        yield port


@pytest.mark.parametrize("line", LINES)
def test_mistakes_are_answered_the_same(front: Front, beanstalkd: int, line: bytes) -> None:
    real, ours = SocketPeer(beanstalkd), front.worker()
    # Jobs of other lines must not be reserved.
    for each in (b"watch empty", b"ignore default", line, b"list-tube-used"):
        asked = each + b"\r\n"
        theirs = _NUMBER.sub(rb"\1 N", real.ask(asked))
        mine = _NUMBER.sub(rb"\1 N", ours.ask(asked))
        while mine != theirs and len(mine) > len(theirs):
            # The bytes after a wrong command are a separate command.
            theirs += real.answer()
        assert mine == theirs
    real.close()


@pytest.mark.parametrize("line", [b"quit", b"quit ", b"quit now", b"quitx"])
def test_quit_closes_whatever_follows_it(front: Front, beanstalkd: int, line: bytes) -> None:
    with closing(SocketPeer(beanstalkd)) as real:
        for each in (real, front.worker()):
            assert each.ask(line + b"\r\nlist-tube-used\r\n") == b""
