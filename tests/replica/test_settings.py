"""Settings of a replica: Vesper's names are supported, and no setting is silently ignored."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from stompkit.replica.engine import EngineSettings
from stompkit.replica.settings import Channel, ChannelSettingsError, ReplicaSettings


def port(**settings: Any) -> Channel:
    (only,) = ReplicaSettings(**{"replication_channel": "c", **settings}).ports
    return only


def test_the_settings_of_vesper_mean_what_they_did() -> None:
    settings = ReplicaSettings(
        save_history=True,
        branch_id="BB",
        trunk_id="AA",
        replication_hosts=[("mq", 61613), ("other", 61614)],
        replication_channel="notes",
        send_stomp_ack=False,
    )
    (own,) = settings.ports
    assert own.broker.hosts == ("mq:61613", "other:61614")
    assert own.destination == "/topic/notes"
    assert own.send_stomp_ack is False
    assert (settings.branch_id, settings.trunk_id, settings.save_history) == ("BB", "AA", True)


def test_a_mapping_says_the_same_as_keywords() -> None:
    said: dict[str, Any] = {"branch_id": "A", "replication_hosts": "mq:1", "window": 5}
    settings = ReplicaSettings.of(said, replication_channel="c", window=7)
    assert settings == ReplicaSettings(
        branch_id="A", replication_hosts="mq:1", replication_channel="c", window=7
    )


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("a:1,b:2", ("a:1", "b:2")),
        ("a:1, b:2", ("a:1", "b:2")),
        ("a", ("a:61613",)),
        (["a:1", ("b", 2), ["c", 3]], ("a:1", "b:2", "c:3")),
        ([("::1", 5)], ("[::1]:5",)),
        ("stomp://a:1,b", ("a:1", "b:61613")),
    ],
)
def test_hosts_can_be_said_in_each_way(hosts: Any, expected: tuple[str, ...]) -> None:
    assert port(replication_hosts=hosts).broker.hosts == expected


def test_a_url_brings_login_tls_and_virtual_host() -> None:
    broker = port(replication_hosts="stomps://me:s3cr3t@a,b:61614?vhost=/x").broker
    assert (broker.login, broker.passcode, broker.tls, broker.virtual_host) == (
        "me",
        "s3cr3t",
        True,
        "/x",
    )


def test_a_url_can_name_the_channel() -> None:
    (own,) = ReplicaSettings(replication_hosts="stomp://a/topic/x").ports
    assert own.destination == "/topic/x"
    with pytest.raises(ChannelSettingsError, match="leave one of them out"):
        ReplicaSettings(replication_hosts="stomp://a/topic/x", replication_channel="y")


@pytest.mark.parametrize(
    "hosts",
    ["", [], "a:x", "a:0", [("a",)], [("a", 1, 2)], ["a b:1"], "mq/topic", [5], "http://a", [None]],
)
def test_hosts_that_are_none_are_refused(hosts: Any) -> None:
    with pytest.raises(ChannelSettingsError, match="replication_hosts"):
        port(replication_hosts=hosts)


def test_nothing_secret_is_shown() -> None:
    said = {"replication_hosts": "stomp://me:s3cr3t@a", "replication_channel": "c"}
    other = {"replication_hosts": "stomp://me:s3cr3t@b", "replication_channel": "c"}
    settings = ReplicaSettings.of(said, relays=[other])
    assert "s3cr3t" not in f"{settings!r} {settings.ports!r}"
    with pytest.raises(ChannelSettingsError) as refused:
        ReplicaSettings(replication_hosts="stomp://me:s3cr3t@a:x", replication_channel="c")
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("branchId", "branch_id"),
        ("saveHistory", "save_history"),
        ("replication_host", "replication_hosts"),
        ("REPLICATION_CHANNEL", "replication_channel"),
        ("send-stomp-ack", "send_stomp_ack"),
        ("digest_interval", "digest_interval_s"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_one_that_is_meant(name: str, meant: str) -> None:
    """The example in Vesper's manual had such names, which were ignored."""
    said: dict[str, Any] = {name: "x"}
    with pytest.raises(TypeError, match=f"{name!r}: is {meant} meant"):
        ReplicaSettings(**said)
    with pytest.raises(TypeError, match=f"is {meant} meant"):
        ReplicaSettings.of(said)


def test_a_setting_that_is_like_no_other_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(TypeError, match=r"'model_uri': .*branch_id.*replication_channel"):
        ReplicaSettings.of({"model_uri": "test:"})


@pytest.mark.parametrize(
    ("half", "advice"),
    [
        ({"replication_hosts": "a:1"}, "no replication_channel: name the topic"),
        ({"replication_channel": "c"}, "no replication_hosts: name the broker"),
        ({"replication_channel": "c", "replication_hosts": []}, "no replication_hosts"),
        ({"relays": [{"replication_hosts": "a:1"}]}, r"relays\[0\]: .*no replication_channel"),
        ({"relays": [{"receipts": True}]}, r"relays\[0\] names replication_hosts and"),
    ],
)
def test_half_of_what_replication_needs_is_refused(half: dict[str, Any], advice: str) -> None:
    """Vesper silently disabled replication."""
    with pytest.raises(ChannelSettingsError, match=advice):
        ReplicaSettings(**half)


def test_without_a_broker_there_is_nobody_to_replicate_with() -> None:
    assert ReplicaSettings().ports == ()


