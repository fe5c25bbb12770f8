"""The description of the API: it is valid, responses match it, and no request breaks the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import DataObject, data
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

from stompkit.server.admin.openapi import document
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.server.admin.asking import Asker

SCHEMA = schemathesis.openapi.from_dict(document()).exclude(path="/api/v1/events")
OPERATIONS = {
    operation.label: operation
    for each in SCHEMA.get_all_operations()
    if isinstance(each, Ok) and (operation := each.ok())
}
#: Wrong requests are only possible with parameters or a body.
ASKED = [
    pytest.param(label, mode, id=f"{label} {mode.value}")
    for label, operation in OPERATIONS.items()
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or [*operation.iter_parameters(), *operation.body]
]


@pytest.fixture(scope="module")
def filled() -> Iterator[RunningBroker]:
    """A broker with data of every kind."""
    with launch(LaunchConfig(admin=True, persistent=True)) as broker, broker.client() as client:
        client.send("/queue/a", b"x", headers={"delay": "100000"})
        client.send("/queue/a", b"\xff", headers={"expiration": "999999999999999"})
        client.subscribe("/queue/>", ack="client")
        client.subscribe("/topic/t", id="d", headers={"durable": "true", "auto-delete": "false"})
        client.send("/queue/b", b"y", receipt=True)
        yield broker


def test_the_description_is_valid(filled: RunningBroker) -> None:
    answer = Asker(filled.admin_url).request("GET", "/openapi.json")
    assert answer.json == json.loads(json.dumps(document()))
    OpenAPIV31SpecValidator(answer.json).validate()


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/overview",
        "/api/v1/destinations",
        "/api/v1/destination?name=/queue/a",
        "/api/v1/messages?name=/queue/a",
        "/api/v1/connections",
        "/api/v1/subscriptions",
        "/api/v1/durables",
        "/health",
        "/ready",
    ],
)
def test_answers_are_as_described(filled: RunningBroker, path: str) -> None:
    answer = Asker(filled.admin_url).request("GET", path)
    assert answer.status == 200, answer
    spec: dict[str, Any] = document()
    operation = spec["paths"][path.partition("?")[0]]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": spec["components"]}
    Draft202012Validator(whole).validate(answer.json)


@pytest.mark.parametrize(("operation", "mode"), ASKED)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)
@given(drawn=data())
def test_nothing_that_is_asked_breaks_it(
    drawn: DataObject, operation: str, mode: GenerationMode, filled: RunningBroker
) -> None:
    case = drawn.draw(OPERATIONS[operation].as_strategy(mode))
    answer = case.call(base_url=filled.admin_url)
    case.validate_response(
        answer,
        checks=[not_a_server_error, status_code_conformance, response_schema_conformance],
    )
