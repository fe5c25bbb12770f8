"""Features that ``stomps:`` does not offer: renegotiation, session resumption, compression."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from OpenSSL import SSL

from tests.server.processes import CONNECT, DEADLINE_S
from tests.server.secured import Secured, secured

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that speaks TLS."""
    with secured(tmp_path_factory.mktemp("secured"), settings="drain_timeout_s = 0.5") as made:
        yield made


def context(broker: Secured, version: ssl.TLSVersion) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=broker.authority)
    made.minimum_version = made.maximum_version = version
    return made


def session(
    broker: Secured, made: ssl.SSLContext, before: ssl.SSLSession | None = None
) -> ssl.SSLSocket:
    """Return a connection on which CONNECT has been answered."""
    stream = socket.create_connection((broker.host, broker.port), DEADLINE_S)
    secure = made.wrap_socket(stream, server_hostname=broker.host, session=before)
    secure.sendall(CONNECT)
    assert secure.recv(65_536).startswith(b"CONNECTED")
    return secure


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_can_not_be_resumed(broker: Secured, version: ssl.TLSVersion) -> None:
    made = context(broker, version)
    with session(broker, made) as first:
        before = first.session
    with session(broker, made, before) as second:
        assert not second.session_reused


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_agreed_on_is_current(broker: Secured, version: ssl.TLSVersion) -> None:
    with session(broker, context(broker, version)) as stream:
        name, protocol, bits = stream.cipher() or ("", "", 0)
        assert stream.compression() is None
    assert protocol in ("TLSv1.2", "TLSv1.3") and bits >= 128
    assert "GCM" in name or "CHACHA20" in name
    assert name.startswith(("ECDHE-", "TLS_"))


def test_a_client_can_not_renegotiate(broker: Secured) -> None:
    made = SSL.Context(SSL.TLS_CLIENT_METHOD)
    made.set_max_proto_version(SSL.TLS1_2_VERSION)
    stream = socket.create_connection((broker.host, broker.port), DEADLINE_S)
    # pyOpenSSL takes a socket with a timeout for a non-blocking one.
    stream.settimeout(None)
    with stream:
        secure = SSL.Connection(made, stream)
        secure.set_connect_state()
        secure.do_handshake()
        secure.send(CONNECT)
        assert secure.recv(65_536).startswith(b"CONNECTED")
        assert secure.renegotiate()
        with pytest.raises(SSL.Error):
            secure.do_handshake()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("way", ["close", "nonsense"])
def test_what_a_client_that_ends_tls_and_reads_nothing_has_goes_to_another(
    broker: Secured, version: ssl.TLSVersion, way: str
) -> None:
    """The output for it waits; it has not closed its TCP connection."""
    made = context(broker, version)
    queue = f"destination:/queue/{version.name}.{way}".encode()
    body = b"x" * 8_000_000
    with session(broker, made) as sender, session(broker, made) as first:
        sender.sendall(b"SEND\n%b\nreceipt:1\n\n%b\0" % (queue, body))
        assert sender.recv(65_536).startswith(b"RECEIPT")
        first.sendall(b"SUBSCRIBE\n%b\nid:1\nack:client\n\n\0" % queue)
        assert first.recv(65_536)
        if way == "close":
            first.setblocking(False)
            with suppress(ssl.SSLError):
                first.unwrap()
        else:
            socket.socket.sendall(first, b"nonsense" * 10)
        sender.sendall(b"SUBSCRIBE\n%b\nid:1\n\n\0" % queue)
        assert b"redelivered:true" in sender.recv(65_536)
