"""Makes ``twistd stompkit`` and ``twist stompkit`` known to Twisted."""

from twisted.application.service import ServiceMaker

stompkit = ServiceMaker(
    "stompkit",
    "stompkit.server.tap",
    "A STOMP 1.0, 1.1 and 1.2 broker.",
    "stompkit",
)
