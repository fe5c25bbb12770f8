"""Check combinations of settings that are each valid alone."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stompkit._common.addresses import has_scheme
from stompkit._common.files import describe
from stompkit.frames import Limits
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.names import Kind, Pattern, is_pattern, kind_of
from stompkit.server.listen.endpoints import PROXIED, networks
from stompkit.server.listen.origins import Origins, host_of
from stompkit.server.login.auth import checkers_from
from stompkit.server.login.rights import RightsAuthoriser
from stompkit.server.settings.admin_checks import check_admin
from stompkit.server.settings.beanstalk_checks import check_beanstalk
from stompkit.server.settings.broker import BrokerConfig, DestinationConfig, Policy
from stompkit.server.settings.endpoint_checks import check_endpoint
from stompkit.server.settings.high_availability_checks import check_high_availability
from stompkit.server.settings.toml import Document, Place

if TYPE_CHECKING:
    from stompkit.server.settings.process import AuthSettings, Settings, StoreSettings

__all__ = ["check", "check_sync", "check_wsproto"]

#: Maximum heart-beat interval in milliseconds that can be sent to a client.
_LONGEST_MS: Final = 2**31 - 1
#: A path without a query, as in a URL.
_PATH: Final = re.compile(r"/[!$%&'()*+,\-./0-9:;=@A-Z_a-z~]*")
_SYNC: Final = re.compile(r"always|never|interval:[1-9][0-9]{0,8}")


_OF_TOPICS: Final = frozenset({"slow_reader", "max_topic_backlog", "max_topic_backlog_bytes"})
_OF_ALL: Final = frozenset(Policy.__struct_fields__)
#: Settings that destinations of each kind ignore. Durable subscriptions, which are queues, use the
#: settings of their topics.
_IGNORED: Final = {
    Kind.QUEUE: _OF_TOPICS,
    Kind.DEAD_LETTERS: _OF_TOPICS | {"dead_letters", "expired"},
    Kind.TEMP_QUEUE: _OF_TOPICS | {"storage", "dead_letters", "expired"},
    Kind.TOPIC: frozenset({"when_full"}),
    Kind.TEMP_TOPIC: _OF_ALL - _OF_TOPICS - {"message_ttl_s", "prefetch"},
    Kind.FANOUT: _OF_ALL - {"message_ttl_s"},
}
_QUEUES: Final = (Kind.QUEUE, Kind.DEAD_LETTERS, Kind.TEMP_QUEUE)
_WHY_IGNORED: Final = {
    Kind.QUEUE: "it is for the subscribers of topics",
    Kind.DEAD_LETTERS: "dead letters that are refused or expire are dropped",
    Kind.TEMP_QUEUE: "temporary queues are in memory, and have no dead letters",
    Kind.TOPIC: "a durable subscription that is full always drops its oldest messages",
    Kind.TEMP_TOPIC: "temporary topics keep no messages",
    Kind.FANOUT: "a fan-out keeps no messages: set it for its children",
}


def check(settings: Settings, document: Document) -> None:
    """Add all problems of the settings to the document."""
    _check_broker(settings.broker, document)
    _check_destinations(settings, document)
    _check_store(settings.store, document)
    check_high_availability(settings, document)
    _check_storage(settings, document)
    _check_endpoints(settings, document)
    _check_websockets(settings, document)
    _check_auth(settings.auth, document)
    _check_rights(settings, document)
    check_admin(settings.admin, document)
    check_beanstalk(settings, document)


def _check_broker(broker: BrokerConfig, document: Document) -> None:
    table = ("broker",)
    if not all(0 <= each <= _LONGEST_MS for each in broker.heart_beat_ms):
        document.add(
            (*table, "heart_beat_ms"), f"must be two numbers from 0 to {_LONGEST_MS}: [1000, 1000]"
        )
    for name in ("limits", "limits_before_login"):
        _check_limits(getattr(broker, name), document, (*table, name))
    if broker.prefetch > broker.max_prefetch:
        document.add(
            (*table, "prefetch"), f"must not be above max_prefetch, which is {broker.max_prefetch}"
        )
    if broker.login_timeout_s == 0:
        document.add((*table, "login_timeout_s"), "must be above 0, or nobody could log in")
    if "" in broker.hosts or len(set(broker.hosts)) < len(broker.hosts):
        document.add((*table, "hosts"), "must be different names, none of them empty")


def _check_limits(limits: Limits, document: Document, table: Place) -> None:
    for name in limits.__slots__:
        least = 0 if name == "max_body_bytes" else 1
        if getattr(limits, name) < least:
            document.add((*table, name), f"must be a whole number of {least} or more")
    if limits.max_frame_bytes < limits.max_body_bytes:
        is_frame = document.has((*table, "max_frame_bytes"))
        document.add(
            (*table, "max_frame_bytes" if is_frame else "max_body_bytes"),
            f"a body of {limits.max_body_bytes} octets does not fit into a frame of"
            f" {limits.max_frame_bytes}: set max_frame_bytes to more than max_body_bytes",
        )


def _check_destinations(settings: Settings, document: Document) -> None:
    seen: dict[str, int] = {}
    for index, each in _placed(settings.destinations, document, "destination"):
        place = ("destination", index)
        first = seen.setdefault(each.name, index)
        if first != index:
            document.add(
                (*place, "name"), f'"{each.name}" has a table already, #{first + 1}: join the two'
            )
        longest = settings.broker.max_destination_bytes
        if len(each.name.encode()) > longest:
            document.add((*place, "name"), f"must not be longer than {longest} octets")
            continue
        try:
            kind = kind_of(each.name)
            Pattern(each.name)
        except RefusedError as refused:
            document.add((*place, "name"), refused.message)
            continue
        _check_children(each, kind, document, place)
        _check_ignored(each, kind, document, place)
        _check_without_effect(each, kind, settings, document, place)


def _check_ignored(each: DestinationConfig, kind: Kind, document: Document, place: Place) -> None:
    for name in sorted(_IGNORED[kind] & each.overrides().keys()):
        why = _WHY_IGNORED[Kind.QUEUE if name in _OF_TOPICS and kind in _QUEUES else kind]
        document.add(
            (*place, name), f'has no effect on "{each.name[:100]}": {why}. Leave this line out'
        )


def _check_without_effect(
    each: DestinationConfig, kind: Kind, settings: Settings, document: Document, place: Place
) -> None:
    """Report settings that the kind supports but that have no effect together."""
    end = "Leave one of the two out"
    if each.nack in ("requeue", "discard", "dead-letter") and each.max_deliveries is not None:
        document.add((*place, "max_deliveries"), f'has no effect with nack = "{each.nack}". {end}')
    if each.expired == "dead-letter" and each.dead_letters is False:
        document.add((*place, "expired"), f"has no effect with dead_letters = false. {end}")
    first = each.name[len(kind.value) :].partition(".")[0]
    if kind in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC) and first not in ("*", ">", "#"):
        document.add(
            (*place, "name"),
            f'"{each.name[:100]}" matches nothing: the broker gives each temporary destination a'
            f" name of its own. Write {kind.value}> for all of them",
        )
    if kind is Kind.FANOUT and is_pattern(each.name):
        pattern = Pattern(each.name)
        names = [other.name for other in settings.destinations if not is_pattern(other.name)]
        if not any(map(pattern.matches, names)):
            document.add(
                (*place, "name"),
                f'"{each.name[:100]}" matches no fan-out: there are those only that have a table'
                " with children",
            )


def _check_children(each: DestinationConfig, kind: Kind, document: Document, place: Place) -> None:
    if kind is not Kind.FANOUT or is_pattern(each.name):
        if each.children:
            document.add(
                (*place, "children"), "only a destination of the name /fanout/NAME has children"
            )
        return
    if not each.children:
        document.add(
            place,
            f'children is missing: without any, what is sent to "{each.name}" gets lost. List the'
            ' queues that get a copy: children = ["/queue/NAME"]',
        )
    for child in each.children:
        is_queue = child.startswith(Kind.QUEUE.value) and child != Kind.QUEUE.value
        if not is_queue or is_pattern(child):
            document.add(
                (*place, "children"), f'"{child[:100]}" is not the name of a queue, /queue/NAME'
            )
    if len(set(each.children)) < len(each.children):
        document.add((*place, "children"), "must be different queues")


def _check_store(store: StoreSettings, document: Document) -> None:
    kind = store.effective_kind
    if store.path == "":
        document.add(("store", "path"), "must not be empty")
    elif store.path is not None and has_scheme(store.path):
        document.add(("store", "path"), "is a URL: write it as url, or name a directory")
    if kind == "lmdb" and store.path is None:
        document.add(
            ("store", "kind"),
            'lmdb needs a directory: add path = "/var/lib/stompkit/messages", say',
        )
    if kind == "sqlalchemy" and store.url is None:
        document.add(
            ("store", "kind"),
            'sqlalchemy needs a database: add url = "sqlite:////var/lib/stompkit.sqlite", say',
        )
    if kind == "lmdb" and store.url is not None:
        document.add(("store", "url"), 'goes with kind = "sqlalchemy", not with "lmdb"')
    if kind == "sqlalchemy" and store.url is not None:
        _try(partial(_sql_store, store), document, ("store", "url"), "")
    if kind == "none" and (store.path is not None or store.url is not None):
        document.add(("store", "kind"), "none keeps nothing: leave this line out, or path and url")
    if kind == "sqlalchemy" and document.has(("store", "max_octets")):
        document.add(
            ("store", "max_octets"),
            "has no effect with sqlalchemy, whose database has its own limits: leave this line out",
        )
    if store.kind == "none":
        for name in ("sync", "max_octets"):
            if document.has(("store", name)):
                document.add(("store", name), 'has no effect with kind = "none": leave one out')
    _try(partial(check_sync, store.sync), document, ("store", "sync"), "")
    if store.lock_timeout_s is not None and store.path is None:
        document.add(("store", "lock_timeout_s"), "needs path: without it nothing is locked")


def check_sync(sync: str) -> None:
    """Raise ValueError for an invalid ``sync`` setting."""
    if _SYNC.fullmatch(sync) is None:
        raise ValueError(
            'must be "always", "never", or "interval:" and a number of milliseconds, as in'
            f' "interval:200", not "{sync[:40]}"'
        )


def _sql_store(store: StoreSettings) -> None:
    # Imported here since SQLAlchemy is an optional dependency.
    from stompkit.server.stores.sql import sql_store

    assert store.database_url is not None  # the kind is sqlalchemy
    sql_store(store.database_url)


def _check_storage(settings: Settings, document: Document) -> None:
    if settings.store.has_store:
        return
    places: list[Place] = [
        ("destination", index, "storage")
        for index, each in _placed(settings.destinations, document, "destination")
        if each.storage == "persistent"
    ]
    if document.at(("broker", "storage")) == "persistent":
        places.append(("broker", "storage"))
    for place in places:
        document.add(place, "persistent needs a store: set path in [store], or leave this line out")


def _check_endpoints(settings: Settings, document: Document) -> None:
    for index, each in _placed(settings.endpoints, document, "listen"):
        place = ("listen", index)
        _try(partial(check_endpoint, each.endpoint), document, (*place, "endpoint"), "")
        _try(partial(networks, each.proxies), document, (*place, "proxies"), "")
        if each.proxies and not each.endpoint.startswith(PROXIED):
            document.add((*place, "proxies"), f"goes with an endpoint that begins with {PROXIED}")


def _check_websockets(settings: Settings, document: Document) -> None:
    for index, each in _placed(settings.websockets, document, "websocket"):
        place = ("websocket", index)
        _try(check_wsproto, document, place, "")
        _try(partial(check_endpoint, each.endpoint), document, (*place, "endpoint"), "")
        if _PATH.fullmatch(each.path) is None:
            document.add(
                (*place, "path"),
                f'"{each.path[:100]}" is not a path as it is in a URL: begin it with /, and write'
                " letters other than those of ASCII as %XX",
            )
        for host in each.hosts:
            if not host_of(host) or host.rpartition(":")[2].isdecimal():
                document.add(
                    (*place, "hosts"),
                    f'"{host[:100]}" is not a name: write it as mq.example, without port or path',
                )
        for origin in each.allow_origins:
            _try(partial(Origins, [origin]), document, (*place, "allow_origins"), "")


def check_wsproto() -> None:
    """Raise ImportError if the packages for STOMP over WebSocket are missing."""
    try:
        importlib.import_module("wsproto")
    except ImportError:
        raise ImportError(
            "STOMP over WebSocket needs wsproto: pip install 'stompkit[websocket]'"
        ) from None


def _check_auth(auth: AuthSettings, document: Document) -> None:
    for number, description in enumerate(auth.checkers, 1):
        _try(
            partial(checkers_from, [description]),
            document,
            ("auth", "checkers"),
            f"item {number}: ",
        )
    if auth.http is not None:
        _check_http(auth, document)
    _try(partial(networks, auth.throttle.exempt), document, ("auth", "throttle", "exempt"), "")
    if auth.is_checked or document.has(("auth", "checkers")) or document.has(("auth", "http")):
        return
    if auth.anonymous is False:
        document.add(
            ("auth", "anonymous"),
            "with false, nobody can log in, as no login is checked: add checkers, or leave this"
            " line out",
        )
    if auth.groups:
        document.add(
            ("auth", "groups"), "nobody has a name where no login is checked: add checkers"
        )


def _check_http(auth: AuthSettings, document: Document) -> None:
    from stompkit.server.login.http_authoriser import HttpAuthenticator

    service = auth.http
    assert service is not None  # that's what it is about
    _try(lambda: HttpAuthenticator(service), document, ("auth", "http"), "")
    others = {
        "checkers": bool(auth.checkers),
        "certificate_users": auth.certificate_users,
        "anonymous": auth.anonymous is not None,
        "groups": bool(auth.groups),
    }
    for name, is_set in others.items():
        if is_set:
            document.add(
                ("auth", name),
                "has no effect beside [auth.http], which is asked about every client: leave one of"
                " the two out",
            )


def _check_rights(settings: Settings, document: Document) -> None:
    hosts = settings.broker.hosts
    for index, each in _placed(settings.rights, document, "rights"):
        place = ("rights", index)
        try:
            RightsAuthoriser([each])
        except ValueError as error:
            document.add((*place, "destination"), str(error).partition(": ")[2])
        for host in each.hosts:
            if host not in hosts:
                document.add((*place, "hosts"), f'"{host}" is not among the hosts of [broker]')


def _placed(made: Sequence[Any], document: Document, name: str) -> list[tuple[int, Any]]:
    """Return structs with their indices in the file, which may contain other items."""
    tables = document.at((name,))
    # A value that is not a list has been reported, and has no structs.
    count = len(tables) if isinstance(tables, list) else 0
    indices = [index for index in range(count) if (name, index) not in document.unmade]
    return list(zip(indices, made, strict=False))


def _try(make: Callable[[], object], document: Document, place: Place, begin: str) -> None:
    """Report why an object cannot be made."""
    try:
        make()
    except OSError as error:
        document.add(place, f"{begin}{describe(error)}")
    except (ValueError, ImportError) as error:
        document.add(place, f"{begin}{error}")
