"""Remove all messages from a broker."""

from __future__ import annotations

import select
import time
from typing import Final

from stompkit.frames import Frame
from tests.campaign.plan import TOPICS, all_places
from tests.campaign.recorder import Recorder
from tests.campaign.wire import Address, Wire

__all__ = ["drain"]

_TIMEOUT_S: Final = 60.0


def drain(address: Address, recorder: Recorder) -> None:
    """Read every place up to an end mark; no other client is connected."""
    for place in all_places():
        _Drain(address, recorder, place).run()


class _Drain:
    def __init__(self, address: Address, recorder: Recorder, place: str) -> None:
        self._recorder = recorder
        self._place = place
        self._topic = TOPICS.get(place, "")
        self._end = f"end {place}".encode()
        headers = {"client-id": place.split("/")[2]} if self._topic else {}
        self._wire = Wire(address, headers)
        self._is_over = False

    def run(self) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        try:
            while not self._is_over:
                self._wire.write()
                left = deadline - time.monotonic()
                assert left > 0, f"{self._place} could not be drained in {_TIMEOUT_S:g} s"
                if select.select([self._wire.socket], [], [], left)[0]:
                    self._wire.read()
                self._take()
                assert self._is_over or not self._wire.is_over, "the broker has gone"
        finally:
            self._wire.close()

    def _take(self) -> None:
        for frame in self._wire.take():
            if frame.command == "CONNECTED":
                self._begin()
            elif frame.command == "MESSAGE":
                self._message(frame)
            elif frame.command == "RECEIPT":
                # The subscription exists: a message published now comes last.
                self._mark(self._topic)
            else:
                raise AssertionError(f"{self._place} cannot be drained: {frame}")

    def _begin(self) -> None:
        headers = {"id": "0", "destination": self._topic or self._place}
        if self._topic:
            headers |= {"activemq.subscriptionName": "campaign", "receipt": "0"}
        else:
            self._mark(self._place)
        self._wire.send("SUBSCRIBE", headers)

    def _mark(self, destination: str) -> None:
        self._wire.send("SEND", {"destination": destination}, self._end)

    def _message(self, frame: Frame) -> None:
        if frame.body == self._end:
            self._is_over = True
        elif not frame.body.startswith(b"end "):
            self._recorder.drained(self._place, frame)
