"""Parse client bytes into commands, without I/O and with bounded memory.

The commands, and the reply to each error, follow beanstalkd's protocol.txt and the replies of
beanstalkd 1.12.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["BAD_FORMAT", "MAX_LINE", "MAX_NAME", "Command", "Mistake", "Parser", "is_tube"]

#: Maximum length in bytes of a command line, with its CR LF, and of a tube's name.
MAX_LINE: Final = 224
MAX_NAME: Final = 200

BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
_UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"
_JOB_TOO_BIG: Final = b"JOB_TOO_BIG\r\n"
_EXPECTED_CRLF: Final = b"EXPECTED_CRLF\r\n"

_U32: Final = 2**32 - 1
_U64: Final = 2**64 - 1
_MAX_WAIT_S: Final = 2**31 - 1


class Command(NamedTuple):
    """A well-formed command: its name, its numbers in the order of the line, its tube and job."""

    name: str
    numbers: tuple[int, ...] = ()
    tube: str = ""
    body: bytes = b""


class Mistake(NamedTuple):
    """The reply to an invalid command."""

    reply: bytes


class _Form(NamedTuple):
    """Format of a command line after the name, and the limits of the numbers."""

    name: str
    rest: re.Pattern[str]
    most: tuple[int, ...] = ()


_NAME: Final = r"(?P<tube>[A-Za-z0-9+/;.$_()][-A-Za-z0-9+/;.$_()]{0,199})"
_TUBE: Final = re.compile(_NAME)
#: Digits after any number of zeros. It never backtracks, so that each line is read once.
_DIGITS: Final = r"(?>0*(?=[0-9]))([0-9]{1,20}+)(?![0-9])"
_NUMBER: Final = r" *" + _DIGITS
_NEXT: Final = r" +" + _DIGITS


def _form(name: str, *most: int, tube: bool = False, more: bool = False) -> _Form:
    """Return a format; ``more`` allows any text at its end, as beanstalkd does."""
    rest = "".join(_NEXT if index or tube else _NUMBER for index in range(len(most)))
    # A list of numbers may have extra spaces; a tube's name may not.
    before = " *" if tube and most else ""
    form = (before + _NAME if tube else "") + rest + ("(?s:.*)" if more else "")
    return _Form(name, re.compile(form), most)


#: Formats by the beginning of the line. The first match wins, so that longer ones precede shorter
#: ones.
_FORMS: Final = tuple(
    (form.name + (" " if form.most or form.rest.groups else ""), form)
    for form in (
        _form("put", _U32, _U32, _U32, _U32, more=True),
        _form("peek", _U64),
        _form("peek-ready"),
        _form("peek-delayed"),
        _form("peek-buried"),
        _form("reserve-with-timeout", _MAX_WAIT_S, more=True),
        _form("reserve-job", _U64),
        _form("reserve"),
        _form("delete", _U64),
        _form("release", _U64, _U32, _U32),
        _form("bury", _U64, _U32),
        _form("kick", _U64, more=True),
        _form("kick-job", _U64),
        _form("touch", _U64),
        _form("stats-job", _U64),
        _form("stats-tube", tube=True),
        _form("stats"),
        _form("use", tube=True),
        _form("watch", tube=True),
        _form("ignore", tube=True),
        _form("list-tubes-watched"),
        _form("list-tube-used"),
        _form("list-tubes"),
        _form("quit", more=True),
        _form("pause-tube", _U32, tube=True),
    )
)


def is_tube(name: str) -> bool:
    """Return True if a name is valid for a tube."""
    return _TUBE.fullmatch(name) is not None


class Parser:
    """Parses commands from chunks of any size.

    It holds one line or one job up to the maximum size, and the input since :meth:`next` last
    returned None.
    """

    def __init__(self, max_job_octets: int) -> None:
        """Start empty; ``max_job_octets`` limits the body of a job in bytes, without its CR LF."""
        self.max_job_octets = max_job_octets
        self._buffer = bytearray()
        #: Position where the search for the end of a line continues.
        self._searched = 0
        #: The command whose body is being read, with the length of the body in bytes.
        self._put: Command | None = None
        self._needed = 0
        #: Number of bytes, or a line of any length, still to be discarded, and the reply to send
        #: then.
        self._skip = 0
        self._is_too_long = False

    @property
    def buffered(self) -> int:
        """Number of bytes not yet parsed."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add input."""
        self._buffer += data

    def next(self) -> Command | Mistake | None:
        """Return the next command or error, or None if more input is needed."""
        if self._skip:
            return self._skipped()
        if self._put is not None:
            return self._with_body(self._put)
        return self._line()

    def _skipped(self) -> Mistake | None:
        gone = min(self._skip, len(self._buffer))
        del self._buffer[:gone]
        self._skip -= gone
        return None if self._skip else Mistake(_JOB_TOO_BIG)

    def _with_body(self, command: Command) -> Command | Mistake | None:
        buffer, size = self._buffer, self._needed
        if len(buffer) < size + 2:
            return None
        self._put = None
        body, end = bytes(buffer[:size]), buffer[size : size + 2]
        del buffer[: size + 2]
        return command._replace(body=body) if end == b"\r\n" else Mistake(_EXPECTED_CRLF)

    def _line(self) -> Command | Mistake | None:
        buffer = self._buffer
        end = buffer.find(b"\r\n", self._searched)
        if end < 0:
            # The last byte may be the CR.
            self._searched = max(0, len(buffer) - 1)
            if len(buffer) >= MAX_LINE:
                self._is_too_long = True
            if self._is_too_long:
                del buffer[: self._searched]
                self._searched = 0
            return None
        line = bytes(buffer[:end])
        del buffer[: end + 2]
        self._searched = 0
        if self._is_too_long or len(line) + 2 > MAX_LINE:
            self._is_too_long = False
            return Mistake(BAD_FORMAT)
        return self._read(line)

    def _read(self, line: bytes) -> Command | Mistake | None:
        text = line.decode("latin-1")
        if "\0" in text:
            return Mistake(BAD_FORMAT)
        for begin, form in _FORMS:
            if text.startswith(begin):
                return self._made(form, text[len(begin) :])
        return Mistake(_UNKNOWN_COMMAND)

    def _made(self, form: _Form, rest: str) -> Command | Mistake | None:
        found = form.rest.fullmatch(rest)
        if found is None:
            return Mistake(BAD_FORMAT)
        tube = found.groupdict().get("tube", "")
        numbers = tuple(map(int, found.groups()[bool(tube) :]))
        if any(number > most for number, most in zip(numbers, form.most, strict=True)):
            return Mistake(BAD_FORMAT)
        command = Command(form.name, numbers, tube)
        if form.name != "put":
            return command
        if numbers[3] > self.max_job_octets:
            self._skip = numbers[3] + 2
            return self._skipped()
        if found.end(len(numbers)) < len(rest):
            # Only now, since the body of a job that is too big is discarded in any case.
            return Mistake(BAD_FORMAT)
        self._put, self._needed = command, numbers[3]
        return self._with_body(command)
