"""Messages read within one transaction of LMDB."""

from __future__ import annotations

from typing import Final

from stompkit.server.interfaces import StoredMessage
from stompkit.server.stores.environment import Databases, Transaction
from stompkit.server.stores.record import KEY, NUMBER, unpack_lane, unpack_message, unpack_size

__all__ = ["read_messages"]

_pack_key: Final = KEY.pack


def read_messages(
    txn: Transaction,
    databases: Databases,
    lane: int,
    after: int,
    max_messages: int,
    max_octets: int,
) -> list[StoredMessage]:
    """Return the first messages of a lane with a place above ``after``, in order."""
    found = txn.get(NUMBER.pack(lane), db=databases.lanes)
    if found is None:
        return []
    delivered_place = unpack_lane(found, lane).delivered_place
    messages: list[StoredMessage] = []
    octets = 0
    cursor = txn.cursor(databases.messages)
    more = cursor.set_range(_pack_key(lane, max(after + 1, 0)))
    while more:
        key, value = cursor.item()
        number, place = KEY.unpack(key)
        octets += unpack_size(value)
        is_enough = len(messages) >= max_messages or octets > max_octets
        if number != lane or (messages and is_enough):
            break
        deliveries = int(place <= delivered_place)
        messages.append(unpack_message(value, place, deliveries))
        more = cursor.next()
    return _marked(txn, databases, lane, messages)


def _marked(
    txn: Transaction, databases: Databases, lane: int, messages: list[StoredMessage]
) -> list[StoredMessage]:
    """Return these ordered messages with the delivery counts of their marks."""
    if not messages:
        return messages
    cursor = txn.cursor(databases.marks)
    marks: dict[int, int] = {}
    more = cursor.set_range(_pack_key(lane, messages[0].place))
    while more:
        key, value = cursor.item()
        number, place = KEY.unpack(key)
        if number != lane or place > messages[-1].place:
            break
        marks[place] = NUMBER.unpack(value)[0]
        more = cursor.next()
    if not marks:
        return messages
    return [
        message._replace(deliveries=max(message.deliveries, marks.get(message.place, 0)))
        for message in messages
    ]
