"""Lets plain ``pytest`` run the cases, on our broker or on the one that ``--mq`` names."""

pytest_plugins = ["stompkit.conformance.plugin"]
