"""The suite's command as a real process, and servers for it to test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.conformance.command import Finished, run_command
from tests.conformance.scripted import Behaviour, ScriptedServer

Suite = Callable[..., Finished]
Serve = Callable[..., ScriptedServer]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Run the command in the test's own folder: ``suite(*arguments, **environment)``."""

    def run(*arguments: object, **variables: str) -> Finished:
        return run_command(*arguments, cwd=tmp_path, **variables)

    return run


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that behave as a function says, and stop them after the test."""
    with ExitStack() as stack:

        def start(behaviour: Behaviour, host: str = "127.0.0.1") -> ScriptedServer:
            return stack.enter_context(ScriptedServer(behaviour, host))

        yield start


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    """Our broker, which keeps all the rules."""
    with launch(LaunchConfig(name="stompkit")) as running:
        yield running


@pytest.fixture(scope="session")
def mq(broker: RunningBroker) -> str:
    """Its address, as --mq takes it."""
    return f"{broker.host}:{broker.port}"
