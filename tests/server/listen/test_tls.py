"""TLS with real handshakes: client certificates, and messages about failures."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from OpenSSL.SSL import Error
from pytest_twisted import ensureDeferred  # type: ignore[import-untyped]  # it ships no types
from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.threads import deferToThread
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from stompkit.server import BrokerFactory
from stompkit.server.listen.tls import diagnose_plain, diagnose_tls_failure, peer_certificate
from stompkit.server.listen.tls_endpoint import TlsServer
from stompkit.server.login.auth import CredAuthenticator
from stompkit.server.login.rights import Rights, RightsAuthoriser
from tests.server.certificates import Authority

Test = Callable[..., Coroutine[Any, Any, None]]
#: For tests that wait for the reactor.
in_reactor: Callable[[Test], Test] = ensureDeferred
DEADLINE_S = 20.0


# Other protocols on a plain port.


def client_hello(version: ssl.TLSVersion) -> bytes:
    """Return the first message of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = version
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="x").do_handshake()
    return sent.read()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_tls_client_on_a_plain_port_is_told_apart(version: ssl.TLSVersion) -> None:
    sentence = diagnose_plain(client_hello(version))
    assert sentence is not None
    assert "TLS handshake" in sentence


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n", "HTTP request"),
        (b"GET /", "HTTP request"),
        (b"POST http://x/ HTTP/1.0\r\n", "HTTP request"),
        (b"CONNECT example.org:61613 HTTP/1.1\r\n", "HTTP request"),
        (b"OPTIONS * HTTP/1.1\r\n", "HTTP request"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nCONNECT\n", "PROXY protocol"),
        (b"PROXY UNKNOWN\r\n", "PROXY protocol"),
        (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", "PROXY protocol"),
        (b"AMQP\x00\x00\x09\x01", "AMQP"),
        (b"AMQP\x03\x01\x00\x00", "AMQP"),
        (b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd", "MQTT"),
        (b"\x10\x96\x01\x00\x06MQIsdp\x03", "MQTT"),
    ],
)
def test_another_protocol_on_a_plain_port_is_named(octets: bytes, words: str) -> None:
    sentence = diagnose_plain(octets)
    assert sentence is not None
    assert words in sentence


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"CONNECT\naccept-version:1.2\n\n\0",
        b"CONNECT \n\n\0",
        b"CONNECT\r\nhost:x\r\n\r\n\0",
        b"STOMP\n\n\0",
        b"\n\r\nCONNECT\n\n\0",
        b"\r\n\r\nCONNECT\n\n\0",
        b"CONN",
        b"\x16",
        b"\x16\x03",
        b"GET",
        b"GET ",
        b"SEND\ndestination:GET / HTTP/1.1\n\n\0",
        b"\x00",
    ],
)
def test_what_may_be_stomp_is_taken_for_it(octets: bytes) -> None:
    assert diagnose_plain(octets) is None


# Handshakes.


