"""The HTTP API that OpenSearch and Elasticsearch share, as far as the search sink needs it."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from stompkit.replication.sinks import SinkMisconfiguredError

__all__ = [
    "CONFLICT",
    "NOT_FOUND",
    "Action",
    "Document",
    "HttpTransport",
    "SearchApi",
    "SearchDeniedError",
    "SearchError",
    "TooLargeError",
    "Transport",
    "batches",
    "shown",
    "versioned",
]

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
#: Number of documents in one request.
_STEP: Final = 1000
#: Maximum number of characters of an answer in an error message.
_MOST_SHOWN: Final = 500
_TOO_LARGE: Final = 413
#: Status for an unknown user, or missing privileges.
_UNKNOWN_USER: Final = 401
_FORBIDDEN: Final = 403
#: Statuses of an action.
CONFLICT: Final = 409
NOT_FOUND: Final = 404

#: Function that sends a request (method, path with query, content type, body), and returns status
#: and body. All of its exceptions may be retried.
Transport = Callable[[str, str, str, bytes], tuple[int, bytes]]


class SearchError(Exception):
    """An error status; a retry may succeed."""


class SearchDeniedError(SearchError, SinkMisconfiguredError):
    """The server refuses this user, for any request."""


class TooLargeError(Exception):
    """The request exceeds the server's maximum size."""


@dataclass(frozen=True, slots=True)
class Document:
    """A stored document."""

    source: dict[str, Any]
    version: int
    sequence_number: int
    primary_term: int


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a bulk request."""

    kind: str
    index: str
    id: str
    #: Further members of the action's line.
    more: Mapping[str, Any]
    source: bytes | None = None

    def lines(self) -> bytes:
        """Return the action in NDJSON."""
        line = {self.kind: {"_index": self.index, "_id": self.id, **self.more}}
        head = json.dumps(line, ensure_ascii=False).encode()
        return head + b"\n" if self.source is None else head + b"\n" + self.source + b"\n"

    @classmethod
    def read(cls, lines: bytes) -> list[Action]:
        """Return the actions of their lines."""
        left = iter(lines.split(b"\n")[:-1])
        made = []
        for head in left:
            ((kind, line),) = json.loads(head).items()
            source = None if kind == "delete" else next(left)
            made.append(cls(kind, line.pop("_index"), line.pop("_id"), line, source))
        return made


def versioned(place: tuple[str, str], version: int, source: bytes | None) -> Action:
    """Return the action that writes a document, or deletes it, unless a newer version is stored."""
    index, id = place
    more = {"version": version, "version_type": "external_gte"}
    return Action("delete" if source is None else "index", index, id, more, source)


def batches(actions: Sequence[Action], most: int) -> Iterator[list[Action]]:
    """Yield actions in order, in batches of at most ``most`` bytes, or of a single action."""
    batch: list[Action] = []
    size = 0
    for action in actions:
        length = len(action.lines())
        if batch and size + length > most:
            yield batch
            batch, size = [], 0
        batch.append(action)
        size += length
    if batch:
        yield batch


class HttpTransport:
    """One persistent connection, opened on first use."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        timeout_s: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        """Parse the URL; raises ``ValueError`` unless it is ``http://`` or ``https://``."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            # Without the URL, which may contain a password.
            raise ValueError("the URL of the search server is not http(s)://[user:password@]host")
        self._path = parts.path.rstrip("/")
        self._headers = {"Accept": JSON}
        if api_key is not None:
            self._headers["Authorization"] = f"ApiKey {api_key}"
        elif parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._connection: HTTPConnection
        if parts.scheme == "https":
            context = ssl_context or ssl.create_default_context()
            self._connection = HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout_s, context=context
            )
        else:
            self._connection = HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)

    def __call__(self, method: str, path: str, content_type: str, body: bytes) -> tuple[int, bytes]:
        """Send a request; raises ``OSError`` and ``http.client.HTTPException``."""
        was_open = self._connection.sock is not None
        try:
            return self._send(method, path, content_type, body)
        except (OSError, HTTPException) as problem:
            self.close()
            # A server closes idle connections, which is noticed at the next request. All requests
            # here are idempotent.
            if not was_open or isinstance(problem, TimeoutError):
                raise
        try:
            return self._send(method, path, content_type, body)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._connection.close()

    def _send(self, method: str, path: str, content_type: str, body: bytes) -> tuple[int, bytes]:
        headers = {**self._headers, "Content-Type": content_type} if body else self._headers
        self._connection.request(method, self._path + path, body or None, headers)
        response = self._connection.getresponse()
        return response.status, response.read()


