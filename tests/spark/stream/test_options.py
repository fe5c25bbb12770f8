"""The options of the format ``stomp``."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompkit.client.blocking import BrokerUrl
from stompkit.spark import SparkError
from stompkit.spark.stream.options import Ordinals, SinkOptions, SourceOptions


def test_a_spool_is_all_that_a_source_needs() -> None:
    options = SourceOptions.parse({"spool": "/var/spool/orders"})
    assert options.spool == Path("/var/spool/orders")
    assert options.broker is None
    assert (options.starting, options.ending, options.fail_on_data_loss) == (
        "earliest",
        "latest",
        True,
    )
    assert (options.max_records, options.max_bytes) == (100_000, 64 << 20)


def test_names_of_options_are_known_in_any_case() -> None:
    options = SourceOptions.parse(
        {"SPOOL": "s", "startingoffsets": "latest", "MAXOFFSETSPERTRIGGER": "7"}
    )
    assert (options.starting, options.max_records) == ("latest", 7)


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        SparkError, match=r"no option startingofsets; did you mean startingOffsets\?"
    ):
        SourceOptions.parse({"spool": "s", "startingOfsets": "latest"})


def test_what_spark_adds_to_the_options_is_no_mistake_of_the_user() -> None:
    given = {"hosts": "mq", "checkpointLocation": "c", "path": "p"}
    assert SinkOptions.parse(given).broker.hosts == ("mq:61613",)


def test_brokers_without_a_spool_have_one_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    given = {"hosts": "a:1, b:2", "destinations": "/queue/x, /queue/y"}
    options = SourceOptions.parse(given)
    assert options.broker is not None
    assert options.broker.hosts == ("a:1", "b:2")
    assert options.destinations == ("/queue/x", "/queue/y")
    assert Path(options.spool).is_relative_to(tmp_path)
    again = {"hosts": "b:2,a:1", "destination": "/queue/y,/queue/x"}
    assert SourceOptions.parse(again).spool == options.spool
    other = {"hosts": "a:1,b:2", "destinations": "/queue/x"}
    assert SourceOptions.parse(other).spool != options.spool


#: Folder of an earlier version for the hosts a:1 and b:2, and the destination /queue/x.
EARLIER = "720d0cc4fed056b6"

#: Options that change which messages a broker sends.
CHOOSING = {
    "selector": "color = 'red'",
    "durable": "one",
    "headers": '{"x": "1"}',
    "virtualHost": "tenant",
    "login": "me",
    "tls": "true",
    "tlsCert": "/etc/me.pem",
}


def test_queries_with_other_messages_have_other_spools(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    queries: list[dict[str, str]] = [{}, *({name: value} for name, value in CHOOSING.items())]
    queries += [{"selector": "color = 'blue'"}, {"virtualHost": "one"}, {**CHOOSING}]
    folders = [
        SourceOptions.parse({"hosts": "a:1", "destination": "/queue/x", **each}).spool
        for each in queries
    ]
    assert len(set(folders)) == len(folders)
    secret = {"hosts": "a:1", "destination": "/queue/x", "login": "me", "passcode": "p"}
    assert SourceOptions.parse(secret).spool == folders[5]


def test_a_spool_of_an_earlier_version_is_found_or_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    earlier = tmp_path / "stompkit" / "spools" / EARLIER
    given = {"hosts": "b:2,a:1", "destination": "/queue/x"}
    new = {name: SourceOptions.parse({**given, name: CHOOSING[name]}).spool for name in CHOOSING}
    earlier.mkdir(parents=True)
    assert SourceOptions.parse(given).spool == earlier
    assert SourceOptions.parse({**given, "login": "me"}).spool == earlier
    for name in ("selector", "durable", "headers", "virtualHost", "tlsCert"):
        with pytest.raises(SparkError, match=f"{earlier}.* independent of {name}. To go on with"):
            SourceOptions.parse({**given, name: CHOOSING[name]})
        chosen = SourceOptions.parse({**given, name: CHOOSING[name], "spool": str(earlier)})
        assert chosen.spool == earlier
    Path(new["selector"]).mkdir()
    assert SourceOptions.parse({**given, "selector": CHOOSING["selector"]}).spool == new["selector"]


def test_tls_has_its_authorities() -> None:
    options = SinkOptions.parse({"hosts": "mq:61614", "tlsCa": "/etc/ca", "login": "me"})
    assert (options.broker.tls, options.broker.ca, options.broker.login) == (True, "/etc/ca", "me")
    options = SinkOptions.parse({"hosts": "mq:61614", "tlsCert": "/own", "tlsKey": "/key"})
    assert options.broker == BrokerUrl.parse("stomps://mq:61614?cert=/own&key=/key")
    with pytest.raises(SparkError, match="tlsKey goes with tlsCert"):
        SinkOptions.parse({"hosts": "mq:61614", "tlsKey": "/key"})


def test_a_passcode_is_in_no_text_about_options() -> None:
    options = SinkOptions.parse({"hosts": "mq", "passcode": "secret"})
    assert options.broker.passcode == "secret"
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", "earliest"),
        ('{"0": 12, "1": -2, "2": -1}', Ordinals({0: 12, 1: -2, 2: -1})),
        ('{"v": 1, "spool": "x", "p": {"0": 5}}', Ordinals({0: 5}, "x")),
    ],
)
def test_offsets_are_words_or_ordinals(text: str, bound: object) -> None:
    assert SourceOptions.parse({"spool": "s", "startingOffsets": text}).starting == bound


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1763726400000", 1_763_726_400.0),
        ("2025-11-21T12:00:00Z", 1_763_726_400.0),
        ("2025-11-21T12:00:00", 1_763_726_400.0),
        ("2025-11-21T13:00:00+01:00", 1_763_726_400.0),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601(text: str, seconds: float) -> None:
    assert SourceOptions.parse({"spool": "s", "endingTimestamp": text}).ending == seconds


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "needs the option spool"),
        ({"hosts": "mq"}, "goes with the option destinations"),
        ({"hosts": "mq:x", "destination": "/queue/x"}, "HOST:PORT"),
        ({"spool": "s", "maxRecordsPerTrigger": "0"}, "a whole number from 1"),
        ({"spool": "s", "maxBytesPerTrigger": "many"}, "a whole number from 1"),
        ({"spool": "s", "payload": "json"}, "raw or changeset"),
        ({"spool": "s", "failOnDataLoss": "maybe"}, "true or false"),
        ({"spool": "s", "startingOffsets": "soon"}, "a JSON object"),
        ({"spool": "s", "startingTimestamp": "9" * 400}, "a time like"),
        ({"spool": "s", "endingTimestamp": "9" * 9999}, "a time like"),
        ({"spool": "s", "startingOffsets": '{"0": -3}'}, "an ordinal for each partition"),
        ({"spool": "s", "startingOffsets": '{"a": 3}'}, "an ordinal for each partition"),
        ({"spool": "s", "startingTimestamp": "noon"}, "a time like"),
        ({"spool": "s", "startingTimestamp": "1", "startingOffsets": "latest"}, "only one"),
        ({"spool": "s", "headers": "[]"}, "a JSON object"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(SparkError, match=told):
        SourceOptions.parse(given)


def test_a_sink_needs_brokers() -> None:
    with pytest.raises(SparkError, match="needs the option hosts"):
        SinkOptions.parse({"destination": "/queue/x"})
