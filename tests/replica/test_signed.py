"""Changesets with signatures: their bytes are kept, and invalid ones are refused."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replica.problems import MessageError
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.signing import Signer, UntrustedError, Verifier
from stompkit.replication.model.events import (
    Changeset,
    EventError,
    Revision,
    RowChange,
    Source,
    decode,
    encode,
)
from tests.replication.made import rows

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(b"1" * 32))
OTHER = Signer(Ed25519PrivateKey.from_private_bytes(b"2" * 32))
ORIGIN = "A~1f2e3d4c"
REVISION = Revision(
    trunk="t",
    hlc=1_795_262_400_000_000,
    context={"B~00000000": 3},
    previous="0" * 16,
    replaces=(("A~00000000", 18, "f" * 16),),
    author="Anna",
    comment="New",
)
CHANGESET = Changeset(
    id="",
    origin=ORIGIN,
    sequence=17,
    timestamp=datetime(2026, 11, 21, 12, tzinfo=UTC),
    changes=(
        RowChange(table="t", action="write", key={"id": 1}, after={"text": "a\nb"}),
        RowChange(table="t", action="update", key={"id": 1}, before={"n": 1}, after={"n": None}),
        RowChange(table="t", action="delete", key={"id": 1}, before={"n": None, "text": "a\nb"}),
    ),
    source=Source(kind="replica"),
    parents=("0" * 64, "f" * 64),
    revision=REVISION,
)


def test_its_id_is_the_hash_of_its_octets() -> None:
    signed = SignedChangeset.make(CHANGESET)
    assert signed.body == encode(CHANGESET)
    assert signed.id == hashlib.sha256(signed.body).hexdigest()
    assert signed.changeset == msgspec.structs.replace(CHANGESET, id=signed.id)
    assert signed.dot == (ORIGIN, 17)
    assert signed.signature == b""


def test_an_id_that_it_had_makes_no_difference() -> None:
    named = msgspec.structs.replace(CHANGESET, id="another")
    assert SignedChangeset.make(named) == SignedChangeset.make(CHANGESET)


@pytest.mark.parametrize("signer", [None, SIGNER])
def test_it_is_read_as_it_was_written(signer: Signer | None) -> None:
    made = SignedChangeset.make(CHANGESET, signer)
    read = SignedChangeset.decode(made.encode())
    assert read == made
    assert (read.body, read.signature) == (made.body, made.signature)
    assert (read.id, read.dot, read.changeset) == (made.id, made.dot, made.changeset)


@given(key=rows.filter(bool), values=rows, author=st.text(st.characters(exclude_categories=["Cs"])))
def test_values_and_people_come_through(
    key: dict[str, Any], values: dict[str, Any], author: str
) -> None:
    change = RowChange(table="t", action="write", key=key, after=values)
    revision = msgspec.structs.replace(REVISION, author=author.replace("\0", ""))
    made = SignedChangeset.make(
        msgspec.structs.replace(CHANGESET, changes=(change,), revision=revision)
    )
    read = SignedChangeset.decode(made.encode()).changeset
    assert read.changes == (change,)
    assert read.revision == revision


def test_octets_of_another_author_are_kept_as_they_are() -> None:
    """A newer version may add members or reorder them: id and signature are those of its bytes."""
    document = json.loads(encode(CHANGESET))
    octets = json.dumps({"news": [1], **dict(reversed(document.items()))}, indent=1).encode()
    signature = SIGNER.sign(hashlib.sha256(octets).digest())
    read = SignedChangeset.decode(SignedChangeset(octets, signature).encode())
    assert read.body == octets
    assert read.changeset.changes == CHANGESET.changes
    read.verify(Verifier({"A": SIGNER.public}))


def test_what_its_author_has_signed_is_trusted() -> None:
    verifier = Verifier({"A": SIGNER.public, "B": OTHER.public})
    signed = SignedChangeset.make(CHANGESET, SIGNER)
    SignedChangeset.decode(signed.encode()).verify(verifier)
    for wrong in (
        SignedChangeset.make(CHANGESET),
        SignedChangeset.make(CHANGESET, OTHER),
        SignedChangeset(signed.body.replace(b"Anna", b"Emil"), signed.signature),
        SignedChangeset(signed.body.replace(b'"A~', b'"B~'), signed.signature),
        SignedChangeset(signed.body.replace(b'"A~', b'"C~'), signed.signature),
    ):
        with pytest.raises(UntrustedError):
            wrong.verify(verifier)


def test_without_keys_nothing_is_even_read_to_be_trusted() -> None:
    SignedChangeset(b"octets", b"x").verify(Verifier())


def test_what_is_no_changeset_is_not_trusted_either() -> None:
    with pytest.raises(EventError):
        SignedChangeset(b"octets", bytes(64)).verify(Verifier({"A": SIGNER.public}))


def test_equal_ones_count_once() -> None:
    signed = SignedChangeset.make(CHANGESET, SIGNER)
    again = SignedChangeset.decode(signed.encode())
    assert {signed, again, SignedChangeset.make(CHANGESET)} == {
        signed,
        SignedChangeset(signed.body),
    }
    assert signed != signed.body
    assert repr(signed) == f"<SignedChangeset {signed.id[:12]}>"


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (b"", "no blank"),
        (b"{}", "no blank"),
        (b"! {}", "no base64"),
        (b"AAAA {}", "has 3 octets"),
        (base64.b64encode(bytes(64))[:-2] + b" {}", "no base64"),
        (base64.b64encode(bytes(65)) + b" {}", "has 65 octets"),
    ],
)
def test_an_item_that_is_none_is_refused(item: bytes, told: str) -> None:
    with pytest.raises(MessageError, match=told):
        SignedChangeset.decode(item)


@given(st.binary() | st.binary().map(lambda octets: b" " + octets))
def test_any_octets_are_an_item_or_refused(item: bytes) -> None:
    try:
        signed = SignedChangeset.decode(item)
    except MessageError:
        return
    assert SignedChangeset.decode(signed.encode()) == signed
    for read in (lambda: signed.dot, lambda: signed.changeset):
        with pytest.raises(EventError):
            read()


def without_revision(**fields: object) -> Changeset:
    """Return the changeset with other members."""
    return msgspec.structs.replace(CHANGESET, **fields)


def with_revision(**fields: object) -> Changeset:
    """Return the changeset with other members of its revision."""
    return without_revision(revision=msgspec.structs.replace(REVISION, **fields))


def with_change(**fields: object) -> Changeset:
    """Return the changeset with one change, an update with other members."""
    return without_revision(changes=(msgspec.structs.replace(CHANGESET.changes[1], **fields),))


@pytest.mark.parametrize(
    ("changeset", "told"),
    [
        (without_revision(revision=None), "without a revision"),
        (without_revision(origin="A"), "'A' and 17 are no origin and sequence"),
        (without_revision(sequence=0), "and 0 are no origin and sequence"),
        (without_revision(sequence=2**63), "are no origin and sequence"),
        (without_revision(timestamp=datetime(2026, 11, 21)), "has no zone"),
        (without_revision(parents=("f" * 64, "0" * 64)), "are not ids in order"),
        (without_revision(parents=("0" * 64, "0" * 64)), "are not ids in order"),
        (without_revision(parents=("p",)), "are not ids in order"),
        (with_revision(hlc=0), "the hybrid logical time is 0"),
        (with_revision(hlc=2**63), "the hybrid logical time is 9223372036854775808"),
        (with_revision(context={"B": 1}), "'B' and 1 are no origin and sequence"),
        (with_revision(context={"B~00000000": 0}), "and 0 are no origin and sequence"),
        (with_revision(context={ORIGIN: 16}), "the context of a changeset of .* names that"),
        (with_revision(author="\0"), "has a NUL"),
        (with_revision(comment="a\0b"), "has a NUL"),
        (with_revision(previous="0" * 15), "is no beginning of an id"),
        (with_revision(previous="F" * 16), "is no beginning of an id"),
        (with_revision(replaces=(("A", 1, "f" * 16),)), "'A' and 1 are no origin and sequence"),
        (with_revision(replaces=(("A~00000000", 0, "f" * 16),)), "and 0 are no origin"),
        (with_revision(replaces=(("A~00000000", 1, "f" * 64),)), "cannot replace 'A~00000000' 1"),
        (with_revision(replaces=(("B~00000000", 1, "f" * 16),)), "cannot replace 'B~00000000' 1"),
        (with_revision(replaces=((ORIGIN, 1, "f" * 16),)), "cannot replace"),
        (with_change(action="read"), "table 't': a replica tells 'read' in another way"),
        (with_change(action="truncate"), "'truncate' in another way"),
        (with_change(key={}), "'update' in another way"),
        (with_change(old_key={"id": 2}), "'update' in another way"),
        (with_change(before=None), "'update' in another way"),
        (with_change(after=None), "'update' in another way"),
        (with_change(before={"m": 1}), "'update' in another way"),
        (with_change(action="write", after=None), "'write' in another way"),
        (with_change(table=""), "the name of a table has 1 to 255 characters"),
        (with_change(table="x" * 200, schema="y" * 55), "the name of a table"),
        (with_change(table="a\0"), "the name of a table"),
    ],
)
def test_what_no_replica_makes_is_neither_made_nor_read(changeset: Changeset, told: str) -> None:
    with pytest.raises(EventError, match=told):
        SignedChangeset.make(changeset)
    with pytest.raises(EventError, match=told):
        _ = SignedChangeset(encode(changeset)).changeset


def test_an_id_inside_is_refused() -> None:
    """It could not be the hash of its own container."""
    octets = encode(msgspec.structs.replace(CHANGESET, id="x"))
    assert decode(octets).id == "x"
    with pytest.raises(EventError, match="is not part of it"):
        _ = SignedChangeset(octets).changeset


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        (b"", "this is no changeset"),
        (b"[]", "this is no changeset"),
        (b"\xff", "this is no changeset"),
        (b'{"origin":"A~1f2e3d4c"}', "this is no changeset: .*sequence"),
        (b'{"origin":"A~1f2e3d4c","sequence":"1"}', "this is no changeset: .*sequence"),
        (b'{"x":' + b"[" * 100_000, "this is no changeset: .*recursion"),
        (b'{"origin":"A","sequence":1}', "no origin and sequence"),
        (b'{"origin":"A~1f2e3d4c","sequence":-1}', "no origin and sequence"),
        (b'{"origin":"A~1f2e3d4c","sequence":9223372036854775808}', "no origin and sequence"),
    ],
)
def test_what_names_no_changeset_has_no_dot(octets: bytes, told: str) -> None:
    with pytest.raises(EventError, match=told):
        _ = SignedChangeset(octets).dot


def test_origin_and_sequence_are_known_without_the_rest() -> None:
    """They are parsed first, so that a duplicate costs little, whatever else it contains."""
    assert SignedChangeset(b'{"sequence":2,"origin":"A~1f2e3d4c","changes":7}').dot == (ORIGIN, 2)
