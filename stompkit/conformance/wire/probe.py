"""Probes of the target: liveness and supported versions."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from dataclasses import dataclass
from typing import Final

from stompkit._common.files import reason_of
from stompkit.conformance.address import Address
from stompkit.conformance.peer import Peer, Recorder
from stompkit.conformance.verdict import Ending, FailedError, SuiteError
from stompkit.conformance.wire.octets import plain
from stompkit.frames import VERSIONS, Frame, Version

__all__ = [
    "ANY_VERSION",
    "Capabilities",
    "UnreachableError",
    "comes_alive",
    "connect_headers",
    "dial",
    "is_alive",
    "probe",
    "probe_within",
]

_SHOWN_CHARACTERS = 100
#: Remedies for errors of a connection for which the machine of the suite is responsible, not the
#: target.
_REMEDIES: Final = {
    errno.EMFILE: "Raise the limit of open files: ulimit -n",
    errno.ENFILE: "Close programs that have many files open",
    errno.EADDRNOTAVAIL: "This machine has no free port, or no address from which to reach that"
    " one, such as an address of IPv6",
}
#: Interval in seconds between two attempts to reach a target that does not answer.
_PAUSE_S = 0.2
#: A version that does not exist.
_NO_VERSION = "9.9"
#: Number of attempts for an answer of a target that has answered another CONNECT.
_ATTEMPTS = 3
#: The offer of a client that wants to know if the target serves, whatever it speaks.
ANY_VERSION = ",".join(VERSIONS)


class UnreachableError(Exception):
    """No STOMP server answers at the address."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Properties that the target reports."""

    versions: tuple[Version, ...]
    #: The ``server`` header of CONNECTED, if any.
    server: str


def connect_headers(address: Address, accept_version: str) -> dict[str, str]:
    """Return CONNECT's headers; for ``1.0`` alone, accept-version is left out."""
    headers = {}
    if accept_version != "1.0":
        headers["accept-version"] = accept_version
    headers["host"] = address.host if address.vhost is None else address.vhost
    if address.login is not None:
        headers["login"] = address.login
    if address.passcode is not None:
        headers["passcode"] = address.passcode
    return headers


def dial(address: Address, number: int, recorder: Recorder, deadline: float) -> Peer:
    """Open a TCP connection; raises :class:`FailedError` if the target does not accept it.

    Raises :class:`SuiteError` if this machine cannot open one.
    """
    left = max(0.001, min(address.timeout_s, deadline - time.monotonic()))
    try:
        connection = socket.create_connection((address.host, address.port), timeout=left)
    except (OSError, UnicodeError) as error:
        # UnicodeError: an invalid host name.
        reason = reason_of(error) if isinstance(error, OSError) else "not a host name"
        if isinstance(error, OSError) and error.errno in _REMEDIES:
            raise SuiteError(
                f"the suite itself cannot open a connection: {reason}. {_REMEDIES[error.errno]}"
            ) from None
        recorder.say(number, f"no connection: {reason}")
        raise FailedError(f"the target does not take a connection: {reason}") from None
    with contextlib.suppress(OSError):  # some systems fail if the target has closed
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    recorder.say(number, "connected")
    return Peer(connection, number, recorder, timeout_s=address.timeout_s, deadline=deadline)


class _DeafError(FailedError):
    """The target did not answer at all: another attempt would cost time without a result."""


def _ask(address: Address, accept_version: str) -> Frame:
    """Return CONNECTED from a new connection; raises FailedError with the actual answer."""
    recorder = Recorder(address.secret)
    try:
        peer = dial(address, 1, recorder, time.monotonic() + address.case_s)
    except FailedError as error:
        raise _DeafError(str(error)) from None
    try:
        peer.send("CONNECT", connect_headers(address, accept_version))
        return peer.expect("CONNECTED")
    except FailedError as error:
        if not peer.arrivals and peer.ending is Ending.HUNG:
            raise _DeafError(
                f"it takes connections, but does not answer CONNECT in {address.timeout_s:g} s"
            ) from None
        raise FailedError(_diagnosis(peer, recorder, str(error))) from None
    finally:
        peer.close()


