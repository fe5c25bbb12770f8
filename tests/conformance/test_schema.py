"""The published schema: real reports are valid, and it describes every field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

from stompkit.conformance.report import FORMAT, Merged, Report, TargetInfo, schema, to_json
from stompkit.conformance.requirements import Level
from stompkit.conformance.verdict import CaseResult, Ending, Verdict, WireEvent
from stompkit.frames import VERSIONS
from stompkit.testing import RunningBroker
from tests.conformance.broken_messages import send_needs_no_destination
from tests.conformance.conftest import Serve, Suite
from tests.conformance.proxy import behind
from tests.conformance.reports import CLEAN, a_report

SCHEMA: dict[str, Any] = json.loads(schema())
PARTS = SCHEMA["$defs"]


def validate(data: object) -> None:
    """Raise an exception if the data is not a valid report."""
    jsonschema.Draft202012Validator(SCHEMA).validate(data)


def a_document() -> dict[str, Any]:
    """Return a report with results of all kinds, decoded from JSON."""
    document: dict[str, Any] = json.loads(to_json(a_report(CLEAN)))
    return document


def test_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert PARTS["format"]["const"] == FORMAT


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("report", Report),
        ("merged", Merged),
        ("target", TargetInfo),
        ("result", CaseResult),
        ("event", WireEvent),
    ],
)
def test_schema_has_every_field(part: str, kind: type[msgspec.Struct]) -> None:
    assert set(PARTS[part]["properties"]) == set(kind.__struct_fields__)
    assert set(PARTS[part]["required"]) == set(kind.__struct_fields__)


def test_schema_has_every_word() -> None:
    fields = PARTS["result"]["properties"]
    assert fields["verdict"]["enum"] == list(Verdict)
    assert fields["ending"]["enum"] == list(Ending)
    assert fields["level"]["enum"] == list(get_args(Level))
    assert PARTS["version"]["enum"] == list(VERSIONS)


def test_reports_of_runs_keep_to_it(
    suite: Suite, serve: Serve, broker: RunningBroker, mq: str, tmp_path: Path
) -> None:
    """Reports of a good run, of one with a failure, and a file with both are valid."""
    careless = serve(behind(send_needs_no_destination, broker.host, broker.port)).address
    for address, name, status in ((mq, "a.json", 0), (careless, "b.json", 1)):
        run = ("--mq", address, "--json", name, "1.2/send/dest*", "1.1/connected")
        assert suite(*run).status == status
    assert suite("merge", "a.json", "b.json", "--json", "ab.json").status == 0
    for name in ("a.json", "b.json", "ab.json"):
        document = json.loads((tmp_path / name).read_bytes())
        validate(document)
        assert document["format"] == FORMAT


def test_report_with_all_kinds_of_results_keeps_to_it() -> None:
    validate(a_document())


SPOILT: dict[str, Callable[[dict[str, Any]], object]] = {
    "other format": lambda report: report.update(format=FORMAT + 1),
    "no target": lambda report: report.pop("target"),
    "unknown verdict": lambda report: report["results"][0].update(verdict="GOOD"),
    "unknown level": lambda report: report["results"][0].update(level="OUGHT"),
    "number for a text": lambda report: report["results"][0].update(detail=1),
    "event as a list": lambda report: report["results"][0].update(wire=[[1, 0, ">", "x"]]),
    "no results in one of several": lambda report: report.update(reports=[{"format": FORMAT}]),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_no_report_does_not_keep_to_it(name: str) -> None:
    document = a_document()
    SPOILT[name](document)
    with pytest.raises(jsonschema.ValidationError):
        validate(document)


def test_schema_is_printed_without_a_target(suite: Suite) -> None:
    done = suite("--schema", "--mq", "localhost:1")
    assert done.status == 0, done.told
    assert json.loads(done.out) == SCHEMA
    assert not done.err
