"""One end of a connection: permitted commands, versions, heart-beats, and early frames."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from stompkit.frames import (
    AFTER_LOGIN,
    BEFORE_LOGIN,
    COMMANDS,
    TRANSITIONS,
    Frame,
    LocalProtocolError,
    RemoteProtocolError,
    Role,
    Session,
    State,
    Tolerance,
    Version,
    encode,
)
from tests.frames.helpers import (
    ESCAPING,
    LIMITS_BROKEN,
    VERSIONS,
    client_commands,
    octets,
    receipt_named,
    requirement,
)

CONNECT = b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:h\n\n\0"
#: Headers that satisfy every command of every version.
EVERYTHING = {
    **dict.fromkeys(("destination", "id", "message-id", "subscription", "transaction"), "x"),
    **dict.fromkeys(("receipt-id", "session"), "x"),
}


def drain(session: Session, pieces: Iterable[bytes]) -> list[Frame]:
    """Receive as an owner does: each piece, then nothing until no more frames are returned."""
    frames: list[Frame] = []
    for piece in pieces:
        got = session.receive(piece, 0)
        while got:
            frames += got
            got = session.receive(b"", 0)
    return frames


def refused(session: Session, data: bytes, code: str) -> RemoteProtocolError:
    """Receive bytes that are refused; every later call raises the same error."""
    with pytest.raises(RemoteProtocolError) as caught:
        drain(session, [data])
    with pytest.raises(RemoteProtocolError) as again:
        session.receive(b"", 0)
    assert again.value is caught.value
    assert caught.value.code == code
    return caught.value


def server(version: Version = "1.2", tolerance: Tolerance = Tolerance.NONE) -> Session:
    """Return a server's session that has answered CONNECT."""
    session = Session(Role.SERVER, tolerance=tolerance)
    drain(session, [f"CONNECT\naccept-version:{version}\nhost:h\n\n\0".encode()])
    session.accept({"session": "1"}, 0)
    return session


def client(version: Version = "1.2", tolerance: Tolerance = Tolerance.NONE) -> Session:
    """Return a client's session that has received CONNECTED."""
    session = Session(Role.CLIENT, tolerance=tolerance)
    session.connect({"host": "h"}, 0)
    drain(session, [f"CONNECTED\nversion:{version}\nsession:1\n\n\0".encode()])
    return session


def state_of(session: Session) -> State:
    """Return the state; a direct comparison would narrow its type for the type checker."""
    return session.state


def in_state(role: Role, state: State) -> Session:
    """Return a session that has reached a state in the usual way."""
    if state in (State.OPENING, State.CONNECTING):
        session = Session(role)
        if state is State.CONNECTING and role is Role.CLIENT:
            session.connect({}, 0)
        elif state is State.CONNECTING:
            session.receive(CONNECT, 0)
    else:
        session = client() if role is Role.CLIENT else server()
        if state is State.DISCONNECTING and role is Role.CLIENT:
            session.send(Frame("DISCONNECT"), 0)
        elif state is State.DISCONNECTING:
            session.receive(b"DISCONNECT\n\n\0", 0)
        elif state is State.FAILED and role is Role.CLIENT:
            session.receive(b"ERROR\n\n\0", 0)
        elif state is State.FAILED:
            session.send(Frame("ERROR"), 0)
        elif state is State.CLOSED:
            session.receive_eof()
    assert state_of(session) is state
    return session


EVERY_CASE = [(role, state, command) for role in Role for state in State for command in COMMANDS]
OTHER = {Role.CLIENT: Role.SERVER, Role.SERVER: Role.CLIENT}


# The table.


@pytest.mark.parametrize(("role", "state", "command"), EVERY_CASE)
def test_what_is_sent_is_checked_against_the_table(role: Role, state: State, command: str) -> None:
    session = in_state(role, state)
    following = TRANSITIONS[role, state].get(command)
    frame = Frame(command, EVERYTHING)
    if following is None or command == "CONNECTED":
        with pytest.raises(LocalProtocolError):
            session.send(frame, 0)
        assert state_of(session) is state
    else:
        # Before CONNECTED, no version is known that would escape anything.
        version = None if state in (State.OPENING, State.CONNECTING) else session.version
        assert session.send(frame, 0) == encode(frame, version)
        assert state_of(session) is following


