"""Makes ``twist stompkit`` and ``twist stompkit-test`` known to Twisted, and to ``twistd``."""

from twisted.application.service import ServiceMaker

stompkit = ServiceMaker(
    "stompkit",
    "stompkit.server.tap",
    "A STOMP 1.0, 1.1 and 1.2 broker.",
    "stompkit",
)

stompkit_test = ServiceMaker(
    "stompkit-test",
    "stompkit.testing.server.tap",
    "The STOMP broker that tests launch.",
    "stompkit-test",
)
