"""Trust in certificates, and explanations of failed connections to a broker."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Final

from stompkit._common.certificates import refusal
from stompkit._common.files import reason_of
from stompkit.testing.launching.place import Place

__all__ = ["explained", "trusting"]

#: OpenSSL's error code for a certificate of another host name.
_WRONG_NAME: Final = 62


def trusting(place: Place) -> ssl.SSLContext:
    """Return the settings of TLS; raises ValueError for unusable certificates."""
    context = _trusting(place)
    place.files.load_own(context)
    return context


def _trusting(place: Place) -> ssl.SSLContext:
    if not place.ca:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    path = Path(place.ca)
    files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"ca={path} has no certificates in files that end with .pem")
    for each in files:
        try:
            context.load_verify_locations(each)
        except ssl.SSLError:
            raise ValueError(f"ca={each} has no certificate of an authority, as PEM") from None
        except OSError as error:
            raise ValueError(f"ca={each} cannot be read: {reason_of(error)}") from None
    return context


def explained(error: OSError | ValueError, place: Place) -> str:
    """Return the cause and the remedy for an error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _WRONG_NAME or "match" in error.verify_message:
            return (
                f"its certificate is for another name ({error.verify_message}): use a host name"
                " that is in it"
            )
        return (
            f"its certificate is not trusted ({error.verify_message}): name the certificate of"
            " the authority that signed it, with ?ca=FILE behind the address"
        )
    refused = refusal(error)
    if refused is not None:
        return refused
    if isinstance(error, ssl.SSLError):
        plain = replace(place, scheme={"stomps": "stomp", "wss": "ws"}[place.scheme])
        return (
            f"it does not speak TLS that can be used ({error.reason or error}): see whether"
            f" this is its port with TLS; without TLS it would be {plain}"
        )
    if isinstance(error, TimeoutError):
        return "it gave no answer in time: see whether this is the right kind of port"
    if isinstance(error, OSError):
        return f"there is no connection ({reason_of(error)}): see whether it runs"
    return str(error)
