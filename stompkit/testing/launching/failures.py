"""Errors about brokers that do not start: the causes, with their remedies."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stompkit._common.files import LockedError, reason_of
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BY_HAND, Attempt, BrokerStartError, describe_exit
from stompkit.testing.launching.ports import is_taken
from stompkit.testing.launching.processes.process import GuardedProcess
from stompkit.testing.launching.readiness import Readiness

__all__ = ["check_port", "explained", "not_ready", "port_was_taken", "unlistenable"]

#: Remedies for errors of the system that prevent a broker from running.
_REMEDIES: Final = {
    errno.EMFILE: "raise the limit of open files (ulimit -n), or close what tests have left open",
    errno.ENFILE: "close files: all processes of this machine together have too many open",
    errno.ENOSPC: "make room there, or name another place by TMPDIR or LaunchConfig(directory=...)",
    errno.EDQUOT: "make room there, or name another place by TMPDIR or LaunchConfig(directory=...)",
    errno.EACCES: "name a place that you can write to, by TMPDIR or LaunchConfig(directory=...)",
    errno.EROFS: "name a place that you can write to, by TMPDIR or LaunchConfig(directory=...)",
    errno.ENOENT: "name a place that there is, by TMPDIR or LaunchConfig(directory=...)",
    errno.ENAMETOOLONG: "name a shorter place, by TMPDIR or LaunchConfig(directory=...)",
    errno.EADDRNOTAVAIL: "name an address of this machine: LaunchConfig(host=...)",
    errno.EAFNOSUPPORT: "name an address of this machine: LaunchConfig(host=...)",
}
_PORT_TAKEN: Final = re.compile(r"eaddrinuse|address already in use|BindException", re.IGNORECASE)
_NO_DESCRIPTORS: Final = re.compile(r"\bemfile\b|too many open files", re.IGNORECASE)
_MORE_TIME: Final = "give a slow machine more time: LaunchConfig(start_timeout_s=...)"
_PLAIN_FOLDER: Final = (
    "name a folder whose path is UTF-8 without tabs or line ends, by TMPDIR or"
    " LaunchConfig(directory=...)"
)
_OWN_DIRECTORY: Final = (
    "stop that broker first, or name another folder by LaunchConfig(directory=...): one for each"
    " broker, and for each worker of pytest-xdist"
)
_ANY_PORT: Final = "leave the port out (or make it 0) to have a free one chosen"


def check_port(config: LaunchConfig) -> None:
    """Raise BrokerStartError if the configured port, or any port, is unavailable."""
    try:
        is_in_use = is_taken(config.host, config.port)
    except OSError as error:
        raise unlistenable(config, error) from error
    if is_in_use:
        raise _not_run(config, f"{_where(config)} is in use", _ANY_PORT)


def unlistenable(config: LaunchConfig, error: OSError) -> BrokerStartError:
    """Return the error about an address that a broker cannot listen on."""
    remedy = _REMEDIES.get(error.errno or 0, _ANY_PORT)
    return _not_run(config, f"{_where(config)} cannot be listened on ({reason_of(error)})", remedy)


def _where(config: LaunchConfig) -> str:
    return f"{config.host} port {config.port}" if config.port else config.host


def _not_run(config: LaunchConfig, problem: str, remedy: str) -> BrokerStartError:
    return BrokerStartError(
        Attempt(config.name, f"was not run: {problem}", remedies=[remedy] if remedy else [])
    )


@contextmanager
def explained(config: LaunchConfig) -> Iterator[None]:
    """Add the remedy to an error of the system that prevents a broker from running."""
    try:
        yield
    except LockedError as said:
        problem = f"{said.holder} runs a broker in {said.path.parent}"
        raise _not_run(config, problem, _OWN_DIRECTORY) from said
    except UnicodeEncodeError as said:
        problem = "it cannot be configured, since the name of its folder is not UTF-8"
        raise _not_run(config, problem, _PLAIN_FOLDER) from said
    except OSError as said:
        error = _lack_of_descriptors() or said
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise _not_run(config, str(error), remedy) from said


def _lack_of_descriptors() -> OSError | None:
    """Return why no file can be opened; ``None`` if one can. The library may hide the reason."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error
    return None


def port_was_taken(error: BrokerStartError) -> bool:
    """Return True if the broker did not start because its port was in use."""
    return _PORT_TAKEN.search(error.attempt.log) is not None


def not_ready(
    config: LaunchConfig, process: GuardedProcess, log_path: Path, waited_s: float, wait: Readiness
) -> BrokerStartError:
    """Kill a broker that is not ready, and return the error that explains why it is not."""
    status = process.status()
    process.kill()
    log = process.log()
    if status is None:
        problem = f"was not ready after {waited_s:.1f} s: it {wait.last}"
        remedies = [_remedy_of_refusal(config.login) if wait.is_refused else _MORE_TIME]
        if _is_odd(log_path):
            remedies.insert(0, _PLAIN_FOLDER)
    else:
        problem = f"ended after {waited_s:.1f} s with {describe_exit(status)}"
        if status == os.EX_USAGE:
            said = next((line for line in log.splitlines() if line.startswith("Error: ")), "")
            problem += f" ({said or 'wrong usage'})"
            if said:
                # The line of twist is the reason. The rest of the log is its help.
                remedies = [*_remedies_of(config.arguments)]
                return BrokerStartError(
                    Attempt(config.name, problem, process.command, log=log, remedies=remedies)
                )
        remedies = [_PLAIN_FOLDER if _is_odd(log_path) else BY_HAND]
    return BrokerStartError(
        Attempt(
            config.name,
            problem,
            process.command,
            log_path,
            log,
            is_log_kept=config.directory is not None,
            remedies=[*_remedies_in(log), *remedies, *_remedies_of(config.arguments)],
        )
    )


def _is_odd(path: Path) -> bool:
    """Return True for a path that some brokers cannot use: not UTF-8, or with control characters.

    Artemis and RabbitMQ do not start in a folder with a tab.
    """
    octets = os.fsencode(path)
    return octets.decode(errors="ignore").encode() != octets or min(octets) < ord(" ")


def _remedy_of_refusal(login: str | None) -> str:
    """Return the remedy for a broker that refuses CONNECT: more time would not help."""
    if login is None:
        return "if it checks logins, give one that it accepts by --mq-login and --mq-passcode"
    return (
        f"see whether this broker can have the login {login!r} with its passcode: some take blanks"
        " off, or give a character another meaning"
    )


def _remedies_in(log: str) -> Iterator[str]:
    """Yield the remedies for errors that the broker has logged."""
    if _NO_DESCRIPTORS.search(log):
        yield _REMEDIES[errno.EMFILE]
    if _PORT_TAKEN.search(log):
        yield "the port is in use: leave it out to have a free one chosen"


def _remedies_of(arguments: tuple[str, ...]) -> Iterator[str]:
    """Yield the remedy for additional arguments, which may be wrong."""
    if any(each.partition("=")[0] == "--config" for each in arguments):
        yield "to test with the settings of a file, use --mq-config instead of this argument"
    if arguments:
        yield f"leave out the arguments that were added: {' '.join(arguments)}"
