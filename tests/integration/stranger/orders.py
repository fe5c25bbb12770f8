"""A typical service on stomp.py: it accepts orders, answers them and publishes events."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass

import stomp
from stomp.exception import StompException
from stomp.utils import Frame

PRICES = {"pizza": 8, "soup": 5, "crème brûlée": 6}


@dataclass(frozen=True)
class Places:
    """The address of the broker, and the destinations of the service."""

    host: str
    port: int
    orders: str
    events: str
    rejected: str
    login: str = ""
    passcode: str = ""
    vhost: str = ""
    version: str = "1.2"


def connection_to(places: Places, **options: object) -> stomp.Connection12 | stomp.Connection10:
    """Return a connection for the broker's version; it is not connected yet."""
    addresses = [(places.host, places.port)]
    if places.version == "1.0":
        return stomp.Connection10(addresses, **options)
    return stomp.Connection12(addresses, vhost=places.vhost, **options)


class Orders(stomp.ConnectionListener):
    """Answers orders until it is stopped; reconnects after its broker was down."""

    def __init__(
        self,
        places: Places,
        *,
        ack: str = "client-individual",
        in_transactions: bool = True,
        before_answer: Callable[[dict[str, object]], None] = lambda order: None,
    ) -> None:
        """Store the settings; ``before_answer`` is called with each valid order."""
        self._places = places
        self._ack = ack
        self._in_transactions = in_transactions
        self._before_answer = before_answer
        self._is_stopping = False
        self._connecting = threading.Lock()
        self._connection = self._new()

    def _new(self) -> stomp.Connection12 | stomp.Connection10:
        connection = connection_to(
            self._places,
            reconnect_attempts_max=60,
            reconnect_sleep_initial=0.05,
            reconnect_sleep_increase=0.2,
            reconnect_sleep_max=0.5,
        )
        connection.set_listener("orders", self)
        return connection

    def start(self) -> None:
        """Connect and subscribe."""
        with self._connecting:
            places, connection = self._places, self._connection
            connection.connect(places.login, places.passcode, wait=True)
            connection.subscribe(places.orders, id="orders", ack=self._ack)

    def stop(self) -> None:
        """Disconnect gracefully."""
        self._is_stopping = True
        if self._connection.is_connected():
            self._connection.disconnect()

    def die(self) -> None:
        """Close the connection abruptly."""
        self._is_stopping = True
        self._connection.transport.disconnect_socket()

    # Callbacks of stomp.py.

    def on_disconnected(self) -> None:
        """Reconnect, unless the service was stopped."""
        if not self._is_stopping:
            threading.Thread(target=self._come_back, daemon=True).start()

    def _come_back(self) -> None:
        while not self._is_stopping:
            self._connection = self._new()
            try:
                self.start()
            except (StompException, OSError):
                continue
            return

    def on_message(self, frame: Frame) -> None:
        """Answer an order."""
        connection, headers = self._connection, frame.headers
        try:
            order = json.loads(frame.body)
            price = PRICES[order["dish"]] * order.get("count", 1)
        except (ValueError, KeyError, TypeError):
            connection.send(self._places.rejected, frame.body)
            self._done(connection, headers)
            return
        self._before_answer(order)
        answer = json.dumps({"price": price}, ensure_ascii=False)
        transaction = connection.begin() if self._in_transactions else None
        within = {"transaction": transaction} if transaction else {}
        same = {"correlation-id": headers["correlation-id"]} if "correlation-id" in headers else {}
        if "reply-to" in headers:
            connection.send(headers["reply-to"], answer, headers=same, **within)
        event = json.dumps(order, ensure_ascii=False)
        connection.send(self._places.events, event, **within)
        if transaction:
            connection.commit(transaction)
        self._done(connection, headers)

    def _done(
        self, connection: stomp.Connection12 | stomp.Connection10, headers: dict[str, str]
    ) -> None:
        if self._ack != "auto":
            # Not every current broker sends the header of version 1.2.
            name = headers["message-id"]
            if isinstance(connection, stomp.Connection12):
                ids = {"id": headers.get("ack", name), "message-id": name}
                connection.send_frame("ACK", ids)
            else:
                connection.ack(name)
