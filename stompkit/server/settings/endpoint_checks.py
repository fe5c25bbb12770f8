"""Check endpoint descriptions."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IStreamServerEndpointStringParser
from twisted.plugin import getPlugins

from stompkit._common.files import describe
from stompkit._common.spelling import suggestion
from stompkit.server.listen.endpoints import PROXIED, arguments_of

__all__ = ["check_endpoint", "is_local", "is_loopback"]

_WITH_PORT: Final = ("tcp", "tcp6", "ssl", "stomps")
_LAST_PORT: Final = 65_535
#: Kinds of endpoints that Twisted parses without a plug-in.
_BUILT_IN: Final = {"tcp", "unix", "ssl"}
_WRONG_ARGUMENTS: Final = (
    "it has too many or unknown arguments. Write \\: for each colon in an address or a path, as in"
    " tcp6:61613:interface=\\:\\:1."
)
#: Kinds of endpoints on which no client can connect.
_UNFIT: Final = {"stdio", "tls"}
#: Libraries of the extra ``tls``.
_FOR_TLS: Final = {"OpenSSL", "cryptography", "service_identity"}


def check_endpoint(description: str) -> None:
    """Raise ValueError for an invalid description of an endpoint to listen on."""
    from twisted.internet import reactor

    inner = description.removeprefix(PROXIED)
    if inner.startswith("systemd:"):
        # This can be checked only in a process that systemd has started.
        return
    begin = f"cannot listen on {description or repr('')}: "
    if problem := _problem(inner):
        raise ValueError(begin + problem)
    try:
        serverFromString(reactor, inner)  # type: ignore[no-untyped-call]  # Twisted's
    except OSError as error:
        raise ValueError(f"{begin}{describe(error)}") from error
    except ImportError as error:
        is_tls = (error.name or "").partition(".")[0] in _FOR_TLS
        what = f"TLS needs {error.name}: pip install 'stompkit[tls]'" if is_tls else error
        raise ValueError(f"{begin}{what}") from error
    except TypeError as error:
        # Twisted's text has names of its functions.
        raise ValueError(begin + _WRONG_ARGUMENTS) from error
    except Exception as error:
        raise ValueError(f"{begin}{error}") from error


def _problem(description: str) -> str | None:
    """Return what is wrong where Twisted's own error would not say it."""
    kind, arguments = arguments_of(description)
    if description.isdecimal():
        return f"a port alone is not an endpoint. Write tcp:{description}."
    if ":" not in description:
        return "an endpoint is KIND:ADDRESS, such as tcp:61613 or unix:/run/stompkit.sock."
    added = {each.prefix for each in getPlugins(IStreamServerEndpointStringParser)}
    known = sorted((_BUILT_IN | added) - _UNFIT)
    if kind not in known:
        return f"there is no kind of endpoint {kind!r}; {suggestion(kind, known)}"
    if kind in _WITH_PORT:
        port = arguments.get("port", description.split(":")[1])
        if not (port.isascii() and port.isdecimal() and int(port) <= _LAST_PORT):
            return f"{port!r} is not a port: a port is a number from 0 to {_LAST_PORT}."
    if kind == "unix" and not arguments.get("address", description.split(":")[1]):
        return "the path of the socket is missing. Write unix:/run/stompkit.sock."
    if kind == "stomps" and "certificate" not in arguments:
        return "TLS needs a certificate. Add certificate=FILE, and key=FILE if it is separate."
    return None


def is_local(description: str) -> bool:
    """Return True if the description says that only this machine can reach the endpoint."""
    kind, arguments = arguments_of(description)
    if kind == "unix":
        return True
    if kind not in _WITH_PORT:
        return False
    return is_loopback(arguments.get("interface", ""))


def is_loopback(host: str) -> bool:
    """Return True if a name or address always means this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