@requirement("1.2/error/must-close", "1.1/disconnect/no-frames-after")
@requirement("1.2/disconnect/no-frames-after")
@pytest.mark.parametrize(("role", "state", "command"), EVERY_CASE)
def test_what_is_received_is_checked_against_the_table(
    role: Role, state: State, command: str
) -> None:
    session = in_state(role, state)
    following = TRANSITIONS[OTHER[role], state].get(command)
    data = encode(Frame(command, EVERYTHING), "1.2")
    is_deaf = state in (State.FAILED, State.CLOSED) or (
        state is State.DISCONNECTING and role is Role.SERVER
    )
    if is_deaf or (role is Role.SERVER and state is State.CONNECTING):
        assert session.receive(data, 0) == []
        assert state_of(session) is state
    elif following is None:
        error = refused(session, data, "unexpected-frame")
        assert command in str(error)
        assert state_of(session) is state
    elif command == "CONNECTED":
        session.receive(data.replace(b"\n", b"\nversion:1.2\n", 1), 0)
        assert state_of(session) is State.CONNECTED
    else:
        assert session.receive(data, 0) == [Frame(command, EVERYTHING)]
        assert state_of(session) is following


@requirement("1.1/connect/client-initiates")
@pytest.mark.parametrize("command", sorted(set(client_commands()) - {"CONNECT", "STOMP"}))
def test_a_server_is_told_what_came_in_place_of_connect(command: str) -> None:
    error = refused(
        Session(Role.SERVER), f"{command}\nreceipt:7\n\n\0".encode(), "unexpected-frame"
    )
    assert str(error) == f"the first frame must be CONNECT, not {command}"
    assert receipt_named(error) == "7"


def test_a_client_is_told_what_came_in_place_of_connected() -> None:
    session = in_state(Role.CLIENT, State.CONNECTING)
    error = refused(session, b"RECEIPT\nreceipt-id:1\n\n\0", "unexpected-frame")
    assert str(error) == "unexpected RECEIPT frame: the session is connecting"
    error = refused(Session(Role.CLIENT), b"RECEIPT\n\n\0", "unexpected-frame")
    assert str(error) == "unexpected RECEIPT frame: the session is opening"


def test_a_second_connect_is_refused() -> None:
    refused(server(), CONNECT, "unexpected-frame")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["MESSAGE", "RECEIPT", "CONNECTED", "ERROR"])
def test_a_client_does_not_send_what_servers_send(version: Version, command: str) -> None:
    data = encode(Frame(command, {**EVERYTHING, "receipt": "7"}), version)
    assert receipt_named(refused(server(version), data, "unexpected-frame")) == "7"


def test_frames_before_one_that_is_unexpected_are_not_lost() -> None:
    session = server()
    frames = session.receive(
        b"BEGIN\ntransaction:1\n\n\0MESSAGE\n\n\0BEGIN\ntransaction:2\n\n\0", 0
    )
    assert frames == [Frame("BEGIN", {"transaction": "1"})]
    refused(session, b"", "unexpected-frame")


# Required headers.


