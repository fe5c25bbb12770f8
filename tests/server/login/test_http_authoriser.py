"""Decisions of an HTTP service: a real one on loopback; every invalid reply denies."""

from __future__ import annotations

import base64
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from pytest_twisted import ensureDeferred  # type: ignore[import-untyped]  # it ships no types
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from stompkit.server.interfaces import Action, Authoriser, Credentials, Decision, Request, User
from stompkit.server.listen.tls_endpoint import TlsServer
from stompkit.server.login.http_authoriser import HttpAuthenticator, HttpAuthoriser
from stompkit.server.settings.http_service import HttpService
from tests.server.certificates import Authority
from tests.server.login.services import ended, logs_in, started

ALICE = User("alice", frozenset({"ops", "dev"}))
SECRET = "open sesame"
NO = Decision(False)
YES = Decision(True)

Test = Callable[..., Coroutine[Any, Any, None]]
#: For tests that wait for the reactor.
in_reactor: Callable[[Test], Test] = ensureDeferred


def request(
    action: Action = Action.WRITE,
    destination: str = "/queue/a",
    *,
    user: User = ALICE,
    headers: dict[str, str] | None = None,
    body: bytes = b"hello",
) -> Request:
    return Request(user, "vhost", action, destination, headers or {}, body)


def asked(authoriser: Authoriser, question: Request) -> Deferred[Decision]:
    """Return a Deferred with the decision; a second decision is an error."""
    decision: Deferred[Decision] = Deferred()
    authoriser.authorise(question, decision.callback)
    return decision


CREDENTIALS = Credentials("alice", SECRET, "vhost", "peer:1")


# Logins.


@in_reactor
async def test_a_login_is_asked_about_with_all_that_is_known() -> None:
    running = await started()
    authenticator = HttpAuthenticator(running.settings())
    running.service.answers = [{"allow": "yes", "groups": ["ops"]}, {"allow": True, "user": "al"}]
    user = await logs_in(authenticator, CREDENTIALS._replace(certificate=b"\xff\x00"))
    assert user == User("alice", frozenset({"ops"}))
    assert await logs_in(authenticator, CREDENTIALS._replace(login=None, passcode=None)) == User(
        "al"
    )
    question = {"event": "connect", "host": "vhost", "peer": "peer:1"}
    assert running.service.questions == [
        question | {"login": "alice", "passcode": SECRET, "certificate": "/wA="},
        question | {"login": None, "passcode": None},
    ]
    await ended(running, authenticator)


@in_reactor
async def test_a_login_that_is_not_allowed_is_turned_away() -> None:
    running = await started()
    authenticator = HttpAuthenticator(running.settings())
    answers: list[object] = [
        {"allow": False},
        {"allow": "no", "user": "root"},
        {"allow": True, "user": "a\nb"},
        {"allow": True, "user": "x" * 400},
        {"allow": "maybe"},
        {},
    ]
    running.service.answers = list(answers)
    for _ in answers:
        assert await logs_in(authenticator, CREDENTIALS) is None
    assert running.service.answers == []
    await ended(running, authenticator)


@in_reactor
async def test_a_login_that_is_no_text_is_turned_away_without_a_question() -> None:
    """JSON has no bytes, so frames with invalid UTF-8 cannot be sent to the service."""
    running = await started()
    authenticator = HttpAuthenticator(running.settings())
    odd = "al\udcffice"
    for credentials in (
        CREDENTIALS._replace(login=odd),
        CREDENTIALS._replace(passcode=odd),
        CREDENTIALS._replace(host=odd),
    ):
        with capturedLogs() as events:
            assert await logs_in(authenticator, credentials) is None
        assert [formatEvent(event) for event in events] == [
            "refused: a request contains bytes that are not UTF-8, as JSON requires"
        ]
    assert running.service.questions == []
    assert await logs_in(authenticator, CREDENTIALS) == User("alice")
    await ended(running, authenticator)


@in_reactor
async def test_somebody_allowed_without_a_name_is_anonymous() -> None:
    running = await started()
    authenticator = HttpAuthenticator(running.settings())
    assert await logs_in(authenticator, CREDENTIALS._replace(login=None, passcode=None)) == User()
    await ended(running, authenticator)


@in_reactor
async def test_logins_are_never_remembered() -> None:
    running = await started()
    authenticator = HttpAuthenticator(running.settings(max_age_s=60))
    running.service.answers = [{"allow": True, "max_age": 60}, {"allow": False}]
    assert await logs_in(authenticator, CREDENTIALS) == User("alice")
    assert await logs_in(authenticator, CREDENTIALS) is None
    await ended(running, authenticator)


