"""``stompkit run``."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from stompkit._common.arguments import Parser
from stompkit._common.files import describe, reason_of
from stompkit.testing import BrokerError, LaunchConfig, RunningBroker, launch
from stompkit.testing.transcripts import TranscriptFile

__all__ = ["main", "parser"]

_EPILOG: Final = """\
The command gets the broker's address in environment variables:

  STOMPKIT_URL        stomp://127.0.0.1:PORT
  STOMPKIT_HOST       127.0.0.1
  STOMPKIT_PORT       PORT
  STOMPKIT_VHOST      value of the header `host` of CONNECT
  STOMPKIT_LOGIN      and STOMPKIT_PASSCODE, if the broker requires a login

  stompkit run -- ./integration-tests
  stompkit run --broker rabbitmq -- sh -c 'my-client --port "$STOMPKIT_PORT"'
  stompkit run --broker 'command:/opt/mq/bin/mq --listen {host}:{port}' -- ./integration-tests
  stompkit run --quirk rabbitmq --frames seen.stomp -- ./integration-tests

In 'command:...', {port}, {host}, {directory}, {login} and {passcode} are replaced by their values.
The broker has to stay in the foreground.

The broker is ready when the command starts. When the command ends, the broker is stopped and its
files are removed. SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded to the
command.

exit status: that of the command, or 128 plus the number of the signal that ended it; 125 the broker
does not start; 126 the command cannot be executed; 127 command not found
"""

_NO_BROKER: Final = 125
_CANT_RUN: Final = 126
_NO_COMMAND: Final = 127
_FORWARDED: Final = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
#: Prefix of options of pytest whose counterparts here have none.
_OF_PYTEST: Final = re.compile(r"--mq-(?=(broker|config|login|passcode|quirk)\b)")
#: Signals that a terminal also sends to the command.
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)


def main(arguments: list[str]) -> int:
    """Run a command with a broker."""
    options = _options(arguments)
    config = LaunchConfig(
        name=options.broker,
        port=options.port,
        login=options.login,
        passcode=options.passcode,
        arguments=tuple(options.broker_argument),
        quirks=options.quirk,
        config=options.config,
        frames=options.frames is not None,
    )
    try:
        with _ended_in_order(), launch(config) as broker:
            frames = None
            if options.frames is not None:
                frames = TranscriptFile(options.frames, broker.frames)
            status = _run(options.command, _environment(broker))
            _keep(broker, options.log, frames)
            return status
    except BrokerError as error:
        print(f"stompkit run: {_with_own_options(error.for_command())}", file=sys.stderr)
        return _NO_BROKER


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit run",
        usage="stompkit run [options] [--] COMMAND [ARGUMENT ...]",
        description="Run a command with a temporary broker.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--broker",
        default="stompkit",
        metavar="NAME",
        help="stompkit, coilmq, activemq, artemis, rabbitmq or morbidq, with an optional "
        "version as in rabbitmq:4, or 'command:...' (default: stompkit)",
    )
    parser.add_argument(
        "--quirk",
        metavar="NAMES",
        help="comma-separated names of brokers and rules whose deviations from STOMP to "
        "imitate; -RULE excludes a rule; only for stompkit",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="use the settings of this file, without its listeners and store; with --login, users "
        "have its rights; only for stompkit",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on (default: a free port)"
    )
    parser.add_argument("--login", help="require this login (default: no login)")
    parser.add_argument("--passcode", help="passcode of --login")
    parser.add_argument(
        "--broker-argument",
        action="append",
        default=[],
        metavar="ARGUMENT",
        help="argument for the broker's command line, as in "
        "--broker-argument=--log-frames; repeatable",
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="write the broker's log to this file"
    )
    parser.add_argument(
        "--frames",
        type=Path,
        metavar="FILE",
        help="write all frames to this file, as a transcript with masked passcodes; of a body "
        "the first MiB",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser()
    options = made.parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        made.error("the command to run is missing: write stompkit run -- COMMAND")
    return options


def _with_own_options(message: str) -> str:
    """Replace the options of pytest in a message of the launcher by those of this command."""
    message = message.replace("--mq-frames off", "leaving out --frames")
    return _OF_PYTEST.sub("--", message)


def _environment(broker: RunningBroker) -> dict[str, str]:
    settings = {
        "URL": broker.url,
        "HOST": broker.host,
        "PORT": str(broker.port),
        "VHOST": broker.vhost,
        "LOGIN": broker.login,
        "PASSCODE": broker.passcode,
    }
    variables = {f"STOMPKIT_{name}": value for name, value in settings.items() if value is not None}
    return {**os.environ, **variables}


def _keep(broker: RunningBroker, log: Path | None, frames: TranscriptFile | None) -> None:
    """Save the requested output of the broker; failures are only reported."""
    try:
        if log is not None:
            log.write_text(broker.log, encoding="utf-8")
        if frames is not None:
            frames.finish()
    except OSError as error:
        print(f"stompkit run: {describe(error)}", file=sys.stderr)


class _Ended(BaseException):
    """A signal that ends this command before the other one runs."""

    def __init__(self, number: int) -> None:
        """Store the signal's number."""
        super().__init__(number)
        self.number = number


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Turn termination signals into an exit with cleanup."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _Ended(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    # A signal may come between any two instructions, also while the handlers are changed.
    try:
        try:
            for number in before:
                signal.signal(number, end)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    except _Ended as ended:
        raise SystemExit(128 + ended.number) from None


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run the command in this process group, and forward signals to it."""
    waiting: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        if number in _FROM_TERMINAL and _is_in_foreground():
            return
        if process is None:
            waiting.append(number)
        else:
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        process = subprocess.Popen(command, env=environment)
        for number in waiting:
            process.send_signal(number)
        status = process.wait()
    except FileNotFoundError as error:
        print(f"stompkit run: {describe(error)}", file=sys.stderr)
        return _NO_COMMAND
    except OSError as error:
        print(f"stompkit run: {command[0]}: {reason_of(error)}", file=sys.stderr)
        return _CANT_RUN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _is_in_foreground() -> bool:
    """Return True if the command receives signals from the terminal's keyboard itself."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
