"""Heart-beats, which the client is configured to offer and to want twice a second."""

from __future__ import annotations

import time
from itertools import pairwise

from stompkit.conformance.clients.caller import Caller
from stompkit.conformance.clients.case import NEW, client_case
from stompkit.conformance.clients.client import Client
from stompkit.conformance.verdict import FailedError, UnsupportedError
from stompkit.frames import parse_heart_beat

HEARTBEATS = "Heart-beating"
#: Heart-beat values of the client program, in milliseconds.
INTERVAL_MS = 500
_SLOW_MS = 1_500
#: Longer than the duration of any case.
_RARE_MS = 600_000
#: Time in seconds for which a client that receives heart-beats, or wants none, is observed.
_WATCHED_S = 2.0
#: Number of measured heart-beats, maximum number of late ones, and the tolerance of the others.
_BEATS = 6
_LATE = 3
_USUAL = 1.25
_SHORT_S = 0.05
#: Number of heart-beats to wait for while the server sends its own.
_FEW = 2
#: Number of pieces of a slow message.
_PIECES = 24
#: Maximum number of intervals for the detection of missing heart-beats.
_MISSED = 5


def _both(*ids: str) -> list[str]:
    """Return the ids of requirements that have the same name in 1.1 and 1.2."""
    return [f"{version}/heartbeat/{each}" for version in NEW for each in ids]


def _sends(caller: Caller) -> int:
    """Return the interval in milliseconds at which the client offers heart-beats."""
    can_ms, _ = caller.heart_beat
    if not can_ms:
        raise UnsupportedError("the client offers no heart-beats")
    return can_ms


def _wants(caller: Caller) -> int:
    """Return the interval in milliseconds at which the client wants heart-beats."""
    _, wants_ms = caller.heart_beat
    if not wants_ms:
        raise UnsupportedError("the client wants no heart-beats")
    return wants_ms


def _pause(caller: Caller, seconds: float) -> None:
    """Send nothing for a while, and check that the client stays connected."""
    caller.expect_nothing(seconds, "DISCONNECT")
    assert not caller.is_closed_by_target, "the client closed the connection"


@client_case(
    "client/heartbeat/header",
    "The header heart-beat of CONNECT is two numbers with a comma between them.",
    level="MUST",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("two-integers", "declared-in-connect", "first-number-can-send"),
    rests_on=_both("two-integers"),
)
def header(client: Client) -> None:
    """Look at the header."""
    caller = client.accept()
    value = caller.expect_connect().headers.get("heart-beat")
    client.choose(caller)
    if value is None:
        raise UnsupportedError("the client has no heart-beats")
    try:
        parse_heart_beat(value)
    except ValueError as error:
        raise FailedError(str(error)) from None


@client_case(
    "client/heartbeat/sends",
    "A client sends something at least as often as it has promised; a line end will do.",
    level="MUST",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("sender-in-time", "eol-when-idle"),
)
def sends(client: Client) -> None:
    """Want the beats that the client offers; three come, none of them long after its time."""
    caller = client.session(heart_beat=f"0,{INTERVAL_MS}")
    interval_s = max(_sends(caller), INTERVAL_MS) / 1000
    for _ in range(3):
        # The delay of a heart-beat depends on the load of the machine.
        caller.expect_beat(interval_s + client.timeout_s)


@client_case(
    "client/heartbeat/in-time",
    "A client sends something at least once in each interval.",
    level="MUST",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("sender-in-time", "interval-is-max"),
)
def in_time(client: Client) -> None:
    """Want beats, and say nothing for a while; most of them are not late by a quarter or more."""
    caller = client.session(heart_beat=f"0,{INTERVAL_MS}")
    interval_s = max(_sends(caller), INTERVAL_MS) / 1000
    for _ in range(_BEATS):
        caller.expect_beat(interval_s + client.timeout_s)
    gaps = sorted(after - before for (before, _), (after, _) in pairwise(caller.arrivals))
    # A machine that stops for a moment delays one or two heart-beats; a wrong interval delays all.
    usual_s = gaps[-_LATE]
    assert usual_s <= interval_s * _USUAL + _SHORT_S, (
        f"most beats came {usual_s:.2f} s apart, for one every {interval_s} s promised"
    )


@client_case(
    "client/heartbeat/both-ways",
    "A client's beats are due whatever the server sends meanwhile.",
    level="MUST",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("sender-in-time"),
)
def both_ways(client: Client) -> None:
    """Want beats, and send some more often than the client has to; its own come nevertheless."""
    caller = client.session(heart_beat=f"{INTERVAL_MS},{INTERVAL_MS}")
    interval_s = max(_sends(caller), INTERVAL_MS) / 1000
    before = caller.eols
    until = time.monotonic() + 2 * interval_s + client.timeout_s
    while caller.eols - before < _FEW and time.monotonic() < until:
        caller.send_raw(b"\n")
        _pause(caller, 0.2 * interval_s)
    beats = caller.eols - before
    assert beats >= _FEW, f"the client sent {beats} heart-beats while it was sent some"


@client_case(
    "client/heartbeat/each-direction",
    "Each direction has an interval of its own.",
    level="FACT",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("interval-is-max", "first-number-can-send", "second-number-wants"),
)
def each_direction(client: Client) -> None:
    """Want beats, and promise some that are far more rare; the client's own come as agreed."""
    caller = client.session(heart_beat=f"{_RARE_MS},{INTERVAL_MS}")
    interval_s = max(_sends(caller), INTERVAL_MS) / 1000
    for _ in range(2):
        caller.expect_beat(interval_s + client.timeout_s)


