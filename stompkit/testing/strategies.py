"""Hypothesis strategies for STOMP: valid frames, and invalid bytes.

They are for tests of programs that read or write STOMP. Frames are strictly valid: the
specification of 1.2 allows each frame of ``frames("1.2")``, so a program that rejects one is at
fault. ``chunkings`` splits bytes as a network would; ``mutations`` and ``wire_garbage`` give bytes
that no specification allows, except by chance::

    @given(frames("1.2").map(lambda frame: encode(frame, "1.2")).flatmap(chunkings))
    def test_every_chunking_is_read(chunks: list[bytes]) -> None: ...

Hypothesis is installed by the extra ``stompkit[testing]``.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Final

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(
        "stompkit.testing.strategies needs Hypothesis: pip install 'stompkit[testing]'"
    ) from error

from stompkit.frames import COMMANDS, VERSIONS, Frame, Role, Version

__all__ = [
    "bodies",
    "chunkings",
    "client_frames",
    "frames",
    "header_names",
    "header_values",
    "headers",
    "mutations",
    "server_frames",
    "wire_garbage",
]

#: Header names that STOMP defines: ``headers`` never draws them.
_RESERVED: Final = frozenset(
    {"accept-version", "ack", "content-length", "content-type", "destination", "heart-beat", "host"}
    | {"id", "login", "message", "message-id", "passcode", "receipt", "receipt-id", "server"}
    | {"session", "subscription", "transaction", "version"}
)
#: Commands whose headers are never escaped, in any version.
_UNESCAPED: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})
#: Headers so important that a peer may reject a frame that repeats one.
_ONCE: Final = frozenset({"accept-version", "version", "heart-beat", "content-length"})
_NOTHING: Final[st.SearchStrategy[list[tuple[str, str]]]] = st.just([])
#: Characters that careless code handles wrongly, drawn more often than others.
_AWKWARD: Final = ":\\\r\n\t ncr\x7f\x1f\x01\x85\u2028\ufeffé€😀"
_FRAGMENTS: Final = (
    *(name.encode() for name in COMMANDS),
    *(b"\n", b"\r\n", b"\r", b"\0", b"\n\n", b"\r\n\r\n", b"\n\0", b"\0\n", b":", b" ", b"\\"),
    *(b"a:b\n", b"a:b\r\n", b":x\n", b"a:\n", b"no colon\n", b"a:\\t\n", b"a\\cb:\\r\\n\\\\\n"),
    *(b"a:b:c\n", b"receipt:1\n", b"receipt:2\n", b"destination:/queue/a\n", b"id:0\n"),
    *(b"content-length:%b\n" % value for value in (b"0", b"1", b"5", b"-1", b"+1", b" 1", b"x")),
    *(b"content-length:%b\n" % value for value in (b"1048576", b"9" * 30, b"\xd9\xa1", b"")),
    *(b"\xff\xfe\n", b"\xc0\x80", b"\xed\xa0\x80", "é:€\n".encode(), "😀".encode()),
    *(b"SEND\ndestination:/queue/a\n\n", b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"),
)


def _characters(version: Version, *, without: str) -> st.SearchStrategy[str]:
    """Return the characters that a header may contain; in 1.0 US-ASCII ("Augmented BNF")."""
    if version == "1.0":
        every = st.characters(codec="ascii", exclude_characters=without)
    else:
        every = st.characters(exclude_categories=["Cs"], exclude_characters=without)
    awkward = [c for c in _AWKWARD if c not in without and (c.isascii() or version != "1.0")]
    return st.one_of(every, st.sampled_from(awkward))


def _impossible(version: Version, *, handshake: bool) -> str:
    """Return characters that no value can contain; a name without escapes has no colon."""
    if handshake:
        return "\0\n\r"  # the version that defines CR is not negotiated yet
    return "\0\n" if version == "1.0" else "\0"


def _names(version: Version, *, handshake: bool) -> st.SearchStrategy[str]:
    without = _impossible(version, handshake=handshake)
    if "\n" in without:
        without += ":"
    return st.text(_characters(version, without=without), min_size=1, max_size=20)


def _values(version: Version, *, handshake: bool) -> st.SearchStrategy[str]:
    without = _impossible(version, handshake=handshake)
    least = 1 if version == "1.0" else 0
    return st.text(_characters(version, without=without), min_size=least, max_size=40)


def header_names(version: Version) -> st.SearchStrategy[str]:
    r"""Return names of headers: ``str``, 1 to 20 characters, decoded.

    On 1.1 and 1.2 any character but NUL and lone surrogates; on 1.0, which has no escapes,
    US-ASCII without NUL, LF and colon.
    """
    return _names(version, handshake=False)


def header_values(version: Version) -> st.SearchStrategy[str]:
    r"""Return values of headers: ``str``, up to 40 characters, decoded.

    As :func:`header_names`, but values of 1.0 may contain a colon and are never empty.
    """
    return _values(version, handshake=False)


def headers(version: Version) -> st.SearchStrategy[dict[str, str]]:
    """Return headers that STOMP does not define: ``dict`` of name to value, up to 5."""
    return _headers(version, handshake=False)


def _headers(version: Version, *, handshake: bool) -> st.SearchStrategy[dict[str, str]]:
    names = _names(version, handshake=handshake).filter(lambda name: name not in _RESERVED)
    return st.dictionaries(names, _values(version, handshake=handshake), max_size=5)


def bodies() -> st.SearchStrategy[bytes]:
    """Return bodies: ``bytes``, up to about 200; often with NUL, or with parts of frames."""
    pieces = st.one_of(st.binary(max_size=20), st.sampled_from(_FRAGMENTS))
    return st.one_of(
        st.just(b""),
        st.binary(max_size=200),
        st.text(max_size=50).map(lambda text: text.encode("utf-8", "replace")),
        st.lists(pieces, max_size=6).map(b"".join),
    )


def client_frames(
    version: Version, *, commands: Collection[str] | None = None
) -> st.SearchStrategy[Frame]:
    """Return client frames: :class:`Frame`, of all its commands or of ``commands``.

    Each has the headers that the version requires, and some that it allows, that it does not
    define, or that are repeated. It has a body if the command allows one, with or without
    ``content-length``.
    """
    return _frames(version, Role.CLIENT, commands)


def server_frames(
    version: Version, *, commands: Collection[str] | None = None
) -> st.SearchStrategy[Frame]:
    """Return server frames: :class:`Frame`, as :func:`client_frames`."""
    return _frames(version, Role.SERVER, commands)


def frames(version: Version) -> st.SearchStrategy[Frame]:
    """Return client and server frames: :class:`Frame`, as :func:`client_frames`."""
    return st.one_of(client_frames(version), server_frames(version))


def _frames(
    version: Version, sender: Role, commands: Collection[str] | None
) -> st.SearchStrategy[Frame]:
    names = [
        row.name
        for row in COMMANDS.values()
        if row.sender is sender
        and version in row.required
        and (commands is None or row.name in commands)
    ]
    return st.sampled_from(names).flatmap(lambda name: _frame(version, name))


@st.composite
def _frame(draw: st.DrawFn, version: Version, command: str) -> Frame:
    row = COMMANDS[command]
    handshake = command in _UNESCAPED
    values = _values(version, handshake=handshake)
    known: dict[str, str] = {}
    for names in row.required[version]:
        count = draw(st.integers(1, len(names)))
        known |= {name: draw(values) for name in names[:count] if name != "version"}
    if handshake:
        known |= draw(_handshake(version, values)[command])
    optional = _optional(version, command)
    if optional:
        known |= draw(st.dictionaries(st.sampled_from(optional), values, max_size=2))
    if command == "SUBSCRIBE" and draw(st.booleans()):
        modes = ["auto", "client"] if version == "1.0" else ["auto", "client", "client-individual"]
        known["ack"] = draw(st.sampled_from(modes))
    body = draw(bodies()) if row.body else b""
    if draw(st.booleans()):
        known["content-length"] = str(len(body))
    known |= draw(_headers(version, handshake=handshake))
    ordered = dict(draw(st.permutations(list(known.items()))))
    again = [name for name in ordered if name not in _ONCE]
    later = st.lists(st.tuples(st.sampled_from(again), values), max_size=3) if again else _NOTHING
    return Frame(command, ordered, body, tuple(draw(later)))


def _optional(version: Version, command: str) -> list[str]:
    """Return the headers that are allowed, not required, and take any value."""
    if command in _UNESCAPED:
        return ["session", "server"] if command == "CONNECTED" else ["login", "passcode"]
    if command == "MESSAGE":
        return {"1.0": ["subscription"], "1.1": [], "1.2": ["ack"]}[version]
    if command == "ERROR":
        return ["message", "receipt-id"]
    if command == "RECEIPT":
        return []
    return ["receipt", "transaction"] if command in ("SEND", "ACK", "NACK") else ["receipt"]


def _handshake(
    version: Version, values: st.SearchStrategy[str]
) -> dict[str, st.SearchStrategy[dict[str, str]]]:
    """Return the headers that negotiate version and heart-beats, which 1.0 does not have."""
    if version == "1.0":
        return dict.fromkeys(_UNESCAPED, st.just({}))
    milliseconds = st.integers(0, 100_000)
    beats = {"heart-beat": st.builds("{},{}".format, milliseconds, milliseconds)}
    offered = ",".join(VERSIONS[: VERSIONS.index(version) + 1])
    connect = st.fixed_dictionaries(
        {"accept-version": st.just(offered), "host": values}, optional=beats
    )
    connected = st.fixed_dictionaries({"version": st.just(str(version))}, optional=beats)
    return {"CONNECT": connect, "STOMP": connect, "CONNECTED": connected}


@st.composite
def chunkings(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Split ``data``: lists of ``bytes`` that join to it.

    Some pieces may be empty; ``data`` in one piece and one byte for each piece are among them.
    """
    way = draw(st.sampled_from(("whole", "octets", "pieces")))
    if way == "whole":
        return [data]
    if way == "octets":
        return [data[at : at + 1] for at in range(len(data))]
    cuts = [0, *sorted(draw(st.lists(st.integers(0, len(data)), max_size=8))), len(data)]
    return [data[start:end] for start, end in pairwise(cuts)]


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """Damage ``data``: ``bytes`` with 1 to 4 places inserted, removed, flipped or duplicated."""
    octets = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(octets)))
        end = draw(st.integers(start, min(start + 8, len(octets))))
        kind = draw(st.sampled_from(("insert", "remove", "flip", "duplicate")))
        if kind == "insert":
            octets[start:start] = draw(
                st.one_of(st.binary(min_size=1, max_size=4), st.sampled_from(_FRAGMENTS))
            )
        elif kind == "remove":
            del octets[start:end]
        elif kind == "flip":
            bit = 1 << draw(st.integers(0, 7))
            octets[start:end] = bytes(octet ^ bit for octet in octets[start:end])
        else:
            octets[start:start] = octets[start:end]
    return bytes(octets)


def wire_garbage() -> st.SearchStrategy[bytes]:
    """Return bytes likely to break a parser: plausible pieces of frames among random bytes."""
    pieces = st.one_of(st.sampled_from(_FRAGMENTS), st.binary(max_size=8))
    return st.lists(pieces, max_size=30).map(b"".join)
