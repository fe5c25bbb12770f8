"""``stompkit proxy``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from stompkit._commands.shared.documents import checked, frame_document, now
from stompkit._commands.tools.addresses import broker_address, listen_address
from stompkit._common.arguments import Parser
from stompkit._common.files import describe, write_atomically
from stompkit._common.text import json_line
from stompkit.frames import Frame
from stompkit.testing import SeenFrame, format_address
from stompkit.testing.proxy import Direction, FaultScript, FaultScriptError, FrameLog, Proxy

__all__ = ["main", "parser"]

_EPILOG: Final = """\
The first line of output is the URL of the proxy. Then each connection and each injected fault is
printed on a line. With --frames, each frame is printed, as its sender sent it and before faults act
on it; injected frames are marked "injected". Passcodes are masked. The proxy runs until SIGINT
(Ctrl-C) or SIGTERM. With --json, each line is a JSON object: the first has "listening", frames have
"command", injected ones also have "injected", and other events have "note".

  stompkit proxy --listen 127.0.0.1:61614 --to mq.example:61613 --frames
  stompkit proxy --to localhost:61613 --script faults.toml --seed 7 --announce proxy.json
  stompkit proxy --to localhost:61613 --frames --json | jq -c 'select(.command == "ERROR")'
  stompkit proxy --check --script faults.toml

A script; all of its faults are active from the start:

  [[fault]]
  do = "drop"
  frame = "MESSAGE"
  headers = { destination = "/queue/x" }
  nth = 3

Values of `do`: delay, bandwidth, drop, duplicate, reorder, truncate, corrupt, split, hold,
withhold_receipts, swallow_heart_beats, inject, close, reset, half_open, stop_reading, refuse. The
other keys are the keyword arguments of the methods of stompkit.testing.proxy.Proxy.

