"""Targets with TLS or WebSocket are tested like others, by the suite and by pytest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from stompkit.testing import BrokerError, LaunchConfig, Place, Tunnel, launch
from tests.conformance.command import read_report, run_command
from tests.conformance.scripted import ScriptedServer, receipts
from tests.effort import in_matrix
from tests.server.certificates import Authority
from tests.testing.launched import LONG_S

SCHEMES = ("stomps", "ws", "wss")
#: One case for each feature that a tunnel must forward: frames of all sizes, ends, resets,
#: versions.
CASES: Final = (
    "1.0/connected/session-header",
    "1.1/send/delivers",
    "1.2/send/body-is-message",
    "1.2/disconnect/receipt-answered",
    "1.2/encoding/undefined-escape-fatal",
    "robustness/closing/reset-in-head",
    "robustness/closing/in-body",
    "robustness/limits/body",
    "robustness/splitting/octet-by-octet",
)


@dataclass(frozen=True)
class Secured:
    """A broker with one port for each kind of address."""

    authority: Path
    ports: dict[str, int]

    def address(self, scheme: str, *, ca: Path | None = None) -> str:
        """Return the URL of a port."""
        where = f"{scheme}://127.0.0.1:{self.ports[scheme]}"
        return f"{where}?ca={ca or self.authority}" if scheme in ("stomps", "wss") else where


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The broker, with TLS and WebSocket ports."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    certificate = authority.server()
    plain, tls = "interface=127.0.0.1", f"interface=127.0.0.1:certificate={certificate}"
    arguments = ("--endpoint", f"stomps:0:{tls}", "--websocket", f"tcp:0:{plain}")
    config = LaunchConfig(
        arguments=(*arguments, "--websocket", f"stomps:0:{tls}"), start_timeout_s=5 * LONG_S
    )
    with launch(config) as broker:
        assert broker.directory is not None
        said = json.loads((broker.directory / "announce.json").read_text(encoding="utf-8"))
        [stomps] = (each for each in said["endpoints"] if each["port"] != broker.port)
        ws, wss = said["websocket"]
        ports = {"stomps": stomps["port"], "ws": ws["port"], "wss": wss["port"]}
        yield Secured(authority.file, ports)


@pytest.mark.parametrize("scheme", [in_matrix("stomps"), in_matrix("ws"), "wss"])
def test_the_suite_finds_nothing_else_behind_a_tunnel(
    secured: Secured, tmp_path: Path, scheme: str
) -> None:
    report = tmp_path / "report.json"
    done = run_command("--mq", secured.address(scheme), "--json", report, *CASES, cwd=tmp_path)
    assert done.status == 0, done.told
    found = read_report(report)
    assert {each.id for each in found.results} >= set(CASES)
    assert {each.verdict for each in found.results} <= {"OK", "INFORMATIONAL"}, done.told
    # The tunnel's local port would be useless in a report.
    assert found.target.address.startswith(f"{scheme}://127.0.0.1:{secured.ports[scheme]}")


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("a:1,[::1]:2", [Place("a", 1), Place("::1", 2)]),
        ("stomp://a,b:2", [Place("a", 61613), Place("b", 2)]),
        ("stomps://a", [Place("a", 61614, "stomps")]),
        (
            "stomps://a:1,b:2?ca=/x/%2C.pem",
            [Place("a", 1, "stomps", ca="/x/,.pem"), Place("b", 2, "stomps", ca="/x/,.pem")],
        ),
        ("ws://a:1/ws,wss://b", [Place("a", 1, "ws", "/ws"), Place("b", 443, "wss")]),
        ("failover:(stomp://a:1,STOMPS://b)", [Place("a", 1), Place("b", 61614, "stomps")]),
    ],
)
def test_forms_of_an_address(text: str, places: list[Place]) -> None:
    assert list(Place.all_of(text)) == places


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("http://a:1", "http:// is not known: an address is HOST:PORT, stomp://"),
        ("stomps://u:secret@a:1", "login and passcode are options"),
        ("stomps://a:1/queue", "without a path"),
        ("stomps://a:1?trust=x", "ca=FILE, cert=FILE and key=FILE only"),
        ("ws://a:1?ca=x", "with stomps:// and wss://"),
        ("wss://a:0", "is not a port"),
        ("stomps://", "is not HOST:PORT"),
    ],
)
def test_what_is_no_address_is_refused_in_one_line(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        Place.all_of(text)
    assert "secret" not in str(caught.value)
    done = run_command("--mq", text, cwd=tmp_path)
    assert done.status == 2
    assert problem in done.err.splitlines()[-1]


@pytest.mark.parametrize("scheme", ["stomps", "wss"])
def test_who_signed_a_certificate_has_to_be_named(
    secured: Secured, tmp_path: Path, scheme: str
) -> None:
    address = secured.address(scheme).partition("?")[0]
    done = run_command("--mq", address, cwd=tmp_path)
    assert done.status == 3
    [line] = done.err.splitlines()
    assert "its certificate is not trusted (" in line
    assert line.endswith("with ?ca=FILE behind the address")


def test_what_a_file_of_authorities_lacks_is_said(secured: Secured, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for ca, problem in (
        (empty, "has no certificate of an authority, as PEM"),
        (tmp_path / "none.pem", "cannot be read: No such file or directory"),
        (tmp_path, "has no certificate of an authority, as PEM"),
    ):
        with pytest.raises(BrokerError, match=problem):
            Tunnel(*Place.all_of(secured.address("stomps", ca=ca)))
    # All certificates in a folder are used.
    folder = secured.authority.parent / "authorities"
    folder.mkdir()
    (folder / "a.pem").write_bytes(secured.authority.read_bytes())
    Tunnel(*Place.all_of(secured.address("stomps", ca=folder))).close()


@pytest.mark.parametrize("scheme", ["stomps", "wss"])
def test_a_broker_can_require_a_certificate(tmp_path: Path, scheme: str) -> None:
    authority = Authority(tmp_path)
    tls = f"stomps:0:interface=127.0.0.1:certificate={authority.server()}"
    tls += f":clientCAs={authority.file}"
    option = "--endpoint" if scheme == "stomps" else "--websocket"
    config = LaunchConfig(arguments=(option, tls), start_timeout_s=5 * LONG_S)
    with launch(config) as broker:
        assert broker.directory is not None
        said = json.loads((broker.directory / "announce.json").read_text(encoding="utf-8"))
        places = said["endpoints" if scheme == "stomps" else "websocket"]
        [port] = [each["port"] for each in places if each["port"] != broker.port]
        url = f"{scheme}://127.0.0.1:{port}?ca={authority.file}"
        Tunnel(*Place.all_of(f"{url}&cert={authority.client('alice')}")).close()
        with pytest.raises(BrokerError, match="requires a client certificate, and got none"):
            Tunnel(*Place.all_of(url))
        with pytest.raises(BrokerError, match=r"none\.pem: No such file or directory"):
            Tunnel(*Place.all_of(f"{url}&cert={tmp_path / 'none.pem'}"))


def test_a_certificate_for_another_name_is_refused(secured: Secured) -> None:
    address = secured.address("stomps").replace("127.0.0.1", "localhost")
    with pytest.raises(BrokerError, match=r"is for another name .*: use a host name that is in it"):
        Tunnel(*Place.all_of(address))


def test_another_kind_of_port_is_told() -> None:
    with ScriptedServer(receipts) as server:
        for scheme in ("stomps", "ws"):
            with pytest.raises(BrokerError, match=rf"^{scheme}://"):
                Tunnel(Place("127.0.0.1", server.port, scheme), timeout_s=1.0)
    with pytest.raises(BrokerError, match=r"no connection .*: see whether it runs"):
        Tunnel(Place("127.0.0.1", server.port, "ws"))


def test_a_path_without_websockets_is_told() -> None:
    with (
        launch(LaunchConfig(admin=True, start_timeout_s=5 * LONG_S)) as broker,
        pytest.raises(BrokerError, match=r"HTTP/1\.1 404.*: name the port and the path"),
    ):
        address = broker.admin_url.replace("http:", "ws:") + "/nothing"
        Tunnel(*Place.all_of(address))


def test_a_port_of_plain_stomp_is_named(secured: Secured) -> None:
    place = Place("127.0.0.1", secured.ports["stomps"], "ws")
    with pytest.raises(BrokerError, match=r"^ws://.*: it .* WebSockets?"):
        Tunnel(place, timeout_s=LONG_S)


def test_any_path_is_asked_for(secured: Secured) -> None:
    with pytest.raises(BrokerError, match=r"HTTP/1\.1 404"):
        Tunnel(Place("127.0.0.1", secured.ports["ws"], "ws", "/nö such path"), timeout_s=LONG_S)


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    program = "import sys; sys.modules['wsproto'] = None\nimport runpy\n"
    program += "runpy.run_module('stompkit.conformance', run_name='__main__')"
    run = subprocess.run(
        [sys.executable, "-c", program, "--mq", "ws://127.0.0.1:1/"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 3
    assert "wsproto" in run.stderr
    assert run.stderr.endswith("get it by: pip install 'stompkit[websocket]'\n")


@pytest.mark.parametrize("scheme", [in_matrix("stomps"), in_matrix("ws"), "wss"])
def test_tests_talk_plain_stomp_to_a_given_broker(
    secured: Secured, pytester: pytest.Pytester, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STOMPKIT_MQ", raising=False)
    pytester.makepyfile(
        """
        def test_it(stomp_broker, stomp_client):
            assert stomp_broker.url.startswith("stomp://127.0.0.1:")
            stomp_client.subscribe("/queue/tunnel")
            stomp_client.send("/queue/tunnel", b"x" * 1_000_000)
            assert stomp_client.receive().body == b"x" * 1_000_000
            stomp_broker.frames.wait_for("MESSAGE")
        """
    )
    for frames in ("on", "off"):
        test = ["--mq", secured.address(scheme), f"--mq-frames={frames}"]
        ran = pytester.runpytest_subprocess("-p", "stompkit.testing.plugin", *test)
        # Without a relay no frames are recorded, and the error says so.
        ran.assert_outcomes(passed=int(frames == "on"), failed=int(frames == "off"))
        ran.stdout.fnmatch_lines([f"STOMP broker: at {scheme}://127.0.0.1:*(given)"])


def test_a_broker_that_nobody_trusts_is_an_error_of_the_test(
    secured: Secured, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test_it(stomp_broker): pass")
    address = secured.address("stomps").partition("?")[0]
    ran = pytester.runpytest_subprocess("-p", "stompkit.testing.plugin", "--mq", address)
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["*its certificate is not trusted (*with ?ca=FILE*"])