@requirement("1.2/headers/send", "1.2/headers/subscribe", "1.2/headers/unsubscribe")
@requirement("1.2/headers/ack-nack", "1.2/headers/transactions", "1.2/headers/disconnect")
@requirement("1.2/headers/message", "1.2/headers/receipt", "1.2/headers/error")
@requirement("1.1/send/destination-required", "1.2/send/destination-required")
@requirement("1.1/subscribe/id-required", "1.2/subscribe/id-required")
@requirement("1.1/unsubscribe/id-required", "1.2/unsubscribe/id-required")
@requirement("1.0/begin/transaction-required", "1.1/begin/transaction-required")
@requirement("1.0/commit/transaction-required", "1.0/abort/transaction-required")
@pytest.mark.parametrize(
    ("version", "command"),
    [
        (version, row.name)
        for version in VERSIONS
        for row in COMMANDS.values()
        if version in row.required and row.name not in ("CONNECT", "STOMP", "CONNECTED")
    ],
)
def test_a_frame_without_a_header_that_it_needs_is_refused_at_both_ends(
    version: Version, command: str
) -> None:
    row = COMMANDS[command]
    here, there = client, server
    if row.sender is Role.SERVER:
        here, there = server, client
    for names in row.required[version]:
        headers = {k: v for k, v in EVERYTHING.items() if k not in names}
        frame = Frame(command, {**headers, "receipt": "7"})
        session = here(version)
        with pytest.raises(LocalProtocolError, match=" or ".join(names)):
            session.send(frame, 0)
        assert state_of(session) is State.CONNECTED
        error = refused(there(version), encode(frame, version), "missing-header")
        assert str(error).endswith(f"needs the header {' or '.join(names)} on STOMP {version}")
        assert receipt_named(error) == "7"
    needed = {name: "" for names in row.required[version] for name in names}
    frame = Frame(command, needed)
    assert drain(there(version), [here(version).send(frame, 0)]) == [frame]


@requirement("1.0/unsubscribe/destination-or-id-required")
@requirement("1.0/unsubscribe/by-destination", "1.0/unsubscribe/by-id")
@pytest.mark.parametrize("headers", [{"destination": "d"}, {"id": "1"}])
def test_unsubscribe_names_a_destination_or_an_id_on_1_0(headers: dict[str, str]) -> None:
    frame = Frame("UNSUBSCRIBE", headers)
    assert drain(server("1.0"), [client("1.0").send(frame, 0)]) == [frame]


@requirement("1.1/unsubscribe/id-required", "1.2/unsubscribe/id-required")
@pytest.mark.parametrize("version", ESCAPING)
def test_unsubscribe_names_an_id_from_1_1_on(version: Version) -> None:
    refused(server(version), b"UNSUBSCRIBE\ndestination:d\n\n\0", "missing-header")


@requirement("1.2/ack/id-required", "1.2/ack/id-only-suffices")
def test_ack_names_the_id_alone_on_1_2() -> None:
    assert server("1.2").receive(b"ACK\nid:1\n\n\0", 0) == [Frame("ACK", {"id": "1"})]
    refused(server("1.2"), b"ACK\nmessage-id:1\nsubscription:1\n\n\0", "missing-header")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_header_that_is_only_repeated_counts_as_there(version: Version) -> None:
    (frame,) = server(version).receive(b"SEND\ndestination:a\ndestination:b\n\n\0", 0)
    assert frame.values("destination") == ["a", "b"]


@requirement("1.0/bnf/client-command-set", "1.0/commands/allowed-after-connect")
def test_1_0_has_no_nack() -> None:
    error = refused(server("1.0"), b"NACK\nmessage-id:1\nreceipt:7\n\n\0", "unknown-command")
    assert str(error) == "STOMP 1.0 has no NACK frame"
    assert receipt_named(error) == "7"
    with pytest.raises(LocalProtocolError, match="no NACK"):
        client("1.0").send(Frame("NACK", {"message-id": "1"}), 0)


def test_what_was_refused_to_a_sender_has_changed_nothing() -> None:
    session = client()
    session.heart_beat.last_sent = 5.0
    for frame in (Frame("SEND"), Frame("MESSAGE"), Frame("DISCONNECT", {"a": "\0"}), Frame("x")):
        with pytest.raises(LocalProtocolError):
            session.send(frame, 9)
        assert state_of(session) is State.CONNECTED
        assert session.heart_beat.last_sent == 5.0


# Negotiation.


