"""The answer to CONNECT: the version, and the heart-beats."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.conformance.second_server.escapes import Refusal
from tests.conformance.second_server.frames import Headers, Pairs
from tests.conformance.second_server.switches import Switch

_VERSIONS = (b"1.0", b"1.1", b"1.2")
#: Interval in seconds of heart-beats that the server offers and wants.
_BEAT_S = 0.2


@dataclass
class Agreement:
    """Properties of a session."""

    version: bytes
    send_s: float
    """Time in seconds between heart-beats to the client; 0 for none."""
    receive_s: float
    """Time in seconds that the client may be silent; 0 for any."""


def agree(headers: Headers, switch: Switch) -> Agreement:
    """Return what a CONNECT frame with these headers agrees upon."""
    has = switch.has
    if b"client-id" in headers and has("refuses client-id"):
        raise Refusal("client-id is not known here")
    version = _version(headers.get(b"accept-version", b"1.0"), switch)
    beats = headers.get(b"heart-beat", b"0,0")
    if not re.fullmatch(rb"[0-9]{1,9},[0-9]{1,9}", beats):
        raise Refusal("heart-beat is not two numbers")
    can, wants = map(int, beats.split(b","))
    if has("swaps the numbers of heart-beat"):
        can, wants = wants, can
    send_s = receive_s = 0.0
    if has("has no heart-beats") or has("says only the version in CONNECTED"):
        can = wants = 0
    if not wants and has("beats though nobody asks"):
        send_s = 1.0
    if wants and not has("promises a beat each ten seconds and sends none"):
        send_s = max(_BEAT_S, wants / 1000) * (1.6 if has("beats 1.6 times late") else 0.5)
    if can:
        is_hasty = has("expects beats sooner than agreed")
        receive_s = (_BEAT_S if is_hasty else max(_BEAT_S, can / 1000)) * 3
    return Agreement(version, send_s, receive_s)


def connected(version: bytes, session: bytes, switch: Switch) -> Pairs:
    """Return the headers of CONNECTED."""
    beat = 0 if switch.has("has no heart-beats") else _BEAT_S * 1000
    if switch.has("promises a beat each ten seconds and sends none"):
        beat = 10_000
    headers = [(b"version", version)]
    # STOMP 1.0 requires the session.
    if version == b"1.0" or not switch.has("says only the version in CONNECTED"):
        headers.append((b"session", session))
    if not switch.has("says only the version in CONNECTED"):
        headers += [(b"server", b"second/1"), (b"heart-beat", b"%d,%d" % (beat, beat))]
    return headers


def _version(accept_version: bytes, switch: Switch) -> bytes:
    """Return the highest common version."""
    offered = accept_version.replace(b" ", b"").split(b",")
    common = [each for each in offered if each in _VERSIONS]
    if switch.has("takes 1.10 for 1.1"):
        common = [each[:3] for each in offered if each[:3] in _VERSIONS]
    if len(common) < len(offered) and switch.has("refuses an unknown version among others"):
        common = []
    if not common:
        raise Refusal("this server has the versions 1.0, 1.1, 1.2")
    if not switch.has("takes the last version offered"):
        common.sort(reverse=switch.has("takes the lowest version"))
    return common[-1]