# Actions of users.


@in_reactor
async def test_each_action_is_an_event() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings())
    for action in Action:
        assert await asked(authoriser, request(action, headers={"a": "b", "passcode": "x"})) == YES
    common = {
        "user": "alice",
        "groups": ["dev", "ops"],
        "host": "vhost",
        "destination": "/queue/a",
        "headers": {"a": "b"},
    }
    assert running.service.questions == [
        common | {"event": "create"},
        common | {"event": "subscribe"},
        common | {"event": "send", "body": "hello", "body_bytes": 5},
        common | {"event": "admin"},
    ]
    assert {headers["content-type"] for headers in running.service.headers} == {"application/json"}
    assert not any("authorization" in headers for headers in running.service.headers)
    await ended(running, authoriser)


@in_reactor
async def test_no_means_no() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings())
    running.service.answers = [{"allow": "no"}, {"allow": False, "body": "other"}]
    assert await asked(authoriser, request()) == NO
    assert await asked(authoriser, request()) == NO
    await ended(running, authoriser)


@in_reactor
async def test_a_body_that_is_not_text_travels_as_base64() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings())
    body = bytes(range(256))
    running.service.answers = [
        {"allow": True, "body_base64": base64.b64encode(body[::-1]).decode()}
    ]
    assert await asked(authoriser, request(body=body)) == Decision(True, body[::-1])
    [question] = running.service.questions
    assert base64.b64decode(question["body_base64"]) == body
    assert question["body_bytes"] == 256
    assert "body" not in question
    await ended(running, authoriser)


@in_reactor
async def test_the_service_may_replace_the_body_of_a_message_only() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings())
    running.service.answers = [{"allow": True, "body": "é"}, {"allow": True, "body": ""}]
    assert await asked(authoriser, request()) == Decision(True, "é".encode())
    assert await asked(authoriser, request()) == Decision(True, b"")
    running.service.answers = [{"allow": True, "body": "x"}]
    assert await asked(authoriser, request(Action.READ)) == YES
    await ended(running, authoriser)


@in_reactor
async def test_of_a_long_body_only_the_length_is_sent() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings(max_body_bytes=5))
    await asked(authoriser, request(body=b"12345"))
    await asked(authoriser, request(body=b"123456"))
    assert [
        (question.get("body"), question["body_bytes"]) for question in running.service.questions
    ] == [("12345", 5), (None, 6)]
    await ended(running, authoriser)


@in_reactor
async def test_what_the_service_is_not_asked_about_is_decided_without_it() -> None:
    class Denies:
        def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
            answer(NO)

    running = await started()
    settings = running.settings(events=("send",))
    alone, before = HttpAuthoriser(settings), HttpAuthoriser(settings, otherwise=Denies())
    assert await asked(alone, request(Action.READ)) == YES
    assert await asked(before, request(Action.READ)) == NO
    assert running.service.questions == []
    assert await asked(before, request(Action.WRITE)) == YES
    assert len(running.service.questions) == 1
    await ended(running, alone, before)


# Caching.


@in_reactor
async def test_an_answer_holds_as_long_as_it_says() -> None:
    running = await started()
    clock = Clock()
    authoriser = HttpAuthoriser(running.settings(), clock=clock)
    running.service.answers = [
        {"allow": True, "max_age": 10},
        {"allow": False, "max_age": 10},
        {"allow": True},
    ]
    assert await asked(authoriser, request()) == YES
    clock.advance(9.9)
    assert await asked(authoriser, request(body=b"another")) == YES
    assert len(running.service.questions) == 1
    clock.advance(0.1)
    assert await asked(authoriser, request()) == NO
    assert await asked(authoriser, request()) == NO
    assert len(running.service.questions) == 2
    clock.advance(10)
    assert await asked(authoriser, request()) == YES
    assert await asked(authoriser, request()) == YES
    assert len(running.service.questions) == 4
    await ended(running, authoriser)


@in_reactor
async def test_the_setting_holds_for_answers_that_do_not_say() -> None:
    running = await started()
    clock = Clock()
    authoriser = HttpAuthoriser(running.settings(max_age_s=5), clock=clock)
    running.service.answers = [{"allow": True}, {"allow": True, "max_age": 0}, {"allow": False}]
    assert await asked(authoriser, request()) == YES
    assert await asked(authoriser, request()) == YES
    clock.advance(5)
    assert await asked(authoriser, request()) == YES
    assert await asked(authoriser, request()) == NO
    await ended(running, authoriser)


