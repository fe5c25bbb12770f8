"""Limits on wrong passcodes: by address, by user, and by both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from twisted.cred.checkers import ICredentialsChecker
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from stompkit.frames import Frame
from stompkit.server import BrokerConfig
from stompkit.server.interfaces import Clock as DomainClock
from stompkit.server.interfaces import Credentials, User
from stompkit.server.login.addresses import counted_as
from stompkit.server.login.auth import CredAuthenticator
from stompkit.server.login.limited_authenticator import Decided, LimitedAuthenticator
from stompkit.server.login.login_limiter import LoginLimiter, Outcome
from stompkit.server.login.password_files import (
    Cost,
    HashedPasswordFile,
    IniPasswordFile,
    JsonPasswordFile,
    hash_passcode,
)
from stompkit.server.settings.login_limiter import ThrottleSettings
from stompkit.server.settings.reading import SettingsError, parse_settings
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.admin.asking import Asker
from tests.server.processes import LOOPBACK, TWIST, Client, announced, processes
from tests.server.websockets import WebSocketBroker

CHEAP = Cost(log2_n=1, r=1, p=1)
HOME, AWAY = "192.0.2.1", "198.51.100.7"
LOGIN_TIMEOUT_S = BrokerConfig().login_timeout_s
REFUSED = {
    "message": "login or passcode is wrong",
    "stompkit-code": "not-authenticated",
}


class Guesses:
    """A broker with a login limiter; every user exists, with the passcode ``right``."""

    def __init__(self, *, slowly: bool = False, **settings: object) -> None:
        """Create the broker; with ``slowly``, logins are decided on request."""
        self.clock = Clock()
        self.waiting: list[Callable[[], None]] = []
        self.looked_at: list[tuple[str | None, str | None]] = []
        self.is_broken = False
        self._slowly = slowly
        throttle = ThrottleSettings(**settings)  # type: ignore[arg-type]  # theirs
        self.authenticator = LimitedAuthenticator(
            self,
            LoginLimiter(throttle),
            cast("DomainClock", self.clock),
            login_timeout_s=LOGIN_TIMEOUT_S,
        )
        self.broker = MemoryBroker(clock=self.clock, authenticator=self.authenticator)

    def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
        """Decide a login; the login limiter calls this."""
        self.looked_at.append((credentials.login, credentials.passcode))
        is_right = credentials.passcode == "right"
        user = User(credentials.login or "") if is_right and not self.is_broken else None
        decided = Decided(user, is_certain=not self.is_broken)
        if self._slowly:
            self.waiting.append(lambda: answer(decided))
        else:
            answer(decided)

    def connect(self, login: str, passcode: str, address: str = HOME) -> MemoryClient:
        """Try to log in."""
        client = self.broker.connect(address)
        headers = {"accept-version": "1.2", "host": "x", "login": login, "passcode": passcode}
        client.send("CONNECT", headers)
        return client

    def is_let_in(self, login: str, passcode: str, address: str = HOME) -> bool:
        """Return True if a login succeeds, even with a delay."""
        client = self.connect(login, passcode, address)
        self.clock.advance(LOGIN_TIMEOUT_S / 2)
        return client.version is not None

    def guess(self, login: str, count: int, address: str = HOME, first: int = 0) -> None:
        """Send wrong passcodes, each time another one."""
        for number in range(first, first + count):
            assert not self.is_let_in(login, f"guess {number}", address)

    def count(self, outcome: Outcome) -> int:
        """Return the number of logins with this outcome."""
        return self.authenticator.login_limiter.outcomes[outcome]


def error(client: MemoryClient) -> Frame:
    assert client.error is not None
    return client.error


# By address.


def test_past_the_limit_nothing_is_looked_at() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000)
    broker.guess("alice", 3)
    assert not broker.is_let_in("alice", "right")
    assert not broker.is_let_in("bob", "right")
    assert len(broker.looked_at) == 3
    assert broker.count(Outcome.WRONG) == 3
    assert broker.count(Outcome.THROTTLED) == 2


def test_other_addresses_are_let_in() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000)
    broker.guess("alice", 10)
    assert broker.is_let_in("alice", "right", AWAY)


def test_one_after_the_other_is_forgiven() -> None:
    broker = Guesses(wrong_passcodes=2, forgiven_after_s=60)
    for number in range(2):
        broker.connect("alice", f"guess {number}")
    broker.clock.advance(59)
    broker.connect("alice", "guess 2")
    assert len(broker.looked_at) == 2
    broker.clock.advance(1)
    broker.connect("alice", "guess 3")
    broker.connect("alice", "guess 4")
    assert len(broker.looked_at) == 3


def test_in_a_day_no_more_is_guessed_than_that_comes_to() -> None:
    broker = Guesses(wrong_passcodes=10, forgiven_after_s=60)
    day_s = 24 * 3600
    for number in range(day_s // 20):
        broker.connect("alice", f"guess {number}")
        broker.clock.advance(20)
    assert len(broker.looked_at) <= 10 + day_s / 60


def test_a_user_who_was_there_before_is_no_stranger() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000)
    assert broker.is_let_in("bob", "right")
    broker.guess("alice", 10)
    assert broker.is_let_in("bob", "right")
    assert not broker.is_let_in("carol", "right")


def test_a_right_login_forgives_nobody_else() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000)
    for number in range(5):
        broker.guess("alice", 1, first=number)
        assert broker.is_let_in("mallory", "right")
    assert len([login for login, _ in broker.looked_at if login == "alice"]) == 3


def test_even_a_user_who_was_there_before_is_guessed_at_only_so_often() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000)
    assert broker.is_let_in("bob", "right")
    broker.guess("bob", 5)
    assert len(broker.looked_at) == 1 + 3
    assert broker.is_let_in("bob", "right", AWAY)


def test_who_repeats_itself_counts_once() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=60)
    for _ in range(100):
        broker.connect("job", "of last year")
        broker.clock.advance(1)
    # The passcode is checked again every few seconds, because it may have become valid.
    assert 10 <= len(broker.looked_at) <= 25
    assert broker.is_let_in("alice", "right")


def test_a_passcode_that_has_become_right_is_taken_soon() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000)
    broker.is_broken = False
    client = broker.connect("alice", "wrong")
    assert client.error is not None
    broker.clock.advance(5)
    before = len(broker.looked_at)
    broker.connect("alice", "wrong")
    assert len(broker.looked_at) == before + 1


@pytest.mark.parametrize(
    ("kind", "empty", "line"),
    [
        (HashedPasswordFile, "", f"new:{hash_passcode('right', CHEAP)}\n"),
        (IniPasswordFile, "[auth]\n", "[auth]\nnew = right\n"),
        (JsonPasswordFile, "{}", '{"new": "right"}'),
    ],
)
def test_a_user_who_is_added_is_let_in_at_once(
    kind: Callable[[Path], ICredentialsChecker], empty: str, line: str, tmp_path: Path
) -> None:
    file = tmp_path / "users"
    file.write_text(empty)
    clock = Clock()
    checker = kind(file)
    if isinstance(checker, HashedPasswordFile):
        checker._compute = lambda work: succeed(work())
    authenticator = LimitedAuthenticator(
        CredAuthenticator([checker]),
        LoginLimiter(ThrottleSettings()),
        cast("DomainClock", clock),
        login_timeout_s=LOGIN_TIMEOUT_S,
    )
    answers: list[User | None] = []

    def log_in() -> None:
        authenticator.authenticate(Credentials("new", "right", "x", HOME), answers.append)

    with capturedLogs() as events:
        log_in()
        log_in()
        assert answers == [None]  # the second one is not checked
        clock.advance(0.5)
        file.write_text(line)
        log_in()
    assert answers == [None, User("new")]
    lines = [formatEvent(event) for event in events]
    assert not any("too many" in each for each in lines)
    assert sum("has repeated a wrong login" in each for each in lines) == 1


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_a_network_of_ipv6_is_one_address(peer: str, network: str) -> None:
    assert counted_as(peer) == network


def test_guesses_from_all_addresses_of_a_network_are_counted_together() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000)
    for number in range(10):
        broker.guess("alice", 1, f"2001:db8::{number:x}", number)
    assert len(broker.looked_at) == 3
    assert broker.is_let_in("alice", "right", "2001:db8:0:1::1")


def test_connections_from_a_network_are_counted_together() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections_per_address=2))
    clients = [broker.connect(f"2001:db8::{number}") for number in range(3)]
    assert [client.error is not None for client in clients] == [False, False, True]
    clients[0].close()
    assert broker.connect("2001:db8::9").error is None
    assert broker.connect("2001:db8:0:1::9").error is None


@pytest.mark.parametrize("address", ["10.0.0.7", ""])
def test_where_many_share_an_address_each_user_has_a_count(address: str) -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000, exempt=("10.0.0.0/24",))
    for user in ("alice", "bob"):
        broker.guess(user, 5, address)
    assert len(broker.looked_at) == 6
    assert broker.is_let_in("carol", "right", address)
    assert not broker.is_let_in("bob", "right", address)


# By user.


def test_a_user_whom_many_guess_at_can_still_come_from_anywhere() -> None:
    broker = Guesses(wrong_passcodes=3, wrong_passcodes_of_user=20, forgiven_after_s=2_000)
    for number in range(20):
        broker.guess("alice", 1, f"203.0.113.{number}", number)
    before = len(broker.looked_at)
    for number in range(20, 30):
        broker.guess("alice", 3, f"203.0.113.{number}", 3 * number)
    # One attempt for each address, where there were three.
    assert len(broker.looked_at) == before + 10
    assert broker.is_let_in("alice", "right", AWAY)
    assert broker.is_let_in("alice", "right", AWAY)
    assert not broker.is_let_in("alice", "right", "203.0.113.29")
    broker.clock.advance(3600)
    assert broker.is_let_in("alice", "right", "203.0.113.29")


def test_others_are_as_before() -> None:
    broker = Guesses(wrong_passcodes=3, wrong_passcodes_of_user=5, forgiven_after_s=10_000)
    for number in range(10):
        broker.guess("alice", 1, f"203.0.113.{number}", number)
    broker.guess("bob", 2, AWAY)
    assert broker.is_let_in("bob", "right", AWAY)


# Replies to the client.


def test_the_answer_is_that_to_any_wrong_passcode_but_late() -> None:
    broker = Guesses(wrong_passcodes=1, forgiven_after_s=1000)
    wrong = error(broker.connect("alice", "wrong"))
    client = broker.connect("alice", "right")
    assert client.error is None
    broker.clock.advance(LOGIN_TIMEOUT_S / 2 - 0.1)
    assert client.error is None
    broker.clock.advance(0.1)
    assert error(client) == wrong
    assert REFUSED.items() <= error(client).headers.items()


def test_a_client_that_goes_meanwhile_leaves_nothing() -> None:
    broker = Guesses(wrong_passcodes=1, forgiven_after_s=1000)
    broker.guess("alice", 1)
    client = broker.connect("alice", "right")
    client.close()
    broker.clock.advance(LOGIN_TIMEOUT_S)
    assert not broker.broker.broker.connections
    assert not broker.clock.getDelayedCalls()


def test_only_so_many_are_kept_waiting_for_a_no() -> None:
    broker = Guesses(wrong_passcodes=1, forgiven_after_s=1000)
    broker.guess("alice", 1)
    clients = [broker.connect("alice", f"other {number}") for number in range(1_001)]
    assert [client.error is not None for client in clients] == [False] * 1_000 + [True]
    broker.clock.advance(LOGIN_TIMEOUT_S / 2)
    assert all(client.error is not None for client in clients)


def test_the_log_is_told_once() -> None:
    broker = Guesses(wrong_passcodes=1, forgiven_after_s=1000)
    with capturedLogs() as events:
        broker.guess("alice", 5)
    lines = [formatEvent(event) for event in events]
    assert sum("192.0.2.1 has sent too many wrong logins" in line for line in lines) == 1
    assert not any("guess" in line for line in lines)


def test_over_websocket_it_is_the_same() -> None:
    guesses = Guesses(wrong_passcodes=1, forgiven_after_s=1000)
    guesses.connect("alice", "wrong", "127.0.0.1")
    broker = WebSocketBroker(authenticator=guesses.authenticator)
    client = broker.connect()
    client.send(b"CONNECT\naccept-version:1.2\nhost:x\nlogin:alice\npasscode:right\n\n\0")
    assert client.take() == []
    guesses.clock.advance(LOGIN_TIMEOUT_S / 2)
    [refused] = client.take()
    assert refused.command == "ERROR" and REFUSED.items() <= refused.headers.items()


# Logins that do not count.


def test_where_it_can_not_be_found_out_nobody_has_guessed() -> None:
    broker = Guesses(wrong_passcodes=3, forgiven_after_s=1000)
    broker.is_broken = True
    broker.guess("alice", 10)
    broker.is_broken = False
    assert broker.is_let_in("alice", "right")
    assert broker.count(Outcome.UNDECIDED) == 10


def test_who_sends_no_login_guesses_nothing() -> None:
    broker = Guesses(wrong_passcodes=1, forgiven_after_s=1000)
    for _ in range(3):
        client = broker.broker.connect(HOME)
        client.send("CONNECT", {"accept-version": "1.2", "host": "x"})
        assert error(client).headers["stompkit-code"] == "not-authenticated"
    assert broker.is_let_in("alice", "right")


def test_a_checker_that_has_no_time_has_found_nothing_out(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"alice:{hash_passcode('right', CHEAP)}\n")
    # A reference is kept: otherwise the Deferred would be deleted.
    held: list[Deferred[bytes]] = []

    def never(_: object) -> Deferred[bytes]:
        held.append(Deferred())
        return held[-1]

    checker = HashedPasswordFile(file, max_concurrent=1, max_waiting=1, compute=never)
    said: list[Decided] = []
    for _ in range(3):
        asked = Credentials("alice", "wrong", "x", HOME)
        CredAuthenticator([checker]).decide(asked, said.append)
    assert said == [Decided(None, is_certain=False)]


def test_it_can_be_switched_off() -> None:
    broker = Guesses(enabled=False, wrong_passcodes=1)
    broker.guess("alice", 20)
    assert broker.is_let_in("alice", "right")
    assert broker.count(Outcome.WRONG) == 20


# Concurrent logins.


def test_no_more_are_looked_at_at_a_time_than_may_be_wrong() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=3, forgiven_after_s=1000)
    clients = [broker.connect("alice", f"guess {number}") for number in range(8)]
    assert len(broker.looked_at) == 3
    while broker.waiting:
        broker.waiting.pop(0)()
    assert len(broker.looked_at) == 3
    broker.clock.advance(LOGIN_TIMEOUT_S / 2)
    assert all(error(client) for client in clients)


def test_a_thousand_who_come_back_at_once_are_let_in() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=3, forgiven_after_s=1000)
    clients = [broker.connect(f"user {number}", "right") for number in range(1_000)]
    while broker.waiting:
        broker.waiting.pop(0)()
    assert all(client.version for client in clients)
    assert len(broker.looked_at) == 1_000


def test_those_who_wait_are_let_in_at_once_where_that_takes_no_time() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=1, forgiven_after_s=1000)
    clients = [broker.connect(f"user {number}", "right") for number in range(3_000)]
    broker._slowly = False
    broker.waiting.pop(0)()
    assert all(client.version for client in clients)


def test_however_many_guess_a_stranger_is_soon_looked_at() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=10, forgiven_after_s=1000)
    for number in range(500):
        broker.connect("alice", f"guess {number}", f"203.0.113.{number % 10}")
    for _ in range(30):
        broker.waiting.pop(0)()
    client = broker.connect("bob", "right", AWAY)
    for _ in range(21):
        broker.waiting.pop(0)()
    assert client.version
    assert len(broker.waiting) == 1
    while broker.waiting:
        broker.waiting.pop(0)()
    assert len(broker.looked_at) == 10 * 10 + 1
    broker.clock.advance(0.0)
    assert not broker.authenticator._waiting and not broker.authenticator._waiting_count
    assert not any(broker.authenticator._lines) and not broker.authenticator._line_of


def test_guesses_are_looked_at_one_at_a_time_and_in_a_quarter_of_the_time() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=10, forgiven_after_s=1000)
    for address in (HOME, AWAY):
        broker.connect("alice", "a guess", address)
        broker.waiting.pop()()
    for number in range(3):
        broker.connect("alice", f"guess {number}", HOME)
        broker.connect("bob", f"guess {number}", AWAY)
    assert len(broker.looked_at) == 3
    broker.clock.advance(0.25)
    broker.waiting.pop()()
    broker.clock.advance(0.5)
    assert len(broker.looked_at) == 3
    broker.clock.advance(0.25)
    assert len(broker.looked_at) == 4
    # Even after a slow check, the next one is soon, and others do not wait for it.
    broker.clock.advance(2.0)
    broker.waiting.pop()()
    stranger = broker.connect("carol", "right", "203.0.113.1")
    broker.waiting.pop()()
    assert stranger.version
    assert not broker.waiting
    broker.clock.advance(1.0)
    assert len(broker.looked_at) == 6


def test_while_most_strangers_are_wrong_all_are_looked_at_as_guesses_are() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=10, forgiven_after_s=1000)
    broker.connect("dave", "right", "192.0.2.200")
    broker.waiting.pop()()
    for number in range(20):
        broker.connect("alice", "a guess", f"203.0.113.{number}")
    assert len(broker.waiting) == 20
    while broker.waiting:
        broker.waiting.pop()()
    # Another address for each passcode, so no single count is high.
    for number in range(50, 60):
        broker.connect("alice", "a guess", f"203.0.113.{number}")
    assert len(broker.waiting) == 1
    broker.clock.advance(0.25)
    broker.waiting.pop()()
    broker.clock.advance(0.5)
    assert not broker.waiting
    # Addresses with an earlier successful login are exempt.
    friend = broker.connect("dave", "right", "192.0.2.200")
    broker.waiting.pop()()
    assert friend.version
    broker.clock.advance(0.25)
    assert len(broker.waiting) == 1
    # The limit ends when most logins are right again.
    crowd = [broker.connect("bob", "right", f"192.0.2.{number}") for number in range(40)]
    while len(broker.waiting) == 1:
        broker.waiting.pop()()
    assert len(broker.waiting) > 1
    while broker.waiting:
        broker.waiting.pop()()
    assert all(client.version for client in crowd)


def test_who_had_lined_up_before_it_was_wrong_waits_with_the_others() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=3, forgiven_after_s=1000)
    others = [
        broker.connect(f"user {number}", "right", f"203.0.113.{number}") for number in range(19)
    ]
    wrong = [broker.connect("alice", f"guess {number}") for number in range(3)]
    strangers = [broker.connect("bob", "right", f"203.0.113.{number}") for number in range(50, 70)]
    # The first guess is known to be wrong by now; two of the same address wait.
    broker.clock.advance(0.25)
    broker.waiting.pop(19)()
    while broker.waiting:
        broker.waiting.pop()()
    assert all(client.version for client in (*others, *strangers))
    assert not any(client.version for client in wrong)
    for _ in range(10):
        broker.clock.advance(1.0)
        while broker.waiting:
            broker.waiting.pop()()
    assert not any(broker.authenticator._lines) and not broker.authenticator._waiting_count


def test_those_whose_time_is_over_are_not_all_seen_to_in_one_turn() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=1, forgiven_after_s=1000)
    for number in range(100):
        broker.connect("alice", f"guess {number}")
    broker.clock.advance(LOGIN_TIMEOUT_S)
    counts = []

    def others_have_their_turn() -> None:
        counts.append(broker.count(Outcome.THROTTLED))
        if broker.authenticator._waiting_count:
            broker.clock.callLater(0.0, others_have_their_turn)

    broker.waiting.pop()()
    others_have_their_turn()
    broker.clock.advance(0.0)
    assert counts == [20, 40, 60, 80, 99]


def test_who_was_there_before_does_not_wait_for_strangers() -> None:
    broker = Guesses(slowly=True)
    broker.connect("bob", "right", AWAY)
    broker.waiting.pop(0)()
    for number in range(100):
        broker.connect("alice", f"guess {number}", f"203.0.113.{number}")
    assert len(broker.waiting) == 20
    client = broker.connect("bob", "right", AWAY)
    broker.waiting.pop()()
    assert client.version


def test_a_login_whose_time_is_over_is_not_looked_at() -> None:
    broker = Guesses(slowly=True, wrong_passcodes=1, forgiven_after_s=1000)
    first, second = (broker.connect("alice", f"guess {number}") for number in range(2))
    broker.clock.advance(LOGIN_TIMEOUT_S)
    for late in map(error, (first, second)):
        assert late.headers["stompkit-code"] == "login-timeout"
        # CONNECT has come in time: the client is not to blame.
        assert late.headers["message"].startswith("the login was not checked within")
    broker.waiting.pop(0)()
    assert len(broker.looked_at) == 1


def test_what_breaks_while_it_looks_leaves_nothing_open() -> None:
    broker = Guesses(wrong_passcodes=1, forgiven_after_s=1000)

    class Breaks:
        """A checker that fails at each login."""

        def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
            """Raise an unexpected exception."""
            raise RuntimeError

    clock = cast("DomainClock", broker.clock)
    throttle = LoginLimiter(ThrottleSettings(wrong_passcodes=1))
    authenticator = LimitedAuthenticator(Breaks(), throttle, clock, login_timeout_s=10)
    answers: list[User | None] = []
    with capturedLogs() as events:
        for _ in range(3):
            authenticator.authenticate(Credentials("a", "b", "x", HOME), answers.append)
    assert answers == [None] * 3
    assert len(events) == 3


# Memory and expiry.


def test_what_is_remembered_is_bounded() -> None:
    throttle = LoginLimiter(ThrottleSettings(max_remembered=100))
    for number in range(1_000):
        for passcode, outcome in (("wrong", Outcome.WRONG), ("right", Outcome.RIGHT)):
            attempt = throttle.attempt(f"192.0.{number // 250}.{number % 250}", "alice", passcode)
            throttle.begin(attempt)
            throttle.end(attempt, outcome, float(number))
    sizes = [len(each._known) for each in (throttle._addresses, throttle._users, throttle._pairs)]
    sizes += [len(throttle._friends), len(throttle._wrong), len(throttle._open)]
    assert max(sizes) <= 100


def test_nothing_of_a_login_is_kept_that_can_be_read() -> None:
    throttle = LoginLimiter(ThrottleSettings())
    attempt = throttle.attempt(HOME, "a passcode in the wrong field", "open sesame")
    assert "sesame" not in repr(attempt) and "passcode" not in repr(attempt)
    assert throttle.attempt(HOME, "a", "bc").guess != throttle.attempt(HOME, "ab", "c").guess
    assert LoginLimiter(ThrottleSettings()).attempt(HOME, "a", "b") != throttle.attempt(
        HOME, "a", "b"
    )


def test_a_clock_that_is_set_back_locks_nobody_out_for_that_long() -> None:
    throttle = LoginLimiter(ThrottleSettings(wrong_passcodes=1, forgiven_after_s=60))
    attempt = throttle.attempt(HOME, "alice", "wrong")
    throttle.begin(attempt)
    throttle.end(attempt, Outcome.WRONG, 100_000.0)
    other = throttle.attempt(HOME, "alice", "right")
    assert throttle.wait_s(other, 50_000.0) == pytest.approx(60)
    assert throttle.wait_s(other, 50_061.0) == 0


def test_networks_that_are_none_are_told() -> None:
    with pytest.raises(SettingsError, match="exempt"):
        parse_settings('[auth.throttle]\nexempt = ["somewhere"]\n', "x.toml")


# Real processes.


def test_a_real_broker_counts_logins_and_tokens(tmp_path: Path) -> None:
    token, users, config = (tmp_path / name for name in ("token", "users", "stompkit.toml"))
    token.write_text("a-token-of-many-characters")
    users.write_text(f"alice:{hash_passcode('right', CHEAP)}\n")
    config.write_text(
        f'[auth]\ncheckers = ["stompkit:{users}"]\n'
        "[auth.throttle]\nwrong_passcodes = 2\nforgiven_after_s = 1000\n"
        "[broker]\nlogin_timeout_s = 5\n"
        f'[admin]\nendpoints = ["{LOOPBACK}"]\ntoken_file = "{token}"\n'
    )
    announce = tmp_path / "announce.json"
    (tmp_path / "run").mkdir()
    with processes(tmp_path / "run") as start:
        process = start(
            TWIST, "--endpoint", LOOPBACK, "--config", str(config), "--announce", str(announce)
        )
        [where] = announced(process, announce)
        with Client(where, "alice:right") as client:
            assert client.first.startswith(b"CONNECTED")
        for number in range(4):
            with Client(where, f"bob:guess-{number}") as client:
                assert b"not-authenticated" in client.first
        with Client(where, "bob:right") as client:
            assert b"\nmessage:login or passcode is wrong\n" in client.first
        with Client(where, "alice:right") as client:
            assert client.first.startswith(b"CONNECTED")
        process.wait_for("127.0.0.1 has sent too many wrong logins")
        [admin] = json.loads(announce.read_text())["admin"]
        ask = Asker(f"http://{admin['host']}:{admin['port']}")
        right = {"authorization": f"Bearer {token.read_text()}"}
        for _ in range(5):
            # A program that keeps using an old token locks no one out.
            assert_unauthorised(ask, "old-token")
        page = ask.request("GET", "/metrics", headers=right)
        assert page.status == 200
        text = page.body.decode()
        assert 'stompkit_logins_total{by="client",outcome="right"} 2.0' in text
        assert 'stompkit_logins_total{by="client",outcome="wrong"} 2.0' in text
        assert 'stompkit_logins_total{by="client",outcome="throttled"} 3.0' in text
        assert 'stompkit_logins_total{by="admin",outcome="wrong"} 1.0' in text
        assert 'stompkit_logins_total{by="admin",outcome="throttled"} 4.0' in text
        for number in range(2):
            assert_unauthorised(ask, f"guess-{number}")
        # However many wrong tokens have come from an address, the right one is accepted there.
        assert ask.request("GET", "/metrics", headers=right).status == 200
        process.wait_for("for the admin API was refused: its token is wrong", count=7)
        for path in ("/health", "/ready"):
            assert ask.request("GET", path).status == 200
        assert "guess" not in process.log


def assert_unauthorised(ask: Asker, token: str) -> None:
    answer = ask.request("GET", "/metrics", headers={"authorization": f"Bearer {token}"})
    assert (answer.status, answer.code) == (401, "unauthorised")
    assert answer.headers["www-authenticate"].startswith("Bearer")
