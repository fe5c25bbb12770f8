"""A client of the admin interface of a stompkit broker."""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from stompkit._commands.shared.broker_options import BrokerUsageError
from stompkit._common.arguments import Parser
from stompkit._common.certificates import TlsFiles, distrust, refusal
from stompkit._common.files import reason_of
from stompkit._common.text import shown

__all__ = [
    "Admin",
    "AdminError",
    "add_admin_options",
    "admin_parser",
    "confirmed",
    "on_admin",
    "standby_text",
]

_USAGE: Final = 2
#: Timeout of an answer in seconds: purging a long queue takes a while.
_ANSWER_S: Final = 300.0
#: Least timeout of an answer in seconds for a command that is to end at a certain time.
_LEAST_S: Final = 1.0
#: Timeout of the event stream in seconds: there are normally some events each second.
_SILENCE_S: Final = 60.0
_MOST_BYTES: Final = 256 * 1024 * 1024

#: Text for the end of a command's --help.
_ADMIN_HELP: Final = """\
--admin is for stompkit brokers with an admin interface: `stompkit serve --admin
tcp:15613:interface=127.0.0.1`, or [admin] in the configuration file. The address is HOST:PORT,
http://HOST:PORT, https://HOST:PORT or unix:PATH. If the interface requires a token, it is the first
line of --token-file, or the value of STOMPKIT_ADMIN_TOKEN. For https with a private authority, add
?ca=FILE, or set SSL_CERT_FILE to the certificate of that authority. ?cert=FILE&key=FILE names the
client's certificate and its key, for an interface that requires one; without key, FILE has both.
"""