class Server(Protocol):
    """A protocol that records its data and its end."""

    def connectionMade(self) -> None:
        """Record the connection."""
        self.certificate: bytes | None = None
        cast("ServerFactory", self.factory).servers.append(self)

    def dataReceived(self, data: bytes) -> None:
        """Record the client's certificate, reply and close."""
        assert self.transport is not None
        self.certificate = peer_certificate(self.transport)
        self.transport.write(b"welcome")
        self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fire the Deferred of the factory."""
        cast("ServerFactory", self.factory).lost.callback(reason)


class ServerFactory(Factory):
    """Serves one client."""

    protocol = Server
    noisy = False

    def __init__(self) -> None:
        """Start without a client."""
        self.servers: list[Server] = []
        self.lost: Deferred[Failure] = Deferred()


class Listening:
    """A server that listens on an endpoint for one client."""

    def __init__(self, description: str) -> None:
        """Store the description of an endpoint."""
        self.factory = ServerFactory()
        self._endpoint: Any = serverFromString(  # type: ignore[no-untyped-call]  # Twisted's
            reactor, description
        )

    async def meet(self, client: Callable[[int], bytes]) -> tuple[bytes, Failure, Server]:
        """Run a client in a thread, which connects to the port.

        Return the result of the client, and the reason and the protocol of the server.
        """
        port: IListeningPort = await self._endpoint.listen(self.factory)
        host = port.getHost()
        assert isinstance(host, IPv4Address)
        returned = await deferToThread(client, host.port)
        # A Failure as a result would make the Deferred fail.
        ends: list[Failure] = []
        self.factory.lost.addBoth(ends.append)
        await self.factory.lost
        stopped = port.stopListening()
        if stopped is not None:
            await stopped
        return returned, ends[0], self.factory.servers[0]


def described(authority: Authority, clients: str = "", host: str = "127.0.0.1") -> str:
    """Return a ``stomps:`` endpoint, with or without client certificates."""
    text = f"stomps:0:certificate={authority.server(host)}:interface=127.0.0.1"
    return f"{text}:clientCAs={authority.file}:clients={clients}" if clients else text


def plain(octets: bytes) -> Callable[[int], bytes]:
    """Return a client that sends these bytes and returns the reply."""

    def run(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as stream:
            stream.sendall(octets)
            return received(stream)

    return run


def over_tls(
    trusted: Path,
    certificate: Path | None = None,
    ciphers: str | None = None,
    octets: bytes = b"CONNECT\n\n\0",
    **settings: Any,
) -> Callable[[int], bytes]:
    """Return a client that does the same over TLS; ``settings`` are attributes of its context."""

    def run(port: int) -> bytes:
        context = ssl.create_default_context(cafile=trusted)
        if ciphers is not None:
            context.set_ciphers(ciphers)
        for name, value in settings.items():
            setattr(context, name, value)
        if certificate is not None:
            context.load_cert_chain(certificate)
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as stream:
            try:
                with context.wrap_socket(stream, server_hostname="127.0.0.1") as secure:
                    secure.sendall(octets)
                    return received(secure)
            except OSError:
                return b""

    return run


def received(stream: socket.socket) -> bytes:
    """Return all bytes until the end, or none if the end is an error."""
    chunks = []
    try:
        while chunk := stream.recv(4096):
            chunks.append(chunk)
    except ConnectionError:
        return b""
    return b"".join(chunks)


@pytest.mark.parametrize("kind", ["stomps", "ssl"])
@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (b"CONNECT\naccept-version:1.2\n\n\0", "the client does not speak TLS"),
        (b"STOMP\naccept-version:1.2\n\n\0", "the client does not speak TLS"),
        (b"\nCONNECT\naccept-version:1.2\n\n\0", "the client does not speak TLS"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP request without TLS"),
    ],
)
@pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")  # needed by ssl:
@in_reactor
async def test_a_client_without_tls_is_told_apart(
    kind: str, octets: bytes, words: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    description = f"ssl:0:privateKey={authority.server()}:interface=127.0.0.1"
    listening = Listening(described(authority) if kind == "stomps" else description)
    _, reason, server = await listening.meet(plain(octets))
    sentence = diagnose_tls_failure(reason)
    assert sentence is not None
    assert words in sentence
    assert peer_certificate(server.transport) is None


@pytest.mark.parametrize("clients", ["", "optional"])
@in_reactor
async def test_a_client_without_certificate_may_come(clients: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listening = Listening(described(authority, clients))
    answer, reason, server = await listening.meet(over_tls(authority.file))
    assert answer == b"welcome"
    assert server.certificate is None
    assert diagnose_tls_failure(reason) is None


@pytest.mark.parametrize("clients", ["required", "optional"])
@in_reactor
async def test_the_certificate_of_a_client_is_known(clients: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.client("alice")
    listening = Listening(described(authority, clients))
    answer, _, server = await listening.meet(over_tls(authority.file, own))
    assert answer == b"welcome"
    text = own.read_text()
    end = "-----END CERTIFICATE-----\n"
    assert server.certificate == ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)])


@in_reactor
async def test_a_certificate_that_nobody_asked_for_is_not_known(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.client("alice")
    answer, _, server = await Listening(described(authority)).meet(over_tls(authority.file, own))
    assert answer == b"welcome"
    assert server.certificate is None


@pytest.mark.parametrize("clients", ["required", "optional"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("foreign", "signed by an authority that this port does not know"),
        ("expired", "the client's certificate has expired"),
        ("early", "the client's certificate is not valid yet"),
        ("server", "the client's certificate is not meant for clients"),
    ],
)
@in_reactor
async def test_a_certificate_that_is_not_accepted_is_explained(
    kind: str, words: str, clients: str, tmp_path: Path
) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    own = {
        "foreign": foreign.client("alice"),
        "expired": authority.client("alice", first_day=-9, last_day=-8),
        "early": authority.client("alice", first_day=8, last_day=9),
        "server": authority.server(),
    }[kind]
    listening = Listening(described(authority, clients))
    answer, reason, server = await listening.meet(over_tls(authority.file, own))
    assert answer == b""
    assert server.certificate is None
    sentence = diagnose_tls_failure(reason)
    assert sentence is not None
    assert words in sentence


@in_reactor
async def test_a_missing_certificate_is_explained(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listening = Listening(described(authority, "required"))
    answer, reason, _ = await listening.meet(over_tls(authority.file))
    assert answer == b""
    assert "the client showed no certificate" in str(diagnose_tls_failure(reason))


@in_reactor
async def test_a_broker_that_the_client_does_not_trust_is_explained(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    _, reason, _ = await Listening(described(authority)).meet(over_tls(other.file))
    assert "the client does not trust the broker's certificate" in str(diagnose_tls_failure(reason))


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")  # old versions needed
@in_reactor
async def test_a_version_that_is_too_old_is_explained(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = over_tls(
        authority.file,
        ciphers="ALL:@SECLEVEL=0",
        minimum_version=ssl.TLSVersion.TLSv1,
        maximum_version=ssl.TLSVersion.TLSv1_1,
    )
    _, reason, _ = await Listening(described(authority)).meet(client)
    assert "no version of TLS in common" in str(diagnose_tls_failure(reason))


@pytest.mark.parametrize(
    "ciphers",
    [
        pytest.param("kRSA+AES", id="without forward secrecy"),
        pytest.param("ECDHE-ECDSA-AES256-SHA384", id="without authenticated encryption"),
    ],
)
@in_reactor
async def test_weak_ciphers_are_refused_and_explained(ciphers: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = over_tls(authority.file, ciphers=ciphers, maximum_version=ssl.TLSVersion.TLSv1_2)
    _, reason, _ = await Listening(described(authority)).meet(client)
    assert "no cipher in common" in str(diagnose_tls_failure(reason))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@in_reactor
async def test_current_versions_work(version: ssl.TLSVersion, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = over_tls(authority.file, minimum_version=version, maximum_version=version)
    answer, _, _ = await Listening(described(authority)).meet(client)
    assert answer == b"welcome"


@in_reactor
async def test_a_client_that_goes_away_is_no_failure_of_tls(tmp_path: Path) -> None:
    _, reason, _ = await Listening(described(Authority(tmp_path))).meet(leave)
    assert diagnose_tls_failure(reason) is None


def leave(port: int) -> bytes:
    socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S).close()
    return b""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ConnectionDone(), None),
        (ConnectionLost(), None),
        (ValueError("http request"), None),
        (Error(), None),
        (Error([]), None),
        (Error([("SSL routines", "", "something new")]), "TLS failed: something new"),
        (
            Error([("a", "", "something new"), ("b", "", "more of it")]),
            "TLS failed: something new; more of it",
        ),
    ],
)
def test_only_what_openssl_says_is_diagnosed(error: Exception, sentence: str | None) -> None:
    failure = Failure(error)  # type: ignore[no-untyped-call]  # Twisted's
    assert diagnose_tls_failure(failure) == sentence


@in_reactor
async def test_without_tls_there_is_no_certificate() -> None:
    listening = Listening("tcp:0:interface=127.0.0.1")
    answer, _, server = await listening.meet(plain(b"CONNECT\n\n\0"))
    assert answer == b"welcome"
    assert server.certificate is None
    assert peer_certificate(object()) is None


# With a broker.


@in_reactor
async def test_a_certificate_logs_in_and_has_the_rights_of_its_user(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    factory = BrokerFactory(
        authenticator=CredAuthenticator([], certificate_users=True),
        authoriser=RightsAuthoriser(
            [Rights(destination="/queue/home.{user}", allow=("create", "write"))]
        ),
    )
    endpoint: Any = serverFromString(  # type: ignore[no-untyped-call]  # Twisted's
        reactor, described(authority, "required")
    )
    port: IListeningPort = await endpoint.listen(factory)
    frames = (
        b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
        b"SEND\ndestination:/queue/home.alice\nreceipt:own\n\n\0"
        b"SEND\ndestination:/queue/home.bob\nreceipt:foreign\n\n\0"
    )
    client = over_tls(authority.file, authority.client("alice"), octets=frames)
    answer = await deferToThread(client, cast("IPv4Address", port.getHost()).port)
    assert [
        frame.partition(b"\n")[0] for frame in answer.replace(b"\0\n", b"\0").split(b"\0") if frame
    ] == [b"CONNECTED", b"RECEIPT", b"ERROR"]
    assert b"receipt-id:own" in answer
    assert b"stompkit-code:not-authorised" in answer
    stopped = port.stopListening()
    if stopped is not None:
        await stopped


# The files of an endpoint.


def replaced(path: Path, content: bytes) -> None:
    partial = path.with_name("partial")
    partial.write_bytes(content)
    partial.replace(path)


@in_reactor
async def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    path = tmp_path / "broker.pem"
    path.write_bytes(old.server().read_bytes())
    endpoint = f"stomps:0:certificate={path}:interface=127.0.0.1"
    before, after, broken = (Listening(endpoint) for _ in range(3))
    assert (await before.meet(over_tls(old.file)))[0] == b"welcome"
    replaced(path, new.server().read_bytes())
    assert (await after.meet(over_tls(new.file)))[0] == b"welcome"
    replaced(path, b"nothing")
    with capturedLogs() as events:
        answer, reason, _ = await broken.meet(over_tls(old.file))
    assert answer == b"welcome"
    assert diagnose_tls_failure(reason) is None
    assert any("has no certificates" in formatEvent(event) for event in events)


def test_a_key_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    text = Authority(tmp_path).server().read_text()
    start = text.index("-----BEGIN PRIVATE KEY")
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    certificate.write_text(text[:start])
    key.write_text(text[start:])
    TlsServer(certificate, key)
    with pytest.raises(ValueError, match="certificate has no unencrypted private key"):
        TlsServer(certificate)
    with pytest.raises(ValueError, match="key has no certificates"):
        TlsServer(key)


def test_a_key_that_is_another_certificates_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(ValueError, match=r"OpenSSL does not take .*one.* with the key in .*two"):
        TlsServer(authority.server("one"), authority.server("two"))


def test_a_key_that_is_encrypted_or_not_for_tls_is_refused(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).server()
    encrypted, exchange = tmp_path / "encrypted", tmp_path / "exchange"
    encrypted.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    )
    exchange.write_bytes(
        X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    with pytest.raises(ValueError, match="no unencrypted private key"):
        TlsServer(certificate, encrypted)
    with pytest.raises(ValueError, match="a kind that TLS does not use"):
        TlsServer(certificate, exchange)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("certificate=nowhere", "nowhere"),
        ("certificate={own}:privateKey=nowhere", "nowhere"),
        ("certificate={own}:clientCAs=nowhere", "nowhere"),
        ("certificate={own}:clients=required", "goes with clientCAs="),
        ("certificate={own}:clientCAs={own}:clients=never", "required or optional"),
        ("certificate={own}:secure=yes", "secure"),
        ("", "certificate"),
    ],
)
def test_a_mistaken_endpoint_is_refused(arguments: str, message: str, tmp_path: Path) -> None:
    own = Authority(tmp_path).server()
    with pytest.raises((ValueError, OSError, TypeError), match=message):
        Listening(f"stomps:0:{arguments.format(own=own)}".rstrip(":"))
