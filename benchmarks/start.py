"""How long a broker takes from its launch to its first client, and what that time goes to.

A broker is started again for each round, with a store in an empty directory, by ``twistd
--nodaemon stompkit`` and by ``twist stompkit`` in turns; ``stompkit run``, whose broker is in
memory, launches one with its guard. The parts are moments since the launch, so that each has those
above it in it:

interpreter  a Python that has nothing to do can run code
imports      one that imports what the command does has done so
store        the file of the store is there
listening    the broker has announced its port
CONNECTED    a client has its answer

The first two are seen in processes of their own, before the broker's. Processor time is what the
broker's first thread has used up to CONNECTED: other work on the machine adds less to it. All are
medians. A first round, in which Python compiles what it imports, as an installation does, does not
count. To try::

    python -m benchmarks.start --rounds 3
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Final

from benchmarks._client import Client, RefusedError
from benchmarks._compiled import measure_compiled
from benchmarks._report import (
    Bound,
    Figure,
    broken,
    make_parser,
    positive,
    progress,
    report,
    unusable,
)
from stompkit.server.stores.environment import DATA_FILE, DIRECTORY

#: Longer than any start takes, in seconds.
TIMEOUT_S: Final = 60.0
#: Interval in seconds between two checks for a file.
INTERVAL_S: Final = 0.001

_TWISTD: Final = str(Path(sysconfig.get_path("scripts"), "twistd"))
_IMPORTS: Final = "twisted.internet.reactor, stompkit.server.tap"
#: The commands that take the arguments of a broker at the end, and their main modules.
COMMANDS: Final = {
    "twistd": ([sys.executable, _TWISTD, "--nodaemon"], "twisted.scripts.twistd"),
    "twist": ([sys.executable, "-m", "twisted"], "twisted.application.twist._twist"),
}
#: Prints the port of the broker that ``stompkit run`` has launched, and waits for end of input.
_TELL_PORT: Final = ["sh", "-c", 'echo "$STOMPKIT_PORT"; exec cat']

#: Seconds until each moment, and of processor time.
Moments = dict[str, float]


@contextmanager
def launched(command: list[str], directory: Path) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """Run a command; yield the process and the time of its launch. Kill it if it still runs.

    Compiled Python files are kept beside the directory, for the next process.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTHONPYCACHEPREFIX": str(directory.parent / "compiled"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with (directory / "log").open("a", encoding="utf-8") as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield process, began
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)


def line_from(pipe: IO[str] | None, directory: Path) -> str:
    """Return the first line of a command's output; raise :class:`RefusedError` if there is none."""
    assert pipe is not None  # it was requested
    line = pipe.readline()
    if not line:
        raise RefusedError(
            (directory / "log").read_text(encoding="utf-8", errors="replace")[-1_000:]
        )
    return line


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> float:
    """Return the time at which a condition holds; raise RefusedError at an end or timeout."""
    deadline = time.perf_counter() + TIMEOUT_S
    while not condition():
        if process.poll() is not None or time.perf_counter() > deadline:
            raise RefusedError(f"{' '.join(process.args)} does not start")  # type: ignore[arg-type]
        time.sleep(INTERVAL_S)
    return time.perf_counter()


def running(code: str, directory: Path) -> float:
    """Return the seconds until a Python has run some code."""
    with launched([sys.executable, "-c", f"{code}\nprint(flush=True)"], directory) as (
        child,
        began,
    ):
        line_from(child.stdout, directory)
        return time.perf_counter() - began


def connect(port: int) -> float:
    """Return the time at which a client has its CONNECTED."""
    client = Client(port).log_in()
    now = time.perf_counter()
    client.close()
    return now


def start_of(name: str, directory: Path) -> Moments:
    """Start a broker with one of the commands."""
    command, module = COMMANDS[name]
    made = {
        "interpreter": running("", directory),
        "imports": running(f"import {module}, {_IMPORTS}", directory),
    }
    announce, data = directory / "announce.json", directory / "data"
    options = ["--endpoint", "tcp:0:interface=127.0.0.1", "--announce", str(announce)]
    with launched([*command, "stompkit", *options, "--data", str(data)], directory) as (
        child,
        began,
    ):
        made["store"] = wait_for((data / DIRECTORY / DATA_FILE).exists, child) - began
        made["listening"] = wait_for(announce.exists, child) - began
        [where] = json.loads(announce.read_text(encoding="utf-8"))["endpoints"]
        made["CONNECTED"] = connect(where["port"]) - began
        # Linux, sched-stats: nanoseconds on a processor, of the first thread.
        schedule = Path(f"/proc/{child.pid}/schedstat").read_text(encoding="ascii")
        made["processor time"] = int(schedule.split()[0]) / 1e9
    return made


def start_by_run(directory: Path) -> Moments:
    """Start a broker with ``stompkit run``."""
    command = [sys.executable, "-m", "stompkit", "run", "--", *_TELL_PORT]
    with launched(command, directory) as (child, began):
        port = int(line_from(child.stdout, directory))
        return {"CONNECTED": connect(port) - began}


def measure(rounds: int) -> list[Figure]:
    """Start brokers alternately; return medians."""
    starts: dict[str, Callable[[Path], Moments]] = {
        "twistd": lambda directory: start_of("twistd", directory),
        "twist": lambda directory: start_of("twist", directory),
        "stompkit run": start_by_run,
    }
    seen: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="stompkit-start-") as directory:
        for number in range(rounds + 1):
            for name, start in starts.items():
                progress(f"round {number} of {rounds}: {name}")
                place = Path(directory, f"{name} {number}")
                place.mkdir()
                for part, seconds in start(place).items():
                    if number > 0:
                        seen.setdefault((name, part), []).append(seconds)
    return [
        Figure(
            f"{name}_{part}_s".lower().replace(" ", "_"),
            f"{name}: {part}, s",
            median(seconds),
            ",.3f",
        )
        for (name, part), seconds in seen.items()
    ]


def main() -> int:
    """Read the command line, measure and report; return the exit status."""
    parser = make_parser("start", str(__doc__))
    add = parser.add_argument
    add("--rounds", type=positive, default=11, help="starts of each kind (default: %(default)s)")
    add("--max-s", type=float, default=0.7, help="to CONNECTED, by twistd (default: %(default)s)")
    given = parser.parse_args()
    measure_compiled("benchmarks.start")
    if not Path("/proc/self/schedstat").exists():
        raise unusable("processor time is read from /proc, as Linux has it: there is none here")
    try:
        figures = measure(given.rounds)
    except (RefusedError, OSError) as error:
        raise broken(str(error)) from error
    named = {figure.name: figure for figure in figures}
    return report(parser, given.json, figures, [Bound(named["twistd_connected_s"], given.max_s)])


if __name__ == "__main__":
    sys.exit(main())
