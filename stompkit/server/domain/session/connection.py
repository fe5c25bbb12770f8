"""One client of the broker that speaks STOMP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

from mypy_extensions import mypyc_attr

from stompkit.frames import Frame
from stompkit.server.domain.session.client_session import ClientSession
from stompkit.server.domain.session.handlers import HANDLERS

__all__ = ["Connection", "Handler"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(ClientSession):
    """Translates frames of one client into calls of the broker, and replies to it."""

    #: Handlers by command. A subclass can define its own table, for :class:`BrokerFactory` to use
    #: in place of this class.
    handlers: ClassVar[Mapping[str, Handler]] = HANDLERS


#: Handler of the frames of one command; raises :class:`RefusedError` if it fails.
Handler: TypeAlias = Callable[[Connection, Frame], None]
