"""Parsing commands: any chunking gives the same, and everything is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.server.beanstalk.parser import MAX_LINE, Command, Mistake, Parser

MAX_JOB = 100

LINES = st.one_of(
    st.sampled_from(
        [
            b"reserve\r\n",
            b"reserve-with-timeout 5\r\n",
            b"delete 17\r\n",
            b"release 1 2 3\r\n",
            b"use a.b\r\n",
            b"pause-tube a 9\r\n",
            b"put 1 2 3 4\r\nbody\r\n",
            b"put 1 2 3 4\r\n\r\n\r\n\r\n",
            b"put 1 2 3 0\r\n\r\n",
            b"put 1 2 3 4\r\nbodies\r\n",
            b"put 1 2 3 101\r\n" + b"x" * 103,
            b"stats\r\n",
            b"no such thing\r\n",
            b"use " + b"n" * 300 + b"\r\n",
        ]
    ),
    st.binary(max_size=300).map(lambda data: data + b"\r\n"),
)


def parsed(chunks: list[bytes]) -> list[Command | Mistake]:
    parser = Parser(MAX_JOB)
    found: list[Command | Mistake] = []
    for chunk in chunks:
        parser.feed(chunk)
        while (each := parser.next()) is not None:
            found.append(each)
        assert parser.buffered <= max(MAX_LINE, MAX_JOB + 2)
    return found


@given(st.lists(LINES, max_size=6), st.data())
def test_chunks_make_no_difference(lines: list[bytes], data: st.DataObject) -> None:
    octets = b"".join(lines)
    whole = parsed([octets])
    assert parsed([octets[at : at + 1] for at in range(len(octets))]) == whole
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=5)))
    pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    assert parsed(pieces) == whole


@given(st.binary(max_size=MAX_JOB), st.tuples(*[st.integers(0, 2**32 - 1)] * 3))
def test_a_job_is_read_as_it_was_sent(body: bytes, numbers: tuple[int, int, int]) -> None:
    line = b"put %d %d %d %d\r\n" % (*numbers, len(body))
    [command] = parsed([line + body + b"\r\n"])
    assert command == Command("put", (*numbers, len(body)), "", body)


@pytest.mark.parametrize(
    "line",
    ["reserve-with-timeout x", "reserve-with-timeout 2147483648", "kick -1", "pause-tube a b 1"],
)
def test_what_is_no_number_is_a_mistake(line: str) -> None:
    assert parsed([line.encode() + b"\r\n"]) == [Mistake(b"BAD_FORMAT\r\n")]


def test_a_line_may_have_224_octets_and_no_more() -> None:
    longest = b"delete" + b" " * (MAX_LINE - 9) + b"7\r\n"
    assert len(longest) == MAX_LINE
    assert parsed([longest]) == [Command("delete", (7,))]
    assert parsed([longest.replace(b"delete", b"delete ")]) == [Mistake(b"BAD_FORMAT\r\n")]


def test_a_line_without_end_takes_no_memory() -> None:
    parser = Parser(MAX_JOB)
    for _ in range(1_000):
        parser.feed(b"x" * 1_000)
        assert parser.next() is None
        assert parser.buffered <= MAX_LINE
    parser.feed(b"\r\nstats\r\n")
    assert parser.next() == Mistake(b"BAD_FORMAT\r\n")
    assert parser.next() == Command("stats")


def test_a_job_too_big_is_thrown_away_as_it_comes() -> None:
    parser = Parser(MAX_JOB)
    parser.feed(b"put 0 0 1 4294967295\r\n")
    for _ in range(100):
        assert parser.next() is None
        assert parser.buffered == 0
        parser.feed(b"x" * 65_536)
