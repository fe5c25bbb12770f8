"""Parsers of command line values.

Each function takes the text of a value and returns its meaning. Error messages follow "argument
--mq: ".
"""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from stompkit._common.arguments import argument_type
from stompkit._common.files import describe
from stompkit._common.spelling import did_you_mean
from stompkit.conformance.report.report import check_writable
from stompkit.conformance.requirements import Level
from stompkit.conformance.run.runner import HarnessError, cases_folder
from stompkit.frames import VERSIONS, Version
from stompkit.testing import BROKERS, Place

__all__ = [
    "LEVELS",
    "addresses",
    "broker",
    "count",
    "expectations",
    "expectations_of",
    "expectations_shipped",
    "folder",
    "jobs",
    "levels",
    "port",
    "program",
    "report_file",
    "seconds",
    "template",
    "value",
    "versions",
]

#: Maximum number of jobs: more would only measure the load capacity of the target.
_MOST_JOBS = 64
_LAST_PORT = 65_535
_MOST_FUZZED = 1_000_000_000
LEVELS = ", ".join(get_args(Level))


@argument_type
def addresses(text: str) -> list[Place]:
    """Parse HOST:PORT or a URL, or several separated by commas."""
    return list(Place.all_of(value(text)))


def broker(text: str) -> str:
    """Parse the name of a broker that can be launched."""
    if text.partition(":")[0] not in BROKERS and not text.startswith("command:"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of {', '.join(BROKERS)}, and does not begin with command:"
        )
    return text


def program(text: str) -> list[str]:
    """Parse the words of a command that takes the port of a case."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    if not any("{port}" in word for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} needs {{port}}, where the program connects to")
    if shutil.which(words[0]) is None:
        raise argparse.ArgumentTypeError(f"there is no program {words[0]!r}")
    return words


def port(text: str) -> int:
    """Parse a TCP port."""
    if not text.isdecimal() or not 1 <= int(text) <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def jobs(text: str) -> int:
    """Parse the maximum number of parallel cases."""
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST_JOBS}")
    return int(text)


def count(text: str) -> int:
    """Parse a number that is at least 0."""
    if not text.isdecimal() or not text.isascii() or int(text) > _MOST_FUZZED:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {_MOST_FUZZED}")
    return int(text)


def value(text: str) -> str:
    """Parse a text that is valid as the value of a header."""
    if any(not char.isprintable() for char in text):
        # It may be the passcode: not shown.
        raise argparse.ArgumentTypeError("it holds what the value of a header cannot hold")
    return text


def template(text: str) -> str:
    """Parse a destination with one placeholder for a name."""
    if text.count("{}") != 1 or "{" in text.replace("{}", "") or "}" in text.replace("{}", ""):
        raise argparse.ArgumentTypeError(
            f"{text!r} needs one {{}} for the name, and no other brace"
        )
    return value(text)


def levels(text: str) -> tuple[Level, ...]:
    """Parse a comma-separated list of levels."""
    words = {word.strip() for word in text.upper().split(",")}
    chosen = tuple(level for level in get_args(Level) if level in words)
    unknown = words - set(chosen)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{min(unknown)!r} is not a level: {LEVELS}, comma-separated"
        )
    return chosen


def versions(text: str) -> tuple[Version, ...]:
    """Parse a comma-separated list of versions of STOMP."""
    words = {word.strip() for word in text.split(",")}
    unknown = words - set(VERSIONS)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{min(unknown)!r} is not a version: {', '.join(VERSIONS)}, comma-separated"
        )
    return tuple(version for version in VERSIONS if version in words)


def seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3_600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 to 3600")
    return seconds


def folder(text: str) -> Path:
    """Parse the path of an existing folder."""
    path = Path(text).absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder with cases")
    return path


def report_file(text: str) -> Path:
    """Parse the path of a report file, and check as far as possible that it is writable."""
    path = Path(text)
    if text == "-":
        raise argparse.ArgumentTypeError("standard output has the summary; name a file to write")
    try:
        check_writable(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{describe(error)}; name a file to write") from None
    return path


def expectations_shipped() -> dict[str, Path]:
    """Return the lists of known deviations in the suite, first of brokers and then of clients."""
    try:
        folders = [cases_folder() / name for name in ("brokers", "clients")]
    except HarnessError:
        return {}
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def expectations_of(broker: str, shipped: Mapping[str, Path]) -> Path | None:
    """Return the list of known deviations of a broker; ``None`` if there is none.

    A broker may have a version, as in ``rabbitmq:4.3.6``. The list is that of the version, of a
    shorter one (``rabbitmq-4``), or else of the broker without a version.
    """
    kind, _, version = broker.partition(":")
    numbers = version.split(".") if version else []
    while numbers:
        name = f"{kind}-{'.'.join(numbers)}"
        if name in shipped:
            return shipped[name]
        numbers.pop()
    return shipped.get(kind)


def expectations(text: str) -> Path:
    """Parse a list of known deviations: a file, or the name of one in the suite."""
    shipped = expectations_shipped()
    found = expectations_of(text, shipped)
    if found is not None:
        return found
    path = Path(text)
    if not path.is_file():
        known = did_you_mean(text, list(shipped)) or f": {', '.join(shipped) or 'none'}"
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a file nor one of those that come with the suite{known}"
        )
    return path
