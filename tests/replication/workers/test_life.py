"""Programs with a ``QueueReplicator``: their ends, and the remaining processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.replication.workers.callbacks import PATIENCE_S, Record, wait_for

PROGRAM = """
import signal
import sys
import threading
from pathlib import Path

from stompkit.replication.workers import QueueReplicator
from tests.replication.workers.callbacks import Gated, Record, wait_for

replicator = QueueReplicator(grace_s=0.5)


@replicator.event("t_write", workers=2, retry_s=3600.0)
def callback(key):
    return Gated(Record(Path(sys.argv[1])), Path(sys.argv[2]))(key)


def feed_later():
    # Who reads that they are fed sends a signal, which has to be heard by then.
    own = (signal.SIG_DFL, signal.default_int_handler)
    numbers = (signal.SIGTERM, signal.SIGINT)
    wait_for(lambda: all(signal.getsignal(each) not in own for each in numbers))
    replicator.feed("t_write", range(20))
    print("fed", flush=True)


def main():
    replicator.start()
    if "run" in sys.argv:
        threading.Thread(target=feed_later, daemon=True).start()
        print("unfinished:", len(replicator.run(timeout_s=60)))
        return
    replicator.feed("t_write", range(20))
    if "wait" in sys.argv:
        sys.stdin.read()


"""
GUARDED = PROGRAM + 'if __name__ == "__main__":\n    main()\n'
UNGUARDED = PROGRAM + "main()\n"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, record: Record, gate: Path) -> Iterator[Start]:
    """Start the program; it and its workers are a process group."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, text: str = GUARDED) -> subprocess.Popen[str]:
        program = tmp_path / "program.py"
        program.write_text(text)
        process = subprocess.Popen(
            [sys.executable, str(program), str(record.path), str(gate), *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    try:
        yield begin
    finally:
        for process in started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the group has ended
            process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the output of a program when it and all processes that share its output have ended."""
    return process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("to", [os.kill, os.killpg])
def test_a_signal_ends_it_when_all_is_done_be_it_for_all_processes(
    start: Start,
    record: Record,
    gate: Path,
    number: signal.Signals,
    to: Callable[[int, int], None],
) -> None:
    process = start("run")
    assert process.stdout is not None
    assert process.stdout.readline() == "fed\n"
    wait_for(lambda: len(record.workers()) == 2)
    to(process.pid, number)
    gate.touch()
    assert ended(process)[0] == "unfinished: 0\n"
    assert process.returncode == 0
    assert sorted(record.keys()) == list(range(20))


def test_killing_the_parent_ends_busy_workers(start: Start, record: Record) -> None:
    """Bug of Meepo: they survived as orphans. These callbacks block for ever."""
    process = start("wait")
    wait_for(lambda: len(record.workers()) == 2)
    process.kill()
    ended(process)


def test_killing_the_parent_ends_idle_workers(start: Start, record: Record, gate: Path) -> None:
    gate.touch()
    process = start("wait")
    wait_for(lambda: len(record.lines()) == 20)
    process.kill()
    ended(process)


def test_a_program_that_ends_without_stopping_leaves_nobody(start: Start, gate: Path) -> None:
    process = start()
    ended(process)
    assert process.returncode == 0


def test_a_program_that_every_worker_would_start_again_is_told_so(start: Start) -> None:
    process = start(text=UNGUARDED)
    _, said = ended(process)
    assert process.returncode == 1
    assert (
        said.rstrip()
        .splitlines()[-1]
        .endswith('what a program starts has to stand below `if __name__ == "__main__":`')
    )
