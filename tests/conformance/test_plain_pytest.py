"""The folder of cases under plain pytest, as an author of cases runs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stompkit.testing import RunningBroker
from tests.conformance.broken_messages import no_content_length, send_needs_no_destination
from tests.conformance.command import BOUND_S, ROOT, environment
from tests.conformance.conftest import Serve
from tests.conformance.proxy import Fault, behind
from tests.conformance.scripted import Line


def run_pytest(path: str, *arguments: str) -> tuple[int, str]:
    """Return exit status and output of pytest with the plug-in loaded."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", path, "-p", "stompkit.testing.plugin"),
            *("-p", "no:cacheprovider", "-rsxf", *arguments),
        ],
        cwd=ROOT,
        env=environment(COLUMNS="200"),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_broker_is_started() -> None:
    status, out = run_pytest("conformance", "-k", "test_connect_is_answered or test_begin")
    assert status == 0, out
    assert "9 passed" in out, out


@pytest.mark.parametrize(
    ("fault", "chosen", "status", "told"),
    [
        (
            send_needs_no_destination,
            "test_send_needs_destination and 1.2",
            1,
            "the frame was accepted: RECEIPT with",
        ),
        (
            no_content_length,
            "test_message_has_content_length and 1.2",
            0,
            "MESSAGE with a body has no content-length",
        ),
    ],
)
def test_verdicts_in_the_words_of_pytest(
    fault: type[Fault],
    chosen: str,
    status: int,
    told: str,
    serve: Serve,
    broker: RunningBroker,
) -> None:
    """FAILED is a failure, NON-STRICT is an expected one."""
    server = serve(behind(fault, broker.host, broker.port))
    got, out = run_pytest("conformance/v1_0/test_send.py", "--mq", server.address, "-k", chosen)
    assert got == status, out
    assert told in out
    assert ("1 failed" if status else "1 xfailed") in out, out


def test_version_that_is_missing_is_skipped(serve: Serve) -> None:
    def old(line: Line) -> None:
        _, headers = line.frame()
        old_enough = "1.0" in headers.get("accept-version", "1.0")
        line.send(b"CONNECTED\nsession:1\n\n\0" if old_enough else b"ERROR\n\n\0")

    path = "conformance/v1_0/test_connecting.py"
    chosen = "test_sessions_differ and not 1.0"
    status, out = run_pytest(path, "--mq", serve(old).address, "-k", chosen)
    assert status == 0, out
    assert "2 skipped" in out
    assert "the target does not speak STOMP 1.2" in out


def test_target_that_speaks_no_stomp_ends_the_run(serve: Serve) -> None:
    """The run ends with one line, instead of an error for each case."""
    server = serve(lambda line: line.close())
    status, out = run_pytest("conformance/v1_0/test_send.py", "--mq", server.address)
    assert status == 3, out
    assert f"no STOMP server at {server.address}: it closes the connection" in out
    assert "ERROR at setup" not in out