NEGOTIATIONS: list[tuple[str | None, Version]] = [
    (None, "1.0"),
    ("1.0", "1.0"),
    ("1.1", "1.1"),
    ("1.2", "1.2"),
    ("1.0,1.1", "1.1"),
    ("1.0,1.1,1.2", "1.2"),
    ("1.0,1.2", "1.2"),
    ("1.0,1.1,2.0", "1.1"),
    ("1.2,1.1,1.0", "1.2"),
    ("1.1,1.0", "1.1"),
    ("1.0, 1.1, 1.2", "1.2"),
    (" 1.1 ,1.0", "1.1"),
    ("1.1,1.1,1.1", "1.1"),
    ("1.3,1.10,1.0", "1.0"),
    ("1.1,", "1.1"),
    (",1.0,,", "1.0"),
]


@requirement("1.1/negotiation/missing-means-1.0", "1.2/negotiation/missing-means-1.0")
@requirement("1.1/negotiation/highest-common", "1.2/negotiation/highest-common")
@requirement("1.1/negotiation/respond-highest", "1.2/negotiation/respond-highest")
@requirement("1.1/connected/version-required", "1.2/headers/connected")
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@pytest.mark.parametrize(("offer", "expected"), NEGOTIATIONS)
def test_the_highest_common_version_is_chosen(
    command: str, offer: str | None, expected: Version
) -> None:
    session = Session(Role.SERVER)
    line = "" if offer is None else f"accept-version:{offer}\n"
    (frame,) = session.receive(f"{command}\n{line}\n\0".encode(), 0)
    assert frame.command == command
    assert session.version == expected
    assert state_of(session) is State.CONNECTING
    answer = session.accept({"session": "s", "server": "x/1"}, 0)
    beats = "" if expected == "1.0" else "heart-beat:0,0\n"
    assert answer.decode() == f"CONNECTED\nversion:{expected}\n{beats}session:s\nserver:x/1\n\n\0"
    assert state_of(session) is State.CONNECTED


@requirement("1.1/negotiation/no-common-error", "1.2/negotiation/no-common-error")
@requirement("1.1/negotiation/error-lists-versions", "1.2/negotiation/error-lists-versions")
@pytest.mark.parametrize(
    "offer", ["", ",", "2.0", "1.3,2.0", "1", "1.", "01.2", "1.2.0", "1.2;1.1", "x"]
)
def test_without_a_common_version_the_error_lists_those_supported(offer: str) -> None:
    session = Session(Role.SERVER)
    data = f"CONNECT\naccept-version:{offer}\n\n\0".encode()
    error = refused(session, data, "no-common-version")
    assert error.reply is not None
    assert error.reply.headers["version"] == "1.0,1.1,1.2"
    assert error.reply.headers["content-type"] == "text/plain"
    assert error.reply.body.endswith(b"supported are 1.0 1.1 1.2")
    assert state_of(session) is State.OPENING
    assert session.send(error.reply, 0).startswith(b"ERROR\n")
    assert state_of(session) is State.FAILED


@requirement("1.2/negotiation/no-common-error", "1.1/negotiation/no-common-error")
@pytest.mark.parametrize(
    ("ours", "offer", "expected"),
    [
        (("1.1", "1.2"), "1.0,1.1", "1.1"),
        (("1.2", "1.0"), "1.0,1.1", "1.0"),
        (("1.0", "1.1"), "1.1,1.2", "1.1"),
        (("1.1", "1.2"), "1.0", None),
        (("1.1", "1.2"), None, None),
        (("1.0",), "1.1,1.2", None),
    ],
)
def test_a_server_may_speak_some_versions_only(
    ours: tuple[Version, ...], offer: str | None, expected: Version | None
) -> None:
    session = Session(Role.SERVER, versions=ours)
    line = "" if offer is None else f"accept-version:{offer}\n"
    data = f"CONNECT\n{line}\n\0".encode()
    if expected is None:
        error = refused(session, data, "no-common-version")
        assert error.reply is not None
        assert error.reply.headers["version"] == ",".join(ours)
    else:
        session.receive(data, 0)
        assert session.version == expected


