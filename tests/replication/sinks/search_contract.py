r"""The documented HTTP API of Elasticsearch and OpenSearch, for the search sink.

The real servers do not run in these tests. This one is written from their documentation, and keeps
documents in memory. It accepts documented requests only, of the kinds that the sink sends. It
refuses every other request, with the documented error if there is one, and records it in
``refusals``. It is stricter than the real servers. These are the documented rules:

*Bulk API* (Elasticsearch reference, ``docs-bulk``; OpenSearch, "Bulk")
    "Description": NDJSON of actions and sources; the last line ends with a newline; content type
    ``application/x-ndjson``; a source is one line; ``delete`` has none; results come in the order
    of the actions, and one that fails does not affect the others. "Optimistic concurrency control":
    ``if_seq_no`` with ``if_primary_term`` for ``index`` and ``delete``. "Versioning": ``version``
    and ``version_type``. OpenSearch, "HTTP chunking": no chunks. "Delete": of a missing
    document results in ``not_found`` with status 404, and is not an error. Note: ids have at most
    512 bytes. The messages for a missing newline and a malformed line come from reports by users
    of both.
*Index API* (``docs-index_``)
    "Automatically create data streams and indices". "Version types": ``external`` requires a
    higher version than the stored one, ``external_gte`` a higher or an equal one; a version is a
    non-negative long number. "Put if absent": ``create`` fails if the document exists.
*Delete API* (``docs-delete``)
    "Versioning": versions of deleted documents are kept for ``index.gc_deletes``, 60 seconds
    (here until :meth:`SearchServer.forget_deletes`). "Automatic index creation": with an external
    version a delete creates the index.
*Update API* (``docs-update``)
    takes no external versions; it is not implemented here.
*Multi get API* (``docs-multi-get``), *Get API* ("Realtime")
    "Response body": documents in the order of the request, an error in the place of each
    unavailable one; written documents are available at once.
*Create index API* ("Path parameters")
    names: lower case, none of ``\ / * ? " < > | , #``, spaces and colons, not beginning with
    ``- _ +``, neither ``.`` nor ``..``, at most 255 bytes.
*Scroll API*, *Search API*, *Refresh API*
    a search sees the state of the last refresh, a scroll that of its start; only the newest scroll
    id may be used; the client clears contexts after use.
*Mapping* ("Dynamic field mapping")
    the first value of a field determines its type; another type is an error of status 400.
*Networking* (``http.max_content_length``)
    a longer body is answered by 413.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.replication.sinks.search_contract_rules import (
    Refused,
    Stored,
    actions_of,
    check_conflict,
    check_mapping,
    illegal,
    object_of,
    only_these,
)

__all__ = ["SearchServer"]

_JSON: Final = "application/json"
_NDJSON: Final = "application/x-ndjson"
_VALUES_OF_REFRESH: Final = {"true", "false", "wait_for"}


@dataclass
class _Index:
    documents: dict[str, Stored] = field(default_factory=dict)
    #: The documents that a search finds.
    refreshed: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    sequence_number: int = 0

    def refresh(self) -> None:
        self.refreshed = {
            id: stored.version for id, stored in self.documents.items() if stored.source is not None
        }


class SearchServer:
    """A server at a separate port; ``close`` ends it."""

    def __init__(
        self, *, authorization: str | None = None, max_content_length: int = 2**20
    ) -> None:
        """Start it; every request needs the header ``authorization``, if that is given."""
        self.authorization = authorization
        self.max_content_length = max_content_length
        self.indices: dict[str, _Index] = {}
        self.creates_indices = True
        self.requests: list[tuple[str, bytes]] = []
        """Method and path with query, and body."""
        self.refusals: list[str] = []
        self.scrolls: dict[str, tuple[int, list[tuple[str, str, int]]]] = {}
        self.faults: deque[str | None] = deque()
        """Faults of the next requests.

        ``None`` is no fault; a status, such as ``"503"``, is the answer. ``"lost"`` and ``"half"``
        end the connection before and after the request is processed. ``"busy"`` refuses every
        second action of a bulk request. ``"shards"`` misses a part of the index.
        """
        self._lock = threading.Lock()
        self._scroll_number = 0
        handler = type("Handler", (_Handler,), {"search": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def sources(self, index: str) -> dict[str, dict[str, Any]]:
        """Return the documents of an index by their ids."""
        with self._lock:
            found = self.indices.get(index, _Index()).documents
            return {id: each.source for id, each in found.items() if each.source is not None}

    def map(self, index: str, **types: str) -> None:
        """Create an index with a mapping: ``long``, ``keyword``, ``boolean``, ``object``..."""
        self.indices.setdefault(index, _Index()).types.update(types)

    def forget_deletes(self) -> None:
        """Forget the versions of deleted documents, as after ``index.gc_deletes``."""
        with self._lock:
            for index in self.indices.values():
                index.documents = {
                    id: each for id, each in index.documents.items() if each.source is not None
                }

    # Requests.

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, Any]:
        """Return status and answer of a request."""
        with self._lock:
            self.requests.append((f"{method} {target}", body))
            try:
                return 200, self._answer(method, target, headers, body)
            except Refused as refused:
                self.refusals.append(f"{method} {target}: {refused}")
                return refused.status, refused.answer

    def _answer(self, method: str, target: str, headers: Any, body: bytes) -> Any:
        if self.authorization is not None and headers.get("Authorization") != self.authorization:
            raise Refused(401, "security_exception", "missing authentication credentials")
        parts = urlsplit(target)
        query = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
        content_type = headers.get("Content-Type")
        steps = [unquote(step) for step in parts.path.split("/")[1:]]
        if body and content_type != (_NDJSON if steps[-1] == "_bulk" else _JSON):
            reason = f"Content-Type header [{content_type}] is not supported"
            raise Refused(406, "media_type_header_exception", reason)
        match [method, *steps]:
            case ["POST", "_bulk"]:
                only_these(query, refresh=_VALUES_OF_REFRESH)
                return self._bulk(body, refreshes=query.get("refresh", "false") != "false")
            case ["POST", "_mget"]:
                only_these(query)
                return self._get_several(object_of(body))
            case ["POST", name, "_refresh"]:
                only_these(query, ignore_unavailable={"true", "false"})
                if body:
                    raise illegal(f"request [{target}] does not support having a body")
                index = self._index_to_read(name, query)
                if index is not None:
                    index.refresh()
                return {"_shards": {"total": 1, "successful": 1, "failed": 0}}
            case ["POST", "_search", "scroll"]:
                only_these(query)
                return self._scroll(object_of(body, "scroll", "scroll_id"))
            case ["DELETE", "_search", "scroll"]:
                only_these(query)
                for id in object_of(body, "scroll_id")["scroll_id"]:
                    del self.scrolls[id]
                return {"succeeded": True, "num_freed": 1}
            case ["POST", name, "_search"]:
                only_these(query, scroll={"5m"}, ignore_unavailable={"true", "false"})
                return self._search(name, query, body)
        raise illegal(f"no handler found for uri [{target}] and method [{method}]")

    # Documents.

    def _bulk(self, body: bytes, *, refreshes: bool) -> Any:
        if not body:
            raise Refused(400, "parse_exception", "request body is required")
        if not body.endswith(b"\n"):
            raise illegal("The bulk request must be terminated by a newline [\\n]")
        actions = list(actions_of(body[:-1].split(b"\n")))
        is_busy = self._takes_fault("busy")
        items = []
        for number, (kind, told, source) in enumerate(actions):
            head = {"_index": told["_index"], "_id": told["_id"]}
            try:
                if is_busy and number % 2:
                    raise Refused(429, "es_rejected_execution_exception", "rejected execution")
                result = self._do(kind, told, source)
            except Refused as refused:
                result = {"status": refused.status, "error": refused.error}
            items.append({kind: {**head, **result}})
        if refreshes:
            for _, told, _ in actions:
                if told["_index"] in self.indices:
                    self.indices[told["_index"]].refresh()
        errors = any("error" in result for item in items for result in item.values())
        return {"took": 1, "errors": errors, "items": items}

    def _do(self, kind: str, told: dict[str, Any], source: Any) -> dict[str, Any]:
        index = self._index_to_write(told["_index"], makes=kind != "delete" or "version" in told)
        id = told["_id"]
        stored = index.documents.get(id)
        is_there = stored is not None and stored.source is not None
        check_conflict(kind, told, stored)
        if source is not None:
            index.types = check_mapping(index.types, source)
        version = told.get("version", 1 if stored is None else stored.version + 1)
        index.documents[id] = Stored(source, version, index.sequence_number)
        index.sequence_number += 1
        if kind == "delete":
            result, status = ("deleted", 200) if is_there else ("not_found", 404)
        else:
            result, status = ("updated", 200) if is_there else ("created", 201)
        return {
            "_version": version,
            "result": result,
            "_shards": {"total": 1, "successful": 1, "failed": 0},
            "_seq_no": index.sequence_number - 1,
            "_primary_term": 1,
            "status": status,
        }

    def _index_to_write(self, name: str, *, makes: bool) -> _Index:
        if name not in self.indices:
            if not re.fullmatch(r'[^-_+\\/*?"<>|\s,#:][^\\/*?"<>|\s,#:]*', name) or (
                name != name.lower() or name in (".", "..") or len(name.encode()) > 255
            ):
                raise Refused(400, "invalid_index_name_exception", f"Invalid index name [{name}]")
            if not makes or not self.creates_indices:
                raise Refused(404, "index_not_found_exception", f"no such index [{name}]")
            self.indices[name] = _Index()
        return self.indices[name]

    def _get_several(self, wanted: dict[str, Any]) -> Any:
        if not wanted.get("docs") or set(wanted) != {"docs"}:
            raise Refused(400, "action_request_validation_exception", "no documents to get")
        docs: list[Any] = []
        for doc in wanted["docs"]:
            if set(doc) != {"_index", "_id"}:
                raise illegal(f"unknown parameter in {doc}")
            if doc["_index"] not in self.indices:
                missing = Refused(404, "index_not_found_exception", "no such index")
                docs.append({**doc, "error": {"root_cause": [missing.error], **missing.error}})
                continue
            stored = self.indices[doc["_index"]].documents.get(doc["_id"])
            if stored is None or stored.source is None:
                docs.append({**doc, "found": False})
                continue
            head = {"_version": stored.version, "_seq_no": stored.sequence_number}
            rest = {"_primary_term": 1, "found": True, "_source": stored.source}
            docs.append({**doc, **head, **rest})
        return {"docs": docs}

    # Searches.

    def _index_to_read(self, name: str, query: dict[str, str]) -> _Index | None:
        if name not in self.indices and query.get("ignore_unavailable") != "true":
            raise Refused(404, "index_not_found_exception", f"no such index [{name}]")
        return self.indices.get(name)

    def _search(self, name: str, query: dict[str, str], body: bytes) -> Any:
        wanted = object_of(body, "size", "_source", "version", "sort")
        if "scroll" not in query or not 0 < wanted["size"] <= 10_000:
            raise illegal("Result window is too large")
        if (wanted["_source"], wanted["version"], wanted["sort"]) != (False, True, ["_doc"]):
            raise illegal(f"nothing is known here of {wanted}")
        index = self._index_to_read(name, query)
        refreshed = {} if index is None else index.refreshed
        hits = [(name, id, version) for id, version in refreshed.items()]
        return self._page(wanted["size"], hits)

    def _scroll(self, wanted: dict[str, Any]) -> Any:
        if wanted["scroll_id"] not in self.scrolls:
            raise Refused(404, "search_context_missing_exception", "No search context found")
        return self._page(*self.scrolls.pop(wanted["scroll_id"]))

    def _page(self, size: int, hits: list[tuple[str, str, int]]) -> Any:
        self._scroll_number += 1
        id = f"scroll{self._scroll_number}=="
        self.scrolls[id] = (size, hits[size:])
        found = [{"_index": index, "_id": id, "_version": v} for index, id, v in hits[:size]]
        failed = 1 if self._takes_fault("shards") else 0
        shards = {"total": 1, "successful": 1 - failed, "skipped": 0, "failed": failed}
        answer = {"_scroll_id": id, "took": 1, "timed_out": False, "_shards": shards}
        return {**answer, "hits": {"hits": found}}

    def _takes_fault(self, name: str) -> bool:
        if not self.faults or self.faults[0] != name:
            return False
        self.faults.popleft()
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer takes more than one write.
    wbufsize = -1
    disable_nagle_algorithm = True
    search: SearchServer

    def _handle(self) -> None:
        search = self.search
        if "Transfer-Encoding" in self.headers:
            search.refusals.append("the body comes in chunks")
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        fault = search.faults.popleft() if _is_for_all(search.faults) else None
        if fault == "lost":
            self.close_connection = True
            return
        if length > search.max_content_length:
            status, answer = 413, None
        elif fault is not None and fault.isdigit():
            status = int(fault)
            answer = {"error": {"type": "busy", "reason": "busy"}, "status": status}
        else:
            status, answer = search.answer(self.command, self.path, self.headers, body)
        if fault == "half":
            self.close_connection = True
            return
        text = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", _JSON)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _is_for_all(faults: deque[str | None]) -> bool:
    """Return True if the next fault applies to any request."""
    return bool(faults) and faults[0] not in ("busy", "shards")
