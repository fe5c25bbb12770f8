"""The commands of a session, with its subscriptions and transactions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tests.conformance.second_server.destinations import Destinations, Message, Subscription
from tests.conformance.second_server.escapes import Refusal
from tests.conformance.second_server.frames import Codec, Headers, Pairs
from tests.conformance.second_server.sending import changed_receipt, message_of


class Session:
    """Executes the frames that follow CONNECT."""

    def __init__(
        self,
        destinations: Destinations,
        codec: Codec,
        write: Callable[[bytes], None],
        later: Callable[[float, Callable[[], object]], None],
    ) -> None:
        """Create a session that writes frames by one function, and schedules calls by the other."""
        self.destinations = destinations
        self.codec = codec
        self.write, self.later = write, later
        self.switch, self.has = codec.switch, codec.has
        self.is_over = False
        #: True while an UNSUBSCRIBE is executed, for one of the switches.
        self.is_leaving = False
        self.subscriptions: dict[bytes, Subscription] = {}
        self.transactions: dict[bytes, list[Callable[[], object]]] = {}
        #: Frames whose RECEIPT is late, for one of the switches.
        self.late: list[Headers] = []
        #: Names of subscriptions and transactions, for one of the switches.
        self.used: set[bytes] = set()
        #: Frames of each transaction whose RECEIPT has to wait, for one of the switches.
        self.unanswered: dict[bytes, list[Headers]] = {}
        #: First destination of each id, for one of the switches.
        self.former: Headers = {}

    @property
    def version(self) -> bytes:
        """The version of the protocol; empty before CONNECTED."""
        return self.codec.version

    def say(self, command: bytes, headers: Pairs, body: bytes = b"") -> None:
        """Send a frame."""
        if not self.is_over:
            self.write(self.codec.encode(command, headers, body))

    def refuse(self, reason: str, receipt: bytes = b"") -> None:
        """Send ERROR."""
        body = reason.encode()
        headers = [(b"message", b"refused"), (b"content-type", b"text/plain")]
        headers += [(b"receipt-id", receipt)] if receipt else []
        self.say(b"ERROR", [*headers, (b"content-length", b"%d" % len(body))], body)

    def execute(self, command: bytes, headers: Headers, body: bytes) -> None:
        """Execute a frame, and send the requested RECEIPT."""
        method = self._METHODS.get(command)
        self.is_leaving = command == b"UNSUBSCRIBE"
        if self.ignores(command, headers):
            return
        if method is None:
            raise Refusal("no such command")
        if command == b"SEND" and self.has("confirms each SEND that it refuses"):
            try:
                method(self, headers, body)
            except Refusal:
                self.answer(headers)
                raise
        else:
            method(self, headers, body)
        if command == b"SEND" and self.has("confirms SEND a quarter of a second later"):
            self.late.append(headers)
            self.later(0.25, self.answer_late)
        elif b"transaction" in headers and self.has(
            "confirms what is in a transaction when it ends"
        ):
            self.answer_in_transaction(command, headers)
        else:
            self.answer(headers)

    def answer_late(self) -> None:
        """Send the next RECEIPT that is late."""
        if self.late:
            self.answer(self.late.pop(0))

    def ignores(self, command: bytes, headers: Headers) -> bool:
        """Return True if one of the switches ignores a frame that the server cannot execute."""
        if command not in self._METHODS:
            return self.has("ignores unknown commands")
        name = headers.get(b"transaction")
        is_end = command in (b"COMMIT", b"ABORT") and bool(name)
        if not is_end or name in self.transactions:
            return False
        if self.has("takes COMMIT and ABORT of what has not begun"):
            self.answer(headers)
            return True
        return self.has("ignores COMMIT and ABORT of what has not begun")

    def answer_in_transaction(self, command: bytes, headers: Headers) -> None:
        """Send the RECEIPTs of a transaction that ends, before that of the last frame."""
        kept = self.unanswered.setdefault(headers[b"transaction"], [])
        kept.append(headers)
        if command in (b"BEGIN", b"COMMIT", b"ABORT"):
            for each in self.unanswered.pop(headers[b"transaction"]):
                self.answer(each)

    def answer(self, headers: Headers) -> None:
        """Send the requested RECEIPT."""
        if (receipt := headers.get(b"receipt")) is not None:
            receipt = changed_receipt(receipt, self.switch)
            is_bad = self.is_leaving and self.has("sends bodies with RECEIPT of UNSUBSCRIBE")
            for _ in range(2 if self.has("sends each receipt twice") else 1):
                self.say(b"RECEIPT", [(b"receipt-id", receipt)], b"bye" if is_bad else b"")

    def end(self) -> None:
        """Requeue unacknowledged messages."""
        self.is_over = True
        if self.has("commits what is open at the end"):
            for actions in self.transactions.values():
                for action in actions:
                    action()
        for subscription in list(self.subscriptions.values()):
            self.destinations.remove(subscription)

    # Messages.

    def send(self, headers: Headers, body: bytes) -> None:
        """Handle a SEND."""
        message = message_of(self.place(headers), headers, body, self.switch)
        if message is None:
            return
        is_topic = message.destination.startswith(b"/topic/")
        if is_topic and self.has("sends to topics at once in transactions"):
            headers = {}
        self.do(headers, lambda: self.destinations.publish(message, self))

    def place(self, headers: Headers) -> bytes:
        """Return the destination of SEND or SUBSCRIBE."""
        destination = self.need(headers, b"destination")
        is_usual = re.fullmatch(rb"[\w/.-]+", destination)
        if not is_usual and self.has("refuses unusual destinations"):
            raise Refusal("the name of the destination has other signs than letters and digits")
        if destination.startswith(b"/topic/") and self.has("has no topics"):
            raise Refusal("there are no topics")
        if self.has("trims destinations"):
            destination = destination.strip()
        return destination.lower() if self.has("lowers destinations") else destination

    def need(self, headers: Headers, name: bytes) -> bytes:
        """Return the value of a required header."""
        if not headers.get(name):
            raise Refusal(f"the header {name.decode()} is missing")
        return headers[name]

    # Subscriptions.

    def subscribe(self, headers: Headers, body: bytes) -> None:
        """Create a subscription."""
        destination = self.place(headers)
        mode = headers.get(b"ack", b"auto")
        modes = (b"auto", b"client", b"client-individual")
        if mode not in modes[: 2 if self.version == b"1.0" else 3]:
            raise Refusal("no such ack mode")
        if self.has("takes client-individual for client") and mode == modes[2]:
            mode = modes[1]
        id = headers.get(b"id", b"")
        if not id and (self.version == b"1.0" or self.has("takes SUBSCRIBE without id")):
            id = destination
        if not id:
            raise Refusal("the header id is missing")
        id = self.subscription_id(id)
        if id in self.subscriptions:
            raise Refusal("there is a subscription with this id")
        here = [each for each in self.subscriptions.values() if each.destination == destination]
        if here and self.has("takes one subscription to a destination"):
            raise Refusal("there is a subscription to this destination")
        is_taken = self.destinations.is_consumed_elsewhere(destination, self)
        if is_taken and self.has("takes one consumer of a queue"):
            raise Refusal("another client subscribes to this queue")
        subscription = Subscription(self, id, destination, mode)
        self.refuse_again(b"subscription " + id)
        self.subscriptions[id] = subscription
        if self.has("keeps the destination of an id that is used again"):
            former = self.former.setdefault(id, destination)
            if former != destination:
                self.destinations.add(Subscription(self, id, former, mode))
        self.destinations.add(subscription)

    def unsubscribe(self, headers: Headers, body: bytes) -> None:
        """End a subscription."""
        id = headers.get(b"id")
        if id is None and self.version == b"1.0":
            id = self.need(headers, b"destination")
        id = None if id is None else self.subscription_id(id)
        if id is None or id not in self.subscriptions:
            raise Refusal("no such subscription")
        ended = [self.subscriptions[id]]
        if self.has("ends all subscriptions to the destination"):
            here = ended[0].destination
            ended = [each for each in self.subscriptions.values() if each.destination == here]
        for each in ended:
            del self.subscriptions[each.id]
            if self.has("acknowledges by UNSUBSCRIBE"):
                each.pending.clear()
            if not self.has("delivers after UNSUBSCRIBE"):
                self.destinations.remove(each)

    def subscription_id(self, id: bytes) -> bytes:
        """Return the id by which a subscription is known."""
        if self.has("ignores the case of subscription ids"):
            return id.lower()
        if self.has("trims ids"):
            return id.strip(b" ")
        if self.has("cuts ids at 64"):
            return id[:64]
        if self.has("normalises numbers in ids") and id.isdigit():
            return b"%d" % int(id)
        return id

    # Acknowledgements.

    def ack(self, headers: Headers, body: bytes) -> None:
        """Acknowledge a message, or all messages up to it."""
        self.answer_message(headers, self.settle)

    def nack(self, headers: Headers, body: bytes) -> None:
        """Refuse a message, or all messages up to it."""
        self.answer_message(headers, self.give_back)

    def answer_message(
        self, headers: Headers, action: Callable[[Subscription, bytes], object]
    ) -> None:
        """Run the action of ACK or NACK."""
        id = self.need(headers, b"id" if self.version == b"1.2" else b"message-id")
        name = None
        if self.version == b"1.1":
            name = self.subscription_id(self.need(headers, b"subscription"))
        holder = self.holder(id, name)
        if self.has("acknowledges outside of transactions"):
            self.transaction(headers[b"transaction"]) if b"transaction" in headers else None
            action(holder, id)
        else:
            self.do(headers, lambda: action(holder, id))

    def holder(self, id: bytes, name: bytes | None) -> Subscription:
        """Return the subscription that has delivered an unacknowledged message."""
        own = list(self.subscriptions.values())
        if self.has("acknowledges messages of other connections"):
            sessions = self.destinations.sessions
            own = [each for session in sessions for each in session.subscriptions.values()]
        holding = [each for each in own if id in each.pending and name in (None, each.id)]
        if not holding:
            raise Refusal("no such message")
        return holding[0]

    def give_back(self, holder: Subscription, id: bytes) -> None:
        """Forget messages as :meth:`settle`, or deliver them again."""
        messages = self.settle(holder, id)
        if self.has("redelivers what is refused"):
            self.destinations.give_back(holder, messages)

    def settle(self, holder: Subscription, id: bytes) -> list[Message]:
        """Forget a message, and in cumulative mode those before it; return them."""
        covered = list(holder.pending)
        is_cumulative = holder.mode == b"client"
        if self.has("takes client for client-individual"):
            is_cumulative = False
        if self.version == b"1.0" and self.has("acknowledges one by one on 1.0"):
            is_cumulative = False
        if is_cumulative:
            covered = covered[: covered.index(id) + 1] if id in covered else []
        else:
            covered = [id] if id in covered else []
        messages = [holder.pending.pop(each) for each in covered]
        everywhere = self.has("acknowledges in all subscriptions of a connection")
        wide = self.has("acknowledges in other cumulative subscriptions of a connection")
        if holder.mode == b"client" and (everywhere or wide):
            for other in self.subscriptions.values():
                if not everywhere and other.mode != b"client":
                    continue
                for each in [each for each in other.pending if int(each[1:]) < int(id[1:])]:
                    del other.pending[each]
        self.destinations.feed(holder.destination)
        self.destinations.feed_session(self)
        return messages

    # Transactions.

    def do(self, headers: Headers, action: Callable[[], object]) -> None:
        """Run an action immediately, or at COMMIT of the transaction in the headers."""
        if (name := headers.get(b"transaction")) is None:
            action()
        else:
            self.transaction(name).append(action)

    def transaction(self, name: bytes) -> list[Callable[[], object]]:
        """Return the actions of a transaction."""
        name = self.transaction_name(name)
        if name not in self.transactions:
            raise Refusal("no such transaction")
        return self.transactions[name]

    def begin(self, headers: Headers, body: bytes) -> None:
        """Begin a transaction."""
        given = self.need(headers, b"transaction")
        name = self.transaction_name(given)
        if name != given:
            self.transactions.setdefault(name, [])
            return
        is_known = name in self.transactions and not self.has("takes BEGIN twice")
        if is_known or self.is_taken(name):
            raise Refusal("there is such a transaction")
        self.refuse_again(b"transaction " + name)
        self.transactions[name] = []

    def refuse_again(self, name: bytes) -> None:
        """Refuse a name that the connection has used before, for one of the switches."""
        if name in self.used and self.has("refuses names that were used before"):
            raise Refusal("this name was used before")
        self.used.add(name)

    def transaction_name(self, name: bytes) -> bytes:
        """Return the name by which a transaction is known."""
        if self.has("ignores the case of transactions"):
            return name.lower()
        if self.has("trims transactions"):
            return name.strip(b" ")
        if self.has("cuts transactions at 32"):
            return name[:32]
        return name

    def is_taken(self, name: bytes) -> bool:
        """Return True if a name is used in any session; else reserve it. For one switch only."""
        if not self.has("has one list of transactions for all connections"):
            return False
        taken = name in self.destinations.transactions
        self.destinations.transactions.add(name)
        return taken

    def commit(self, headers: Headers, body: bytes) -> None:
        """Run the actions of a transaction."""
        actions = self.ended(self.need(headers, b"transaction"))
        for action in reversed(actions) if self.has("commits in reverse order") else actions:
            action()

    def abort(self, headers: Headers, body: bytes) -> None:
        """Drop the actions of a transaction."""
        actions = self.ended(self.need(headers, b"transaction"))
        if self.has("sends the last message of what is aborted"):
            for action in actions[-1:]:
                action()

    def ended(self, name: bytes) -> list[Callable[[], object]]:
        """Return the actions of a transaction, which ends."""
        actions = self.transaction(name)
        self.transactions = {
            n: each for n, each in self.transactions.items() if each is not actions
        }
        return actions

    # The end.

    def disconnect(self, headers: Headers, body: bytes) -> None:
        """Do nothing but what is late: the session ends afterwards."""
        while self.late:
            self.answer_late()
        if self.has("drops unacknowledged messages on DISCONNECT"):
            for subscription in self.subscriptions.values():
                subscription.pending.clear()

    _METHODS: Final = {
        b"SEND": send,
        b"SUBSCRIBE": subscribe,
        b"UNSUBSCRIBE": unsubscribe,
        b"ACK": ack,
        b"NACK": nack,
        b"BEGIN": begin,
        b"COMMIT": commit,
        b"ABORT": abort,
        b"DISCONNECT": disconnect,
    }