@requirement("1.1/negotiation/accept-version-required", "1.2/negotiation/accept-version-required")
@requirement("1.1/negotiation/accept-version-format", "1.2/negotiation/accept-version-format")
@requirement("1.2/headers/connect", "1.1/connect/client-uses-connect")
def test_a_client_offers_its_versions_and_heart_beats() -> None:
    session = Session(Role.CLIENT, heart_beat=(1000, 2000))
    data = session.connect({"host": "example.org", "login": "a:b"}, 0)
    assert data == (
        b"CONNECT\naccept-version:1.0,1.1,1.2\nheart-beat:1000,2000\n"
        b"host:example.org\nlogin:a:b\n\n\0"
    )
    assert (session.state, session.version) == (State.CONNECTING, None)


@requirement("1.2/negotiation/respond-highest", "1.1/negotiation/missing-means-1.0")
@pytest.mark.parametrize(
    ("answer", "expected"), [("1.0", "1.0"), ("1.1", "1.1"), ("1.2", "1.2"), (None, "1.0")]
)
def test_a_client_goes_by_the_version_of_the_answer(answer: str | None, expected: Version) -> None:
    session = Session(Role.CLIENT)
    session.connect({}, 0)
    line = "" if answer is None else f"version:{answer}\n"
    (frame,) = session.receive(f"CONNECTED\n{line}session:1\n\n\0".encode(), 0)
    assert frame.command == "CONNECTED"
    assert (session.version, session.state) == (expected, State.CONNECTED)


@pytest.mark.parametrize("answer", ["2.0", "", " 1.2", "1.2,1.1", "1.1" + "x" * 1000, "1.2", None])
def test_a_client_refuses_an_answer_that_it_did_not_offer(answer: str | None) -> None:
    session = Session(Role.CLIENT, versions=("1.1",))
    session.connect({}, 0)
    line = "" if answer is None else f"version:{answer}\n"
    error = refused(session, f"CONNECTED\n{line}\n\0".encode(), "no-common-version")
    assert len(str(error)) < 100
    assert session.version is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_speaks_one_version_gets_it(version: Version) -> None:
    here, there = Session(Role.CLIENT, versions=(version,)), Session(Role.SERVER)
    there.receive(here.connect({}, 0), 0)
    here.receive(there.accept({}, 0), 0)
    assert here.version == there.version == version


def test_connected_answers_connect_and_nothing_else() -> None:
    for session in (
        Session(Role.SERVER),
        server(),
        in_state(Role.SERVER, State.FAILED),
        Session(Role.CLIENT),
        client(),
    ):
        state = session.state
        with pytest.raises(LocalProtocolError, match="none is waiting"):
            session.accept({}, 0)
        assert state_of(session) is state


def test_connected_is_sent_by_accept_alone() -> None:
    # Otherwise the following frames would be read as in the handshake.
    session = in_state(Role.SERVER, State.CONNECTING)
    with pytest.raises(LocalProtocolError, match="accept"):
        session.send(Frame("CONNECTED", {"version": "1.2"}), 0)
    assert state_of(session) is State.CONNECTING


def test_an_answer_that_cannot_be_sent_has_changed_nothing() -> None:
    session = in_state(Role.SERVER, State.CONNECTING)
    with pytest.raises(LocalProtocolError):
        session.accept({"server": "a\nb"}, 0)
    assert state_of(session) is State.CONNECTING
    assert session.accept({}, 0).startswith(b"CONNECTED\n")


@requirement("1.1/connect/may-reject", "1.1/connect/reject-with-error")
def test_a_server_may_reject_what_has_come_and_what_has_not() -> None:
    for state in (State.OPENING, State.CONNECTING):
        session = in_state(Role.SERVER, state)
        data = session.send(Frame("ERROR", {"message": "no: room"}), 0)
        assert data == b"ERROR\nmessage:no: room\n\n\0"
        peer = in_state(Role.CLIENT, state)
        assert peer.receive(data, 0) == [Frame("ERROR", {"message": "no: room"})]
        assert peer.state is state_of(session) is State.FAILED


# Heart-beats.


