"""CONNECT and CONNECTED as 1.1 and 1.2 have them: versions, hosts, refusals."""

import re

from stompkit.conformance import FailedError, Outcome, Peer, Target, UnsupportedError, case
from stompkit.frames import Frame

#: A name, "/" and a version, then comments, each behind a space.
SERVER = re.compile(r"[^ /]+(/[^ ]+)?( .*)?")


def connect_as(target: Target, accept_version: str) -> Peer:
    """Send CONNECT with this accept-version; the answer is still to come."""
    peer = target.open()
    peer.send("CONNECT", {**target.connect_headers(), "accept-version": accept_version})
    return peer


def server_header(peer: Peer) -> str:
    """CONNECTED's header ``server``."""
    server = peer.frames[0].headers.get("server")
    if server is None:
        raise UnsupportedError("CONNECTED has no server header")
    return server


def connect_wrongly(target: Target) -> Peer:
    """Send CONNECT with a login that can't be right, and wait for its refusal.

    Raises UnsupportedError where it is accepted: then the target takes anybody.
    """
    peer = target.open()
    login = target.address.login or "stompkit-nobody"
    headers = {**target.connect_headers(), "login": login, "passcode": "stompkit-wrong"}
    peer.send("CONNECT", headers)
    outcome = peer.outcome(None, linger_s=0)
    if outcome is Outcome.ACCEPTED:
        raise UnsupportedError("the target takes any login")
    if outcome is Outcome.NOTHING:
        raise FailedError("CONNECT with a wrong passcode is not answered")
    return peer


def connect_without_common_version(target: Target) -> tuple[Peer, Frame]:
    """Offer only versions that there are not; gives the ERROR, too.

    Raises UnsupportedError where the connection ends without one: no-common-error is about that.
    """
    peer = connect_as(target, "9.8,9.9")
    outcome = peer.outcome(None, linger_s=0)
    if outcome is Outcome.CLOSE:
        raise UnsupportedError("the connection ended without an ERROR")
    if outcome not in (Outcome.ERROR, Outcome.ERROR_AND_CLOSE):
        raise FailedError(f"CONNECT with the versions 9.8 and 9.9 is {outcome}")
    return peer, peer.frames[-1]


@case("1.1/connect/stomp-command", "1.2/connect/stomp-command")
def test_stomp_is_connect(target: Target) -> None:
    """Send STOMP in place of CONNECT; CONNECTED comes with the same version."""
    peer = target.open()
    peer.send("STOMP", target.connect_headers())
    version = peer.expect("CONNECTED").headers.get("version", target.version)
    assert version == target.version, f"offered {target.version}, the target chose {version}"


@case("1.1/connect/heart-beat-optional", "1.2/connect/heart-beat-optional")
def test_connect_with_and_without_heart_beat(target: Target) -> None:
    """Send CONNECT without heart-beat, and with two of them; CONNECTED comes each time."""
    for headers in ({}, {"heart-beat": "0,0"}, {"heart-beat": "10000,10000"}):
        target.connect(headers)


@case("1.1/connect/host-required", "1.2/connect/host-required", "1.2/headers/connect")
def test_connect_without_host(target: Target) -> None:
    """Send CONNECT without host; record the answer. There must be one."""
    headers = target.connect_headers()
    del headers["host"]
    peer = target.open()
    peer.send("CONNECT", headers)
    outcome = peer.outcome(None, target.quiet_s)
    assert outcome is not Outcome.NOTHING, "CONNECT without host is not answered"
    target.note(f"CONNECT without host is {outcome}")


@case(
    "1.1/connect/unknown-host",
    "1.2/connect/unknown-host",
    "1.1/connect/may-reject",
    "1.2/connect/may-reject",
)
def test_unknown_host(target: Target) -> None:
    """Send CONNECT with a host that does not exist; record the answer. There must be one."""
    peer = target.open()
    peer.send("CONNECT", {**target.connect_headers(), "host": "stompkit-unknown.invalid"})
    outcome = peer.outcome(None, target.quiet_s)
    assert outcome is not Outcome.NOTHING, "CONNECT with an unknown host is not answered"
    target.note(f"an unknown host is {outcome}")


@case("1.1/connect/reject-with-error", "1.2/connect/reject-with-error")
def test_refusal_is_explained(target: Target) -> None:
    """Send CONNECT with a wrong passcode; an ERROR comes."""
    peer = connect_wrongly(target)
    commands = [frame.command for frame in peer.frames]
    assert commands == ["ERROR"], "the connection ended without an ERROR"


@case("1.1/connect/reject-then-close", "1.2/connect/reject-then-close")
def test_refusal_ends_the_connection(target: Target) -> None:
    """Send CONNECT with a wrong passcode; the server closes the connection."""
    connect_wrongly(target).expect_close()


@case("1.1/connected/version-required", "1.2/connected/version-required")
def test_connected_names_the_version(target: Target) -> None:
    """Offer one version; CONNECTED names it."""
    version = connect_as(target, target.version).expect("CONNECTED").headers.get("version")
    assert version == target.version, f"offered {target.version}, CONNECTED has {version}"


