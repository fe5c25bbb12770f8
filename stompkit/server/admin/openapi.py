"""The description of the API, generated from the structs and routes that serve it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

import stompkit
from stompkit.server.admin import results
from stompkit.server.admin.events import EventsQuery
from stompkit.server.admin.routes import ROUTES, Route

__all__ = ["document"]

_REF: Final = "#/components/schemas/{name}"
_WORDS: Final = {
    400: "The question is not what it takes",
    401: "The token is missing or wrong",
    403: "It comes from a page of another site",
    404: "There is no such thing",
    409: "It cannot be done as things are",
    413: "The body is too long",
    415: "The body is not said to be JSON",
    421: "The Host header has an unknown name",
    429: "Too much is being done at the same time",
    501: "prometheus_client is not installed",
    503: "The broker cannot work now",
}


def document() -> dict[str, Any]:
    """Return the description as an OpenAPI 3.1 document."""
    routes = [route for methods in ROUTES.values() for route in methods.values()]
    types: list[type[Struct]] = [results.Refusal, results.Health, results.Ready]
    types += [each.gives for each in routes]
    types += [each.takes for each in routes if each.method == "POST"]
    unique = list(dict.fromkeys(types))
    _, components = msgspec.json.schema_components(unique, ref_template=_REF)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stompkit",
            "version": stompkit.__version__,
            "description": "What a broker has, who is there, and what operators do about it.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths | _others(),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # A broker without a token requires none.
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    statuses = [400, 401, 421, *route.statuses]
    operation: dict[str, Any] = {
        "operationId": route.call.__name__,
        "summary": route.summary,
    }
    if route.method == "POST":
        statuses += [403, 413, 415, 503]
        operation["requestBody"] = {"required": True, "content": _json(route.takes)}
    else:
        operation["parameters"] = _parameters(route.takes)
    operation["responses"] = {
        "200": {"description": "It is so, or done", "content": _json(route.gives)},
        **_refusals(statuses),
    }
    return operation


def _refusals(statuses: list[int]) -> dict[str, Any]:
    return {
        str(each): {"description": _WORDS[each], "content": _json(results.Refusal)}
        for each in sorted(set(statuses))
    }


def _json(cls: type[Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=cls.__name__)}}}


def _parameters(cls: type[Struct]) -> list[dict[str, Any]]:
    """Return a struct as query parameters."""
    schema, components = msgspec.json.schema_components([cls], ref_template=_REF)
    described = components[cls.__name__]
    assert len(schema) == 1
    parameters = []
    for name, each in described["properties"].items():
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": name in described["required"],
                "schema": _without_null(each),
            }
        )
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without the null of an optional parameter."""
    options = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    if len(options) == 1:
        return dict(options[0])
    return {name: value for name, value in schema.items() if value is not None}


def _others() -> dict[str, Any]:
    """Return the operations that do not use JSON for both request and response."""
    text = {"schema": {"type": "string"}}
    public: dict[str, Any] = {"security": []}
    return {
        "/api/v1/events": {
            "get": {
                "operationId": "get_events",
                "summary": "Server-sent events: overview, destinations and frame.",
                "parameters": _parameters(EventsQuery),
                "responses": {
                    "200": {"description": "Events", "content": {"text/event-stream": text}},
                    **_refusals([400, 401, 421, 429]),
                },
            }
        },
        "/metrics": {
            "get": {
                "operationId": "get_metrics",
                "summary": "Metrics, for Prometheus.",
                "responses": {
                    "200": {"description": "Metrics", "content": {"text/plain": text}},
                    **_refusals([401, 421, 501]),
                },
            }
        },
        "/health": {
            "get": {
                "operationId": "get_health",
                "summary": "Whether the process lives.",
                **public,
                "responses": {
                    "200": {"description": "It does", "content": _json(results.Health)},
                    **_refusals([421]),
                },
            }
        },
        "/ready": {
            "get": {
                "operationId": "get_ready",
                "summary": "Whether clients can work with the broker.",
                **public,
                "responses": {
                    "200": {"description": "They can", "content": _json(results.Ready)},
                    **_refusals([421]),
                    "503": {"description": "They cannot now", "content": _json(results.Ready)},
                },
            }
        },
    }