@requirement("1.1/heartbeat/declared-in-connect", "1.2/heartbeat/declared-in-connect")
@requirement("1.1/heartbeat/interval-is-max", "1.2/heartbeat/interval-is-max")
@pytest.mark.parametrize("version", ESCAPING)
def test_heart_beats_are_settled_with_the_version(version: Version) -> None:
    here = Session(Role.CLIENT, versions=(version,), heart_beat=(1000, 4000))
    there = Session(Role.SERVER, heart_beat=(3000, 2000))
    there.receive(here.connect({}, 0), 0)
    assert there.heart_beat.next_deadline() is None
    here.receive(there.accept({}, 0), 0)
    assert (here.heart_beat.send_s, here.heart_beat.receive_s) == (2, 4)
    assert (there.heart_beat.send_s, there.heart_beat.receive_s) == (4, 2)


@requirement("1.1/heartbeat/missing-is-0-0", "1.2/heartbeat/missing-is-0-0")
@requirement("1.1/heartbeat/optional", "1.2/heartbeat/optional")
def test_a_peer_that_says_nothing_of_heart_beats_has_none() -> None:
    session = Session(Role.SERVER, heart_beat=(1000, 1000))
    session.receive(CONNECT, 0)
    session.accept({}, 0)
    assert session.heart_beat.next_deadline() is None


@requirement("1.1/heartbeat/two-integers", "1.2/heartbeat/two-integers")
@pytest.mark.parametrize("value", ["1000", "a,b", "-1,0", "1,2,3", "", " 1,0"])
def test_a_bad_heart_beat_is_refused_at_both_ends(value: str) -> None:
    session = Session(Role.SERVER)
    refused(
        session, f"CONNECT\naccept-version:1.1\nheart-beat:{value}\n\n\0".encode(), "bad-heart-beat"
    )
    assert state_of(session) is State.OPENING
    session = Session(Role.CLIENT)
    session.connect({}, 0)
    refused(session, f"CONNECTED\nversion:1.2\nheart-beat:{value}\n\n\0".encode(), "bad-heart-beat")


def test_heart_beats_mean_nothing_on_1_0() -> None:
    session = Session(Role.SERVER, heart_beat=(1000, 1000))
    session.receive(b"CONNECT\nheart-beat:whatever\n\n\0", 0)
    assert b"heart-beat" not in session.accept({}, 0)
    assert session.heart_beat.next_deadline() is None
    here = Session(Role.CLIENT, heart_beat=(1000, 1000))
    here.connect({}, 0)
    here.receive(b"CONNECTED\nheart-beat:1,1\nsession:1\n\n\0", 0)
    assert here.heart_beat.next_deadline() is None


@requirement("1.1/heartbeat/any-data-counts", "1.2/heartbeat/any-data-counts")
def test_octets_in_and_out_are_noted_with_their_time() -> None:
    session = Session(Role.CLIENT, 1.0)
    beat = session.heart_beat
    assert (beat.last_sent, beat.last_received) == (1.0, 1.0)
    session.connect({}, 2.0)
    assert (beat.last_sent, beat.last_received) == (2.0, 1.0)
    session.receive(b"CONNECTED\n", 3.0)
    session.receive(b"", 4.0)
    assert (beat.last_sent, beat.last_received) == (2.0, 3.0)
    session.receive(b"version:1.2\n\n\0\n", 5.0)
    session.send(Frame("BEGIN", {"transaction": "1"}), 6.0)
    assert (beat.last_sent, beat.last_received) == (6.0, 5.0)
    there = Session(Role.SERVER)
    there.receive(CONNECT, 7.0)
    there.accept({}, 8.0)
    assert (there.heart_beat.last_sent, there.heart_beat.last_received) == (8.0, 7.0)


# Frames sent before CONNECTED.


AHEAD = b"\nSEND\ndestination:a\\cb\n\nx\0SEND\ndestination:c\\n\n\ny\0"
AHEAD_FRAMES = [
    Frame("SEND", {"destination": "a:b"}, b"x"),
    Frame("SEND", {"destination": "c\n"}, b"y"),
]


