"""The suite's command as a real process, and servers for it to test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stompkit.conformance import Target
from stompkit.conformance.address import Address
from stompkit.conformance.peer import Recorder
from stompkit.conformance.target import Capabilities
from stompkit.frames import VERSIONS, Version
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.conformance.command import Finished, run_command
from tests.conformance.scripted import Behaviour, ScriptedServer

Suite = Callable[..., Finished]
Serve = Callable[..., ScriptedServer]
Dial = Callable[..., Target]

#: Long enough for a reply on any machine; short enough for a reply that never arrives.
PATIENT_S = 30.0
IMPATIENT_S = 0.2


@pytest.fixture(scope="session", autouse=True)
def _bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share the compiled modules of the many processes, even if this one writes none."""
    if not sys.dont_write_bytecode:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        yield


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Run the command in the folder of the test: ``suite(*arguments, **environment)``."""

    def run(*arguments: object, **variables: str) -> Finished:
        return run_command(*arguments, cwd=tmp_path, **variables)

    return run


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers that behave as a function defines, and stops them after the test."""
    with ExitStack() as stack:

        def start(behaviour: Behaviour, host: str = "127.0.0.1") -> ScriptedServer:
            return stack.enter_context(ScriptedServer(behaviour, host))

        yield start


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    """Our broker, which breaks no rule."""
    with launch(LaunchConfig(name="stompkit")) as running:
        yield running


@pytest.fixture(scope="session")
def mq(broker: RunningBroker) -> str:
    """The address of our broker, as an argument of --mq."""
    return f"{broker.host}:{broker.port}"


@pytest.fixture
def target(serve: Serve) -> Iterator[Dial]:
    """Returns a case's view of a server with this behaviour."""
    made = []
    servers = []

    def make(
        behaviour: Behaviour,
        timeout_s: float = PATIENT_S,
        version: Version = "1.2",
        case_timeout_s: float = 60.0,
        secret: str | None = None,
    ) -> Target:
        servers.append(serve(behaviour))
        address = Address(
            "127.0.0.1",
            servers[-1].port,
            timeout_s=timeout_s,
            quiet_s=IMPATIENT_S,
            case_timeout_s=case_timeout_s,
        )
        made.append(Target(address, Capabilities(VERSIONS, ""), version, Recorder(secret)))
        return made[-1]

    yield make
    # A server that does not close after its ERROR would be waited for.
    for server in servers:
        server.stop()
    for each in made:
        each.finish()