@client_case(
    "client/heartbeat/line-feed",
    "A beat of 1.1 is a line feed.",
    level="MUST",
    section=HEARTBEATS,
    versions=["1.1"],
    covers=["1.1/heartbeat/eol-when-idle"],
)
def line_feed(client: Client) -> None:
    """Want beats on 1.1; what comes is a line feed, and no carriage return."""
    caller = client.session(heart_beat=f"0,{INTERVAL_MS}")
    interval_s = max(_sends(caller), INTERVAL_MS) / 1000
    before = caller.violation  # another case
    caller.expect_beat(interval_s + client.timeout_s)
    assert caller.violation == before, f"the beat is no line feed: {caller.violation}"


@client_case(
    "client/heartbeat/none-wanted",
    "Where the server neither wants heart-beats nor sends any there are none.",
    level="FACT",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("cx0-or-sy0-none", "sx0-or-cy0-none", "optional"),
)
def none_wanted(client: Client) -> None:
    """Say ``0,0``; the client sends no beats, and does not miss the server's."""
    _without_beats(client, "0,0")


@client_case(
    "client/heartbeat/missing-is-none",
    "A CONNECTED without the header heart-beat means that there are none.",
    level="MUST",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("missing-is-0-0"),
)
def missing_is_none(client: Client) -> None:
    """Leave the header out; the client sends no beats, and does not miss the server's."""
    _without_beats(client, None)


def _without_beats(client: Client, heart_beat: str | None) -> None:
    caller = client.session(heart_beat=heart_beat)
    if caller.heart_beat == (0, 0):
        raise UnsupportedError("the client has no heart-beats")
    caller.echo(b"hello")
    caller.expect("ACK")
    before = caller.eols
    _pause(caller, _WATCHED_S)
    beats = caller.eols - before
    # One of them may be the line end of a frame.
    assert beats <= 1, f"the client sent {beats} heart-beats that nobody wanted"
    caller.echo(b"hello again")


@client_case(
    "client/heartbeat/slower-server",
    "The interval is the larger one of what is offered and what is wanted.",
    level="FACT",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("interval-is-max", "second-number-wants"),
    rests_on=[*_both("interval-is-max"), *_both("may-consider-dead")],
)
def slower_server(client: Client) -> None:
    """Offer beats that are rarer than the client wants, and send them so; it stays."""
    caller = client.session(heart_beat=f"{_SLOW_MS},0")
    if _wants(caller) >= _SLOW_MS:
        raise UnsupportedError(f"the client wants heart-beats more rarely than every {_SLOW_MS} ms")
    for _ in range(2):
        _pause(caller, 0.8 * _SLOW_MS / 1000)
        caller.send_raw(b"\n")
    caller.echo(b"hello")


@client_case(
    "client/heartbeat/error-margin",
    "Because of timing errors a client ought to wait for a beat somewhat longer than agreed.",
    level="SHOULD",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("error-margin"),
)
def error_margin(client: Client) -> None:
    """Send each beat a tenth of its interval late; the client stays."""
    caller = client.session(heart_beat=f"{_SLOW_MS},0")
    interval_s = max(_wants(caller), _SLOW_MS) / 1000
    for _ in range(2):
        _pause(caller, 1.1 * interval_s)
        caller.send_raw(b"\n")
    caller.echo(b"hello")


@client_case(
    "client/heartbeat/any-data",
    "Whatever arrives shows that the server lives, not only line ends.",
    level="FACT",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("any-data-counts"),
)
def any_data(client: Client) -> None:
    """Promise beats, and send messages instead, as often; the client stays."""
    caller = client.session(heart_beat=f"{INTERVAL_MS},0")
    interval_s = max(_wants(caller), INTERVAL_MS) / 1000
    for number in range(8):
        caller.echo(b"message %d" % number)
        _pause(caller, 0.7 * interval_s)


@client_case(
    "client/heartbeat/slow-frame",
    "A frame that arrives slowly shows all the while that the server lives.",
    level="FACT",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("any-data-counts"),
)
def slow_frame(client: Client) -> None:
    """Promise beats, and send one message in pieces for six intervals; the client takes it."""
    caller = client.session(heart_beat=f"{INTERVAL_MS},0")
    interval_s = max(_wants(caller), INTERVAL_MS) / 1000
    octets = caller.message(b"x" * _PIECES).octets
    with caller.holding():
        caller.send_raw(octets[: -_PIECES - 1])
        for place in range(_PIECES):
            _pause(caller, 6 * interval_s / _PIECES)
            caller.send_raw(octets[place - _PIECES - 1 :][:1])
        caller.send_raw(octets[-1:])
    caller.expect_send(b"x" * _PIECES)


@client_case(
    "client/heartbeat/silent-server",
    "A client that was promised heart-beats and hears nothing ought to notice.",
    level="SHOULD",
    section=HEARTBEATS,
    since="1.1",
    covers=_both("may-consider-dead"),
)
def silent_server(client: Client) -> None:
    """Promise beats, and send none; the client closes the connection within a few intervals."""
    caller = client.session(heart_beat=f"{INTERVAL_MS},0")
    interval_s = max(_wants(caller), INTERVAL_MS) / 1000
    caller.expect_close(_MISSED * interval_s + 2 * client.timeout_s)
