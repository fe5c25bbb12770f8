"""Clients that show a certificate, and what they say of files that cannot be used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from stompkit.client import Client as TwistedClient
from stompkit.client import ConnectFailedError, ReconnectPolicy
from stompkit.client.aio import Client as AioClient
from stompkit.client.blocking import BrokerUrl, LinkClosedError
from stompkit.testing import Place
from tests.client.logs import Log
from tests.server.certificates import Authority
from tests.server.secured import secured

LONG_S = 30.0
END = "-----END CERTIFICATE-----\n"


def split(own: Path) -> tuple[Path, Path]:
    """Write a certificate and its key to files of their own."""
    certificate, end, key = own.read_text().partition(END)
    paths = own.with_suffix(".crt"), own.with_suffix(".key")
    paths[0].write_text(certificate + end)
    paths[1].write_text(key)
    return paths


def make_on_loop(url: str) -> None:
    """Create a client on a loop, and nothing else."""

    async def make() -> None:
        AioClient(url)

    asyncio.run(make())


#: What checks the files of a URL before it connects.
MAKERS: dict[str, Callable[[str], object]] = {
    "Twisted": TwistedClient,
    "asyncio": make_on_loop,
    "blocking": lambda url: BrokerUrl.parse(url).link().close(),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("missing", "{cert}: No such file or directory"),
        ("missing key", "{key}: No such file or directory"),
        ("a directory", "{cert}: Is a directory"),
        ("no certificate", "{cert} has no certificate of a client, as PEM"),
        ("no key", "{cert} has no private key, as PEM: name its file with key=FILE"),
        ("another key", "the key in {key} belongs to another certificate than that in {cert}"),
        ("encrypted", "the key in {key} is encrypted: name a file"),
        ("expired", "the certificate in {cert} has expired on 20"),
        ("early", "the certificate in {cert} is not valid before 20"),
        ("no PEM", "{cert} with the key in {key} cannot be used: "),
    ],
)
def test_files_that_cannot_be_used_are_named(
    mistake: str, words: str, maker: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    days = {"expired": (-2, -1), "early": (1, 2)}.get(mistake, (-1, 1))
    cert, key = split(authority.client("alice", first_day=days[0], last_day=days[1]))
    if mistake == "missing":
        cert.unlink()
    elif mistake == "missing key":
        key.unlink()
    elif mistake == "a directory":
        cert.unlink()
        cert.mkdir()
    elif mistake == "no certificate":
        cert.write_text("nothing")
    elif mistake == "another key":
        key = split(authority.client("bob"))[1]
    elif mistake == "encrypted":
        found = load_pem_private_key(key.read_bytes(), None)
        lock = BestAvailableEncryption(b"sesame")
        key.write_bytes(found.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    elif mistake == "no PEM":
        cert.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n" + END)
    url = f"stomps://localhost:1?ca={authority.file}&cert={cert}"
    with pytest.raises(ValueError) as caught:
        MAKERS[maker](url if mistake == "no key" else f"{url}&key={key}")
    told = str(caught.value).removeprefix("cert=").removeprefix("key=")
    assert told.startswith(words.format(cert=cert, key=key))


@pytest.mark.parametrize(
    ("options", "words"),
    [("?key=/k", "goes with cert=FILE"), ("?cert=/c&cert=/c&other=x", "options")],
)
@pytest.mark.parametrize("parse", [BrokerUrl.parse, TwistedClient, Place.all_of])
def test_options_that_do_not_fit_are_refused(
    parse: Callable[[str], object], options: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        parse(f"stomps://localhost:1{options}")
    with pytest.raises(ValueError, match="stomps"):
        parse("stomp://localhost:1?cert=/c")


def test_every_client_shows_its_certificate(tmp_path: Path, log: Log) -> None:
    with secured(tmp_path, asks_for_certificates=True) as broker:
        cert, key = split(broker.client)
        url = f"stomps://{broker.host}:{broker.port}?ca={broker.authorities}"

        async def connect(address: str) -> None:
            async with AioClient(address, reconnect=ReconnectPolicy(max_attempts=1)):
                pass

        for own in (f"&cert={broker.client}", f"&cert={cert}&key={key}"):
            with BrokerUrl.parse(url + own).link() as link:
                link.wait_connected(LONG_S)
            asyncio.run(connect(url + own))
        other = Authority(tmp_path, "other").client("mallory")
        for own, words in (
            ("", "the broker requires a client certificate, and got none"),
            (f"&cert={other}", "the broker does not know the authority of the client certificate"),
        ):
            with pytest.raises(ConnectFailedError, match=words):
                asyncio.run(connect(url + own))
            policy = ReconnectPolicy(max_attempts=1)
            with BrokerUrl.parse(url + own).link(reconnect=policy) as link:
                with pytest.raises(LinkClosedError, match=words):
                    link.wait_connected(LONG_S)
            assert words in log.take_errors()


def test_a_renewed_certificate_is_shown_at_the_next_connection(tmp_path: Path) -> None:
    with secured(tmp_path, asks_for_certificates=True) as broker:
        own = tmp_path / "own.pem"
        foreign = Authority(tmp_path, "other").client("mallory")
        url = f"stomps://{broker.host}:{broker.port}?ca={broker.authorities}&cert={own}"
        own.write_bytes(foreign.read_bytes())
        policy = ReconnectPolicy(initial_s=0.01, max_s=0.01)

        async def connect() -> None:
            client = AioClient(url, reconnect=policy)
            connecting = asyncio.ensure_future(client.connect())
            own.write_bytes(broker.client.read_bytes())
            await connecting
            await client.disconnect()

        asyncio.run(connect())
        own.write_bytes(foreign.read_bytes())
        with BrokerUrl.parse(url).link(reconnect=policy) as link:
            own.write_bytes(broker.client.read_bytes())
            link.wait_connected(LONG_S)
