"""Back-off, limits and addresses: invalid values are refused, valid ones take effect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint

from stompkit.client import BufferLimits, Client, ReconnectPolicy
from tests.client.network import Network


def longest_waits(policy: ReconnectPolicy, failures: int) -> list[float]:
    """Return the longest wait after each number of failures, from zero."""
    return [policy.delay_s(number, lambda: 1.0) for number in range(failures + 1)]


def test_the_longest_wait_grows_up_to_a_bound() -> None:
    policy = ReconnectPolicy(initial_s=0.1, factor=2.0, max_s=1.0)
    assert longest_waits(policy, 6) == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_wait_is_any_share_of_the_longest() -> None:
    policy = ReconnectPolicy(initial_s=0.1, factor=2.0, max_s=30.0)
    assert policy.delay_s(3, lambda: 0.0) == 0.0
    assert policy.delay_s(3, lambda: 0.25) == pytest.approx(0.1)


def test_failures_without_end_are_no_problem() -> None:
    assert ReconnectPolicy(factor=10.0).delay_s(100_000, lambda: 1.0) == 30.0


def test_there_need_not_be_a_wait() -> None:
    assert longest_waits(ReconnectPolicy(initial_s=0.0), 3) == [0.0] * 4


def test_waits_need_not_grow() -> None:
    assert longest_waits(ReconnectPolicy(initial_s=2.0, factor=1.0), 2) == [2.0] * 3


@pytest.mark.parametrize(
    "settings",
    [
        {"initial_s": -0.1},
        {"initial_s": 2.0, "max_s": 1.0},
        {"factor": 0.9},
        {"max_attempts": 0},
        {"attempt_timeout_s": 0.0},
        {"settle_s": -1.0},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least|more than"):
        ReconnectPolicy(**settings)


@pytest.mark.parametrize("name", ["send_messages", "send_bytes", "queue_messages", "queue_bytes"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BufferLimits(**{name: 0})


# Addresses. Well-formed ones need the resolver of a reactor; a Clock has none.


@pytest.mark.parametrize(
    "address",
    [
        "localhost",
        "localhost:",
        ":61613",
        "a:0",
        "a:65536",
        "a:b",
        "[::1]",
        "::1:61613",
        "what:a:1",
    ],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    from twisted.internet import reactor

    with pytest.raises(ValueError, match=r"port|endpoint"):
        Client([address], reactor=reactor)


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("tls:localhost", "a port from 1"),
        ("tls:localhost:0", "a port from 1"),
        ("tls::61614", "takes a host"),
        ("tls:localhost:61614:x", "'x' has no name"),
        ("tls:localhost:61614:colour=red", "'colour' is unknown"),
        ("tls:localhost:61614:port=1", "there twice"),
        ("tls:localhost:61614:timeout=soon", "soon"),
        ("tls:localhost:61614:trustRoots=/does/not/exist", "No such file"),
        ("tls:localhost:61614:trustRoots=.", "no certificates"),
        ("tls:localhost:61614:certificate=/does/not/exist", "No such file"),
        ("tls:localhost:61614:certificate=bad/own", "^bad/own has no certificate of a client"),
        ("tls:localhost:61614:trustRoots=bad", "bad has no certificates"),
    ],
)
def test_a_description_of_tls_that_is_none_is_refused(
    address: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad").mkdir()
    for name in ("bad/x.pem", "bad/own"):
        Path(name).write_text("no certificate")
    with pytest.raises(ValueError, match=what):
        Client([address])


def test_a_backslash_of_a_description_takes_the_next_character_as_it_is() -> None:
    Client(["tls:host=\\:\\:1:port=61614"])
    with pytest.raises(ValueError, match=r"/a:b=c: No such file"):
        Client(["tls:localhost:61614:trustRoots=/a\\:b=c"])


def test_a_client_needs_a_host() -> None:
    with pytest.raises(ValueError, match="one host"):
        Client([])


@pytest.mark.parametrize(
    "address",
    [
        "localhost:61613",
        "127.0.0.1:61613",
        "[::1]:61613",
        "tcp:localhost:61613",
        "tcp:host=localhost:port=61613",
        "unix:/run/stomp",
    ],
)
def test_an_address_is_shown_as_it_was_given(address: str) -> None:
    assert address in repr(Client([address]))


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("stomp://localhost:61613", ["localhost:61613"]),
        ("stomp://localhost:61613/", ["localhost:61613"]),
        ("stomp://mq.example", ["mq.example:61613"]),
        ("stomp://[::1]", ["[::1]:61613"]),
        ("stomp://[::1]:9,b", ["[::1]:9", "b:61613"]),
        ("STOMP://localhost:61613", ["localhost:61613"]),
        ("a:1,[::1]:9", ["a:1", "[::1]:9"]),
        ("stomp://a:1,stomp://b", ["a:1", "b:61613"]),
        ("failover:(stomp://a:1,Stomp://b:2/)", ["a:1", "b:2"]),
        ("failover:(a:1,b:2)", ["a:1", "b:2"]),
        ("failover:(stomps://mq.example:61614)", ["tls:mq.example:61614"]),
        ("stomps://mq.example:61614", ["tls:mq.example:61614"]),
        ("stomps://[::1]:61614", ["tls:\\:\\:1:61614"]),
    ],
)
def test_a_url_stands_for_addresses(url: str, same: list[str]) -> None:
    assert repr(Client([url])) == repr(Client(same))
    assert repr(Client(url)) == repr(Client(same))


@pytest.mark.parametrize(
    "url",
    [
        "stomp://ann:secret@mq:61613",
        "stomp://ann,b://secret@mq:61613",
        "failover:(stomp://ann:secret@mq:61613)",
        "failover:(stomp://mq:61613)?secret",
        "tcp://ann:secret@mq:61613",
        "tcp://mq:61613",
        "stomp://mq:61613/queue/secret",
        "stomp://mq:61613?vhost=secret",
        "stomp://mq:61613?ca=/secret",
        "stomps://mq:61613?vhost=secret",
        "stomp://",
        "stomp://mq:secret",
        "stomp://mq:0",
    ],
)
def test_a_url_with_more_than_hosts_is_refused(url: str) -> None:
    """The error message quotes nothing that may be a passcode."""
    with pytest.raises(ValueError, match=r"URL of a broker|port is a number") as caught:
        Client([url])
    assert "secret" not in str(caught.value)


def test_authorities_of_a_url_are_read() -> None:
    with pytest.raises(ValueError, match=r"/a:b c\\d: No such file"):
        Client(["stomps://localhost?ca=/a:b%20c\\d"])


def test_one_address_need_not_be_in_a_list() -> None:
    assert repr(Client("localhost:61613")) == repr(Client(["localhost:61613"]))


def test_an_endpoint_is_taken_as_it_is(net: Network) -> None:
    from twisted.internet import reactor

    for kind in (HostnameEndpoint, TCP4ClientEndpoint):
        assert kind.__name__ in repr(Client([kind(reactor, "localhost", 61613)], reactor=net.clock))


def test_the_package_does_not_choose_a_reactor() -> None:
    program = "import sys, stompkit.client; sys.exit('twisted.internet.reactor' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
