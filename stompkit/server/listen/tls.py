"""TLS client certificates, and diagnosis of protocol mismatches."""

from __future__ import annotations

import re
from typing import Final

from twisted.python.failure import Failure

__all__ = ["diagnose_plain", "diagnose_tls_failure", "peer_certificate"]

#: Initial bytes of other protocols, each with advice for the client.
_BEGINNINGS: Final = (
    (
        re.compile(rb"\x16\x03[\x00-\x04]"),
        "this is a TLS handshake, and this port speaks plain STOMP: have the client connect"
        " without TLS, or to the port of a TLS endpoint",
    ),
    (
        re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT) \S"),
        "this is an HTTP request, and this port speaks STOMP over plain TCP: STOMP over WebSocket"
        " and the web pages have ports of their own",
    ),
    (
        re.compile(rb"PROXY (?:TCP[46]|UNKNOWN)|\r\n\r\n\x00\r\nQUIT\n"),
        "this is a header of the PROXY protocol, which a load balancer sends: put haproxy: before"
        " the description of the endpoint, or switch it off in the load balancer",
    ),
    (
        re.compile(rb"AMQP[\x00-\x03]"),
        "this is AMQP, and this port speaks STOMP: have the client connect to another broker",
    ),
    (
        re.compile(rb"\x10[\x00-\xff]{1,4}?\x00[\x04\x06]MQ(?:TT|Isdp)"),
        "this is MQTT, and this port speaks STOMP: have the client connect to another broker",
    ),
)


def diagnose_plain(first_octets: bytes) -> str | None:
    """Return which other protocol a client speaks on a plain-text port, with advice.

    ``first_octets`` are the bytes of the first chunk; ``None`` if they may be STOMP.
    """
    for pattern, sentence in _BEGINNINGS:
        if pattern.match(first_octets):
            return sentence
    return None


#: Words in OpenSSL's reasons for a failed handshake, in order of precedence. OpenSSL takes STOMP's
#: CONNECT for that of an HTTP proxy.
_REASONS: Final = (
    (
        ("https proxy request", "wrong version number", "unknown protocol", "packet length too"),
        "the client does not speak TLS, and this port does: have the client use TLS, or a port"
        " without it",
    ),
    (
        ("http request",),
        "the client sent an HTTP request without TLS to a port that wants TLS: have it use wss://"
        " if this is a port for WebSockets, which have ports of their own, as web pages have",
    ),
    (
        ("alert unknown ca", "alert certificate unknown", "alert bad certificate"),
        "the client does not trust the broker's certificate: give it the certificate of the"
        " authority that has signed it, and check that it connects by a name that is in it",
    ),
    (
        ("alert certificate expired",),
        "the client says that the broker's certificate has expired: renew it, or set its clock",
    ),
    (
        ("did not return a certificate",),
        "the client showed no certificate, and this port wants one: give the client a certificate"
        " and its key, or set clients=optional",
    ),
    (
        ("certificate has expired",),
        "the client's certificate has expired: renew it, or set the clock of this machine",
    ),
    (
        ("certificate is not yet valid",),
        "the client's certificate is not valid yet: set the clock of this machine, or of the one"
        " that has signed it",
    ),
    (
        ("unable to get", "self-signed", "self signed", "unable to verify"),
        "the client's certificate is signed by an authority that this port does not know: have it"
        " signed by one that is in the file clientCAs, or add its authority to the file",
    ),
    (
        ("purpose",),
        "the client's certificate is not meant for clients: it needs clientAuth among its extended"
        " key usages",
    ),
    (
        ("certificate verify failed",),
        "the client's certificate was not accepted: it has to be valid today, and signed by an"
        " authority that this port knows",
    ),
    (
        ("unsupported protocol", "protocol version", "version too low"),
        "the client and the broker have no version of TLS in common: the broker wants 1.2 or later",
    ),
    (
        ("no shared cipher", "handshake failure", "no suitable", "no cipher"),
        "the client and the broker have no cipher in common: update the older of the two",
    ),
)


def diagnose_tls_failure(reason: Failure) -> str | None:
    """Return why a TLS handshake failed, with advice; ``None`` for anything else.

    ``reason`` is the argument of ``connectionLost``.
    """
    words = _openssl_reason(reason.value)
    if words is None:
        return None
    for known, sentence in _REASONS:
        if any(word in words for word in known):
            return f"{sentence} ({words})"
    return f"TLS failed: {words}"


def _openssl_reason(error: BaseException | None) -> str | None:
    try:
        from OpenSSL.SSL import Error
    except ImportError:
        return None
    if not isinstance(error, Error) or not error.args:
        return None
    queue = error.args[0]
    if not isinstance(queue, list) or not queue:
        return None
    return "; ".join(str(entry[-1]) for entry in queue)


def peer_certificate(transport: object) -> bytes | None:
    """Return the verified certificate (DER) of a TLS client.

    Return ``None`` without TLS, without a certificate, and if the endpoint does not verify any.
    """
    handle = getattr(transport, "getHandle", None)
    connection = None if handle is None else handle()
    try:
        from OpenSSL import SSL, crypto
    except ImportError:
        return None
    if not isinstance(connection, SSL.Connection):
        return None
    if not connection.get_verify_mode() & SSL.VERIFY_PEER:
        return None
    certificate = connection.get_peer_certificate()
    if certificate is None:
        return None
    return crypto.dump_certificate(crypto.FILETYPE_ASN1, certificate)