def _ask_often(address: Address, version: Version) -> Frame:
    """Return CONNECTED like :func:`_ask`; ask again if the target does not answer.

    A target that was busy for a moment speaks the version all the same.
    """
    for _ in range(1, _ATTEMPTS):
        with contextlib.suppress(_DeafError):
            return _ask(address, version)
    return _ask(address, version)


def _diagnosis(peer: Peer, recorder: Recorder, reason: str) -> str:
    """Return how a target answered CONNECT instead of CONNECTED."""
    for frame in peer.frames:
        if frame.command == "ERROR":
            return f"it answers CONNECT with {peer.describe(frame)}"
    heard = "".join(event.text for event in recorder.events if event.direction == "<")
    if heard:
        return f"{reason}; it sent {plain(heard, _SHOWN_CHARACTERS)}"
    if peer.is_closed_by_target:
        return "it closes the connection instead of answering CONNECT"
    return reason


def is_alive(address: Address, version: str) -> bool:
    """Return True if a CONNECT on a new connection is answered by CONNECTED."""
    try:
        _ask(address, version)
    except FailedError:
        return False
    return True


def comes_alive(address: Address, version: str, limit_s: float) -> bool:
    """Return True if a CONNECT is answered by CONNECTED within *limit_s* seconds."""
    until = time.monotonic() + limit_s
    while not is_alive(address, version):
        if time.monotonic() >= until:
            return False
        # This condition cannot be watched. A restarting target refuses connections at once, and
        # attempts without a pause would only load it.
        time.sleep(_PAUSE_S)
    return True


def _negotiates(address: Address) -> bool:
    """Return True if the target refuses a client that offers only an unknown version."""
    try:
        _ask(address, _NO_VERSION)
    except _DeafError:
        return False
    except FailedError:
        return True
    return False


def probe(address: Address) -> Capabilities:
    """Determine the versions that the target supports; raises :class:`UnreachableError`.

    CONNECTED without a version, as the answer to an offer of 1.1 or 1.2, has one of two reasons.
    Either the target supports only 1.0 and ignores the offer, or it omits the negotiated version.
    In the second case it refuses unknown versions.
    """
    found: list[Version] = []
    unnamed: list[Version] = []
    server = ""
    reasons = []
    hide = Recorder(address.secret).hide
    for version in VERSIONS:
        try:
            connected = _ask_often(address, version) if found else _ask(address, version)
        except SuiteError as error:
            raise UnreachableError(str(error)) from None
        except FailedError as error:
            reasons.append(str(error))
            if isinstance(error, _DeafError) and not found:
                break
            continue
        server = plain(hide(connected.headers.get("server", server)), _SHOWN_CHARACTERS)
        chosen = connected.headers.get("version")
        if chosen == version or (chosen is None and version == "1.0"):
            found.append(version)
        elif chosen is None:
            unnamed.append(version)
        else:
            reasons.append(f"it answers CONNECT for STOMP {version} with version {chosen}")
    if unnamed and _negotiates(address):
        found = [version for version in VERSIONS if version in (*found, *unnamed)]
    elif unnamed:
        reasons.append(f"it answers CONNECT for STOMP {unnamed[0]} without a version")
    if not found:
        told = next((each for each in reasons if "ERROR" in each), reasons[0])
        raise UnreachableError(f"no STOMP server at {address}: {plain(hide(told))}")
    return Capabilities(tuple(found), server)


def probe_within(address: Address, limit_s: float) -> Capabilities:
    """Probe a target that may still be starting, repeatedly for up to *limit_s* seconds.

    Raises :class:`UnreachableError` with the last reason.
    """
    until = time.monotonic() + limit_s
    while True:
        try:
            return probe(address)
        except UnreachableError:
            if time.monotonic() >= until:
                raise
        # See comes_alive.
        time.sleep(_PAUSE_S)
