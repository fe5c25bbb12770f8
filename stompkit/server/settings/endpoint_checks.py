"""Check endpoint descriptions."""

from __future__ import annotations

from ipaddress import ip_address

from twisted.internet.endpoints import serverFromString

from stompkit.server.listen.endpoints import PROXIED, arguments_of

__all__ = ["check_endpoint", "is_local", "is_loopback"]


def check_endpoint(description: str) -> None:
    """Raise ValueError for an invalid description of an endpoint to listen on."""
    from twisted.internet import reactor

    inner = description.removeprefix(PROXIED)
    if inner.startswith("systemd:"):
        # This can be checked only in a process that systemd has started.
        return
    begin = f"can't listen on {description}: "
    try:
        serverFromString(reactor, inner)  # type: ignore[no-untyped-call]  # Twisted's
    except OSError as error:
        raise ValueError(f"{begin}{error.filename}: {error.strerror}") from error
    except ImportError as error:
        is_tls = error.name == "OpenSSL"
        what = "TLS needs pyOpenSSL: pip install 'stompkit[tls]'" if is_tls else error
        raise ValueError(f"{begin}{what}") from error
    except Exception as error:
        raise ValueError(f"{begin}{error}") from error


def is_local(description: str) -> bool:
    """Return True if the description says that only this machine can reach the endpoint."""
    kind, arguments = arguments_of(description)
    if kind == "unix":
        return True
    if kind not in ("tcp", "tcp6", "ssl", "stomps"):
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
