"""Read secrets from outside of command lines and configuration files, and mask them in texts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from stompkit._common.files import reason_of

__all__ = ["SecretError", "first_line", "is_reference", "mask", "mask_url", "resolve"]

_MASK: Final = "***"
#: Names of parameters whose values are secrets.
_KEYS: Final = r"(?:passw\w*|passcode|secret|token|key)"
#: A secret of at least this many characters, not all of them letters, is masked everywhere.
_DISTINCT: Final = 6
#: ``HOST``, ``HOST:PORT`` and several of them: not a part of a login.
_HOSTS: Final = re.compile(
    r"(?:(?:[^:,\[\]]*|\[[^\]]*\])(?::\d*)?)(?:,(?:[^:,\[\]]*|\[[^\]]*\])(?::\d*)?)*"
)


class SecretError(ValueError):
    """A value cannot be read from the given source; the message says why."""


def is_reference(text: str) -> bool:
    """Return True if :func:`resolve` reads the value from the environment or a file."""
    return text.startswith(("env:", "file:"))


def resolve(text: str) -> str:
    """Return the value that *text* refers to, or *text* itself if it is no reference.

    ``env:NAME`` refers to a variable of the environment, and ``file:PATH`` to the first line of a
    file, without white space around it. Raises SecretError.
    """
    kind, _, where = text.partition(":")
    if kind == "env":
        if where not in os.environ:
            raise SecretError(f"there is no {where} in the environment")
        return os.environ[where]
    if kind == "file":
        return first_line(Path(where)).strip()
    return text


def first_line(path: Path) -> str:
    """Return the first line of a file, without its line end. Raises SecretError."""
    try:
        return path.read_text(encoding="utf-8-sig").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise SecretError(f"{path}: {reason_of(error)}") from None


# Masking.


def mask_url(url: str) -> str:
    """Return a URL with its secrets masked, even if a password is not percent-encoded as it should.

    A text without ``://`` is returned as it is.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    authority, slash, more = rest.partition("/")
    if "@" not in authority and "@" in more and not _HOSTS.fullmatch(authority):
        # The password contains a slash.
        user, _, more = rest.rpartition("@")
        authority, slash, more = f"{user}@{more.partition('/')[0]}", *more.partition("/")[1:]
    user, at, hosts = authority.rpartition("@")
    login, colon, _ = user.partition(":")
    more = re.sub(rf"(?i)({_KEYS}=)[^&]*", rf"\1{_MASK}", more)
    return f"{scheme}://{login}{colon and ':' + _MASK}{at}{hosts}{slash}{more}"


def mask(text: str, urls: Iterable[str] = (), secrets: Iterable[str] = ()) -> str:
    """Return a text without the secrets of *urls*, and without the others.

    A secret is masked as a password in a URL and as a value of a key. One that cannot be a word is
    masked everywhere. A password that is a word stays where the text uses it as one, since it
    reveals nothing there.
    """
    for url in filter(None, urls):
        text = text.replace(url, mask_url(url))
        for secret in _secrets_of(url):
            text = _without(text, secret)
    for secret in secrets:
        text = _without(text, secret)
    return text


def _secrets_of(url: str) -> Iterator[str]:
    """Yield the secrets of a URL, as they are written and decoded."""
    rest = url.partition("://")[2]
    user, at, _ = rest.partition("/")[0].rpartition("@")
    found = [user.partition(":")[2]] if at else []
    found += re.findall(rf"(?i){_KEYS}=([^&]+)", rest)
    for each in found:
        yield each
        yield unquote(each)


def _without(text: str, secret: str) -> str:
    if not secret:
        return text
    found = re.escape(secret)
    if len(secret) >= _DISTINCT and not secret.isalpha():
        text = re.sub(rf"(?<!\w){found}(?!\w)", _MASK, text)
    # An at sign, or the end of a quoted URL, follows a password; a key precedes other secrets.
    text = re.sub(rf"(://[^\s/@:]*:){found}(?=@)", rf"\1{_MASK}", text)
    return re.sub(
        rf"(?i)({_KEYS}['\"]?\s*[=:]\s*['\"]?){found}(?![\w])",
        rf"\1{_MASK}",
        text,
    )