@pytest.mark.parametrize("cut", range(len(CONNECT), len(CONNECT + AHEAD) + 1))
def test_what_comes_ahead_of_connected_is_held_and_read_by_the_version(cut: int) -> None:
    data = CONNECT + AHEAD
    session = Session(Role.SERVER)
    assert [frame.command for frame in drain(session, [data[:cut]])] == ["CONNECT"]
    assert drain(session, octets(data[cut:])) == []
    assert state_of(session) is State.CONNECTING
    session.accept({}, 0)
    assert drain(session, [b""]) == AHEAD_FRAMES
    assert state_of(session) is State.CONNECTED


def test_what_comes_ahead_of_connected_may_be_completed_after_it() -> None:
    session = Session(Role.SERVER)
    drain(session, [CONNECT + AHEAD[:20], AHEAD[20:40]])
    session.accept({}, 0)
    assert drain(session, [AHEAD[40:]]) == AHEAD_FRAMES


def test_what_comes_ahead_of_connected_is_not_escaped_on_1_0() -> None:
    session = Session(Role.SERVER)
    drain(session, [b"CONNECT\n\n\0" + AHEAD])
    session.accept({}, 0)
    frames = drain(session, [b""])
    assert [frame.headers["destination"] for frame in frames] == ["a\\cb", "c\\n"]


def test_what_comes_ahead_of_connected_is_bounded() -> None:
    limits = replace(BEFORE_LOGIN, max_frame_bytes=100)
    session = Session(Role.SERVER, limits_before_login=limits)
    drain(session, [CONNECT])
    assert drain(session, octets(b"\n" * 100)) == []
    error = refused(session, b"\n", "frame-too-large")
    assert "before CONNECTED" in str(error)
    assert state_of(session) is State.CONNECTING
    assert error.reply is not None
    assert session.send(error.reply, 0).startswith(b"ERROR\n")


def test_an_error_in_what_comes_ahead_of_connected_is_found_after_it() -> None:
    session = Session(Role.SERVER)
    drain(session, [CONNECT + b"SEND\ndestination:a\n\n\0bad\n\n\0"])
    session.accept({}, 0)
    assert session.receive(b"", 0) == [Frame("SEND", {"destination": "a"})]
    refused(session, b"", "unknown-command")


# The limits.


def test_a_server_gives_strangers_less_than_those_who_logged_in() -> None:
    body = b"x" * (BEFORE_LOGIN.max_body_bytes + 1)
    refused(Session(Role.SERVER), b"SEND\n\n" + body, "frame-too-large")
    data = b"SEND\ndestination:d\n\n%b\0" % body
    assert [len(frame.body) for frame in drain(server(), [data])] == [len(body)]


def test_the_limits_can_be_chosen() -> None:
    narrow = replace(AFTER_LOGIN, max_body_bytes=3)
    session = Session(Role.SERVER, limits=narrow)
    drain(session, [CONNECT])
    session.accept({}, 0)
    refused(session, b"SEND\ndestination:d\n\nabcd\0", "frame-too-large")
    session = Session(Role.CLIENT, limits=replace(AFTER_LOGIN, max_headers=1))
    session.connect({}, 0)
    error = refused(session, b"CONNECTED\nversion:1.2\nsession:1\n\n\0", "too-many-headers")
    assert error.code in LIMITS_BROKEN


# The end.


@requirement("1.1/disconnect/no-frames-after", "1.2/disconnect/no-frames-after")
@pytest.mark.parametrize(
    "rest", [b"SEND\ndestination:d\n\n\0", b"garbage\0", b"\xff" * 100, b"SEND"]
)
def test_nothing_is_read_after_disconnect(rest: bytes) -> None:
    frame = Frame("DISCONNECT", {"receipt": "77"})
    data = encode(frame, "1.2")
    for pieces in ([data + rest], [data, rest], octets(data + rest), [data, rest, b"\n"]):
        session = server()
        assert drain(session, pieces) == [frame]
        assert state_of(session) is State.DISCONNECTING
        assert session.send(Frame("RECEIPT", {"receipt-id": "77"}), 0)
        session.receive_eof()
        assert state_of(session) is State.CLOSED
        assert session.receive(rest, 0) == []


