"""A client as a part of a Twisted application."""

from __future__ import annotations

from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from stompkit.client._client import Client
from stompkit.client._errors import ClientClosed

__all__ = ["StompService"]

_log: Final = Logger()


class StompService(Service):
    """Connects its client when the application starts, and disconnects it when that stops."""

    def __init__(self, client: Client) -> None:
        """Do nothing yet."""
        self.client: Final = client

    def startService(self) -> None:
        """Connect; a client that gives up is logged."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted's
        self.client.connect().addErrback(self._failed)

    def stopService(self) -> Deferred[None]:
        """Disconnect, and fire when that is done."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted's
        return self.client.disconnect()

    def _failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, ClientClosed):
            _log.error("{client!r}: {error}", client=self.client, error=failure.value)
