"""Client libraries of other languages, each in a program that a test controls.

The programs take host, port, version and ``heart-beat`` as arguments, and those for WebSockets the
URL and the kind of messages. They connect, and print the CONNECTED frame. Then they read calls from
their standard input and answer each with one line; both are JSON. A call is an object with ``call``
and ``headers``:

====================================  =========================================================
``send``, with ``text``               SEND with a text, as the library sends texts
``send``, with ``octets`` (base64)    SEND with binary content
``ack``, ``nack``, with ``message``   ACK or NACK of the message with that ``message-id``
``subscribe``, ``unsubscribe``        SUBSCRIBE, UNSUBSCRIBE
``begin``, ``commit``, ``abort``      BEGIN, COMMIT, ABORT
``receive``                           wait for a message
``beat``                              wait for a heart-beat, another one each time (Net::Stomp:
                                      wait until there is something to read; go-stomp: wait for
                                      a heart-beat or a frame)
``disconnect``                        DISCONNECT, and end
``send_with_receipt``,                Net::Stomp's methods of these names; the answer is what
``send_transactional``                they return
====================================  =========================================================

The answer is a frame, as an object with ``command``, ``headers`` and ``body`` (base64): the
received frame, or the answer to a call with the header ``receipt``. It is ``null`` if there is no
frame, also for ``receive`` after the end of the connection, which ends the program, too. go-stomp
shows no RECEIPT frames: its program makes one when a call has returned without an error.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import subprocess
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from stompkit.frames import Frame
from stompkit.testing import RunningBroker

__all__ = ["DEADLINE_S", "LIBRARIES", "ForeignClient", "Library", "LibraryMissing"]

#: Timeout of one answer, in seconds.
DEADLINE_S: Final = 30.0
#: Timeout of npm or go, in seconds.
_INSTALL_S: Final = 300.0
_PROGRAMS: Final = Path(__file__).parent
#: Installs the packages of the lock file, if possible from npm's cache.
_NPM_CI: Final = (
    *("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"),
    # Limit the retries to less than a minute without a network.
    *("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"),
    "--loglevel=error",
)
#: Lines of an error that explain it; npm's traceback follows.
_REASON_LINES: Final = 4


class LibraryMissing(Exception):
    """The interpreter or the library is not installed; the message says how to get it."""


@dataclass(frozen=True)
class Library:
    """One client library, and the program that uses it."""

    interpreter: str
    """The name of the language's interpreter."""
    program: str
    """The program, relative to this directory."""
    probe: tuple[str, ...]
    """Arguments of the interpreter that test for the library; none for Go."""
    remedy: str
    """Instruction to get the missing part."""
    package: str
    """The Debian package without which the library is unavailable."""
    escaping: tuple[str, ...]
    """The versions in which it escapes the values of headers, and unescapes them."""
    websocket: str | None = None
    """Its use of WebSockets: ``text``, ``binary``, or ``split`` for frames in small messages."""
    transaction_receipts: bool = True
    """True if BEGIN, COMMIT and ABORT can have a receipt."""

    def install(self, directory: Path) -> tuple[str, ...]:
        """Return the command to run; its packages are installed in ``directory``.

        Raise LibraryMissing.
        """
        path = shutil.which(self.interpreter)
        if path is None:
            raise LibraryMissing(f"no program {self.interpreter!r} on PATH. {self.remedy}")
        program = _PROGRAMS / self.program
        if program.with_name("go.mod").exists():
            return (_go_build(program, directory, self.remedy),)
        if program.with_name("package.json").exists():
            program = _npm_install(program, directory, self.remedy)
        probe = subprocess.run(
            [path, *self.probe], cwd=program.parent, capture_output=True, text=True, check=False
        )
        if probe.returncode:
            raise LibraryMissing(f"{self.interpreter} does not find it. {self.remedy}")
        return (path, str(program))


