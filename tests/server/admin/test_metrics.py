"""The metrics page, by the rules that promtool checks."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificate
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.server.admin.asking import Asker
from tests.server.certificates import Authority
from tests.server.processes import LOOPBACK, TWIST, announced, processes


def families(ask: Asker) -> dict[str, Metric]:
    """Return the metrics of the page by the names of their families."""
    answer = ask.request("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {each.name: each for each in text_string_to_metric_families(answer.body.decode())}


def names(ask: Asker) -> set[str]:
    """Return the names of all samples."""
    return {sample.name for each in families(ask).values() for sample in each.samples}


def test_every_metric_says_what_it_is(broker: RunningBroker, ask: Asker) -> None:
    with broker.client() as client:
        client.send("/queue/a", b"x", receipt=True)
        for name, family in families(ask).items():
            assert family.documentation, f"{name} has no help"
            assert family.type in ("counter", "gauge"), name
            assert re.fullmatch(r"(stompkit|process)(_[a-z]+)+", name), name
            assert not name.endswith(("_seconds_count", "_octets", "_ms")), name
            if name.startswith("stompkit"):
                keys = [tuple(sorted(each.labels.items())) for each in family.samples]
                assert len(keys) == len(set(keys)), f"{name} has the same labels twice"
    text = ask.request("GET", "/metrics").body.decode()
    helped = re.findall(r"^# HELP (\S+)", text, re.MULTILINE)
    typed = re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE)
    assert helped == [name for name, _ in typed] and len(set(helped)) == len(helped)
    for name, kind in typed:
        assert name.endswith("_total") == (kind == "counter"), name
        assert "gauge" not in name and "counter" not in name


def test_values(broker: RunningBroker, ask: Asker) -> None:
    with broker.client() as client:
        for _ in range(3):
            client.send('/queue/"a\\', b"x", receipt=True)
        found = families(ask)
    labels = {"host": "", "destination": '/queue/"a\\', "kind": "queue"}
    for family, value in {"messages_received": 3, "messages_ready": 3, "consumers": 0}.items():
        samples = found[f"stompkit_{family}"].samples
        assert [each.value for each in samples if each.labels == labels] == [value], family
    assert found["stompkit_connections"].samples[0].value == 1
    assert found["stompkit_ready"].samples[0].value == 1


def test_timers_are_counted() -> None:
    """A client with heart-beats adds a timer; timers of other clients may have ended meanwhile."""
    with launch(LaunchConfig(admin=True)) as broker, ExitStack() as stack:
        ask = Asker(broker.admin_url)
        [before] = families(ask)["stompkit_timers"].samples
        for _ in range(20):
            # So slow that no heart-beat is due.
            stack.enter_context(broker.client(heart_beat="600000,600000"))
        [after] = families(ask)["stompkit_timers"].samples
    assert after.value > before.value + 10


def test_the_dates_of_certificates_in_use_are_known(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    spoken = {"stomp": authority.server(last_day=20), "admin": authority.server(last_day=5)}
    tls = {
        name: f"stomps:0:interface=127.0.0.1:certificate={path}" for name, path in spoken.items()
    }
    fixed = authority.server(last_day=9)
    announce = tmp_path / "announce"
    arguments = (
        *("--endpoint", tls["stomp"], "--admin", LOOPBACK, "--admin", tls["admin"]),
        *("--endpoint", f"ssl:0:interface=127.0.0.1:privateKey={fixed}"),
    )

    def told() -> dict[tuple[str, str], float]:
        samples = families(ask)["stompkit_certificate_expiry_timestamp_seconds"].samples
        return {(each.labels["listener"], each.labels["file"]): each.value for each in samples}

    (tmp_path / "run").mkdir()
    with processes(tmp_path / "run") as start:
        announced(start(TWIST, *arguments, "--announce", str(announce)), announce)
        port = json.loads(announce.read_text(encoding="utf-8"))["admin"][0]["port"]
        ask = Asker(f"http://127.0.0.1:{port}")
        known = {(name, str(path)): end_of(path) for name, path in spoken.items()}
        known["stomp", str(fixed)] = end_of(fixed)
        assert told() == known
        new = end_of(authority.server(last_day=90).replace(spoken["stomp"]))
        # Twisted's endpoint keeps what it has read.
        authority.server(last_day=90).replace(fixed)
        known["stomp", str(spoken["stomp"])] = new
        assert told() == known
        spoken["stomp"].write_text("half a certificate")
        spoken["admin"].unlink()
        assert told() == known


def end_of(path: Path) -> float:
    """Return when the certificate of a file expires."""
    return load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()


def test_labels_are_bounded(tmp_path: Path) -> None:
    config = tmp_path / "stompkit.toml"
    config.write_text("[admin]\nmax_metric_destinations = 2\n")
    arguments = ("--config", str(config))
    with launch(LaunchConfig(admin=True, arguments=arguments)) as broker, broker.client() as client:
        for number in range(5):
            client.send(f"/queue/{number}", b"x", receipt=True)
        ready = families(Asker(broker.admin_url))["stompkit_messages_ready"].samples
    assert {each.labels["destination"]: each.value for each in ready} == {
        "/queue/0": 1,
        "/queue/1": 1,
        "other": 3,
    }
