"""Connecting, staying connected, failing over and leaving."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from twisted.internet.defer import CancelledError, Deferred

from stompkit.client import (
    AttemptTimeoutError,
    BrokerError,
    BufferLimits,
    Client,
    ClientClosedError,
    ConnectFailedError,
    LoginRefusedError,
    PeerSilentError,
    ReconnectPolicy,
)
from stompkit.frames import VERSIONS, RemoteProtocolError, Version
from tests.client.logs import Log
from tests.client.network import Network, failed, online, result, waits

ROOT: Final = Path(__file__).parents[2]

IMPATIENT = ReconnectPolicy(initial_s=0.125, max_s=0.125, attempt_timeout_s=1.0, settle_s=5.0)


# Login.


def test_connect_says_what_the_client_can_do(net: Network) -> None:
    endpoint = net.scripted()
    net.connected(
        endpoint,
        login="me",
        passcode="secret",
        virtual_host="/v",
        heart_beat_ms=(1, 2),
        connect_headers={"client-id": "c"},
    )
    [connect] = endpoint.peer.take()
    assert connect.command == "CONNECT"
    assert connect.headers == {
        "accept-version": "1.0,1.1,1.2",
        "heart-beat": "1,2",
        "host": "/v",
        "login": "me",
        "passcode": "secret",
        "client-id": "c",
    }


def test_connect_without_a_login_names_none(net: Network) -> None:
    endpoint = net.scripted()
    net.connected(endpoint)
    [connect] = endpoint.peer.take()
    assert connect.headers["host"] == "localhost"
    assert connect.headers.keys().isdisjoint({"login", "passcode"})


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_chooses_the_version(net: Network, version: Version) -> None:
    client = net.connected(net.scripted(version))
    assert online(client)
    assert client.version == version
    assert client.connected_headers["session"] == "s"


def test_only_the_versions_that_are_wanted_are_offered(net: Network) -> None:
    endpoint = net.scripted("1.1")
    net.connected(endpoint, versions=("1.1",))
    assert endpoint.peer.frames[0].headers["accept-version"] == "1.1"


def test_an_answer_to_connect_ends_the_waiting_and_not_the_connection(net: Network) -> None:
    client = net.client(endpoint := net.scripted(version=None))
    connected = client.connect()
    net.run()
    assert waits(connected)
    assert not online(client)
    endpoint.peer.accept()
    net.wait(connected)
    assert online(client)


def test_a_refused_login_is_final(net: Network, log: Log) -> None:
    endpoint, other = net.scripted(version=None), net.scripted()
    client = net.client(endpoint, other)
    connected, closed = client.connect(), client.when_closed()
    net.run()
    endpoint.peer.refuse(message="Bad credentials", code="7")
    net.run()
    refusal = failed(connected, LoginRefusedError)
    assert refusal.message == str(refusal) == "Bad credentials"
    assert refusal.headers["stompkit-code"] == "7"
    assert refusal.body == b"because"
    failed(closed, LoginRefusedError)
    net.advance(60)
    assert (endpoint.attempts, other.attempts) == (1, 0)
    assert not online(client)
    assert "Bad credentials" in log.take_errors()


def test_a_login_that_is_refused_later_closes_the_client(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    closed, sent = client.when_closed(), client.send("/queue/a")
    endpoint.version = None
    endpoint.peer.drop()
    net.advance(0.1)
    endpoint.peer.refuse(message="expired")
    net.run()
    refusal = failed(closed, LoginRefusedError)
    assert failed(sent, ClientClosedError).reason is refusal
    assert failed(client.send("/queue/a"), ClientClosedError).reason is refusal
    log.take_errors()


#: Codes of the section "Connection errors" that are about the login itself.
ABOUT_LOGIN: Final = ("unknown-host", "not-authenticated", "heart-beat-required")


def connection_codes() -> list[str]:
    """Return the codes of "Connection errors" in the reference of the protocol."""
    text = (ROOT / "docs/reference/protocol.rst").read_text(encoding="utf-8")
    section = text.partition("\nConnection errors\n")[2].partition("\nDestinations and messages\n")[
        0
    ]
    return re.findall(r"(?m)^``([a-z-]+)``", section)


@pytest.mark.parametrize("code", connection_codes())
def test_only_a_refusal_of_the_login_itself_is_final(net: Network, log: Log, code: str) -> None:
    endpoint, other = net.scripted(version=None), net.scripted()
    client = net.client(endpoint, other)
    connected = client.connect()
    net.run()
    endpoint.peer.refuse(code=code)
    net.advance(0.1)
    assert other.attempts == (code not in ABOUT_LOGIN)
    if code in ABOUT_LOGIN:
        failed(connected, LoginRefusedError)
        assert "giving up" in log.take_errors()
    else:
        result(connected)


def test_temporary_refusals_count_as_failed_attempts(net: Network, log: Log) -> None:
    endpoint = net.scripted(version=None)
    client = net.client(endpoint, reconnect=ReconnectPolicy(max_attempts=2))
    connected = client.connect()
    for _ in range(2):
        net.advance(1)
        endpoint.peer.refuse(code="not-active")
        net.run()
    refusal = failed(connected, ConnectFailedError).reason
    assert isinstance(refusal, LoginRefusedError)
    assert refusal.is_temporary
    log.take_errors()


def test_an_error_without_a_code_leads_to_the_other_hosts(net: Network) -> None:
    endpoint, other = net.scripted(version=None), net.scripted()
    client = net.client(endpoint, other)
    connected = client.connect()
    net.run()
    endpoint.peer.refuse(message="overloaded")
    net.advance(0.1)
    result(connected)
    assert other.attempts == 1


ANSWERS: Final = ("refuses", "unreachable", "not-active")


@pytest.mark.parametrize(
    "answers", [each for hosts in (1, 2, 3) for each in product(ANSWERS, repeat=hosts)]
)
def test_a_client_gives_up_when_no_host_accepts_it_after_a_refusal(
    net: Network, log: Log, answers: tuple[str, ...]
) -> None:
    hosts = [net.scripted(version=None) for _ in answers]
    for host, answer in zip(hosts, answers, strict=True):
        host.refuses = answer == "unreachable"
    client = net.client(*hosts, reconnect=IMPATIENT)
    client.connect().addErrback(lambda _: None)
    closed = client.when_closed()
    for _ in range(3 * len(hosts)):
        net.run()
        for host, answer in zip(hosts, answers, strict=True):
            if host.peers and not host.peer.is_gone():
                host.peer.refuse(message=answer, code=None if answer == "refuses" else answer)
        net.advance(0.125)
    attempts = sum(host.attempts for host in hosts)
    if "refuses" in answers:
        assert failed(closed, LoginRefusedError).message == "refuses"
        assert attempts == answers.index("refuses") + len(hosts)
        log.take_errors()
    else:
        assert attempts >= 3 * len(hosts)
        net.wait(client.disconnect())


IN_USE: Final = "Broker: b - Client: c already connected from tcp://127.0.0.1:9"


def test_a_client_id_that_its_lost_connection_still_has_is_tried_again(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, connect_headers={"client-id": "c"}, reconnect=IMPATIENT)
    endpoint.version = None
    endpoint.peer.drop()
    for attempts in range(2, 5):
        net.advance(0.125)
        assert endpoint.attempts == attempts
        endpoint.peer.refuse(message=IN_USE)
        net.run()
    endpoint.version = "1.2"
    net.advance(0.125)
    assert online(client)


def test_a_client_id_that_stays_in_use_counts_as_failed_attempts(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, reconnect=ReconnectPolicy(max_attempts=3))
    closed = client.when_closed()
    net.advance(6)
    endpoint.version = None
    endpoint.peer.drop()
    for _ in range(3):
        net.advance(1)
        endpoint.peer.refuse(message=IN_USE)
        net.run()
    assert failed(closed, ConnectFailedError).attempts == 3
    log.take_errors()


def test_a_client_id_that_is_in_use_before_the_first_login_is_refused(
    net: Network, log: Log
) -> None:
    endpoint = net.scripted(version=None)
    client = net.client(endpoint)
    connected = client.connect()
    net.run()
    endpoint.peer.refuse(message=IN_USE)
    net.run()
    failed(connected, LoginRefusedError)
    log.take_errors()


# Other failures.


def test_the_hosts_take_turns_until_one_answers(net: Network) -> None:
    first, second, third = (net.scripted() for _ in range(3))
    first.refuses = second.refuses = third.refuses = True
    client = net.client(first, second, third, reconnect=IMPATIENT)
    connected = client.connect()
    assert first.attempts == 1
    net.advance(0.5)
    assert (first.attempts, second.attempts, third.attempts) == (2, 2, 1)
    third.refuses = False
    net.advance(0.125)
    result(connected)


def test_a_warning_follows_a_round_without_a_session_and_then_each_minute(
    net: Network, log: Log
) -> None:
    first, second = net.scripted(), net.scripted()
    first.refuses = second.refuses = True
    client = net.client(first, second, reconnect=ReconnectPolicy(initial_s=1.0, max_s=1.0))

    def levels() -> list[str]:
        found = [each["log_level"].name for each in log.events if "reason" in each]
        log.events.clear()
        return found

    connected = client.connect()
    assert levels() == ["info"]
    net.advance(1.0)
    assert levels() == ["warn"]
    net.advance(59.0)
    assert set(levels()) == {"info"}
    net.advance(1.0)
    assert levels() == ["warn"]
    first.refuses = False
    net.advance(60.0)
    result(connected)
    log.events.clear()
    first.refuses = True
    first.peer.drop()
    net.run()
    assert levels() == ["info"], "a lost connection is no failed attempt"
    net.advance(1.0)
    assert levels() == ["info"]
    net.advance(1.0)
    assert levels() == ["warn"]
    net.wait(client.disconnect())


def test_the_log_names_the_host_of_an_attempt_and_the_next_one(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    endpoint.refuses = True
    client = net.client(endpoint, reconnect=IMPATIENT)
    connected = client.connect()
    [event] = [each for each in log.events if "reason" in each]
    assert event["host"] == event["next_host"] != ""
    assert f"no connection to {event['host']}: " in log.text
    assert f"; connecting to {event['host']} in 0." in log.text
    net.wait(client.disconnect())
    failed(connected, ClientClosedError)


def test_the_waits_between_attempts_grow(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.refuses = True
    client = net.client(endpoint, reconnect=ReconnectPolicy(initial_s=1.0, factor=2.0, max_s=5.0))
    connected = client.connect()
    counts = []
    for _ in range(13):
        counts.append(endpoint.attempts)
        net.advance(1.0)
    #        after 0  1  2  3  4  5  6  7  8  9  10 11 12 seconds
    assert counts == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 5]
    net.wait(client.disconnect())
    failed(connected, ClientClosedError)


def test_jitter_shortens_the_waits(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.refuses = True
    client = net.client(
        endpoint, random=lambda: 0.5, reconnect=ReconnectPolicy(initial_s=1.0, max_s=1.0)
    )
    connected = client.connect()
    net.advance(1.0)
    assert endpoint.attempts == 3
    net.wait(client.disconnect())
    failed(connected, ClientClosedError)


@pytest.mark.parametrize("hangs", [True, False])
def test_an_attempt_has_a_deadline(net: Network, *, hangs: bool) -> None:
    # A host that never answers SYN, and one that never answers CONNECT.
    endpoint, other = net.scripted(version=None), net.scripted()
    endpoint.hangs = hangs
    client = net.client(endpoint, other, reconnect=IMPATIENT)
    connected = client.connect()
    net.advance(0.9)
    assert other.attempts == 0
    net.advance(0.2)
    result(connected)
    assert endpoint.cancelled == (1 if hangs else 0)
    assert hangs or endpoint.peer.is_gone()


def test_a_connection_that_comes_too_late_is_not_used(net: Network) -> None:
    endpoint = net.scripted(version=None)
    client = net.client(endpoint, reconnect=IMPATIENT)
    connected = client.connect()
    net.advance(1.1)
    first, second = endpoint.peers
    first.accept()
    second.accept()
    net.run()
    result(connected)
    assert first.is_gone()
    assert not second.is_gone()


def test_a_host_that_connects_after_all_is_cut_off(net: Network) -> None:
    endpoint, other = net.scripted(), net.scripted()
    endpoint.hangs = True
    client = net.client(endpoint, other, reconnect=IMPATIENT)
    connected = client.connect()
    net.advance(1.2)
    result(connected)
    endpoint.connect_at_last()
    net.run()
    assert endpoint.peer.is_gone()
    assert endpoint.peer.frames == []
    assert online(client)


def test_a_client_gives_up_after_so_many_attempts_in_a_row(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    endpoint.hangs = True
    client = net.client(endpoint, reconnect=ReconnectPolicy(max_attempts=3, attempt_timeout_s=1.0))
    connected = client.connect()
    net.advance(60)
    error = failed(connected, ConnectFailedError)
    assert error.attempts == endpoint.attempts == 3
    assert isinstance(error.reason, AttemptTimeoutError)
    assert "3 attempts" in log.take_errors()
    again = client.connect()
    net.advance(60)
    assert failed(again, ConnectFailedError).attempts == 3
    log.take_errors()


def test_a_connection_that_has_lasted_ends_the_row_of_failures(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, reconnect=ReconnectPolicy(max_attempts=1, settle_s=5.0))
    for _ in range(3):
        net.advance(5.1)
        endpoint.peer.drop()
        net.advance(0.2)
        assert online(client)


def test_after_a_connection_that_has_lasted_the_first_wait_is_short(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.refuses = True
    client = net.client(endpoint, reconnect=ReconnectPolicy(initial_s=0.5, settle_s=5.0))
    client.connect()
    net.advance(10)
    endpoint.refuses = False
    net.advance(20)
    endpoint.peer.drop()
    net.advance(0.5)
    assert online(client)


def test_a_broker_that_throws_clients_out_is_not_stormed(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    client = net.connected(
        endpoint, reconnect=ReconnectPolicy(initial_s=1.0, max_s=8.0, max_attempts=5)
    )
    seconds = 0
    closed = client.when_closed()
    while waits(closed):
        if online(client):
            endpoint.peer.drop()
        net.advance(1.0)
        seconds += 1
    assert endpoint.attempts == 5
    assert seconds >= 1 + 2 + 4 + 8
    failed(closed, ConnectFailedError)
    log.take_errors()


@pytest.mark.parametrize("octets", [b"HTTP/1.1 400 Bad Request\r\n\r\n\0", b"MESSAGE\n\n\0"])
def test_a_broker_that_speaks_something_else_is_left(net: Network, octets: bytes) -> None:
    endpoint, other = net.scripted(version=None), net.scripted()
    client = net.client(endpoint, other)
    connected = client.connect()
    net.run()
    endpoint.peer.write(octets)
    net.advance(0.2)
    result(connected)
    assert other.attempts == 1


def test_a_version_that_was_not_offered_is_not_accepted(net: Network) -> None:
    endpoint, other = net.scripted(version=None), net.scripted("1.2")
    client = net.client(endpoint, other, versions=("1.2",))
    connected = client.connect()
    net.run()
    endpoint.peer.accept("1.1")
    net.advance(0.2)
    result(connected)
    assert client.version == "1.2"


# Losing a connection.


def test_a_lost_connection_is_followed_by_one_to_the_next_host(net: Network) -> None:
    first, second = net.scripted(), net.scripted()
    client = net.connected(first, second)
    first.peer.drop()
    assert not online(client)
    again = client.connect()
    net.advance(0.1)
    result(again)
    assert online(client)
    assert second.attempts == 1
    second.peer.drop()
    net.advance(0.2)
    assert first.attempts == 2


def test_an_error_ends_the_connection_even_where_the_broker_leaves_it_open(net: Network) -> None:
    endpoint = net.scripted()
    reasons: list[Exception] = []
    client = net.connected(endpoint, on_disconnected=reasons.append)
    endpoint.peer.refuse(message="internal error")
    net.run()
    assert not online(client)
    assert endpoint.peer.is_gone()
    [reason] = reasons
    assert isinstance(reason, BrokerError)
    assert reason.message == "internal error"
    net.advance(0.1)
    assert online(client)


def test_octets_that_are_no_frame_end_the_connection(net: Network) -> None:
    endpoint = net.scripted()
    reasons: list[Exception] = []
    client = net.connected(endpoint, on_disconnected=reasons.append)
    endpoint.peer.write(b"NONSENSE\n\n\0")
    net.advance(0.1)
    assert isinstance(reasons[0], RemoteProtocolError)
    assert online(client)


def test_hooks_are_told_of_each_connection(net: Network) -> None:
    endpoint = net.scripted()
    told: list[object] = []
    client = net.connected(
        endpoint,
        on_connected=lambda headers: told.append(headers["session"]),
        on_disconnected=lambda reason: told.append(type(reason).__name__),
    )
    endpoint.peer.drop()
    endpoint.refuses = True
    net.advance(0.1)
    endpoint.refuses = False
    net.advance(0.3)
    net.wait(client.send("/queue/a", receipt=False))
    gone = client.disconnect()
    net.run()
    endpoint.peer.confirm(endpoint.peer.frames[-1])
    net.wait(gone)
    assert told == ["s", "ConnectionLost", "s", "ClientClosedError"]


def test_a_hook_that_fails_is_logged_and_harms_nothing(net: Network, log: Log) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("hook")

    endpoint = net.scripted()
    client = net.connected(endpoint, on_connected=fail, on_disconnected=lambda _: 1 / 0)
    endpoint.peer.drop()
    net.advance(0.1)
    assert online(client)
    errors = log.take_errors()
    assert "RuntimeError: hook" in errors
    assert "ZeroDivisionError" in errors


# Heart-beats.


def test_beats_are_sent_as_agreed(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.headers = {"heart-beat": "0,1000"}
    client = net.connected(endpoint, heart_beat_ms=(500, 0))
    net.advance(10)
    assert online(client)
    assert 10 <= endpoint.peer.beats <= 20


def test_what_is_sent_replaces_beats(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.headers = {"heart-beat": "0,1000"}
    client = net.connected(endpoint, heart_beat_ms=(500, 0))
    for _ in range(20):
        net.wait(client.send("/queue/a", receipt=False))
        net.advance(0.5)
    assert endpoint.peer.beats == 0


def test_a_broker_that_keeps_its_promise_is_kept(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.headers = {"heart-beat": "1000,0"}
    client = net.connected(endpoint, heart_beat_ms=(0, 1000))
    for _ in range(10):
        net.advance(1.5)
        endpoint.peer.write(b"\n")
    assert online(client)
    assert endpoint.attempts == 1


def test_a_broker_that_falls_silent_is_left(net: Network) -> None:
    endpoint, other = net.scripted(), net.scripted()
    endpoint.headers = {"heart-beat": "1000,0"}
    reasons: list[Exception] = []
    client = net.connected(endpoint, other, heart_beat_ms=(0, 1000), on_disconnected=reasons.append)
    net.advance(1.9)
    assert online(client)
    net.advance(0.3)
    assert isinstance(reasons[0], PeerSilentError)
    assert endpoint.peer.transport.aborted
    assert other.attempts == 1
    assert online(client)


def test_a_broker_is_not_blamed_for_a_pause_of_the_program(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.headers = {"heart-beat": "1000,0"}
    client = net.connected(endpoint, heart_beat_ms=(0, 1000))
    endpoint.peer.write(b"\n")  # waits to be read while the program is busy
    net.clock.advance(30)
    net.run()
    assert online(client)
    assert endpoint.attempts == 1
    net.advance(2.2)  # now there is nothing to read
    assert endpoint.attempts == 2


def test_a_broker_without_heart_beats_may_be_silent(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    net.advance(100, step_s=1.0)
    assert online(client)
    assert endpoint.attempts == 1


def test_no_beats_pile_up_for_a_broker_that_does_not_read(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.headers = {"heart-beat": "0,1000"}
    net.connected(endpoint, heart_beat_ms=(1000, 0))
    endpoint.peer.transport.stop_taking()
    net.advance(20)
    assert not endpoint.peer.transport.outgoing


# Leaving.


def test_disconnect_waits_for_its_receipt_and_closes(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    closed, gone = client.when_closed(), client.disconnect()
    net.run()
    assert waits(gone)
    frame = endpoint.peer.frames[-1]
    assert frame.command == "DISCONNECT"
    assert not endpoint.peer.is_gone()
    endpoint.peer.confirm(frame)
    net.wait(gone)
    result(closed)
    assert endpoint.peer.is_gone()
    assert not endpoint.peer.transport.aborted
    net.advance(60, step_s=1.0)
    assert endpoint.attempts == 1


def test_nothing_is_left_to_happen_after_disconnect(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    endpoint.headers = {"heart-beat": "1000,1000"}
    client = net.connected(endpoint)
    net.advance(5)
    net.wait(client.disconnect())
    assert net.clock.getDelayedCalls() == []


def test_disconnect_comes_after_what_was_sent(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    endpoint.peer.take()
    endpoint.peer.transport.stop_taking()
    sent = [client.send("/queue/a", b"%d" % number) for number in range(3)]
    gone = client.disconnect()
    net.run()
    assert waits(gone)
    endpoint.peer.transport.start_taking()
    net.wait(gone)
    assert [frame.command for frame in endpoint.peer.take()] == ["SEND"] * 3 + ["DISCONNECT"]
    for deferred in sent:
        result(deferred)


def test_disconnect_sends_what_waits_for_room_too(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint, buffers=BufferLimits(send_messages=2))
    endpoint.peer.take()
    sent = [client.send("/queue/a", b"%d" % number, wait=True) for number in range(5)]
    net.wait(client.disconnect())
    for deferred in sent:
        result(deferred)
    assert [frame.command for frame in endpoint.peer.take()] == ["SEND"] * 5 + ["DISCONNECT"]


def test_disconnect_has_a_deadline(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    sent = client.send("/queue/a")
    gone = client.disconnect(timeout_s=3.0)
    net.advance(2.9)
    assert waits(gone)
    net.advance(0.2)
    result(gone)
    assert endpoint.peer.transport.aborted
    assert failed(sent, ClientClosedError).reason is None


def test_a_connection_that_ends_while_disconnecting_is_not_replaced(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    gone = client.disconnect()
    net.run()
    endpoint.peer.drop()
    net.wait(gone)
    net.advance(60, step_s=1.0)
    assert endpoint.attempts == 1


def test_disconnect_ends_the_search_for_a_broker(net: Network) -> None:
    endpoint = net.scripted(version=None)
    client = net.client(endpoint)
    connected = client.connect()
    net.run()
    result(client.disconnect())
    failed(connected, ClientClosedError)
    net.advance(60, step_s=1.0)
    assert endpoint.attempts == 1
    assert endpoint.peer.is_gone()


def test_disconnect_between_attempts_ends_the_search(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    endpoint.peer.drop()
    result(client.disconnect())
    net.advance(60, step_s=1.0)
    assert endpoint.attempts == 1


def test_all_who_disconnect_are_told(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    first, second = client.disconnect(), client.disconnect()
    failed(client.connect(), ClientClosedError)
    net.run()
    result(first)
    result(second)
    result(client.disconnect())
    result(client.when_closed())


def test_a_client_can_be_connected_again(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    net.wait(client.disconnect())
    failed(client.send("/queue/a"), ClientClosedError)
    net.wait(client.connect())
    net.wait(client.send("/queue/a"))
    assert endpoint.attempts == 2


def test_a_client_can_be_connected_again_by_those_who_are_told_of_its_end(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    sent = client.send("/queue/a")
    ended = client.when_closed().addCallback(lambda _: client.connect())
    endpoint.obliging = False
    gone = client.disconnect()
    net.run()
    endpoint.peer.confirm(endpoint.peer.frames[-1])
    endpoint.obliging = True
    net.wait(gone)
    failed(sent, ClientClosedError)
    net.wait(ended)
    net.wait(client.send("/queue/a"))


def test_a_client_is_not_connected_again_before_all_have_been_told_of_its_end(
    net: Network,
) -> None:
    client = net.connected(net.scripted(obliging=True))
    subscription = net.wait(client.subscribe("/queue/a"))
    early = subscription.when_ended().addCallback(lambda _: client.connect())
    net.wait(client.disconnect())
    failed(early, ClientClosedError)
    assert not online(client)
    net.wait(client.connect())


def test_a_client_that_was_never_connected_can_be_closed(net: Network) -> None:
    client = net.client(net.scripted())
    sent = client.send("/queue/a")
    result(client.disconnect())
    failed(sent, ClientClosedError)


def test_one_who_waits_can_cancel_the_waiting_of_another(net: Network) -> None:
    client = net.client(net.scripted())
    first, second = client.connect(), client.connect()
    first.addCallback(lambda _: second.cancel())
    net.wait(first)
    failed(second, CancelledError)
    assert online(client)


def test_who_stops_waiting_for_a_connection_stops_nothing_else(net: Network) -> None:
    endpoint = net.scripted()
    client = net.client(endpoint)
    impatient = client.connect()
    impatient.addErrback(lambda _: None)
    impatient.cancel()
    net.run()
    assert online(client)


# Calls that wait when the client is closed.


WAITING: Final[dict[str, Callable[[Client], Deferred[Any]]]] = {
    "send": lambda client: client.send("/queue/a"),
    "subscribe": lambda client: client.subscribe("/queue/a"),
    "request": lambda client: client.request("/queue/a"),
    "request again": lambda client: client.request("/queue/a"),
    "begin": lambda client: client.transaction().begin(),
}


@pytest.mark.parametrize("gives_up", [True, False], ids=["gives up", "disconnect"])
@pytest.mark.parametrize("was_connected", [True, False], ids=["lost", "never connected"])
def test_all_calls_that_wait_fail_with_the_same_error(
    net: Network, log: Log, *, gives_up: bool, was_connected: bool
) -> None:
    endpoint = net.scripted(version="1.2" if was_connected else None)
    client = net.client(endpoint)
    connected, closed = client.connect(), client.when_closed()
    net.run()
    if was_connected:
        result(connected)
        endpoint.version = None
        endpoint.peer.drop()
        net.advance(0.1)
    calls = {name: call(client) for name, call in WAITING.items()}
    if gives_up:
        endpoint.peer.refuse()
    else:
        client.disconnect()
    net.run()
    connected.addErrback(lambda _: None)  # fails with the cause, if it waits
    cause = failed(closed, LoginRefusedError) if gives_up else result(closed)
    later = {name: WAITING[name](client) for name in ("send", "subscribe", "request")}
    for name, call in [*calls.items(), *later.items()]:
        error = failed(call, ClientClosedError)
        assert (name, error.reason) == (name, cause)
    if gives_up:
        assert "giving up" in log.take_errors()


def test_async_with_connects_and_disconnects(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.client(endpoint)

    async def use() -> None:
        async with client as entered:
            assert entered is client
            assert client.is_connected

    net.wait(Deferred.fromCoroutine(use()))
    assert not client.is_connected
    assert [each.command for each in endpoint.peer.take("DISCONNECT")] == ["DISCONNECT"]


def test_async_with_that_is_cancelled_as_it_connects_leaves_no_client(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.refuses = True
    client = net.client(endpoint)

    async def work() -> None:
        async with client:
            raise AssertionError("it was cancelled before")

    worker = Deferred.fromCoroutine(work())
    worker.cancel()
    failed(worker, CancelledError)
    result(client.when_closed())
    attempts = endpoint.attempts
    net.advance(60.0)
    assert endpoint.attempts == attempts
