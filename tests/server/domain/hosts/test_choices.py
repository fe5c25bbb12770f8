"""A message is stored for all durable subscriptions at once, even if their selectors are slow.

The sender gets no receipt earlier, and no other client waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.server.interfaces import Operation, Put
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import publish_all, refusal
from tests.server.busy import LONG, BusyClock, is_served, iterate, iterations, receipts
from tests.server.failing import FailingStore

TOPIC = "/topic/t.a"
QUEUE = "/queue/a"


class Kept:
    """A broker with a store, and a record of copies that were stored together."""

    def __init__(self) -> None:
        """Start with one client, which must be served all the time."""
        store = FailingStore()
        store.fails = self._note
        self.clock = BusyClock()
        self.broker = MemoryBroker(clock=self.clock, store=store)
        self.other = self.broker.client()
        #: Bodies of the messages in each call of the store.
        self.together: list[Counter[bytes]] = []

    def _note(self, operations: Sequence[Operation]) -> bool:
        bodies = Counter(each.body for each in operations if isinstance(each, Put))
        if bodies:
            self.together.append(bodies)
        return False

    def durable(self, number: int, selector: str = "", topic: str = TOPIC) -> None:
        """Create a durable subscription, and disconnect."""
        client = self.broker.client()
        headers = {"selector": selector} if selector else {}
        client.subscribe(topic, id=f"d{number}", durable="true", **headers)
        assert refusal(client) is None
        client.close()

    def forget(self, number: int) -> None:
        """Remove a durable subscription."""
        client = self.broker.client()
        client.send("UNSUBSCRIBE", id=f"d{number}", durable="true")
        client.close()

    def until_receipted(self, client: MemoryClient) -> int:
        """Run iterations until a client has a receipt, while another client is served in each."""

        def is_over() -> bool:
            assert is_served(self.other)
            if receipts(client):
                return True
            # Before the receipt, no copy may be stored.
            assert self.together == []
            return False

        return iterations(self.clock, is_over)


@pytest.fixture
def kept() -> Kept:
    """A broker with thirty durable subscriptions with slow selectors, and three without."""
    made = Kept()
    for number in range(30):
        made.durable(number, LONG, "/topic/t.>" if number % 10 == 0 else TOPIC)
    for number in range(30, 33):
        made.durable(number)
    made.clock.is_busy = True
    return made


def test_a_receipt_comes_once_all_durable_subscriptions_have_their_copies(kept: Kept) -> None:
    sender = kept.broker.client()
    sender.publish(TOPIC, b"for all", n="1050", receipt="r")
    assert kept.until_receipted(sender) > 1
    assert kept.together == [{b"for all": 33}]
    sender.publish(TOPIC, b"for few", n="1", receipt="r")
    kept.together.clear()
    kept.until_receipted(sender)
    assert kept.together == [{b"for few": 3}]


def test_a_delay_that_has_passed_at_commit_is_no_reason_not_to_ask(kept: Kept) -> None:
    sender = kept.broker.client()
    sender.send("BEGIN", transaction="t")
    sender.publish(TOPIC, b"for all", n="1050", transaction="t", delay="1000")
    kept.clock.advance(1.0)
    sender.send("COMMIT", transaction="t", receipt="r")
    assert kept.until_receipted(sender) > 1
    assert kept.together == [{b"for all": 33}]


def test_a_topic_that_is_made_by_the_message_is_no_exception(kept: Kept) -> None:
    for number in range(40, 60):
        kept.durable(number, LONG, "/topic/t.new.*")
    sender = kept.broker.client()
    sender.publish("/topic/t.new.one", b"x", n="1050", receipt="r")
    assert kept.until_receipted(sender) > 1
    assert kept.together == [{b"x": 23}]


def test_what_a_transaction_sends_is_kept_as_a_whole(kept: Kept) -> None:
    sender = kept.broker.client()
    sender.send("BEGIN", transaction="t")
    for number in range(3):
        sender.publish(TOPIC, b"%d" % number, n="1050", transaction="t")
    for number in range(50):
        sender.publish(f"/queue/{number}", b"q", transaction="t")
    sender.send("COMMIT", transaction="t", receipt="r")
    assert kept.until_receipted(sender) > 1
    assert kept.together == [{b"0": 33, b"1": 33, b"2": 33, b"q": 50}]


@pytest.mark.parametrize("command", ["SEND", "COMMIT"])
def test_a_sender_that_leaves_meanwhile_has_sent_nothing(kept: Kept, command: str) -> None:
    sender = kept.broker.client()
    if command == "SEND":
        sender.publish(TOPIC, b"x", n="1050")
    else:
        sender.send("BEGIN", transaction="t")
        for number in range(100):
            sender.publish(f"/topic/t.{number}", b"x", n="1050", transaction="t")
        sender.send("COMMIT", transaction="t")
    iterate(kept.clock)
    sender.drop()
    for _ in range(100):
        iterate(kept.clock)
    assert kept.together == []
    assert kept.broker.destinations.keys() == {TOPIC}


def test_a_short_message_does_not_wait_for_a_long_transaction(kept: Kept) -> None:
    long, short = kept.broker.client(), kept.broker.client()
    long.send("BEGIN", transaction="t")
    for _ in range(100):
        long.publish(TOPIC, b"x", n="1050", transaction="t")
    long.send("COMMIT", transaction="t", receipt="r")
    short.publish(TOPIC, b"short", n="1050", receipt="r")
    kept.until_receipted(short)
    assert receipts(long) == []
    iterations(kept.clock, lambda: receipts(long))


def test_consumers_with_selectors_are_served_while_senders_wait(kept: Kept) -> None:
    kept.clock.is_busy = False
    publish_all(kept.other, QUEUE, [b"x"] * 50, n="1")
    kept.other.publish(QUEUE, b"found", n="1050")
    senders = [kept.broker.client() for _ in range(5)]
    kept.clock.is_busy = True
    for sender in senders:
        for _ in range(100):
            sender.publish(TOPIC, b"", n="1050", receipt="r")
    reader = kept.broker.client()
    reader.subscribe(QUEUE, selector=LONG)
    iterations(kept.clock, lambda: b"found" in reader.bodies())
    assert len(receipts(senders[0])) < 100


def test_those_that_begin_and_end_meanwhile_are_reckoned_with(kept: Kept) -> None:
    sender = kept.broker.client()
    sender.publish(TOPIC, b"x", n="1050", receipt="r")
    iterate(kept.clock)
    assert receipts(sender) == []
    kept.durable(50, "n > 1000")
    kept.forget(0)
    kept.forget(29)
    assert kept.until_receipted(sender) > 1
    assert kept.together == [{b"x": 32}]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 1), st.sampled_from([1, 1_050])),
        st.tuples(st.just("commit"), st.integers(0, 1), st.integers(1, 4)),
        st.tuples(st.just("begin"), st.integers(0, 7), st.sampled_from(["", "n > 9", LONG])),
        st.tuples(st.just("end"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("iterate"), st.integers(1, 5), st.just(0)),
    ),
    max_size=30,
)


@given(st.lists(st.sampled_from(["", "n > 9", LONG, LONG]), min_size=8, max_size=8), ACTIONS)
def test_copies_of_a_message_are_never_kept_apart(
    selectors: list[str], actions: list[tuple[str, int, int | str]]
) -> None:
    kept = Kept()
    durables = dict(enumerate(selectors))
    for number, selector in durables.items():
        kept.durable(number, selector)
    senders = [kept.broker.client() for _ in range(2)]
    kept.clock.is_busy = True
    waiting: dict[str, list[bytes]] = {}
    #: Subscriptions that must get a message, and those that may, by its body.
    least: dict[bytes, set[int]] = {}
    most: dict[bytes, set[int]] = {}

    def is_for(selector: str, body: bytes) -> bool:
        return not selector or body.endswith(b"1050")

    def sent(body: bytes) -> None:
        least[body] = {each for each, how in durables.items() if is_for(how, body)}
        most[body] = set(least[body])

    def look() -> None:
        for client in senders:
            for receipt in receipts(client):
                for body in waiting.pop(receipt):
                    found = [each[body] for each in kept.together if body in each]
                    assert len(found) <= 1, "it is kept in parts"
                    assert len(least.pop(body)) <= sum(found) <= len(most[body])

    for number, (action, which, how) in enumerate(actions):
        if action == "send":
            body = f"{number}/{how}".encode()
            sent(body)
            waiting[f"r{number}"] = [body]
            senders[which].publish(TOPIC, body, n=str(how), receipt=f"r{number}")
        elif action == "commit":
            bodies = [b"%d/%d/1050" % (number, each) for each in range(int(how))]
            senders[which].send("BEGIN", transaction=f"t{number}")
            for body in bodies:
                sent(body)
                senders[which].publish(TOPIC, body, n="1050", transaction=f"t{number}")
            waiting[f"r{number}"] = bodies
            senders[which].send("COMMIT", transaction=f"t{number}", receipt=f"r{number}")
        elif action == "begin" and which not in durables:
            look()
            durables[which] = str(how)
            kept.durable(which, str(how))
            # An earlier subscription may have had the same number.
            for body in least:
                if is_for(str(how), body):
                    most[body].add(number + 100)
        elif action == "end" and which in durables:
            look()
            del durables[which]
            kept.forget(which)
            for body in least:
                least[body].discard(which)
        elif action == "iterate":
            for _ in range(which):
                iterate(kept.clock)
        look()

    def is_over() -> bool:
        look()
        return not waiting

    iterations(kept.clock, is_over)
    assert all(refusal(each) is None for each in senders)
