"""Brokers can be launched with any valid login and passcode, or report that it is invalid."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from stompkit.testing import BrokerError, BrokerStartError, LaunchConfig, launch
from stompkit.testing.launching.launch import launch_with
from tests.effort import in_matrix
from tests.testing.launched import ANSWERING, Scripted, require


@dataclass(frozen=True)
class User:
    """The user to log in, and the reasons why some brokers refuse it."""

    login: str
    passcode: str
    problems: tuple[tuple[str, str], ...] = ()

    def problem(self, broker: str) -> str:
        """Return the beginning of the reason for a broker, if there is one."""
        return dict(self.problems).get(broker, "")


COLON = (("coilmq", "CoilMQ cannot read a header with a colon"),)
BLANKS = (
    ("activemq", "ActiveMQ removes blanks at the ends of a header"),
    ("artemis", "Artemis removes blanks at the ends of a header"),
    ("coilmq", "CoilMQ removes blanks at the ends of a header"),
)
USERS = [
    User("me", "a:b", COLON),
    User("a:b", "x", COLON),
    User("#me", "#x"),
    User("me", "%(home)s 100% $HOME ${x} {login} #{'1'}"),
    User("me", "a\"b'c&<>"),
    User("me", "a\\d", (("rabbitmq", "RabbitMQ decodes escapes in CONNECT"),)),
    User(
        "a\\\\d",
        "x",
        (
            ("activemq", "ActiveMQ decodes escapes in CONNECT"),
            ("rabbitmq", "RabbitMQ decodes escapes in CONNECT"),
        ),
    ),
    User("\u00fc", "\u00fc\u20ac"),
    User("me", "x\ty"),
    User(" me ", "x", BLANKS),
    User("me", " pad ", BLANKS),
    User("me", "x\t", BLANKS),
    User("me", "", (("rabbitmq", "RabbitMQ requires a passcode"),)),
]


@pytest.mark.parametrize("user", USERS, ids=[f"{each.login}/{each.passcode}" for each in USERS])
@pytest.mark.parametrize(
    "name",
    ["stompkit", "coilmq", in_matrix("activemq"), in_matrix("artemis"), in_matrix("rabbitmq")],
)
def test_user_can_log_in(name: str, user: User) -> None:
    """An unsupported user is refused immediately."""
    config = LaunchConfig(
        name=require(name),
        login=user.login,
        passcode=user.passcode,
        # On a busy machine a Java or Erlang virtual machine starts slowly.
        start_timeout_s=120.0,
    )
    problem = user.problem(name)
    if not problem:
        with launch(config) as broker, broker.client() as client:
            client.send("/queue/a", "x")
        return
    with pytest.raises(BrokerError) as caught:
        launch(config)
    assert str(caught.value).startswith(problem)


def test_refused_login_is_blamed() -> None:
    """An ERROR as the answer to CONNECT is reported early, and not as a slow start."""
    refusing = Scripted(ANSWERING, "ERROR\nmessage:Access refused\n\n")
    with pytest.raises(BrokerStartError) as caught:
        launch_with(refusing, LaunchConfig(name="refusing", login="me", passcode="x"))
    assert_blames_login(caught.value, "me")
    with pytest.raises(BrokerStartError) as caught:
        launch_with(refusing, LaunchConfig(name="refusing"))
    assert "it may not take everybody" in str(caught.value)


def assert_blames_login(error: BrokerError, login: str) -> None:
    """Check that the remedy is another login, and not more time."""
    assert isinstance(error, BrokerStartError)
    [remedy] = error.attempt.remedies
    assert f"can have the login {login!r}" in remedy
    assert "it answered CONNECT with ERROR" in str(error)


def test_a_broker_that_checks_logins_says_which_options_give_one() -> None:
    with pytest.raises(BrokerStartError) as caught:
        launch(LaunchConfig(arguments=("--auth", "memory:me:secret")))
    for message in (str(caught.value), caught.value.for_command()):
        assert "give one that it accepts by --mq-login and --mq-passcode" in message
        [refused] = [line for line in message.splitlines() if "not-authenticated" in line]
        assert re.search(r"\(\d+ similar lines\)", message), refused


def test_a_file_of_settings_that_prevents_a_start_says_how_to_test_with_it() -> None:
    with pytest.raises(BrokerStartError) as caught:
        launch(LaunchConfig(arguments=("--config=nosuch.toml",)))
    for message in (str(caught.value), caught.value.for_command()):
        assert "to test with the settings of a file, use --mq-config" in message
