"""stompkit: codecs, a broker, a test harness and a conformance suite for STOMP."""

__version__ = "0.1.0"