@case(
    "1.1/connected/session-may",
    "1.2/connected/session-may",
    "1.1/connected/server-may",
    "1.2/connected/server-may",
    "1.1/connected/heart-beat-may",
    "1.2/connected/heart-beat-may",
)
def test_optional_headers(target: Target, peer: Peer) -> None:
    """Send CONNECT; record which optional headers CONNECTED has. heart-beat has two numbers."""
    headers = peer.frames[0].headers
    for name in ("session", "server", "heart-beat"):
        target.note(f"{name}: {headers.get(name, 'none')}")
    others = headers.keys() - {"version", "session", "server", "heart-beat"}
    target.note(f"others: {', '.join(sorted(others)) or 'none'}")
    beats = headers.get("heart-beat", "0,0")
    assert re.fullmatch("[0-9]+,[0-9]+", beats), f"CONNECTED has heart-beat:{beats}"


@case(
    "1.1/connected/server-name-required",
    "1.2/connected/server-name-required",
    "1.1/connected/server-grammar",
    "1.2/connected/server-grammar",
    "1.1/connected/server-comments",
    "1.2/connected/server-comments",
)
def test_server_names_itself(peer: Peer) -> None:
    """Send CONNECT; the server header, if any, is a name, "/" and a version, and comments."""
    server = server_header(peer)
    assert SERVER.fullmatch(server), f"server:{server} does not begin with a name or name/version"


@case(
    "1.1/negotiation/missing-means-1.0",
    "1.2/negotiation/missing-means-1.0",
    "1.1/overview/backward-compatible",
)
def test_no_accept_version(target: Target) -> None:
    """Leave accept-version out; the session is one of 1.0, where ACK goes by message-id alone."""
    peer = target.open()
    peer.send("CONNECT", target.connect_headers("1.0"))
    if "1.0" not in target.versions:
        outcome = peer.outcome(None, linger_s=0)
        assert outcome in (Outcome.ERROR, Outcome.ERROR_AND_CLOSE), (
            f"the target has no 1.0, but CONNECT without accept-version is {outcome}"
        )
        return
    version = peer.expect("CONNECTED").headers.get("version", "1.0")
    assert version == "1.0", f"no version was offered, the target chose {version}"
    peer.switch("1.0")
    queue = target.queue()
    peer.call("SUBSCRIBE", {"destination": queue, "ack": "client"})
    peer.send("SEND", {"destination": queue}, b"x")
    message = peer.expect("MESSAGE")
    peer.call("ACK", {"message-id": message.headers.get("message-id", "none")})
    peer.call("UNSUBSCRIBE", {"destination": queue})
    peer.send("DISCONNECT")
    peer.close()
    left = target.leftovers(queue)
    assert not left, "a message that was acknowledged is delivered again"


@case(
    "1.1/negotiation/highest-common",
    "1.2/negotiation/highest-common",
    "1.1/negotiation/respond-highest",
    "1.2/negotiation/respond-highest",
)
def test_highest_common_version(target: Target) -> None:
    """Offer lists of versions; the target chooses the highest that it has of each."""
    for offered in ("1.0,1.1", "1.0,1.1,1.2", "1.0,1.1,2.0", "1.0,9.9", "1.0,1.10,1.20"):
        common = [version for version in target.versions if version in offered.split(",")]
        if common:
            connected = connect_as(target, offered).expect("CONNECTED")
            version = connected.headers.get("version", "1.0")
            assert version == common[-1], (
                f"offered {offered}, the target chose {version} and not {common[-1]}"
            )


@case("1.1/negotiation/accept-version-format", "1.2/negotiation/accept-version-format")
def test_unusual_lists_of_versions(target: Target) -> None:
    """Offer versions in falling order, and with spaces; record the answers. There must be some."""
    for offered in ("1.2,1.1,1.0", "1.0, 1.1, 1.2"):
        peer = connect_as(target, offered)
        outcome = peer.outcome(None, target.quiet_s)
        assert outcome is not Outcome.NOTHING, f"accept-version:{offered} is not answered"
        version = peer.frames[0].headers.get("version", "none") if peer.frames else "none"
        target.note(f"accept-version:{offered} is {outcome}, version {version}")
        target.profile(f"version chosen for accept-version:{offered}", version)


@case("1.1/negotiation/no-common-error", "1.2/negotiation/no-common-error")
def test_no_common_version(target: Target) -> None:
    """Offer versions that there are not; ERROR comes, and no CONNECTED."""
    peer = connect_as(target, "9.8,9.9")
    peer.outcome(None, linger_s=0)
    commands = [frame.command for frame in peer.frames]
    assert commands == ["ERROR"], f"the server sent {commands}"


@case("1.2/negotiation/no-common-close")
def test_no_common_version_closes(target: Target) -> None:
    """Offer versions that there are not; the server closes the connection after its ERROR."""
    peer, _ = connect_without_common_version(target)
    peer.expect_close()


@case(
    "1.1/negotiation/error-lists-versions", "1.2/negotiation/error-lists-versions", level="SHOULD"
)
def test_error_lists_versions(target: Target) -> None:
    """Offer versions that there are not; the ERROR names those that there are."""
    _, error = connect_without_common_version(target)
    places = {
        "version header": error.headers.get("version", ""),
        "message header": error.headers.get("message", ""),
        "body": error.body.decode("utf-8", "replace"),
    }
    naming = [place for place, text in places.items() if all(v in text for v in target.versions)]
    assert naming, f"the ERROR does not name {', '.join(target.versions)}"
    target.note(f"the versions are named in: {', '.join(naming)}")
