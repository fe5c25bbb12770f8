"""The metrics page, by the rules that promtool checks."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.server.admin.asking import Asker


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