@in_reactor
async def test_nothing_holds_for_longer_than_a_day() -> None:
    running = await started()
    clock = Clock()
    authoriser = HttpAuthoriser(running.settings(), clock=clock)
    running.service.answers = [{"allow": True, "max_age": 1e9}, {"allow": False}]
    assert await asked(authoriser, request()) == YES
    clock.advance(24 * 3600)
    assert await asked(authoriser, request()) == NO
    await ended(running, authoriser)


@in_reactor
async def test_an_answer_is_for_one_user_host_action_and_destination() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings(max_age_s=60))
    questions = [
        request(),
        request(destination="/queue/b"),
        request(Action.READ),
        request(user=User("alice")),
        request(user=User("bob", ALICE.groups)),
        request()._replace(host="other"),
    ]
    for question in questions * 2:
        await asked(authoriser, question)
    assert len(running.service.questions) == len(questions)
    await ended(running, authoriser)


@in_reactor
async def test_an_answer_with_a_body_is_for_one_message() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings(max_age_s=60))
    running.service.answers = [{"allow": True, "body": "1"}, {"allow": True, "body": "2"}]
    assert await asked(authoriser, request()) == Decision(True, b"1")
    assert await asked(authoriser, request()) == Decision(True, b"2")
    await ended(running, authoriser)


@in_reactor
async def test_the_answer_used_longest_ago_is_forgotten_first() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings(max_age_s=60, max_cached=2))
    one, two, three = (request(destination=f"/queue/{n}") for n in (1, 2, 3))
    for question in (one, two, one, three, one):
        await asked(authoriser, question)
    assert len(running.service.questions) == 3
    await asked(authoriser, two)
    assert len(running.service.questions) == 4
    await ended(running, authoriser)


# Invalid replies.


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"yes",
        b"true",
        b"[]",
        b'{"allow": true',
        b'{"allow": null}',
        b'{"allow": 1}',
        b'{"allow": "YES"}',
        b'{"allow": true, "body": 7}',
        b'{"allow": true, "body_base64": "*"}',
        b'{"allow": true, "groups": "ops"}',
        b'{"allow": true, "max_age": -1}',
        b'{"allow": true, "user": "\xff"}',
        b'{"allow": true, "x": "' + b"x" * 2_000 + b'"}',
    ],
)
@in_reactor
async def test_an_answer_that_is_none_is_a_no(answer: bytes) -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings(max_answer_bytes=2_000, max_age_s=60))
    running.service.answers = [answer]
    with capturedLogs() as events:
        assert await asked(authoriser, request()) == NO
    [line] = [formatEvent(event) for event in events if event["log_level"].name == "error"]
    assert f"requests to {running.url} fail" in line
    assert "its answer" in line
    assert "does not answer" not in line
    assert await asked(authoriser, request()) == YES
    await ended(running, authoriser)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (201, ""),
        (204, ""),
        (302, "redirections are not followed"),
        (401, "token_file"),
        (403, '{"allow": false}'),
        (404, "the path of url"),
        (500, ""),
        (503, ""),
    ],
)
@in_reactor
async def test_a_status_other_than_200_is_a_no(status: int, advice: str) -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings())
    running.service.status = status
    with capturedLogs() as events:
        assert await asked(authoriser, request()) == NO
    [line] = [formatEvent(event) for event in events if event["log_level"].name == "error"]
    assert f"it answers with status {status}" in line
    assert advice in line
    await ended(running, authoriser)


@in_reactor
async def test_a_service_that_is_not_there_is_a_no_and_the_log_says_so_once() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings())
    authenticator = HttpAuthenticator(running.settings())
    await ended(running)
    with capturedLogs() as events:
        for _ in range(3):
            assert await asked(authoriser, request()) == NO
        assert await logs_in(authenticator, CREDENTIALS) is None
    errors = [formatEvent(event) for event in events if event["log_level"].name == "error"]
    assert len(errors) == 2
    assert "ConnectionRefused" in errors[0]
    assert SECRET not in "".join(errors)


@in_reactor
async def test_the_return_of_the_service_is_logged_with_what_was_refused() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings())
    with capturedLogs() as events:
        running.service.status = 500
        assert await asked(authoriser, request()) == NO
        assert await asked(authoriser, request()) == NO
        running.service.status = 200
        assert await asked(authoriser, request()) == YES
        assert await asked(authoriser, request()) == YES
    lines = [formatEvent(event) for event in events if "login-service" in event["log_namespace"]]
    assert len(lines) == 2
    assert "answers again; 2 requests were refused" in lines[1]
    await ended(running, authoriser)


