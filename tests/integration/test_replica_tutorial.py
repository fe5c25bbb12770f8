"""The tutorial of docs/howto/replication-replicas.rst, followed line by line."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stompkit.testing import RunningBroker

_GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "replication-replicas.rst"
_DEADLINE_S = 90.0


@dataclass
class Step:
    """A command on one of the laptops, and its output."""

    who: str
    command: str
    output: list[str] = field(default_factory=list)


def steps() -> list[Step]:
    """Return the steps of the guide's first section."""
    found: list[Step] = []
    section = _GUIDE.read_text("utf-8").partition("Quick start\n---")[2]
    section = section.partition("Python API\n---")[0]
    for line in section.splitlines():
        told = re.fullmatch(r"    (\w+)\$ (.*)", line)
        if told is not None:
            found.append(Step(told[1], told[2]))
        elif found and line.startswith("    "):
            found[-1].output.append(line[4:])
    return [each for each in found if each.who != "mq"]


def settings() -> str:
    """Return the file of settings of the guide."""
    lines = re.search(r"::\n\n((?:    \w+ = .*\n)+)", _GUIDE.read_text("utf-8"))
    assert lines is not None
    return re.sub("^    ", "", lines[1], flags=re.MULTILINE)


def plain(text: str) -> list[str]:
    """Return the lines of an output, with the varying parts replaced."""
    text = re.sub(r"~[0-9a-f]{8}", "~ORIGIN", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    return [line.rstrip() for line in text.rstrip().splitlines()]


class Laptops:
    """Two directories with settings, and their background processes."""

    def __init__(self, directory: Path, broker: RunningBroker) -> None:
        """Create them; nothing runs yet."""
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._places = {name: directory / name for name in ("ada", "bob")}
        for name, place in self._places.items():
            place.mkdir()
            text = settings().replace('"ada"', f'"{name}"')
            place.joinpath("notes.toml").write_text(
                text.replace("mq:61613", f"{broker.host}:{broker.port}")
            )

    def do(self, step: Step) -> str:
        """Run a command; return its output."""
        words = shlex.split(step.command)
        if words == ["kill", "%1"]:
            self.end(step.who)
            return ""
        assert words[:2] == ["stompkit", "replica"]
        command = [sys.executable, "-m", "stompkit", *words[1:]]
        if command[-1] == "&":
            self._begin(step.who, command[:-1])
            return ""
        done = subprocess.run(
            command,
            cwd=self._places[step.who],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _begin(self, who: str, command: list[str]) -> None:
        log = self._places[who] / "log"
        with log.open("w") as file:
            self._running[who] = subprocess.Popen(
                command, cwd=self._places[who], stdout=file, stderr=file, text=True
            )
        deadline = time.monotonic() + _DEADLINE_S
        while "connected to" not in log.read_text():
            assert self._running[who].poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    def end(self, who: str) -> None:
        """Terminate the background process as by ``kill``."""
        process = self._running.pop(who)
        process.send_signal(signal.SIGTERM)
        assert process.wait(_DEADLINE_S) == 0

    def close(self) -> None:
        """End all."""
        for process in self._running.values():
            process.kill()
            process.wait()


@pytest.fixture
def laptops(tmp_path: Path, stomp_broker: RunningBroker) -> Iterator[Laptops]:
    """Two laptops, and a broker that both reach."""
    both = Laptops(tmp_path, stomp_broker)
    yield both
    both.close()


@pytest.mark.matrix
def test_the_tutorial_of_two_laptops_is_as_it_says(laptops: Laptops) -> None:
    done = 0
    for step in steps():
        printed = laptops.do(step)
        assert plain(printed) == plain("\n".join(step.output)), step.command
        done += 1
    assert done > 10
