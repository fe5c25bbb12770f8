"""The broker that tests launch: stompkit's own, with a clock and a state that tests control.

It runs in a separate process, as ``twist stompkit-test``; nothing else in :mod:`stompkit.testing`
imports it.
"""

__all__: list[str] = []
