"""Process a request: checks, the operation, JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from stompkit._common.addresses import address_text
from stompkit._common.settings import wrong_type
from stompkit.server.admin import results
from stompkit.server.admin.context import Context
from stompkit.server.admin.errors import AdminError, refuse
from stompkit.server.admin.events import EventsQuery, Streams
from stompkit.server.admin.guard import HEADERS, Guard
from stompkit.server.admin.openapi import document
from stompkit.server.admin.request import HttpRequest
from stompkit.server.admin.roles import Operator, Role
from stompkit.server.admin.routes import ROUTES, Route
from stompkit.server.log import operator_events

__all__ = ["Front"]


#: Maximum number of delayed refusals; further ones are sent at once, since each of them occupies a
#: connection.
_MOST_HELD: Final = 10
_JSON: Final = "application/json"
_PAGES: Final = Path(__file__).with_name("console")
_FILE: Final = re.compile(r"/([a-z0-9][a-z0-9_-]*\.(html|css|js|svg))")
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Front(Resource):
    """The resource for every path."""

    isLeaf = True

    def __init__(self, context: Context, guard: Guard, streams: Streams) -> None:
        """Answer requests that the guard accepts."""
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted's
        self._context = context
        self._guard = guard
        self._streams = streams
        self._own: dict[str, Callable[[HttpRequest], bytes | int]] = {
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/openapi.json": self._openapi,
            "/api/v1/events": self._events,
        }
        self._schema: bytes | None = None
        self._held = 0

    def render(self, request: HttpRequest) -> bytes | int:
        """Answer or refuse a request; details of internal errors go to the log only."""
        for name, value in HEADERS.items():
            request.setHeader(name, value)
        try:
            return self._answered(request)
        except AdminError as problem:
            if problem.delay_s > 0 and self._held < _MOST_HELD:
                return self._refused_late(request, problem)
            return self._refused(request, problem)
        except Exception:
            return self._failed(request, Failure())  # type: ignore[no-untyped-call]  # Twisted's

    def _refused_late(self, request: HttpRequest, problem: AdminError) -> int:
        self._held += 1

        def answer() -> None:
            request.write(self._refused(request, problem))
            request.finish()

        call = self._context.reactor.callLater(problem.delay_s, answer)

        def over(_: object) -> None:
            self._held -= 1
            if call.active():
                call.cancel()

        request.notifyFinish().addBoth(over)
        return NOT_DONE_YET

    def _answered(self, request: HttpRequest) -> bytes | int:
        path = _path(request)
        self._guard.check_host(request)
        if path == "/" or _FILE.fullmatch(path):
            _check_method(request, ("GET", "HEAD"))
            return _page(request, "/index.html" if path == "/" else path)
        if path in ("/health", "/ready", "/openapi.json"):
            _check_method(request, ("GET", "HEAD"))
            return self._own[path](request)
        role = self._role(request)
        if path in self._own:
            _check_method(request, ("GET", "HEAD"))
            return self._own[path](request)
        routes = ROUTES.get(path)
        if routes is None:
            refuse(404, "no-such-path", "there is nothing at this path; see /openapi.json")
        method = request.method.decode("ascii", "replace")
        route = routes.get("GET" if method == "HEAD" else method)
        if route is None:
            request.setHeader("allow", ", ".join(routes))
            refuse(405, "wrong-method", f"it takes {', '.join(routes)}")
        return self._call(request, route, role)

    def _role(self, request: HttpRequest) -> Role:
        try:
            return self._guard.check_token(request)
        except AdminError:
            if request.getHeader(b"authorization"):
                # Limited in rate: everybody who reaches the endpoint can send wrong tokens.
                peer = address_text(request.getClientAddress())
                self._context.broker.refusals.add(operator_events.token_refused, peer=peer)
            raise

    def _call(self, request: HttpRequest, route: Route, role: Role) -> bytes | int:
        operator = Operator(role, address_text(request.getClientAddress()))
        if route.method == "POST":
            self._check_change(request, route, operator)
            refusal = self._context.broker.refusal
            if refusal is not None and not route.is_for_passive:
                # It would work on a store that others use, or keep a message in memory only.
                refuse(503, refusal.code, refusal.message)
            answer = route.call(self._context, _decoded(request, route.takes), operator)
        elif route.is_personal:
            answer = route.call(self._context, _queried(request, route.takes), operator)
        else:
            answer = route.call(self._context, _queried(request, route.takes))
        if not isinstance(answer, Deferred):
            return _json(request, answer)
        if not route.is_for_passive:
            answer = self._context.until_given_up(answer)
        return self._later(request, answer)

    def _check_change(self, request: HttpRequest, route: Route, operator: Operator) -> None:
        try:
            self._guard.check_change(request, operator.role)
        except AdminError as problem:
            if problem.status == 403:
                # Limited in rate: a reader could otherwise fill the disk.
                self._context.broker.refusals.add(
                    operator_events.change_refused,
                    operation=route.path.removeprefix("/api/v1/"),
                    code=problem.code,
                    reason=problem.message,
                    peer=operator.peer,
                )
            raise

    def _later(self, request: HttpRequest, answer: Deferred[Any]) -> int:
        is_gone = False

        def gone(_: object) -> None:
            nonlocal is_gone
            is_gone = True

        request.notifyFinish().addErrback(gone)

        def failed(failure: Failure) -> bytes:
            problem = failure.value
            if isinstance(problem, AdminError):
                return self._refused(request, problem)
            return self._failed(request, failure)

        def write(data: bytes) -> None:
            if not is_gone:
                request.write(data)
                request.finish()

        answer.addCallback(lambda value: _json(request, value))
        answer.addErrback(failed)
        answer.addCallback(write)
        answer.addErrback(lambda failure: operator_events.admin_error(failure=failure))
        return NOT_DONE_YET

    def _refused(self, request: HttpRequest, problem: AdminError) -> bytes:
        request.setResponseCode(problem.status)
        if problem.status == 401:
            request.setHeader("www-authenticate", 'Bearer realm="stompkit"')
        if problem.status in (429, 503):
            request.setHeader("retry-after", "1")
        request.setHeader("content-type", _JSON)
        return problem.body

    def _failed(self, request: HttpRequest, failure: Failure) -> bytes:
        operator_events.admin_error(failure=failure)
        return self._refused(
            request, AdminError(500, "internal", "something went wrong: the broker's log has it")
        )

    # Operations outside the table of routes.

    def _health(self, request: HttpRequest) -> bytes:
        return _json(request, results.Health(status="alive"))

    def _ready(self, request: HttpRequest) -> bytes:
        trouble = self._context.trouble()
        if trouble is not None:
            request.setResponseCode(503)
        return _json(request, results.Ready(is_ready=trouble is None, reason=trouble))

    def _metrics(self, request: HttpRequest) -> bytes:
        # Imported on demand, since prometheus_client is an optional dependency.
        try:
            from stompkit.server.admin.metrics import CONTENT_TYPE, metrics_page
        except ImportError:
            refuse(
                501,
                "no-prometheus",
                "metrics need prometheus_client: pip install 'stompkit[admin]'",
            )
        request.setHeader("content-type", CONTENT_TYPE)
        return metrics_page(self._context)

    def _openapi(self, request: HttpRequest) -> bytes:
        if self._schema is None:
            self._schema = msgspec.json.encode(document())
        request.setHeader("content-type", _JSON)
        return self._schema

    def _events(self, request: HttpRequest) -> int:
        self._streams.open(request, _queried(request, EventsQuery))
        return NOT_DONE_YET


def _path(request: HttpRequest) -> str:
    return request.path.decode("ascii", "replace")


def _check_method(request: HttpRequest, methods: tuple[str, ...]) -> None:
    if request.method.decode("ascii", "replace") not in methods:
        request.setHeader("allow", ", ".join(methods))
        refuse(405, "wrong-method", f"it takes {', '.join(methods)}")


def _json(request: HttpRequest, value: object) -> bytes:
    request.setHeader("content-type", _JSON)
    return msgspec.json.encode(value)


def _page(request: HttpRequest, path: str) -> bytes:
    name = path.removeprefix("/")
    try:
        data = (_PAGES / name).read_bytes()
    except OSError:
        refuse(404, "no-such-path", "there is nothing at this path; see /openapi.json")
    request.setHeader("content-type", _TYPES[name.rpartition(".")[2]])
    return data


def _decoded(request: HttpRequest, takes: type[Struct]) -> Any:
    try:
        return msgspec.json.decode(request.content.read(), type=takes)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        fields = msgspec.structs.fields(takes)
        names = [each.encode_name for each in fields]
        wanted = ", ".join(names)
        reason = wrong_type(error, names)
        raise AdminError(
            400, "bad-body", f"the body is wrong: {reason}. It is a JSON object of: {wanted}"
        ) from None


def _queried(request: HttpRequest, takes: type[Struct]) -> Any:
    known = set(takes.__struct_fields__)
    given: dict[str, str] = {}
    for key, values in request.args.items():
        name = key.decode("utf-8", "replace")
        if name not in known:
            refuse(400, "bad-parameter", f"there is no parameter {name[:100]!a}")
        if len(values) > 1:
            refuse(400, "bad-parameter", f"{name} is there more than once")
        try:
            given[name] = values[0].decode("utf-8")
        except UnicodeDecodeError:
            refuse(400, "bad-parameter", f"{name} is no UTF-8")
    try:
        return msgspec.convert(given, takes, strict=False)
    except msgspec.ValidationError as error:
        raise AdminError(
            400, "bad-parameter", f"the parameters are wrong: {wrong_type(error)}"
        ) from None
