"""The broker that tests launch: stompkit's own, with a clock and a state that tests have a say in.

It runs in a process of its own, as ``twist stompkit-test``; nothing else of
:mod:`stompkit.testing` imports it.
"""

__all__: list[str] = []