class SearchApi:
    """The requests of the sink, with evaluation of their answers."""

    def __init__(self, transport: Transport) -> None:
        """Send requests by a transport."""
        self._transport = transport

    def get(self, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Document]:
        """Return the current documents among these, by index and id."""
        found = {}
        for start in range(0, len(places), _STEP):
            step = places[start : start + _STEP]
            docs = [{"_index": index, "_id": id} for index, id in step]
            answer = self._request("POST", "/_mget", JSON, {"docs": docs})
            for place, doc in zip(step, answer["docs"], strict=True):
                error = doc.get("error")
                if error is not None and error.get("type") != "index_not_found_exception":
                    raise SearchError(f"document {place} is not to be had: {shown(error)}")
                if not doc.get("found"):
                    continue
                if "_source" not in doc:
                    raise SearchError(f"index {place[0]} does not keep the source of documents")
                found[place] = Document(
                    doc["_source"], doc["_version"], doc["_seq_no"], doc["_primary_term"]
                )
        return found

    def bulk(self, actions: Sequence[Action], query: str = "") -> Iterator[tuple[Action, Any]]:
        """Execute actions; yield each with its result, which has ``status`` and ``error``.

        Raises :class:`TooLargeError`.
        """
        body = b"".join(action.lines() for action in actions)
        answer = self._request("POST", f"/_bulk{query}", NDJSON, body)
        for action, item in zip(actions, answer["items"], strict=True):
            ((_, result),) = item.items()
            yield action, result

    def scan(self, index: str) -> Iterator[list[tuple[str, int]]]:
        """Yield the ids and versions of all documents of an index, in steps."""
        path = quote(index, safe="")
        # A search sees only documents written before the last refresh.
        self._request("POST", f"/{path}/_refresh?ignore_unavailable=true", JSON, b"")
        wanted = {"size": _STEP, "_source": False, "version": True, "sort": ["_doc"]}
        query = "?scroll=5m&ignore_unavailable=true"
        answer = self._request("POST", f"/{path}/_search{query}", JSON, wanted)
        scroll = None
        try:
            while True:
                scroll = answer.get("_scroll_id", scroll)
                if answer.get("timed_out") or answer["_shards"]["failed"]:
                    raise SearchError(f"index {index} could not be read wholly: {shown(answer)}")
                hits = answer["hits"]["hits"]
                if not hits:
                    return
                yield [(hit["_id"], hit["_version"]) for hit in hits]
                more = {"scroll": "5m", "scroll_id": scroll}
                answer = self._request("POST", "/_search/scroll", JSON, more)
        finally:
            if scroll is not None:
                # It also expires by itself.
                with suppress(SearchError, OSError, HTTPException):
                    self._request("DELETE", "/_search/scroll", JSON, {"scroll_id": [scroll]})

    def _request(self, method: str, path: str, content_type: str, body: Any) -> Any:
        octets = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        status, text = self._transport(method, path, content_type, octets)
        if status == _TOO_LARGE:
            raise TooLargeError(f"{method} {path}: {len(octets)} octets are too many")
        if status == _UNKNOWN_USER or (status == _FORBIDDEN and b"_block_exception" not in text):
            raise SearchDeniedError(f"{method} {path}: status {status}: {shown(text)}")
        if not 200 <= status < 300:
            raise SearchError(f"{method} {path}: status {status}: {shown(text)}")
        try:
            return json.loads(text)
        except ValueError:
            raise SearchError(f"{method} {path}: this is no JSON: {shown(text)}") from None


def shown(answer: object) -> str:
    """Return the beginning of an answer for a message: ASCII only."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else json.dumps(answer)
    return ascii(text[:_MOST_SHOWN])[1:-1]
