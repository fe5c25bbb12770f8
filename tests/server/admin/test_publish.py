"""Messages that operators send, and the times at which messages arrived."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stompkit.frames import VERSIONS, Version
from stompkit.server.admin.arrivals import Arrivals
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.client import StompClient
from stompkit.testing.launching.polling import wait_until
from tests.effort import drawn
from tests.server.admin.asking import DEADLINE_S, Asker

QUEUE = "/queue/published"
Connect = Callable[..., StompClient]


def test_a_message_reaches_the_consumer_as_it_was_given(connect: Connect, ask: Asker) -> None:
    client = connect()
    client.subscribe(QUEUE, receipt=True)
    headers = [
        ["destination", "/queue/other"],
        ["colour", "r:e\nd"],
        ["content-type", "text/plain"],
        ["colour", "second"],
    ]
    answer = ask.post("publish", destination=QUEUE, headers=headers, body="ä")
    assert answer.status == 200, answer
    message = client.receive(DEADLINE_S)
    assert message.body == "ä".encode()
    assert message.headers["message-id"] == answer.json["id"]
    assert message.headers["destination"] == QUEUE
    # Of repeated headers the first counts, as on the wire.
    assert message.headers["colour"] == "r:e\nd"
    assert message.headers["content-type"] == "text/plain"
    assert message.headers["content-length"] == "2"


def test_a_binary_body_is_given_as_base64(connect: Connect, ask: Asker) -> None:
    client = connect()
    client.subscribe("/topic/published", receipt=True)
    body = base64.b64encode(b"\xff\0").decode()
    assert ask.post("publish", destination="/topic/published", body_base64=body).status == 200
    assert client.receive(DEADLINE_S).body == b"\xff\0"


@pytest.mark.parametrize("header", ["message-id", "subscription", "ack", "receipt", "redelivered"])
def test_headers_that_only_the_broker_sets_are_left_out(
    header: str, connect: Connect, ask: Asker
) -> None:
    client = connect()
    client.subscribe(QUEUE, receipt=True, ack="client")
    ask.post("publish", destination=QUEUE, headers=[[header, "forged"]], body="x")
    assert client.receive(DEADLINE_S).headers.get(header) != "forged"


def test_expiry_and_delay_are_those_of_clients(ask: Asker) -> None:
    ask.post("publish", destination=QUEUE, headers=[["delay", "100000"]], body="x")
    [message] = ask.get("messages", name=QUEUE)["messages"]
    assert (message["state"], message["body"]) == ("delayed", "x")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"destination": "/nothing/a"}, 409, "unknown-destination"),
        ({"destination": "/temp-queue/a"}, 409, "temporary"),
        ({"destination": "/queue/" + "x" * 4_000}, 409, "bad-destination"),
        ({"destination": QUEUE, "host": "none"}, 404, "no-such-host"),
        ({"destination": QUEUE, "headers": [["delay", "soon"]]}, 409, "bad-header"),
        ({"destination": QUEUE, "headers": [["", "x"]]}, 400, "bad-body"),
        ({"destination": QUEUE, "headers": [["a", "x\0y"]]}, 400, "bad-message"),
        ({"destination": QUEUE, "headers": [["a\0b", "x"]]}, 400, "bad-message"),
        ({"destination": QUEUE, "headers": [["content-length", "9"]]}, 400, "bad-message"),
        ({"destination": QUEUE, "headers": [["content-length", "none"]]}, 400, "bad-message"),
        ({"destination": QUEUE + "\0"}, 400, "bad-body"),
        ({"destination": QUEUE, "headers": [["a", "b"]] * 101}, 400, "bad-body"),
        ({"destination": QUEUE, "body_base64": "*"}, 400, "bad-body"),
        ({"destination": QUEUE, "body": "x", "body_base64": "eA=="}, 400, "bad-body"),
        ({"destination": QUEUE, "unknown": 1}, 400, "bad-body"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    fields: dict[str, object], status: int, code: str, ask: Asker
) -> None:
    answer = ask.post("publish", **fields)
    assert (answer.status, answer.code) == (status, code), answer
    assert ask.destination(QUEUE) is None


@example(headers=[(" ", "v"), ("\r", "v")], version="1.0")
@example(headers=[("\t", "")], version="1.0")
@given(
    headers=st.lists(st.tuples(st.text(min_size=1, max_size=8), st.text(max_size=8)), max_size=4),
    version=st.sampled_from(VERSIONS),
)
@settings(
    max_examples=drawn(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_header_harms_the_frames_that_follow(
    headers: list[tuple[str, str]], version: Version, broker: RunningBroker, ask: Asker
) -> None:
    """Whatever is published, a consumer of any version can read it and the next message."""
    queue = f"/queue/harmless/{uuid4()}"
    with broker.client(version) as client:
        client.subscribe(queue, receipt=True)
        answer = ask.post("publish", destination=queue, headers=headers, body="first")
        assert answer.status == 200 or answer.code in ("bad-message", "bad-header"), answer
        last = ask.post("publish", destination=queue, body="last")
        assert last.status == 200, last
        bodies = [client.receive(DEADLINE_S).body for _ in range(1 + (answer.status == 200))]
        assert bodies == [b"first", b"last"][-len(bodies) :]


@pytest.mark.parametrize(
    ("limits", "fields"),
    [
        ("max_body_bytes = 3", {"body": "four"}),
        ("max_headers = 4", {"headers": [[f"h{each}", "x"] for each in range(5)]}),
        ("max_header_line_bytes = 100", {"headers": [["a", "x" * 100]]}),
    ],
)
def test_the_limits_are_those_for_clients(
    limits: str, fields: dict[str, object], tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"[broker.limits]\n{limits}")
    with launch(LaunchConfig(admin=True, arguments=("--config", str(file)))) as broker:
        ask = Asker(broker.admin_url)
        assert ask.post("publish", destination=QUEUE, body="x").status == 200
        answer = ask.post("publish", destination=QUEUE, **fields)
        assert (answer.status, answer.code) == (400, "bad-message"), answer


def test_a_full_queue_refuses(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[broker]\nmax_queue_messages = 1")
    arguments = ("--config", str(file))
    with launch(LaunchConfig(admin=True, arguments=arguments)) as broker:
        ask = Asker(broker.admin_url)
        assert ask.post("publish", destination=QUEUE, body="1").status == 200
        answer = ask.post("publish", destination=QUEUE, body="2")
        assert (answer.status, answer.code) == (409, "queue-full")
        assert ask.bodies(QUEUE) == ["1"]


def test_a_published_message_is_stored_before_the_answer(broker: RunningBroker, ask: Asker) -> None:
    assert ask.post("publish", destination=QUEUE, body="kept").status == 200
    broker.kill()
    broker.restart()
    assert Asker(broker.admin_url).bodies(QUEUE) == ["kept"]


# Times of arrival.


def test_messages_have_the_time_of_their_arrival(broker: RunningBroker, ask: Asker) -> None:
    before = datetime.now(UTC)
    ask.post("publish", destination=QUEUE, body="x")
    at = datetime.fromisoformat(ask.get("messages", name=QUEUE)["messages"][0]["received"])
    assert before - timedelta(seconds=2) < at < datetime.now(UTC) + timedelta(seconds=1)
    broker.kill()
    broker.restart()
    again = Asker(broker.admin_url)
    again.post("publish", destination="/queue/other", body="x")
    assert wait_until(lambda: again.get("overview")["totals"]["received"], DEADLINE_S)
    # The process that knew it is gone.
    assert again.get("messages", name=QUEUE)["messages"][0]["received"] is None


def test_arrivals_are_found_by_number() -> None:
    arrivals = Arrivals()
    assert arrivals.time_of(1) is None
    for number, now in ((10, 1.0), (10, 2.0), (25, 3.0)):
        arrivals.sample(number, now)
    assert [arrivals.time_of(number) for number in (1, 10, 11, 25, 26)] == [
        1.0,
        1.0,
        3.0,
        3.0,
        None,
    ]


def test_arrivals_use_bounded_memory_and_stay_close() -> None:
    arrivals = Arrivals()
    for second in range(1, 200_000):
        arrivals.sample(second, float(second))
    assert len(arrivals._times) <= 20_000
    for number in (1, 1_000, 150_000, 199_999):
        found = arrivals.time_of(number)
        assert found is not None
        assert number <= found
    # The newest ones are exact.
    assert arrivals.time_of(199_000) == 199_000.0
