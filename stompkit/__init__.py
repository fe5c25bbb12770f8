"""stompkit: codecs, a broker, a test harness and a conformance suite for STOMP."""

from stompkit._common.moved import moved
from stompkit._pure import force_if_asked, is_compiled

__all__ = ["__version__", "is_compiled"]

__version__ = "1.0.0"

force_if_asked()

moved(__name__, {"link": "stompkit.client.blocking"})
