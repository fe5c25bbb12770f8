"""A client for the HTTP API of the admin port, on top of the standard library."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from stompkit.testing.launching.polling import wait_until

__all__ = ["Answer", "Asker"]

DEADLINE_S = 30.0


class Answer(NamedTuple):
    """A response: the status, the headers by their names in lower case, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded from JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error code."""
        code: str = self.json["error"]["code"]
        return code


class Asker:
    """Sends requests to one address."""

    def __init__(self, url: str) -> None:
        """Set the address."""
        self.where = urlsplit(url).netloc

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request on a separate connection."""
        connection = http.client.HTTPConnection(self.where, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, headers or {})
            return _answer(connection)
        finally:
            connection.close()

    def begin(self, path: str, **fields: object) -> Callable[[], Answer]:
        """Send a POST request; return a function that waits for the response."""
        connection = http.client.HTTPConnection(self.where, timeout=DEADLINE_S)
        headers = {"content-type": "application/json"}
        connection.request("POST", f"/api/v1/{path}", _body(fields), headers)

        def end() -> Answer:
            try:
                return _answer(connection)
            finally:
                connection.close()

        return end

    def get(self, path: str, **query: object) -> Any:
        """Return the decoded body of a successful response."""
        words = f"?{urlencode(query)}" if query else ""
        answer = self.request("GET", f"/api/v1/{path}{words}")
        assert answer.status == 200, answer
        return answer.json

    def post(self, path: str, **fields: object) -> Answer:
        """Send a POST request; ``from_`` stands for the field ``from``."""
        return self.begin(path, **fields)()

    def destination(self, name: str) -> Any:
        """Return the state of a destination, ``None`` if it does not exist."""
        found = self.get("destinations", contains=name)["destinations"]
        return next((each for each in found if each["name"] == name), None)

    def bodies(self, name: str) -> list[str]:
        """Return the bodies of the first messages of a queue, in order."""
        return [each["body"] for each in self.get("messages", name=name, limit=100)["messages"]]

    def wait_for(self, name: str, **fields: object) -> None:
        """Wait until fields of a destination have these values."""

        def is_so() -> bool:
            found = self.destination(name) or {}
            return all(found.get(field) == value for field, value in fields.items())

        assert wait_until(is_so, DEADLINE_S), self.destination(name)


def _body(fields: dict[str, object]) -> bytes:
    return json.dumps({name.rstrip("_"): value for name, value in fields.items()}).encode()


def _answer(connection: http.client.HTTPConnection) -> Answer:
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(answer.status, found, answer.read())