def admin_parser(command: str, description: str, epilog: str) -> Parser:
    """Return the parser of a command, without its arguments.

    In *epilog*, ``{admin}`` stands for the explanation of the options of :func:`add_admin_options`.
    """
    return Parser(
        prog=f"stompkit {command}",
        description=description,
        epilog=epilog.replace("{admin}", _ADMIN_HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_admin_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the admin interface."""
    add = parser.add_argument_group("the broker's admin interface").add_argument
    add("--admin", metavar="URL", help="address of the admin interface (default: $STOMPKIT_ADMIN)")
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file whose first line is the access token (default: the token in"
        " $STOMPKIT_ADMIN_TOKEN)",
    )


class AdminError(Exception):
    """The broker refuses, or is unreachable; ``code`` is its error code, if any."""

    def __init__(self, message: str, code: str = "") -> None:
        """Store the message and the code."""
        super().__init__(message)
        self.code = code


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Admin:
    """Sends requests to the broker, each over a new connection."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Set the address, without connecting; raises BrokerUsageError if it is invalid."""
        #: Name of the broker for messages.
        self.label: Final = url if url.startswith("unix:") else url.partition("?")[0]
        self._token = token
        self._connection = _connections(url)
        self._deadline_s = math.inf

    @classmethod
    def of(cls, options: argparse.Namespace) -> Admin:
        """Return a client for the options and the environment; raises :class:`BrokerUsageError`."""
        url = options.admin or os.environ.get("STOMPKIT_ADMIN")
        if not url:
            raise BrokerUsageError(
                "the address of the admin interface is missing: give --admin HOST:PORT, or set"
                " STOMPKIT_ADMIN"
            )
        token = os.environ.get("STOMPKIT_ADMIN_TOKEN") or None
        if options.token_file is not None:
            try:
                text = options.token_file.read_text(encoding="ascii")
            except (OSError, UnicodeDecodeError) as error:
                problem = reason_of(error) if isinstance(error, OSError) else "is not ASCII"
                raise BrokerUsageError(f"--token-file: {options.token_file}: {problem}") from None
            token = text.partition("\n")[0].strip()
        return cls(url, token)

    def end_within(self, timeout_s: float) -> None:
        """Wait for answers until ``timeout_s`` seconds from now, and not much longer."""
        self._deadline_s = time.monotonic() + timeout_s

    def get(self, path: str, /, **query: str | int | None) -> dict[str, Any]:
        """Send a GET request; raises :class:`AdminError`."""
        with self._response("GET", _with_query(path, query), None, _ANSWER_S) as response:
            return self._document(response)

    def post(self, path: str, /, **body: Any) -> dict[str, Any]:
        """Send a POST request; raises :class:`AdminError`."""
        return self.send(path, {name: value for name, value in body.items() if value is not None})

    def send(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a POST request with exactly this body; raises :class:`AdminError`."""
        with self._response("POST", path, body, _ANSWER_S) as response:
            return self._document(response)

    def events(self, path: str, /, **query: str | int | None) -> Iterator[tuple[str, Any]]:
        """Yield the name and document of each event from now on; raises AdminError."""
        with self._response("GET", _with_query(path, query), None, _SILENCE_S) as response:
            name, data = "message", list[str]()
            for line in response:
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                field, _, value = text.partition(":")
                value = value.removeprefix(" ")
                if field == "event":
                    name = value
                elif field == "data":
                    data.append(value)
                elif not text:
                    if data:
                        yield name, _decoded("\n".join(data))
                    name, data = "message", []
        raise AdminError(f"the broker at {self.label} has ended the connection")

    @contextmanager
    def _response(
        self, method: str, path: str, body: object, timeout_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        headers = {"accept": "application/json, text/event-stream", "connection": "close"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            data = json.dumps(body)
            headers["content-type"] = "application/json"
        left_s = max(self._deadline_s - time.monotonic(), _LEAST_S)
        connection = self._connection(min(timeout_s, left_s))
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise self._refusal(response)
            yield response
        except TimeoutError:
            raise AdminError(f"the broker at {self.label} does not answer in time") from None
        except ssl.SSLCertVerificationError as error:
            problem = distrust(error, "with ?ca=FILE behind the address")
            raise AdminError(f"the admin interface at {self.label}: {problem}") from None
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, BrokenPipeError):  # perhaps of our own output
                raise
            refused = refusal(error)
            if refused is not None:
                raise AdminError(f"the admin interface at {self.label}: {refused}") from None
            problem = shown(reason_of(error))
            raise AdminError(
                f"cannot connect to the admin interface at {self.label}: {problem}."
                f" {self._advice(error)}"
            ) from None
        finally:
            connection.close()

    def _advice(self, error: Exception) -> str:
        """Return what to check after an error of the connection."""
        is_refused = isinstance(error, ConnectionRefusedError | socket.gaierror)
        if is_refused or self.label.startswith("unix:"):
            return "Is a broker running there with --admin?"
        if self.label.startswith("https://"):
            return "Write http:// if the interface has no TLS."
        return "Write https:// if the interface has TLS. Is a broker running there with --admin?"

    def _document(self, response: http.client.HTTPResponse) -> dict[str, Any]:
        document = _decoded(response.read(_MOST_BYTES))
        if not isinstance(document, dict):
            raise AdminError(f"the server at {self.label} is not a stompkit broker")
        return document

    def _refusal(self, response: http.client.HTTPResponse) -> AdminError:
        try:
            error = json.loads(response.read(_MOST_BYTES))["error"]
            code, message = str(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            code, message = "", f"{response.status} {response.reason}"
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            message = (
                "the admin interface needs a token: give a file with --token-file, or the token in"
                " STOMPKIT_ADMIN_TOKEN"
                if self._token is None
                else "the admin interface does not accept this token: see token_file in [admin]"
            )
        return AdminError(shown(message), code)


def on_admin(command: str, options: argparse.Namespace, work: Callable[[Admin], int]) -> int:
    """Run the work of a command; reports errors and then returns 1 or 2."""
    try:
        return work(Admin.of(options))
    except BrokerUsageError as error:
        print(f"stompkit {command}: {error}", file=sys.stderr)
        return _USAGE
    except AdminError as error:
        code = f" ({shown(error.code)})" if error.code else ""
        print(f"stompkit {command}: {error}{code}", file=sys.stderr)
        return 1


def standby_text(active: str) -> str:
    """Return who works in place of a standby; ``active`` is empty if that is unknown."""
    return f"{shown(active)} has the store" if active else "no broker has the store"


def confirmed(command: str, question: str, *, yes: bool) -> bool:
    """Ask for confirmation; without a terminal and without --yes, raises BrokerUsageError."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise BrokerUsageError(f"{question} Say --yes: there is no terminal to ask at")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print(f"stompkit {command}: nothing was done", file=sys.stderr)
    return False


def _decoded(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise AdminError("the answer is not JSON, so the server is not a stompkit broker") from None


def _with_query(path: str, query: dict[str, str | int | None]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _connections(url: str) -> Callable[[float], http.client.HTTPConnection]:
    """Return a function that makes a connection with a timeout in seconds."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        return lambda timeout_s: _UnixConnection(path, timeout_s)
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        # Brackets of an IPv6 address that are not closed, or a port that is none.
        parts, host, port = urlsplit(""), None, None
    files = _tls_files(parts.query)
    is_whole = parts.path in ("", "/") and files is not None and parts.username is None
    if any(files or ()) and parts.scheme == "http":
        raise BrokerUsageError("the options ca, cert and key of an address go with https://")
    if parts.scheme not in ("http", "https") or not host or not is_whole:
        raise BrokerUsageError(
            f"{shown(url)} is not the address of an admin interface: write HOST:PORT,"
            " http://HOST:PORT, https://HOST:PORT or unix:PATH, and behind https://HOST:PORT the"
            " options ca=FILE, cert=FILE and key=FILE"
        )
    name: str = host
    if parts.scheme == "https":
        context = _context(files or TlsFiles())
        return lambda timeout_s: http.client.HTTPSConnection(
            name, port, timeout=timeout_s, context=context
        )
    return lambda timeout_s: http.client.HTTPConnection(name, port, timeout=timeout_s)


def _tls_files(query: str) -> TlsFiles | None:
    """Return the files that an address names, or None if it has other options."""
    try:
        return TlsFiles.parse(query)
    except ValueError as error:
        raise BrokerUsageError(str(error)) from None


def _context(files: TlsFiles) -> ssl.SSLContext:
    try:
        return files.context()
    except ValueError as error:
        raise BrokerUsageError(str(error)) from None
