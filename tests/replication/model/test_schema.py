"""The published schema: every changeset conforms to it, and it is complete."""

from __future__ import annotations

import json
from typing import Any, get_args

import jsonschema
import msgspec
import pytest
from hypothesis import given

from stompkit.replication import Action, Changeset, RowChange, Source, encode, schema
from stompkit.replication.model.events import Revision
from tests.replication.made import changesets

SCHEMA: dict[str, Any] = json.loads(schema())
PARTS = SCHEMA["$defs"]
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@given(changesets)
def test_changesets_keep_to_it(changeset: Changeset) -> None:
    VALIDATOR.validate(json.loads(encode(changeset)))


@pytest.mark.parametrize(
    ("part", "kind", "added"),
    [
        (SCHEMA, Changeset, {"format"}),
        (PARTS["source"], Source, set()),
        (PARTS["revision"], Revision, set()),
        (PARTS["change"], RowChange, set()),
    ],
)
def test_schema_has_every_field(
    part: dict[str, Any], kind: type[msgspec.Struct], added: set[str]
) -> None:
    assert set(part["properties"]) == set(kind.__struct_fields__) | added


def test_schema_has_every_action() -> None:
    assert PARTS["change"]["properties"]["action"]["enum"] == list(get_args(Action))


@pytest.mark.parametrize(
    "value", [[], {}, {"$nosuch": 1}, {"$int": 1}, {"$float": "0.5"}, {"$int": "1", "$uuid": "1"}]
)
def test_what_is_no_value_does_not_keep_to_it(value: object) -> None:
    change = {"table": "t", "action": "write", "key": {"id": value}}
    document = {
        **{"format": 1, "id": "c", "origin": "o", "sequence": 1, "source": {"kind": "test"}},
        **{"timestamp": "2026-11-21T12:00:00Z", "changes": [change]},
    }
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(document)
