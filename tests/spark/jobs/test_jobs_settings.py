"""Files of pipelines: valid settings, and messages about invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stompkit.spark.jobs.settings import JobName, PipelineError, life, load, parse, seconds
from stompkit.spark.stream.options import SourceOptions

LEAST: dict[str, Any] = {
    "name": "shop",
    "source": {"spool": "/var/spool/shop"},
    "target": {"url": "sqlite:///copy.sqlite"},
}


def told(found: dict[str, Any]) -> list[str]:
    """Return the errors of the settings."""
    with pytest.raises(PipelineError) as caught:
        parse(found)
    return str(caught.value).splitlines()


def test_little_has_to_be_said() -> None:
    settings = parse(LEAST)
    assert settings.jobs() == ["replicate"]
    assert settings.trigger == "1s"
    assert settings.apply.on_problem == "stop"
    assert settings.spool() == Path("/var/spool/shop")
    assert settings.source_options("replicate") == {
        "payload": "ranges",
        "spool": "/var/spool/shop",
        "reader": "shop.replicate",
    }


def test_options_of_the_source_may_have_the_types_of_toml(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(
        """
        name = "shop"
        [source]
        hosts = ["mq1:61613", "mq2:61613"]
        destinations = ["/queue/a", "/queue/b"]
        tls = true
        maxRecordsPerTrigger = 500
        startingTimestamp = 2026-11-21T12:00:00Z
        headers = { prefetch-count = "5" }
        reader = ""
        [events]
        path = "events"
        """
    )
    assert load(path).source_options("events") == {
        "payload": "changeset",
        "hosts": "mq1:61613,mq2:61613",
        "destinations": "/queue/a,/queue/b",
        "tls": "true",
        "maxRecordsPerTrigger": "500",
        "startingTimestamp": "2026-11-21T12:00:00+00:00",
        "headers": '{"prefetch-count": "5"}',
        "reader": "",
    }


def test_all_mistakes_are_told_each_with_its_place() -> None:
    found = {
        "name": "a shop",
        "triger": "1s",
        "trigger": "soon",
        "aply": {},
        "source": {"spool": "s", "payload": "raw", "endingOffsets": "latest"},
        "target": {"ulr": "x", "create": "yes", "foreign-keys": "no"},
        "apply": {"keys": {"orders": "id"}, "stored-as-scd-type": 3},
        "events": {"path": 5, "ttl": "0s"},
    }
    lines = told(found)
    for line in (
        "triger: there is no such setting; did you mean trigger?",
        "aply: there is no such table; did you mean apply?",
        "target.ulr: there is no such setting; did you mean url?",
        "target.url: this is needed",
        "target.create: must be true or false, not a string",
        "events.path: must be a string, not a whole number",
        "source.payload: a job reads changesets; leave it out",
        "source.endingOffsets: a job does not end somewhere; `--once` ends it where the spool does",
        "trigger: this is a time such as 500ms, 1s, 5m, 12h or 7d",
        "events.ttl: this is a time such as 12h or 90d, or forever",
    ):
        assert line in lines
    places = sorted(line.partition(":")[0] for line in lines)
    assert places == sorted(
        [
            "apply.keys",
            "apply.stored-as-scd-type",
            "aply",
            "events.path",
            "events.ttl",
            "name",
            "source.endingOffsets",
            "source.payload",
            "target.create",
            "target.foreign-keys",
            "target.ulr",
            "target.url",
            "trigger",
            "triger",
        ]
    )


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ({}, "needs the option spool"),
        ({"spol": "x"}, "no option spol; did you mean spool?"),
        ({"hosts": "mq"}, "goes with the option destinations"),
        ({"spool": "x", "minPartitions": 0}, "a whole number from 1"),
        ({"spool": "x", "minPartitions": 0.5}, "a text, a number"),
        ({"spool": "x", "passcode": "env:STOMPKIT_NOT_THERE"}, "no STOMPKIT_NOT_THERE"),
        ({"spool": "x", "passcode": "file:/nowhere"}, "No such file"),
    ],
)
def test_what_is_wrong_with_the_source_is_told(source: dict[str, Any], complaint: str) -> None:
    [line] = told({**LEAST, "source": source})
    assert line.startswith("source: ")
    assert complaint in line


def test_something_has_to_be_done() -> None:
    assert told({"name": "shop", "source": {"spool": "s"}}) == [
        "there is nothing to do: this needs a table [target], [events] or [analytics]"
    ]
    assert told({}) == ["name: this is needed", "source: this is needed"]
    with pytest.raises(PipelineError, match=r"\[events\]"):
        parse(LEAST).demand("events")


def test_dead_letters_are_sent_where_there_are_some() -> None:
    letters = {"hosts": "mq", "destination": "/queue/dead"}
    assert "on-problem" in told({**LEAST, "dead-letter": letters})[0]
    found = {**LEAST, "apply": {"on-problem": "dead-letter"}}
    assert "destination is needed" in told({**found, "dead-letter": {"hosts": "mq"}})[0]
    assert "did you mean destination?" in told({**found, "dead-letter": {"desination": "x"}})[0]
    assert parse({**found, "dead-letter": letters}).dead_letter_options() == letters


def test_secrets_may_be_elsewhere_and_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "passcode").write_text("s3cr3t\nmore\n")
    monkeypatch.setenv("SHOP_COPY", "postgresql://me:hidden@db/shop")
    source = {"hosts": "mq", "destination": "/queue/a", "passcode": f"file:{tmp_path}/passcode"}
    settings = parse({**LEAST, "source": source, "target": {"url": "env:SHOP_COPY"}})
    assert settings.source_options("replicate")["passcode"] == "s3cr3t"
    assert settings.target_url() == "postgresql://me:hidden@db/shop"
    text = "postgresql://me:hidden@db/shop refused s3cr3t"
    assert settings.without_secrets(text) == "postgresql://me:***@db/shop refused ***"


@pytest.mark.parametrize(
    ("given", "jobs", "expected"),
    [
        (None, ["replicate"], ["shop.replicate"]),
        (None, ["replicate", "events"], ["shop.replicate", "shop.events"]),
        ("mine", ["events"], ["mine"]),
        ("mine", ["replicate", "events"], ["mine.replicate", "mine.events"]),
        ("", ["replicate", "analytics"], ["", ""]),
    ],
)
@pytest.mark.parametrize("option", ["reader", "Reader"])
def test_each_job_is_a_reader_of_its_own(
    option: str, given: str | None, jobs: list[JobName], expected: list[str]
) -> None:
    tables = {"replicate": "target", "events": "events", "analytics": "analytics"}
    more = {"target": {"url": "sqlite:///c"}, "events": {"path": "e"}, "analytics": {"path": "a"}}
    source = {"spool": "s"} if given is None else {"spool": "s", option: given}
    found = {"name": "shop", "source": source, **{tables[job]: more[tables[job]] for job in jobs}}
    settings = parse(found)
    read = [SourceOptions.parse(settings.source_options(job)).reader for job in jobs]
    assert read == expected


def test_files_are_kept_apart_by_pipeline_and_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert parse(LEAST).checkpoint_of("events") == f"{tmp_path}/stompkit/pipelines/shop/events" + (
        "/checkpoint"
    )
    own = parse({**LEAST, "state-dir": "/var/lib/pipelines"})
    assert own.checkpoint_of("replicate") == "/var/lib/pipelines/shop/replicate/checkpoint"
    assert own.folder() == Path("/var/lib/pipelines/shop")
    far = parse({**LEAST, "checkpoint": "hdfs://a/b/"})
    assert far.checkpoint_of("replicate") == "hdfs://a/b/replicate"


def test_times_are_read() -> None:
    texts = ("500ms", "1s", "1.5 min", "5m", "12h", "7d", "0s")
    assert [seconds(text) for text in texts] == [0.5, 1, 90, 300, 43_200, 604_800, 0]
    assert (life("forever"), life("2d")) == (None, 172_800)
    for text in ("", "5", "s", "-1s", "1 week"):
        with pytest.raises(PipelineError):
            seconds(text)


def test_a_file_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"shop.toml: No such file"):
        load(tmp_path / "shop.toml")
    (tmp_path / "shop.toml").write_text("name = \n")
    with pytest.raises(PipelineError, match=r"shop.toml: Invalid value"):
        load(tmp_path / "shop.toml")
    (tmp_path / "shop.toml").write_text("name = 5\nsource = 1\n")
    with pytest.raises(PipelineError) as caught:
        load(tmp_path / "shop.toml")
    path = tmp_path / "shop.toml"
    assert str(caught.value).splitlines() == [
        f"{path}: name: must be a string, not a whole number",
        f"{path}: source: must be a table, not a whole number",
    ]
