"""TLS by the options of kombu and Celery (``ssl``, ``broker_use_ssl``)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["tls_context"]

_KNOWN: Final = frozenset(
    {
        "ca_certs",
        "certfile",
        "keyfile",
        "keyfile_password",
        "cert_reqs",
        "check_hostname",
        "server_hostname",
        "ciphers",
        "context",
    }
)


def tls_context(given: Mapping[str, Any] | bool) -> ssl.SSLContext:
    """Make the context; ``True`` checks the broker's certificate against the system's authorities.

    Raises ``ValueError`` for an unknown option: a silently ignored option would be a security risk.
    """
    options = dict(given) if isinstance(given, Mapping) else {}
    unknown = options.keys() - _KNOWN
    if unknown:
        raise ValueError(
            f"ssl option {', '.join(sorted(unknown))} is not known; there are"
            f" {', '.join(sorted(_KNOWN))}"
        )
    context = options.get("context")
    if isinstance(context, ssl.SSLContext):
        return context
    context = ssl.create_default_context(cafile=options.get("ca_certs"))
    if options.get("certfile"):
        context.load_cert_chain(
            options["certfile"], options.get("keyfile"), options.get("keyfile_password")
        )
    if options.get("ciphers"):
        context.set_ciphers(options["ciphers"])
    context.check_hostname = options.get("check_hostname", True)
    needed = options.get("cert_reqs", ssl.CERT_REQUIRED)
    if needed == ssl.CERT_NONE:
        context.check_hostname = False
    context.verify_mode = needed
    return context