exit status: 0 ended by a signal, or --check found no error; 1 the script has errors, which are
printed, or the proxy cannot listen; 2 wrong command line
"""

_ENDED_BY: Final = (signal.SIGINT, signal.SIGTERM)


class _Output:
    """Standard output, which starts with a fixed line and stops when its reader is gone."""

    def __init__(self, *, is_json: bool) -> None:
        """Buffer lines until the first one is printed; each is JSON or text."""
        self.is_json = is_json
        self._lock = threading.Lock()
        self._waiting: list[str] | None = []
        #: True while the output has a reader.
        self.is_read = True

    def begin(self, first: str) -> None:
        """Print the first line, and then the buffered ones."""
        with self._lock:
            waiting, self._waiting = self._waiting or [], None
            self._print("\n".join([first, *waiting]))

    def note(self, text: str) -> None:
        """Print an event; called in the thread of the proxy."""
        self.line(json.dumps({"time": now(), "note": text}) if self.is_json else text)

    def line(self, line: str) -> None:
        """Print a line; called in the thread of the proxy."""
        with self._lock:
            if self._waiting is None:
                self._print(line)
            else:
                self._waiting.append(line)

    def _print(self, text: str) -> None:
        if not self.is_read:
            return
        try:
            print(text, flush=True)
        except BrokenPipeError:
            self.is_read = False
            # Sent to the process, not to this thread: another thread waits for it.
            os.kill(os.getpid(), signal.SIGTERM)


class _Printed(FrameLog):
    """A log of frames that prints each of them, and keeps none."""

    def __init__(self, output: _Output) -> None:
        """Print frames to ``output``."""
        super().__init__(max_events=1)
        self._output = output
        self._unreadable: set[tuple[int, Direction]] = set()

    def record(self, direction: Direction, connection: int, frame: Frame) -> None:
        """Record a frame and print it."""
        super().record(direction, connection, frame)
        for seen in self.all:
            self._output.line(
                json_line(self._document(seen)) if self._output.is_json else str(seen)
            )

    def injected(self, direction: Direction, connection: int, frame: Frame) -> None:
        """Print a frame that a fault injects."""
        super().record(direction, connection, frame)  # masks passcodes
        for seen in self.all:
            if self._output.is_json:
                self._output.line(json_line({**self._document(seen), "injected": True}))
            else:
                self._output.line(str(seen).replace(f" {direction:<8} ", " injected ", 1))

    def undecodable(self, direction: Direction, connection: int, octets: bytes) -> None:
        """Report once that the following bytes are not STOMP."""
        if (connection, direction) not in self._unreadable:
            self._unreadable.add((connection, direction))
            text = f"#{connection} {direction:<8} no STOMP from here on: it passes unread"
            self._output.note(text)

    @staticmethod
    def _document(seen: SeenFrame) -> dict[str, Any]:
        frame = seen.frame
        octets = len(frame.body) + seen.cut_bytes
        peer, headers = f"#{seen.connection}", frame.headers.items()
        return frame_document(
            now(), seen.direction, peer, frame.command, headers, frame.body, octets
        )


def main(arguments: list[str]) -> int:
    """Run a proxy until a signal ends it."""
    options = _options(arguments)
    try:
        script = FaultScript() if options.script is None else FaultScript.load(options.script)
    except FaultScriptError as error:
        if options.check and options.json:
            print(json.dumps(checked(options.script, str(error).splitlines())))
        else:
            print(error, file=sys.stderr)
        return 1
    except OSError as error:
        return _failed(error)
    if options.check:
        print(json.dumps(checked(options.script, [])) if options.json else f"{options.script}: OK")
        return 0
    try:
        with _signals_kept():
            _run(options, script)
    except BrokenPipeError:
        raise  # handled alike for all commands
    except OSError as error:
        return _failed(error)
    return 0


def _failed(error: OSError) -> int:
    print(f"stompkit proxy: {describe(error)}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit proxy",
        description="Relay connections to a broker and inject faults.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--listen",
        type=listen_address,
        default=("127.0.0.1", 0),
        metavar="HOST:PORT",
        help="address for clients; port 0 takes a free port (default: 127.0.0.1:0)",
    )
    parser.add_argument(
        "--to",
        "--mq",
        dest="to",
        type=broker_address,
        metavar="HOST:PORT",
        help="address of the broker",
    )
    parser.add_argument("--script", type=Path, metavar="FILE", help="file with the faults, TOML")
    parser.add_argument("--check", action="store_true", help="check the script and exit")
    parser.add_argument(
        "--seed", type=int, help="seed of random faults (default: that of the script, else 0)"
    )
    parser.add_argument("--frames", action="store_true", help="print all frames")
    parser.add_argument("--json", action="store_true", help="print each line as JSON")
    parser.add_argument(
        "--announce",
        type=Path,
        metavar="FILE",
        help="write the process id and the port to this file, as JSON",
    )
    return parser


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser()
    options = made.parse_args(arguments)
    if options.check and options.script is None:
        made.error("--check needs a script: give --script FILE")
    if not options.check and options.to is None:
        made.error("the address of the broker is missing: give --to HOST:PORT")
    return options


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Block the signals that end the proxy, so that it can wait for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDED_BY)
    try:
        yield
    finally:
        while signal.sigpending() & set(_ENDED_BY):  # several may be pending
            signal.sigwait(_ENDED_BY)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(options: argparse.Namespace, script: FaultScript) -> None:
    """Run the proxy; raises OSError if it cannot listen, BrokenPipeError without a reader."""
    output = _Output(is_json=options.json)
    seed = options.seed if options.seed is not None else script.seed or 0
    host, port = options.listen
    proxy = Proxy(
        *options.to,
        host=host,
        port=port,
        seed=seed,
        frames=_Printed(output) if options.frames else None,
        told=output.note,
    )
    script.apply(proxy)
    with proxy:
        to = format_address(*options.to)
        first = {"time": now(), "listening": proxy.url, "to": to, "seed": seed}
        text = f"{proxy.url} to {to}, seed {seed}"
        output.begin(json.dumps(first) if options.json else text)
        if options.announce is not None:
            _announce(options.announce, proxy)
        try:
            signal.sigwait(_ENDED_BY)
        finally:
            if options.announce is not None:
                options.announce.unlink(missing_ok=True)
    if not output.is_read:
        raise BrokenPipeError


def _announce(path: Path, proxy: Proxy) -> None:
    """Write the proxy's address atomically to a file."""
    document = {"pid": os.getpid(), "endpoints": [{"host": proxy.host, "port": proxy.port}]}
    write_atomically(path, json.dumps(document).encode(), mode=None, durable=False)