@in_reactor
async def test_a_service_that_takes_too_long_is_a_no() -> None:
    running = await started()
    clock = Clock()
    authoriser = HttpAuthoriser(running.settings(timeout_s=3), clock=clock)
    running.service.holds = True
    decision = asked(authoriser, request())
    await running.service.arrival(1)
    clock.advance(2.9)
    assert not decision.called
    gone = running.service.held[0].notifyFinish()
    with capturedLogs() as events:
        clock.advance(0.1)
        assert await decision == NO
    assert any("within 3 seconds (timeout_s" in formatEvent(event) for event in events)
    # The connection is closed, to free resources of an overloaded service.
    gone.addErrback(lambda failure: None)
    await gone
    await ended(running, authoriser)


class Stalls(Protocol):
    """Sends the beginning of a reply to each request, but never completes it."""

    def dataReceived(self, data: bytes) -> None:
        """Send half of a reply."""
        assert self.transport is not None
        self.transport.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"allow": true')
        cast("StallsFactory", self.factory).started.callback(None)

    def connectionLost(self, reason: object = None) -> None:
        """Fire the Deferred of the factory."""
        cast("StallsFactory", self.factory).lost.callback(None)


class StallsFactory(Factory):
    """Reports the start and the end of its only connection."""

    protocol = Stalls
    noisy = False

    def __init__(self) -> None:
        """Start without a connection."""
        self.started: Deferred[None] = Deferred()
        self.lost: Deferred[None] = Deferred()


@pytest.mark.parametrize("scheme", ["http", "https"])
@in_reactor
async def test_an_answer_that_does_not_end_is_a_no(scheme: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    factory = StallsFactory()
    tls = TlsServer(authority.server()) if scheme == "https" else None
    running = await started(factory, tls)
    clock = Clock()
    settings = running.settings(ca_file=str(authority.file) if tls else None)
    authoriser = HttpAuthoriser(settings, clock=clock)
    decision = asked(authoriser, request())
    await factory.started
    clock.advance(settings.timeout_s)
    assert await decision == NO
    await factory.lost
    await ended(running, authoriser)


@in_reactor
async def test_waiting_for_others_counts_as_waiting() -> None:
    running = await started()
    clock = Clock()
    authoriser = HttpAuthoriser(running.settings(timeout_s=3, max_concurrent=2), clock=clock)
    running.service.holds = True
    decisions = [asked(authoriser, request(destination=f"/queue/{n}")) for n in range(3)]
    await running.service.arrival(2)
    clock.advance(3)
    assert [await decision for decision in decisions] == [NO, NO, NO]
    assert len(running.service.questions) == 2
    await ended(running, authoriser)


@in_reactor
async def test_only_so_many_questions_are_under_way() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings(max_concurrent=2))
    running.service.holds = True
    decisions = [asked(authoriser, request(destination=f"/queue/{n}")) for n in range(3)]
    await running.service.arrival(2)
    third = running.service.arrival(3)
    running.service.holds = False
    running.service.release({"allow": True})
    await third
    running.service.release({"allow": False})
    assert sorted([await decision for decision in decisions]) == [NO, YES, YES]
    assert len(running.service.clients) == 2
    await ended(running, authoriser)


@in_reactor
async def test_one_connection_serves_many_questions() -> None:
    running = await started()
    authoriser = HttpAuthoriser(running.settings())
    for _ in range(5):
        assert await asked(authoriser, request()) == YES
    assert len(running.service.clients) == 1
    await ended(running, authoriser)


class Closes(Protocol):
    """Replies to the first request of a connection, and closes at the second."""

    answered = False

    def dataReceived(self, data: bytes) -> None:
        """Reply or close."""
        assert self.transport is not None
        cast("ClosesFactory", self.factory).requests += 1
        if self.answered:
            self.transport.loseConnection()
        else:
            self.answered = True
            body = b'{"allow": true}'
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )


class ClosesFactory(Factory):
    """Counts requests."""

    protocol = Closes
    noisy = False
    requests = 0


@in_reactor
async def test_a_question_that_an_idle_connection_swallowed_is_asked_again() -> None:
    factory = ClosesFactory()
    running = await started(factory)
    authoriser = HttpAuthoriser(running.settings())
    assert await asked(authoriser, request()) == YES
    assert await asked(authoriser, request()) == YES
    assert factory.requests == 3
    await ended(running, authoriser)


