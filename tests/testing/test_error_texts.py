"""Each error of fixtures and launchers says what happened, and which option or keyword helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stompkit.testing import BrokerError, LaunchConfig, RunningBroker, given, launch
from stompkit.testing._failover import obtain_pair
from stompkit.testing._obtaining import obtain
from stompkit.testing._settings import Option, Settings
from stompkit.testing.client import RefusedError
from tests.testing.launched import LONG_S

#: An address at which nothing needs to run: the errors come before.
GIVEN = {"mq": "127.0.0.1:1"}


def settings(**values: str) -> Settings:
    """Return the settings with these options on the command line."""

    def read(option: Option) -> tuple[str | None, str]:
        return values.get(option.name), option.flag

    return Settings.read(read)


def asked(options: dict[str, str], name: str | None = None, **fields: Any) -> None:
    """Ask for a broker, as ``stomp_broker_factory`` does."""
    obtain(settings(**options), name, **fields)


def text_of(error: type[Exception], function: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        function()
    return str(caught.value)


OPTIONS: list[tuple[dict[str, str], str]] = [
    (
        {"mq": "here"},
        "--mq: expected HOST:PORT, as in localhost:61613 or [::1]:61613, not 'here'",
    ),
    (
        {"mq": "stomps://u:p@a:1"},
        "--mq: the URL of a broker is stomps://HOST:PORT here: login and passcode are options",
    ),
    (
        {"mq_broker": "rabitmq"},
        "--mq-broker: no broker is called 'rabitmq'; known: stompkit, coilmq, activemq, artemis,"
        " rabbitmq, morbidq, and any other by its command, as in"
        " 'command:/opt/mq/bin/mq --port {port}'",
    ),
    (
        {"mq_broker": "coilmq:1"},
        "--mq-broker: 'coilmq:1': only activemq, artemis, rabbitmq can be launched in a version of"
        " your choice",
    ),
    (
        {"mq_broker": "rabbitmq:new"},
        "--mq-broker: 'rabbitmq:new': 'new' is no version; expected numbers, as in rabbitmq:4",
    ),
    (
        {"mq_queue_template": "/queue"},
        "--mq-queue-template: expected {} once, for the name, as in /queue/{}",
    ),
    ({"mq_frames": "yes"}, "--mq-frames: expected on or off, not 'yes'"),
    ({"mq_isolation": "all"}, "--mq-isolation: expected names or reset, not 'all'"),
    ({"mq_seed": "x"}, "--mq-seed: expected a whole number, not 'x'"),
    ({"mq_missing": "no"}, "--mq-missing: expected skip or fail, not 'no'"),
]


@pytest.mark.parametrize(("values", "text"), OPTIONS)
def test_a_wrong_option_is_named(values: dict[str, str], text: str) -> None:
    assert text_of(BrokerError, lambda: settings(**values)) == text


FACTORY: list[tuple[dict[str, str], dict[str, Any], type[Exception], str]] = [
    (
        {},
        {"persistant": True},
        TypeError,
        "'persistant' is no field of LaunchConfig, whose fields are the keywords of"
        " stomp_broker_factory(): did you mean persistent?",
    ),
    (
        # With a broker that runs already, a misspelt keyword is no reason to skip the test.
        GIVEN,
        {"persistant": True},
        TypeError,
        "'persistant' is no field of LaunchConfig, whose fields are the keywords of"
        " stomp_broker_factory(): did you mean persistent?",
    ),
    (
        GIVEN,
        {"persistent": True, "control": True},
        BrokerError,
        "stomp_broker_factory(control=..., persistent=...) launches a broker, and --mq gives the"
        " one at 127.0.0.1:1: leave --mq out, or use"
        ' stomp_broker_factory("stompkit", control=..., persistent=...)',
    ),
    (
        {},
        {"name": "coilmq", "control": True},
        BrokerError,
        "coilmq cannot be launched with LaunchConfig(control=...), which is for stompkit: leave it"
        " out, or choose one of these by --mq-broker or stomp_broker_factory(NAME)",
    ),
    (
        {"mq_broker": "command:/no/such/mq {port}"},
        {},
        BrokerError,
        "there is no program '/no/such/mq' on PATH: correct the command in --mq-broker or"
        " LaunchConfig(name=...)",
    ),
    (
        {"mq_login": "me"},
        {},
        BrokerError,
        "stompkit requires a passcode: give 'me' one by --mq-passcode or"
        " LaunchConfig(passcode=...)",
    ),
    (
        {"mq_broker": "morbidq", "mq_login": "me", "mq_passcode": "x"},
        {},
        BrokerError,
        "MorbidQ takes everybody, since no release can check a login: leave out --mq-login, or"
        " LaunchConfig(login=...)",
    ),
    (
        {"mq_broker": "coilmq", "mq_login": "a:b", "mq_passcode": "x"},
        {},
        BrokerError,
        "CoilMQ cannot read a header with a colon, and this login has one: choose another one by"
        " --mq-login or LaunchConfig(login=...)",
    ),
    (
        {"mq_broker": "coilmq", "mq_login": "me", "mq_passcode": "x "},
        {},
        BrokerError,
        "CoilMQ removes blanks at the ends of a header, and this passcode has some: choose another"
        " one by --mq-passcode or LaunchConfig(passcode=...)",
    ),
]


@pytest.mark.parametrize(("options", "fields", "error", "text"), FACTORY)
def test_a_broker_that_can_not_be_had_is_explained(
    options: dict[str, str], fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    assert text_of(error, lambda: asked(options, **fields)) == text


def test_nobody_at_the_address_is_told() -> None:
    assert text_of(BrokerError, lambda: asked(GIVEN)) == (
        "nothing listens at 127.0.0.1:1, where --mq (or mq, or STOMPKIT_MQ) says that a broker"
        " runs: start it, or leave the option out to have one started"
    )


def test_a_pair_that_can_not_be_had_is_explained() -> None:
    assert text_of(BrokerError, lambda: obtain_pair(settings(**GIVEN))) == (
        "stomp_failover and stomp_broker_factory.pair() need two brokers, and --mq gives one: use"
        " --mq HOST:PORT,HOST:PORT, or leave it out"
    )
    assert text_of(BrokerError, lambda: obtain_pair(settings(**GIVEN), shared=True)) == (
        "stomp_broker_factory.pair(shared=True) launches two brokers on one store, and --mq gives"
        " running ones: leave --mq out"
    )


@pytest.fixture(scope="module")
def plain() -> Iterator[RunningBroker]:
    """A broker that was launched without any option."""
    with launch(LaunchConfig(start_timeout_s=LONG_S * 5)) as running:
        yield running


RUNNING: list[tuple[Callable[[RunningBroker], object], str]] = [
    (
        lambda broker: broker.admin_url,
        "stompkit serves no admin's HTTP: that takes stompkit, launched with"
        ' LaunchConfig(admin=True), or stomp_broker_factory("stompkit", admin=True)',
    ),
    (
        lambda broker: broker.ws_url,
        "stompkit does not listen for WebSockets: ask for one with LaunchConfig(websocket=True), or"
        " stomp_broker_factory(websocket=True)",
    ),
    (
        lambda broker: broker.frames,
        "the frames of stompkit are not recorded: ask for a broker with LaunchConfig(frames=True),"
        " or given(..., frames=True)",
    ),
    (
        lambda broker: broker.clock,
        "tests cannot control stompkit: that takes stompkit, launched with"
        ' LaunchConfig(control=True), or by stomp_broker_factory("stompkit")',
    ),
]


@pytest.mark.parametrize(("use", "text"), RUNNING)
def test_what_a_broker_was_launched_without_is_named(
    plain: RunningBroker, use: Callable[[RunningBroker], object], text: str
) -> None:
    assert text_of(BrokerError, lambda: use(plain)) == text


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (RunningBroker.kill, "kill"),
        (RunningBroker.restart, "restart"),
        (RunningBroker.pause, "pause"),
        (RunningBroker.resume, "resume"),
        (RunningBroker.fill_disk, "fill the disk of"),
        (RunningBroker.free_disk, "free the disk of"),
    ],
)
def test_a_given_broker_is_not_touched(use: Callable[[RunningBroker], object], words: str) -> None:
    broker = given("127.0.0.1", 1)
    assert text_of(BrokerError, lambda: use(broker)) == (
        f"cannot {words} given at stomp://127.0.0.1:1: somebody else runs it; leave out --mq to"
        ' have a broker launched, or ask for one, as by stomp_broker_factory("stompkit")'
    )


def test_a_given_broker_is_cut_off_by_a_proxy_only() -> None:
    assert text_of(BrokerError, given("127.0.0.1", 1).cut_off) == (
        "clients cannot be cut off from given at stomp://127.0.0.1:1: somebody else runs it, and"
        " nothing is in between; given(..., frames=True) has that"
    )


def test_a_broker_that_has_ended_can_be_started_again(tmp_path: Path) -> None:
    config = LaunchConfig(directory=tmp_path, start_timeout_s=LONG_S * 5)
    with launch(config) as broker:
        broker.kill()
        assert text_of(BrokerError, broker.pause) == (
            "stompkit does not run, since it has ended or was ended: restart() starts it"
        )
    gone = (
        "stompkit has been stopped, and its files are gone: launch another one, as by"
        " stomp_broker_factory()"
    )
    assert text_of(BrokerError, broker.restart) == gone
    assert text_of(BrokerError, broker.repair) == gone


def test_a_refused_login_to_a_given_broker_names_the_options() -> None:
    config = LaunchConfig(login="me", passcode="x", start_timeout_s=LONG_S * 5)
    with launch(config) as broker, given(broker.host, broker.port) as same:
        with pytest.raises(RefusedError) as caught:
            same.client()
        assert caught.value.__notes__ == [
            "tests log in to a broker that runs already as --mq-login, --mq-passcode and --mq-vhost"
            " say, or given(..., login=..., passcode=..., vhost=...)"
        ]
        with pytest.raises(RefusedError) as caught:
            broker.client(passcode="y")
        assert not hasattr(caught.value, "__notes__")
