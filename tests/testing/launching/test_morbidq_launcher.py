"""MorbidQ: the real one if available, and its emulation everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from stompkit.testing import BrokerError, BrokerMissingError, LaunchConfig, RunningBroker, launch
from stompkit.testing.client import StompClient
from stompkit.testing.launching.brokers.morbidq import PYTHON_VARIABLE, morbidq_python
from stompkit.testing.launching.ports import is_listening
from tests.testing.launched import LONG_S, require

#: The real one is optional: a Python 2.7 is not available where these tests may not be skipped.
KINDS = ["played"] if morbidq_python() is None else ["played", "real"]


@pytest.fixture(params=KINDS)
def morbidq(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A launched MorbidQ."""
    require("morbidq")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "played":
            patch.setenv(PYTHON_VARIABLE, "")
        with launch(LaunchConfig(name="morbidq")) as broker:
            assert broker.is_emulated is (request.param == "played")
            yield broker


def open_session(broker: RunningBroker) -> StompClient:
    """Return a client with a subscription, which is never confirmed."""
    client = broker.client()
    client.timeout_s = LONG_S
    client.subscribe(broker.queue(), receipt=False)
    return client


def test_messages_go_through_without_receipts(morbidq: RunningBroker) -> None:
    with open_session(morbidq) as client:
        assert set(client.connected) == {"session"}
        client.send(morbidq.queue(), "hello", receipt=False, headers={"receipt": "r"})
        message = client.receive()
        assert message.body == b"hello"
        assert message.headers["message-id"] == f"{morbidq.queue()}_1"
        assert message.headers["receipt"] == "r"
        assert [frame.command for frame in client.received] == ["CONNECTED", "MESSAGE"]


def test_an_acknowledgement_ends_the_connection_without_a_word(morbidq: RunningBroker) -> None:
    with open_session(morbidq) as client:
        client.send(morbidq.queue(), "hello", receipt=False)
        client.ack(client.receive(), receipt=False)
        client.wait_closed()
        assert [frame.command for frame in client.received] == ["CONNECTED", "MESSAGE"]


def test_the_log_says_which_one_it_is(morbidq: RunningBroker) -> None:
    words = "quirks of MorbidQ" if morbidq.is_emulated else "the real MorbidQ, by "
    assert words in morbidq.log.splitlines()[0]


def test_it_can_be_started_again_but_keeps_nothing(morbidq: RunningBroker) -> None:
    before = morbidq.is_emulated
    with morbidq.client() as client:
        client.send(morbidq.queue(), "lost", receipt=False)
    morbidq.restart(kill=True)
    assert morbidq.is_emulated is before
    with open_session(morbidq) as client:
        client.send(morbidq.queue(), "kept", receipt=False)
        assert client.receive().body == b"kept"
    morbidq.stop()
    assert not is_listening(morbidq.host, morbidq.port)


def test_it_takes_everybody() -> None:
    require("morbidq")
    with pytest.raises(BrokerError, match="no release can check a login"):
        launch(LaunchConfig(name="morbidq", login="joe", passcode="secret"))


def test_a_python_that_is_named_and_has_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who names one must not get another broker silently."""
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    with pytest.raises(
        BrokerMissingError, match="which is no Python with a module 'morbid'"
    ) as caught:
        launch(LaunchConfig(name="morbidq"))
    assert sys.executable in caught.value.reason