def test_relays_are_more_channels() -> None:
    settings = ReplicaSettings(
        replication_hosts="a:1",
        replication_channel="c",
        send_stomp_ack=False,
        relays=[
            {"replication_hosts": "a:1", "replication_channel": "up"},
            {
                "replication_hosts": "stomp://b:2",
                "replication_channel": "/exchange/x",
                "send_stomp_ack": True,
                "receipts": False,
            },
        ],
    )
    found = [(each.destination, each.send_stomp_ack, each.receipts) for each in settings.ports]
    assert found == [
        ("/topic/c", False, True),
        ("/topic/up", False, True),
        ("/exchange/x", True, False),
    ]


def test_a_relay_to_the_same_place_is_refused() -> None:
    place = {"replication_hosts": "a:1", "replication_channel": "c"}
    with pytest.raises(ChannelSettingsError, match="twice"):
        ReplicaSettings.of(place, relays=[{**place, "replication_channel": "/topic/c"}])


def test_a_relay_is_looked_at_as_closely_as_the_rest() -> None:
    relay = {"replication_hosts": "a:1", "replication_channel": "c", "durable": "yes"}
    with pytest.raises(ChannelSettingsError, match=r"relays\[0\]: durable"):
        ReplicaSettings(relays=[relay])


def test_an_unknown_setting_of_a_relay_is_refused() -> None:
    relay = {"replication_hosts": "a:1", "replication_chanel": "c"}
    with pytest.raises(TypeError, match=r"relays\[0\].*is replication_channel meant"):
        ReplicaSettings(relays=[relay])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("save_history", "yes"),
        ("save_history", 1),
        ("save_history", None),
        ("send_stomp_ack", "no"),
        ("receipts", 0),
        ("durable", "mine"),
        ("branch_id", ""),
        ("branch_id", "a b"),
        ("branch_id", 7),
        ("trunk_id", None),
        ("trunk_id", "x~y"),
        ("direction", "up"),
        ("bootstrap", "never"),
        ("bulk", "all"),
        ("window", 0),
        ("window", 2.5),
        ("window", True),
        ("max_body_bytes", "1"),
        ("repeat_s", 0),
        ("poll_s", -1),
        ("poll_s", "1"),
        ("digest_interval_s", -0.1),
        ("retention", "long"),
        ("retention", 30),
        ("keep_unseen", 1),
        ("compact_interval_s", -1),
        ("include", "notes"),
        ("exclude", [""]),
        ("include", 5),
        ("trusted_keys", {"A": "ed25519:x"}),
        ("trusted_keys", ["A"]),
        ("trusted_keys", {"a b": "ed25519:x"}),
        ("relays", {"replication_hosts": "a:1"}),
        ("relays", "a:1"),
        ("relays", ["a:1"]),
    ],
)
def test_a_value_that_can_not_be_is_refused_with_the_name(name: str, value: Any) -> None:
    with pytest.raises(ChannelSettingsError, match=name):
        ReplicaSettings(**{name: value})


@pytest.mark.parametrize("channel", ["a b", "a\nb", "a\x00", 7])
def test_a_channel_that_no_topic_can_be_called_is_refused(channel: Any) -> None:
    with pytest.raises(ChannelSettingsError, match="replication_channel"):
        port(replication_hosts="a:1", replication_channel=channel)


def test_the_kinds_of_history_of_vesper_are_understood() -> None:
    assert ReplicaSettings(save_history="combined").save_history is True  # type: ignore[arg-type]
    with pytest.raises(ChannelSettingsError, match="save_history=True does that"):
        ReplicaSettings(save_history="split")  # type: ignore[arg-type]


def test_settings_never_change_but_can_be_copied_with_others() -> None:
    settings = ReplicaSettings(branch_id="A")
    with pytest.raises(FrozenInstanceError):
        settings.branch_id = "B"  # type: ignore[misc]
    assert copy.copy(settings) == settings
    assert replace(settings, branch_id="B").branch_id == "B"


@pytest.mark.parametrize("branch", ["A", "0A", "7", "a-very-long.name_of-a-node"])
def test_a_branch_is_called_what_it_is_called(branch: str) -> None:
    """Vesper padded names, and then refused messages with them."""
    assert ReplicaSettings(branch_id=branch).branch_id == branch


def test_what_the_engine_has_to_know_is_passed_on() -> None:
    settings = ReplicaSettings(
        branch_id="A",
        trunk_id="T",
        replication_hosts="a:1",
        replication_channel="c",
        relays=[{"replication_hosts": "b:1", "replication_channel": "/exchange/x"}],
        direction="send",
        window=7,
        exclude=["b", "a"],
    )
    engine = settings.for_engine()
    assert engine.channels == ("c", "/exchange/x")
    assert (engine.branch_id, engine.trunk_id, engine.direction, engine.window) == (
        "A",
        "T",
        "send",
        7,
    )
    assert engine.selection == settings.of({"exclude": ["a", "b"]}).for_engine().selection != ""
    assert ReplicaSettings().for_engine().selection == ""


def test_defaults_are_those_of_the_engine() -> None:
    assert ReplicaSettings().for_engine() == EngineSettings(trunk_id="0A", channels=())


def test_where_no_history_is_saved_only_what_others_lack_is_kept() -> None:
    assert ReplicaSettings().kept.is_for_ever
    kept = ReplicaSettings(save_history=False).kept
    assert (kept.max_age_s, kept.keep_unseen) == (0.0, True)
    kept = ReplicaSettings(retention="2 days", keep_unseen=False).kept
    assert (kept.max_age_s, kept.keep_unseen) == (172_800.0, False)
