"""Keys of nodes: generation, storage, distribution, and unsigned data."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as other_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replica.signing import (
    SIGNATURE_BYTES,
    Signer,
    SigningKeyError,
    UntrustedError,
    Verifier,
    generate_key,
)

ONE = Signer(Ed25519PrivateKey.from_private_bytes(b"1" * 32))
OTHER = Signer(Ed25519PrivateKey.from_private_bytes(b"2" * 32))


def test_a_key_that_was_written_signs(tmp_path: Path) -> None:
    public = generate_key(tmp_path / "key.pem")
    signer = Signer.load(tmp_path / "key.pem")
    assert signer.public == public
    assert public.startswith("ed25519:")
    Verifier({"A": public}).verify("A", b"octets", signer.sign(b"octets"))


def test_each_key_is_another(tmp_path: Path) -> None:
    assert generate_key(tmp_path / "a") != generate_key(tmp_path / "b")


def test_a_private_key_is_for_its_owner_only(tmp_path: Path) -> None:
    generate_key(tmp_path / "key.pem")
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600


def test_a_key_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    generate_key(tmp_path / "key.pem")
    octets = (tmp_path / "key.pem").read_bytes()
    with pytest.raises(FileExistsError):
        generate_key(tmp_path / "key.pem")
    assert (tmp_path / "key.pem").read_bytes() == octets


def test_a_key_that_is_missing_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Signer.load(tmp_path / "key.pem")


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        (b"", "is no private key without a password"),
        (b"hello\n", "is no private key without a password"),
        (
            Ed25519PrivateKey.generate().private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
            ),
            "is no private key without a password",
        ),
        (
            other_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "is not one of Ed25519",
        ),
    ],
    ids=["empty", "text", "encrypted", "another kind"],
)
def test_a_file_that_holds_no_such_key_is_refused(tmp_path: Path, octets: bytes, told: str) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(octets)
    with pytest.raises(SigningKeyError, match=told) as caught:
        Signer.load(path)
    assert str(path) in str(caught.value)


@given(st.binary(max_size=200))
def test_what_a_node_has_signed_is_its_own(octets: bytes) -> None:
    verifier = Verifier({"A": ONE.public, "B": OTHER.public})
    signature = ONE.sign(octets)
    assert len(signature) == SIGNATURE_BYTES
    verifier.verify("A", octets, signature)
    for branch_id, said, signed in [
        ("B", octets, signature),
        ("A", octets + b".", signature),
        ("A", octets, OTHER.sign(octets)),
        ("A", octets, signature[:-1]),
        ("A", octets, bytes(64)),
    ]:
        with pytest.raises(UntrustedError, match="is not signed with the key of the node"):
            verifier.verify(branch_id, said, signed)


def test_a_node_that_is_not_known_is_refused_whatever_it_signs() -> None:
    verifier = Verifier({"A": ONE.public})
    assert verifier.is_strict
    with pytest.raises(UntrustedError, match="the node 'C' is not one of those that are trusted"):
        verifier.verify("C", b"octets", ONE.sign(b"octets"))


def test_what_is_not_signed_is_told_as_that() -> None:
    with pytest.raises(UntrustedError, match="the node 'A' has not signed this"):
        Verifier({"A": ONE.public}).verify("A", b"octets", b"")


def test_a_node_can_have_a_new_key_beside_its_old_one() -> None:
    """Earlier signatures stay in the history for ever."""
    verifier = Verifier({"A": [ONE.public, OTHER.public]})
    verifier.verify("A", b"old", ONE.sign(b"old"))
    verifier.verify("A", b"new", OTHER.sign(b"new"))


@pytest.mark.parametrize("verifier", [Verifier(), Verifier({})])
def test_without_keys_everybody_is_trusted(verifier: Verifier) -> None:
    assert not verifier.is_strict
    verifier.verify("anybody", b"octets", b"")
    verifier.verify("anybody", b"octets", b"no signature")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it does not begin with 'ed25519:'"),
        (ONE.public.removeprefix("ed25519:"), "it does not begin with 'ed25519:'"),
        ("ed25519:", "32 bytes"),
        ("ed25519:AAAA", "32 bytes"),
        ("ed25519:!", "base64"),
        ("ed25519:\u00e9", "ASCII"),
    ],
)
def test_a_public_key_that_is_none_is_told_with_its_node(text: str, told: str) -> None:
    with pytest.raises(SigningKeyError, match=rf"public key of 'A' is no text as .*{told}"):
        Verifier({"A": text})


WITHOUT_LIBRARY = """
import sys

sys.modules["cryptography"] = None
from stompkit.replica.messages import Message, Unpacker, pack
from stompkit.replica.signing import SigningKeyError, Signer, Verifier, generate_key

(packet,) = pack(Message("have", "A~1f2e3d4c", {}))
assert Unpacker(Verifier()).add(packet.headers, packet.body) is not None
for need in (
    lambda: generate_key("key.pem"),
    lambda: Signer.load("key.pem"),
    lambda: Verifier({"A": "ed25519:"}),
):
    try:
        need()
    except SigningKeyError as problem:
        print(problem)
"""


def test_without_the_library_all_works_but_keys(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    told = "keys need the package cryptography: pip install 'stompkit[signing]'"
    assert done.stdout.splitlines() == [told] * 3
    assert list(tmp_path.iterdir()) == []