def _npm_install(program: Path, directory: Path, remedy: str) -> Path:
    """Copy a program and install the packages of its lock file beside the copy."""
    if shutil.which("npm") is None:
        raise LibraryMissing(f"no program 'npm' on PATH. {remedy}")
    copy = shutil.copytree(program.parent, directory / program.parent.name)
    try:
        subprocess.run(
            _NPM_CI,
            cwd=copy,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        reason = "; ".join(error.stderr.splitlines()[:_REASON_LINES])
        raise LibraryMissing(f"npm could not get it ({reason}). {remedy}") from None
    except subprocess.TimeoutExpired:
        raise LibraryMissing(f"npm did not get it in {_INSTALL_S:.0f} s. {remedy}") from None
    return copy / program.name


def _go_build(program: Path, directory: Path, remedy: str) -> str:
    """Compile a program with its modules, verified by their sums; return the path of the result."""
    result = directory / program.parent.name
    build = ["go", "build", "-mod=readonly", "-o", str(result), "."]
    # Ignore workspace and flags of the user.
    environment = {**os.environ, "GOFLAGS": "", "GOWORK": "off"}
    where = program.parent
    download = ["go", "mod", "download", *_modules(where / "go.mod")]
    for command in (download, build):
        try:
            subprocess.run(
                command,
                cwd=where,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_INSTALL_S,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            # The program itself has to compile.
            assert command is download, error.stderr
            reason = "; ".join(error.stderr.splitlines()[:_REASON_LINES])
            raise LibraryMissing(f"go could not get it ({reason}). {remedy}") from None
        except subprocess.TimeoutExpired:
            raise LibraryMissing(f"go did not get it in {_INSTALL_S:.0f} s. {remedy}") from None
    return str(result)


def _modules(path: Path) -> list[str]:
    """Return the modules that a go.mod requires."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if line.startswith("require ")]


_STOMP_JS: Final = Library(
    interpreter="node",
    program="stompjs/index.mjs",
    probe=("--input-type=module", "-e", "import '@stomp/stompjs'; import 'ws'"),
    remedy=(
        "Install Node.js 18 or newer with npm (Debian: apt-get install nodejs npm), and let "
        "npm reach its registry"
    ),
    package="nodejs",
    escaping=("1.2",),
    transaction_receipts=False,
)

LIBRARIES: Final = {
    "Net::Stomp": Library(
        interpreter="perl",
        program="net_stomp.pl",
        probe=("-MNet::Stomp", "-e", "1"),
        remedy="Install Debian's package: apt-get install libnet-stomp-perl",
        package="libnet-stomp-perl",
        escaping=(),
    ),
    "ruby-stomp": Library(
        interpreter="ruby",
        program="stomp.rb",
        probe=("-e", "require 'stomp'"),
        remedy="Install Debian's package: apt-get install ruby-stomp",
        package="ruby-stomp",
        escaping=("1.1", "1.2"),
    ),
    "go-stomp": Library(
        interpreter="go",
        program="go_stomp/main.go",
        probe=(),
        remedy=(
            "Install Go 1.18 or newer (Debian: apt-get install golang-go), and let it reach the "
            "module proxy"
        ),
        package="golang-go",
        escaping=("1.1", "1.2"),
        transaction_receipts=False,
    ),
    "stomp.js": _STOMP_JS,
    "stomp.js-text": replace(_STOMP_JS, websocket="text"),
    "stomp.js-binary": replace(_STOMP_JS, websocket="binary"),
    "stomp.js-split": replace(_STOMP_JS, websocket="split"),
}


class ForeignClient:
    """A connection of one of these libraries, with calls that wait for the answer."""

    def __init__(
        self,
        library: Library,
        command: tuple[str, ...],
        broker: RunningBroker,
        version: str,
        heart_beat: str,
    ) -> None:
        """Run the program; ``connected`` is the CONNECTED frame that it received."""
        self.library = library
        arguments = [broker.host, str(broker.port), version, heart_beat]
        if library.websocket is not None:
            arguments += [broker.ws_url, library.websocket]
        self._process = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._asked = 0
        try:
            self.connected: Frame = self._answer()
        except BaseException:
            self.kill()
            raise

    def call(self, name: str, headers: dict[str, str] | None = None, **arguments: str) -> Any:
        """Call a function of the program; return its answer, a Frame if it is one."""
        call = {"call": name, "headers": headers or {}, **arguments}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(call).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def ask(self, name: str, headers: dict[str, str] | None = None, **arguments: str) -> None:
        """Call a function of the program, and check that it received the receipt."""
        self._asked += 1
        receipt = f"receipt-{self._asked}"
        answer = self.call(name, {**(headers or {}), "receipt": receipt}, **arguments)
        assert answer == Frame("RECEIPT", {"receipt-id": receipt})

    def send(
        self, destination: str, body: str | bytes, headers: dict[str, str] | None = None
    ) -> None:
        """Send a text or bytes, and wait for the receipt."""
        content = (
            {"text": body}
            if isinstance(body, str)
            else {"octets": base64.b64encode(body).decode("ascii")}
        )
        self.ask("send", {**(headers or {}), "destination": destination}, **content)

    def subscribe(self, destination: str, ack: str = "auto", subscription: str = "1") -> None:
        """Subscribe, and wait for the receipt."""
        self.ask("subscribe", {"destination": destination, "id": subscription, "ack": ack})

    def receive(self) -> Frame:
        """Wait for a message."""
        message = self.call("receive")
        assert isinstance(message, Frame)
        assert message.command == "MESSAGE"
        return message

    def bodies(self, count: int) -> list[bytes]:
        """Wait for this many messages, and return their bodies."""
        return [self.receive().body for _ in range(count)]

    def answer(self, verb: str, message: Frame, headers: dict[str, str] | None = None) -> None:
        """Send ACK or NACK, and wait for the receipt."""
        self.ask(verb, headers, message=message.headers["message-id"])

    def transaction(self, verb: str, name: str) -> None:
        """Send BEGIN, COMMIT or ABORT, and wait for the receipt if the library supports one."""
        if self.library.transaction_receipts:
            self.ask(verb, {"transaction": name})
        else:
            assert self.call(verb, {"transaction": name}) is None

    def leave(self) -> None:
        """Disconnect the program, if it still runs, and check its exit status.

        Do nothing if it was killed.
        """
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            return
        self._process.stdin.close()
        try:
            assert self._process.wait(DEADLINE_S) == 0
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the program: the connection ends without DISCONNECT."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        """Read the program's lines in a separate thread; an empty one is the end."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _answer(self) -> Any:
        """Wait for a line, and decode it."""
        line = self._lines.get(timeout=DEADLINE_S)
        assert line, f"{self.library.program} has ended"
        answer = json.loads(line)
        if not isinstance(answer, dict):
            return answer
        return Frame(answer["command"], answer["headers"], base64.b64decode(answer["body"]))
