"""Changesets in frames: split by a size limit, and reassembled from any order."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.model.events import (
    Changeset,
    EventError,
    Revision,
    RowChange,
    Source,
    encode,
    make_changeset,
)
from stompkit.replication.model.frames import CONTENT_TYPE, Packet, Reassembler, packets
from tests.replication.made import changesets

SOURCE = Source(kind="test")


def inserts(number: int, size: int = 10, id: str = "c") -> Changeset:
    """Return a changeset of new rows with this many bytes each."""
    rows = (
        RowChange(table="t", action="write", key={"id": n}, after={"id": n, "text": "x" * size})
        for n in range(number)
    )
    return make_changeset("o", 1, rows, SOURCE, id=id)


def test_small_changeset_is_one_frame() -> None:
    changeset = inserts(3, id="c1")
    (packet,) = packets(changeset)
    assert packet.body == encode(changeset)
    assert packet.headers == {
        "content-type": CONTENT_TYPE,
        "stompkit-schema": "1",
        "stompkit-changeset": "c1",
        "stompkit-origin": "o",
        "stompkit-sequence": "1",
        "stompkit-part": "1",
        "stompkit-parts": "1",
        "event-id": "c1.1",
        "persistent": "true",
    }


@given(changesets, st.integers(1, 2_000), st.randoms(use_true_random=False))
def test_whole_again_from_parts_in_any_order(
    changeset: Changeset, most: int, random: Random
) -> None:
    parts = list(packets(changeset, max_body_bytes=most))
    random.shuffle(parts)
    reassembler = Reassembler()
    *missing, whole = (reassembler.add(part.headers, part.body) for part in parts)
    assert missing == [None] * (len(parts) - 1)
    assert whole == changeset
    assert reassembler.waiting == []


def test_bound_is_kept() -> None:
    parts = list(packets(inserts(1_000), max_body_bytes=5_000))
    assert 10 < len(parts) < 100
    assert max(len(part.body) for part in parts) <= 5_000
    # No more frames than needed: two successive ones would be too large as one.
    sizes = [len(part.body) for part in parts]
    around = len(encode(inserts(0)))
    assert all(a + b - around > 5_000 for a, b in pairwise(sizes))


def test_large_change_is_a_frame_of_its_own() -> None:
    changeset = make_changeset(
        "o", 1, [*inserts(2).changes, *inserts(1, size=9_000).changes, *inserts(2).changes], SOURCE
    )
    sizes = [len(part.body) > 5_000 for part in packets(changeset, max_body_bytes=5_000)]
    assert sizes == [False, True, False]


def test_repeated_parts_count_once() -> None:
    changeset = inserts(100)
    first, *others = packets(changeset, max_body_bytes=1_000)
    reassembler = Reassembler()
    for part in (first, first, *others[:-1], others[0]):
        assert reassembler.add(part.headers, part.body) is None
    assert reassembler.add(others[-1].headers, others[-1].body) == changeset


def test_changesets_between_each_other() -> None:
    one, other = inserts(50, id="one"), inserts(50, id="other")
    reassembler = Reassembler()
    whole = []
    parts = [list(packets(each, max_body_bytes=1_000)) for each in (one, other)]
    for pair in zip(*parts, strict=True):
        for part in pair:
            found = reassembler.add(part.headers, part.body)
            whole += [] if found is None else [found]
    assert whole == [one, other]


def test_what_waits_is_known_and_can_be_forgotten() -> None:
    reassembler = Reassembler()
    for name in ("a", "b"):
        part = next(packets(inserts(100, id=name), max_body_bytes=1_000))
        reassembler.add(part.headers, part.body)
    assert reassembler.waiting == ["a", "b"]
    reassembler.forget("a")
    reassembler.forget("never seen")
    assert reassembler.waiting == ["b"]


def test_parts_that_wait_are_bounded() -> None:
    parts = list(packets(inserts(1_000), max_body_bytes=1_000))
    reassembler = Reassembler(max_bytes=5_000)
    with pytest.raises(EventError, match="take more than 5000 octets"):
        for part in parts:
            reassembler.add(part.headers, part.body)
    # Dropping a partial changeset frees its space.
    reassembler.forget("c")
    small = list(packets(inserts(20, id="small"), max_body_bytes=1_000))
    assert len(small) > 1
    assert [reassembler.add(part.headers, part.body) for part in small][-1] is not None


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"stompkit-part": "0"}, "stompkit-part is '0'"),
        ({"stompkit-part": "x"}, "stompkit-part is 'x'"),
        ({"stompkit-part": "\u0663"}, "stompkit-part is"),
        ({"stompkit-part": "9" * 10}, "stompkit-part is '9999999999'"),
        ({"stompkit-parts": "-1"}, "stompkit-parts is '-1'"),
        ({"stompkit-part": "3", "stompkit-parts": "2"}, "part 3 of 2"),
    ],
)
def test_headers_that_make_no_sense(headers: dict[str, str], told: str) -> None:
    with pytest.raises(EventError, match=told):
        Reassembler().add(headers, encode(inserts(1)))


def test_frame_of_somebody_else_is_refused() -> None:
    with pytest.raises(EventError, match="this is no changeset"):
        Reassembler().add({}, b"hello")


def test_number_of_parts_does_not_change() -> None:
    first, second, *_ = packets(inserts(100), max_body_bytes=1_000)
    reassembler = Reassembler()
    reassembler.add(first.headers, first.body)
    wrong = Packet({**second.headers, "stompkit-parts": "99"}, second.body)
    with pytest.raises(EventError, match=r"had \d+ parts, and has 99 now"):
        reassembler.add(wrong.headers, wrong.body)


def test_headers_may_be_missing() -> None:
    """Another program may send a whole changeset in a frame without headers."""
    changeset = inserts(1)
    assert Reassembler().add({}, encode(changeset)) == changeset


def test_parts_repeat_what_is_around_them() -> None:
    revision = Revision(trunk="t", hlc=1, context={})
    changeset = msgspec.structs.replace(inserts(100), parents=("p",), revision=revision)
    for part in packets(changeset, max_body_bytes=1_000):
        assert part.body.endswith(b'"parents":["p"],"revision":{"trunk":"t","hlc":1,"context":{}}}')


def test_a_number_of_thousands_of_digits_is_no_number() -> None:
    (packet,) = packets(make_changeset("o", 1, [], Source(kind="test")))
    headers = {**packet.headers, "stompkit-parts": "9" * 5000}
    with pytest.raises(EventError, match="stompkit-parts"):
        Reassembler().add(headers, packet.body)


def test_frames_of_another_split_are_other_events() -> None:
    """Otherwise a spool would take them for the frames that it has."""
    changeset = inserts(100, id="c1")
    few, many = (
        {part.headers["event-id"] for part in packets(changeset, max_body_bytes=most)}
        for most in (5_000, 1_000)
    )
    assert few == {f"c1.{number}/{len(few)}" for number in range(1, len(few) + 1)}
    assert not few & many