class ClosesAlways(Closes):
    """Closes at each request."""

    answered = True


@in_reactor
async def test_a_question_is_asked_no_more_than_twice() -> None:
    factory = ClosesFactory()
    factory.protocol = ClosesAlways
    running = await started(factory)
    authoriser = HttpAuthoriser(running.settings())
    assert await asked(authoriser, request()) == NO
    assert factory.requests == 2
    await ended(running, authoriser)


class WithoutLength(Protocol):
    """Replies like HTTP/1.0: the end of the connection is the end of the reply."""

    answer = b'{"allow": true}'

    def dataReceived(self, data: bytes) -> None:
        """Reply."""
        assert self.transport is not None
        self.transport.write(b"HTTP/1.0 200 OK\r\n\r\n" + self.answer)
        self.transport.loseConnection()


class HalfWithoutLength(WithoutLength):
    """The same, with an incomplete reply."""

    answer = b'{"allow": true'


@pytest.mark.parametrize(("protocol", "decision"), [(WithoutLength, YES), (HalfWithoutLength, NO)])
@in_reactor
async def test_an_answer_without_length_ends_with_its_connection(
    protocol: type[Protocol], decision: Decision
) -> None:
    running = await started(Factory.forProtocol(protocol))
    authoriser = HttpAuthoriser(running.settings())
    assert await asked(authoriser, request()) == decision
    await ended(running, authoriser)


# Trusted certificates.


@in_reactor
async def test_https_works_where_the_authority_is_known(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    running = await started(tls=TlsServer(authority.server()))
    authenticator = HttpAuthenticator(running.settings(ca_file=str(authority.file)))
    assert await logs_in(authenticator, CREDENTIALS) == User("alice")
    await ended(running, authenticator)


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [("authority", "set ca_file"), ("default", "set ca_file"), ("name", "for another name")],
)
@in_reactor
async def test_https_with_a_certificate_not_to_be_trusted_is_a_no(
    mistake: str, advice: str, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    server = authority.server("elsewhere.example" if mistake == "name" else "127.0.0.1")
    running = await started(tls=TlsServer(server))
    trusted = {"authority": str(other.file), "default": None, "name": str(authority.file)}
    authenticator = HttpAuthenticator(running.settings(ca_file=trusted[mistake]))
    with capturedLogs() as events:
        assert await logs_in(authenticator, CREDENTIALS) is None
    assert any(advice in formatEvent(event) for event in events)
    assert running.service.questions == []
    await ended(running, authenticator)


@in_reactor
async def test_the_token_is_sent_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc\n")
    running = await started()
    settings = running.settings(token_file=str(path))
    authoriser = HttpAuthoriser(settings)
    assert await asked(authoriser, request()) == YES
    assert running.service.headers[0]["authorization"] == "Bearer abc"
    assert "abc" not in repr(settings)
    path.write_text("changed\n")
    assert await asked(authoriser, request()) == YES
    assert running.service.headers[1]["authorization"] == "Bearer changed"
    await ended(running, authoriser)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "ftp://localhost/"}, "no http or https URL"),
        ({"url": "localhost:80"}, "no http or https URL"),
        ({"url": "http://"}, "no http or https URL"),
        ({"url": "http://localhost:x/"}, "cannot be read"),
        ({"url": "http://[::1/"}, "cannot be read"),
        ({"url": "http://localhost/é"}, "cannot be read"),
        ({"url": "http://me@localhost/"}, "no user"),
        ({"url": "http://localhost/#x"}, "no fragment"),
        ({"url": "http://decide.example/"}, "to decide.example in clear"),
        ({"url": "http://192.0.2.1/"}, "to 192.0.2.1 in clear"),
        ({"url": "https://localhost/", "ca_file": "nowhere"}, "nowhere"),
        ({"url": "https://localhost/", "ca_file": __file__}, "no certificates"),
        ({"url": "http://localhost/", "token_file": "nowhere"}, "nowhere"),
    ],
)
def test_a_mistaken_setting_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        HttpAuthoriser(HttpService(**settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://localhost/"},
        {"url": "http://127.1.2.3:80/x?y"},
        {"url": "http://[::1]/"},
        {"url": "HTTPS://decide.example/"},
        {"url": "http://decide.example/", "allow_plain_text": True},
    ],
)
def test_questions_may_go_to_this_machine_in_clear_and_elsewhere_by_tls(
    settings: dict[str, Any],
) -> None:
    HttpAuthenticator(HttpService(**settings))
