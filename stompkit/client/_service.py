"""The client as a Twisted service."""

from __future__ import annotations

from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from stompkit.client._client import Client
from stompkit.client._errors import ClientClosedError

__all__ = ["StompService"]

_log: Final = Logger()


class StompService(Service):
    """A service that connects its client on start, and disconnects it on stop."""

    def __init__(self, client: Client) -> None:
        """Start idle."""
        self.client: Final = client

    def startService(self) -> None:
        """Connect; if the client gives up, log the error."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted's
        self.client.connect().addErrback(self._failed)

    def stopService(self) -> Deferred[None]:
        """Disconnect, and fire when the client is disconnected."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted's
        return self.client.disconnect()

    def _failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, ClientClosedError):
            _log.error("{client!r}: {error}", client=self.client, error=failure.value)