@requirement("1.1/disconnect/with-receipt", "1.2/disconnect/with-receipt")
def test_a_client_still_hears_the_server_after_its_disconnect() -> None:
    session = client()
    session.send(Frame("DISCONNECT", {"receipt": "77"}), 0)
    message = Frame("MESSAGE", {"destination": "d", "message-id": "1", "subscription": "0"})
    receipt = Frame("RECEIPT", {"receipt-id": "77"})
    assert drain(session, [encode(message, "1.2") + encode(receipt, "1.2")]) == [message, receipt]
    assert state_of(session) is State.DISCONNECTING


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rest", [b"RECEIPT\nreceipt-id:1\n\n\0", b"garbage\0", b"\xff", b"ERROR"])
def test_nothing_is_read_after_error(version: Version, rest: bytes) -> None:
    data = b"ERROR\nmessage:no\n\n\0"
    for pieces in ([data + rest], [data, rest], octets(data + rest)):
        session = client(version)
        assert drain(session, pieces) == [Frame("ERROR", {"message": "no"})]
        assert state_of(session) is State.FAILED
        session.receive_eof()


@requirement("1.2/error/must-close")
def test_nothing_is_read_nor_sent_after_an_error_of_ones_own() -> None:
    session = server()
    session.send(Frame("ERROR", {"message": "no"}), 0)
    assert session.receive(b"garbage\0", 0) == []
    with pytest.raises(LocalProtocolError):
        session.send(Frame("RECEIPT", {"receipt-id": "1"}), 0)


def test_the_stream_may_end_between_frames_and_not_within_one() -> None:
    for session in (server(), client(), Session(Role.SERVER), Session(Role.CLIENT)):
        session.receive(b"\n", 0)
        session.receive_eof()
        assert state_of(session) is State.CLOSED
    for session in (server(), client(), Session(Role.SERVER), Session(Role.CLIENT)):
        session.receive(b"ERROR\n", 0)
        with pytest.raises(RemoteProtocolError) as caught:
            session.receive_eof()
        assert caught.value.code == "truncated"
        assert state_of(session) is State.CLOSED


@pytest.mark.parametrize("pieces", [[CONNECT + b"\nSE"], [CONNECT, b"\nSE"], [CONNECT + AHEAD]])
def test_what_came_ahead_of_connected_is_forgotten_when_the_stream_ends(
    pieces: list[bytes],
) -> None:
    session = Session(Role.SERVER)
    drain(session, pieces)
    session.receive_eof()
    assert state_of(session) is State.CLOSED
    with pytest.raises(LocalProtocolError):
        session.accept({}, 0)


# Tolerance.


def test_the_tolerance_is_that_of_both_directions() -> None:
    data = b"SUBSCRIBE\r\nid:\xff\r\ndestination:a:b\r\n\r\nbody\0\0"
    session = server("1.1", Tolerance.LENIENT)
    (frame,) = drain(session, [data])
    assert (frame.headers["id"], frame.body) == ("\udcff", b"")
    assert session.send(Frame("RECEIPT", {"receipt-id": "\udcff"}), 0).count(b"\xff") == 1
    with pytest.raises(RemoteProtocolError):
        drain(server("1.1"), [data])


@requirement("1.1/error/receipt-id", "1.2/error/receipt-id", "1.2/headers/error-identify")
@requirement("1.1/error/message-header", "1.2/error/message-header")
@requirement("1.1/error/content-length-should", "1.2/error/content-length-should")
@requirement("1.1/error/content-type-should", "1.2/error/content-type-should")
def test_the_reply_to_an_error_can_be_sent_as_it_is() -> None:
    session = server("1.1")
    error = refused(session, b"SEND\nreceipt:a\\cb\n\n\0", "missing-header")
    assert error.reply is not None
    assert session.send(error.reply, 0) == (
        b"ERROR\nmessage:SEND needs the header destination on STOMP 1.1\n"
        b"stompkit-code:missing-header\ncontent-type:text/plain\nreceipt-id:a\\cb\n"
        b"content-length:46\n\nSEND needs the header destination on STOMP 1.1\0"
    )
