"""The conformance suite on real clients finds exactly the known deviations of each.

They are listed in ``conformance/clients/``, with a reason for each.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from stompkit.testing.plugin import settings_of
from tests.conformance.command import ROOT, environment
from tests.effort import in_matrix
from tests.integration.clients.driver import LIBRARIES, LibraryMissing

AGENTS = ROOT / "conformance" / "clients" / "agents"
LIMIT_S = 300.0
#: Timeout of a client's answer, in seconds: it shares a busy machine with other tests.
ANSWER_S = "8"


class Client(NamedTuple):
    """A client library, its agent, and the name of the list of its known deviations."""

    library: str
    agent: str
    known: str


FOREIGN = (
    in_matrix(Client("stomp.js", "stomp_js.mjs", "stompjs")),
    in_matrix(Client("Net::Stomp", "perl.pl", "perl")),
    in_matrix(Client("ruby-stomp", "ruby.rb", "ruby")),
)


def suite(agent: list[str], *arguments: str, cwd: Path) -> tuple[int, str]:
    """Run the suite on an agent, in a folder; return exit status and output."""
    command = shlex.join([*agent, "{host}", "{port}", "{case}"])
    options = ("--exec", command, "--timeout", ANSWER_S, *arguments)
    done = subprocess.run(
        [sys.executable, "-m", "stompkit.conformance", *options],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("client", FOREIGN, ids=lambda client: client.known)
def test_what_is_known_of_a_client_of_another_language_is_found(
    client: Client, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    try:
        interpreter, program = LIBRARIES[client.library].install(tmp_path)
    except LibraryMissing as missing:
        outcome = pytest.fail if settings_of(pytestconfig).missing == "fail" else pytest.skip
        outcome(f"{client.library} is not installed: {missing}")
    agent = [interpreter, str(AGENTS / client.agent)]
    # The folder where the library was installed, if needed.
    folder = Path(program).parent
    status, output = suite(agent, "--strict", "--expect", client.known, cwd=folder)
    assert status == 0, output
    assert "expected to deviate" in output, "no deviation was found at all"


@pytest.mark.matrix
@pytest.mark.parametrize("known", ["stomp-py", in_matrix("stompkit-testing")])
def test_what_is_known_of_a_client_in_python_is_found(known: str, tmp_path: Path) -> None:
    agent = [sys.executable, str(AGENTS / f"{known.replace('-', '_')}.py")]
    status, output = suite(agent, "--strict", "--expect", known, cwd=tmp_path)
    assert status == 0, output
    assert "expected to deviate" in output, "no deviation was found at all"


@pytest.mark.matrix
def test_our_client_keeps_all_the_rules(tmp_path: Path) -> None:
    agent = [sys.executable, str(AGENTS / "stompkit_client.py")]
    status, output = suite(agent, cwd=tmp_path)
    assert status == 0, output
    assert "cases, none failed" in output
    assert "UNSUPPORTED  " not in output.partition("chapter")[0]
