"""``stompkit ping``."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from stompkit._commands.shared.text import remedy_of
from stompkit._common.arguments import Parser
from stompkit._common.certificates import distrust, refusal
from stompkit._common.files import reason_of
from stompkit._common.secrets import resolve
from stompkit.client.blocking import BrokerUrl
from stompkit.frames import Frame, ProtocolError, Role, Session

__all__ = ["main", "parser"]

_EPILOG: Final = """\
The command connects and logs in, because an open port does not prove that the broker works. With
--round-trip, it also sends a message and receives it: through a temporary queue, or through the
given destination, which must have no other consumer.

  stompkit ping
  stompkit ping mq.example:61613 --round-trip
  stompkit ping stomps://monitor@mq.example:61614?ca=/etc/stompkit/ca.pem
  stompkit ping --wait 30 && ./program

Of several hosts, HOST:PORT,HOST:PORT, one has to answer. env:NAME takes the target from an
environment variable, file:PATH from the first line of a file. The passcode can be in
STOMPKIT_PASSCODE, so that other users of the machine cannot read it.

exit status: 0 the broker answers; 1 no answer or a wrong answer; 2 wrong command line
"""

_TARGET: Final = "localhost:61613"
#: Variable with the URL of the broker that `stompkit run` has started.
_VARIABLE: Final = "STOMPKIT_URL"
_TEMPORARY: Final = "/temp-queue/stompkit-ping"
#: Interval in seconds between attempts with --wait.
_PAUSE_S: Final = 0.2


class _UnwellError(Exception):
    """A problem with a broker."""


class _Answer(NamedTuple):
    """The answer of a broker, with times in seconds."""

    server: str
    version: str
    connected_s: float
    round_trip_s: float | None


def main(arguments: list[str]) -> int:
    """Query a broker."""
    own = parser()
    options = own.parse_args(arguments)
    if options.timeout <= 0 or options.wait < 0:
        own.error("--timeout and --wait take seconds, --timeout more than 0")
    if options.target and options.mq:
        own.error("TARGET and --mq are the same: give one of them")
    try:
        url = _url(options.target or options.mq or os.environ.get(_VARIABLE) or _TARGET)
        if url.tls:
            url.files.context()  # reports wrong files at once
    except (ValueError, OSError) as error:
        own.error(str(error))
    deadline = time.monotonic() + options.wait
    while True:
        problems = []
        for host in url.hosts:
            try:
                answer = _ask(host, url, options)
            except _UnwellError as error:
                problems.append((host, str(error)))
            else:
                _report(host, answer, options)
                return 0
        if time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_S)
    for host, problem in problems:
        if options.json:
            print(json.dumps({"host": host, "answers": False, "problem": problem}))
        else:
            print(f"stompkit ping: {host}: {problem}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit ping",
        description="Check that a STOMP broker answers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help=f"HOST:PORT or stomp://LOGIN@HOST:PORT; stomps:// for TLS (default:"
        f" ${_VARIABLE}, else {_TARGET})",
    )
    parser.add_argument("--mq", metavar="URL", help="the same as TARGET, as other commands have it")
    parser.add_argument(
        "--round-trip",
        nargs="?",
        const=_TEMPORARY,
        metavar="DESTINATION",
        help="send a message and receive it (default destination: a temporary queue)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=5.0,
        metavar="S",
        help="time limit in seconds (default: 5)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="S",
        help="if the broker does not answer, retry for this many seconds (default: 0)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quiet", action="store_true", help="print nothing on success")
    return parser


def _url(target: str) -> BrokerUrl:
    target = resolve(target)
    return BrokerUrl.parse(target if "://" in target else f"stomp://{target}")


def _report(host: str, answer: _Answer, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({"host": host, "answers": True, **answer._asdict()}))
    elif not options.quiet:
        text = f"{host}: {answer.server or 'a broker'}, STOMP {answer.version}"
        text += f", CONNECTED after {answer.connected_s * 1_000:.1f} ms"
        if answer.round_trip_s is not None:
            text += f", a message there and back in {answer.round_trip_s * 1_000:.1f} ms"
        print(text)


def _ask(host: str, url: BrokerUrl, options: argparse.Namespace) -> _Answer:
    begin = time.monotonic()
    name, _, port = host.rpartition(":")
    try:
        with _connected(name.strip("[]"), int(port), url, begin + options.timeout) as peer:
            vhost = url.virtual_host or os.environ.get("STOMPKIT_VHOST")
            headers = {"accept-version": "1.0,1.1,1.2", "host": vhost or name}
            given = os.environ.get("STOMPKIT_LOGIN") or None
            login, passcode = url.login or given, url.passcode
            if passcode is None and given in (None, login):
                # The passcode belongs to another user.
                passcode = os.environ.get("STOMPKIT_PASSCODE") or None
            if login is not None:
                headers["login"] = login
                if passcode is not None:
                    headers["passcode"] = passcode
            peer.connect(headers)
            connected = peer.expect("CONNECTED")
            connected_s = time.monotonic() - begin
            destination = options.round_trip
            round_trip_s = None if destination is None else _round_trip(peer, destination)
            peer.request("DISCONNECT", {})
    except ssl.SSLCertVerificationError as error:
        raise _UnwellError(distrust(error, "with ?ca=FILE behind the address")) from error
    except (OSError, ValueError, ProtocolError) as error:
        raise _UnwellError(_reason(error)) from error
    server = connected.headers.get("server", "")
    return _Answer(server, str(peer.session.version), connected_s, round_trip_s)


def _reason(error: OSError | ValueError | ProtocolError) -> str:
    refused = refusal(error)
    if refused is not None:
        return refused
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "Connection refused. Is a broker running there?"
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
        return "there is no host of this name. Check the address."
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return reason_of(error)
    return str(error)


def _round_trip(peer: _Peer, destination: str) -> float:
    """Return the time in seconds from a SEND to its MESSAGE."""
    token = secrets.token_hex(16)
    peer.request("SUBSCRIBE", {"id": "ping", "destination": destination, "ack": "auto"})
    begin = time.monotonic()
    headers = {"destination": destination, "content-type": "text/plain"}
    peer.send(Frame("SEND", headers, token.encode()))
    # Messages of others may arrive at a shared destination.
    while peer.expect("MESSAGE").body != token.encode():
        pass
    return time.monotonic() - begin


class _Peer:
    """A session with a broker, with a deadline for all operations."""

    def __init__(self, stream: socket.socket, deadline: float) -> None:
        self.session = Session(Role.CLIENT)
        self._stream = stream
        self._deadline = deadline
        self._frames: list[Frame] = []
        self._count = 0
        self._has_answer = self._has_login = False

    def connect(self, headers: dict[str, str]) -> None:
        """Send CONNECT."""
        self._has_login = "login" in headers
        self._write(self.session.connect(headers, time.monotonic()))

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self._write(self.session.send(frame, time.monotonic()))

    def request(self, command: str, headers: dict[str, str]) -> None:
        """Send a frame and wait for its receipt; discards messages that arrive meanwhile."""
        self._count += 1
        receipt = f"ping-{self._count}"
        self.send(Frame(command, {**headers, "receipt": receipt}))
        while (frame := self.expect("RECEIPT", "MESSAGE")).command != "RECEIPT":
            pass
        if frame.headers.get("receipt-id") != receipt:
            raise _UnwellError(f"the broker sent a RECEIPT, but not for {command}")

    def expect(self, *commands: str) -> Frame:
        """Return the next frame, which must be one of these; raises an ERROR frame."""
        frame = self._receive()
        if frame.command in commands:
            return frame
        if frame.command == "ERROR":
            code = frame.headers.get("stompkit-code")
            words = frame.headers.get("message") or frame.body.decode(errors="replace")
            remedy = remedy_of(code)
            if code == "not-authenticated" and not self._has_login:
                remedy = (
                    ". No login was sent: write stomp://LOGIN@HOST:PORT, and set STOMPKIT_PASSCODE"
                )
            raise _UnwellError(f"ERROR: {words[:500]}" + (f" ({code})" if code else "") + remedy)
        raise _UnwellError(f"the broker sent {frame.command} instead of {commands[0]}")

    def _receive(self) -> Frame:
        while not self._frames:
            self._set_timeout()
            data = self._stream.recv(65_536)
            if not data:
                text = "the connection was closed before an answer"
                if not (self._has_answer or isinstance(self._stream, ssl.SSLSocket)):
                    text += ". Does the port expect TLS? Then write stomps://"
                raise _UnwellError(text)
            self._has_answer = True
            while frames := self.session.receive(data, time.monotonic()):
                self._frames += frames
                data = b""
        return self._frames.pop(0)

    def _write(self, data: bytes) -> None:
        self._set_timeout()
        try:
            self._stream.sendall(data)
        except ConnectionError:
            if isinstance(self._stream, ssl.SSLSocket):
                self._stream.recv(1)  # raises the alert by which the broker told the reason
            raise

    def _set_timeout(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._stream.settimeout(left)


@contextmanager
def _connected(name: str, port: int, url: BrokerUrl, deadline: float) -> Iterator[_Peer]:
    left = max(0.001, deadline - time.monotonic())
    with socket.create_connection((name, port), left) as plain:
        if not url.tls:
            yield _Peer(plain, deadline)
            return
        with url.files.context().wrap_socket(plain, server_hostname=name) as encrypted:
            yield _Peer(encrypted, deadline)
