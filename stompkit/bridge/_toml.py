"""The configuration file of a bridge, in TOML; every error names its place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stompkit._common.metrics import Address, parse_address
from stompkit._common.secrets import resolve
from stompkit._common.settings import ConfigurationError, canonical, read_toml
from stompkit._common.spelling import suggestion
from stompkit.bridge._dialects import DIALECTS
from stompkit.bridge._errors import BridgeError
from stompkit.bridge._names import is_pattern, is_queue, named, template_mistake
from stompkit.bridge._settings import BridgeSettings, Leg, Site
from stompkit.client.blocking import BrokerUrl

__all__ = ["load", "parse", "site_name"]

_IS_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch
_MOST: Final = 100_000

#: Keys of each table, with the type and the default of each value.
_TOP: Final[Mapping[str, tuple[type, Any]]] = {
    "name": (str, "bridge"),
    "status": (str, ""),
    "metrics": (str, ""),
    "max_hops": (int, 8),
    "sites": (dict, {}),
    "routes": (list, []),
}
_SITE: Final[Mapping[str, tuple[type, Any]]] = {
    "url": (str, ""),
    "dialect": (str, "auto"),
    "prefixes": (dict, {}),
}
_ROUTE: Final[Mapping[str, tuple[type, Any]]] = {
    "name": (str, ""),
    "from": (list, []),
    "to": (list, []),
    "queues": (list, []),
    "topics": (list, []),
    "destination": (str, "{destination}"),
    "both_ways": (bool, False),
    "window": (int, 100),
    "buffer": (str, ""),
    "selector": (str, ""),
    "refused": (str, ""),
    "durable": (bool, True),
    "persistent": (bool, True),
}
_KINDS: Final = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list of strings",
    dict: "a table",
}


def load(path: str | os.PathLike[str]) -> BridgeSettings:
    """Read a file; raises :class:`BridgeError` with all of its mistakes."""
    try:
        return parse(read_toml(path))
    except ConfigurationError as error:
        raise BridgeError(str(error)) from None
    except BridgeError as problem:
        lines = [f"{path}: {line}" for line in str(problem).splitlines()]
        raise BridgeError("\n".join(lines)) from None


def parse(found: Mapping[str, Any]) -> BridgeSettings:
    """Return the settings for parsed TOML; the mistakes are ``PLACE: what is wrong``."""
    reading = _Reading([])
    settings = reading.settings(found)
    if reading.mistakes:
        raise BridgeError("\n".join(reading.mistakes))
    return settings


def site_name(url: str) -> str:
    """Return the default name of a site: its first host and port.

    Raises ``ValueError`` if *url* is no URL of a broker.
    """
    host = BrokerUrl.parse(resolve(url)).hosts[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", host).strip("-.")[:64]


@dataclass
class _Reading:
    """Converts tables to settings, and collects their mistakes."""

    mistakes: list[str]

    def add(self, place: str, what: str) -> None:
        self.mistakes.append(f"{place}: {what}")

    def settings(self, found: Mapping[str, Any]) -> BridgeSettings:
        top = self._table("", found, _TOP)
        name = self._name("name", top["name"])
        hops = self._number("max_hops", top["max_hops"], 1000)
        sites = {
            each: self._site(f"[sites.{each}]", each, table) for each, table in top["sites"].items()
        }
        if not top["routes"]:
            self.add("[[routes]]", "missing: a bridge needs at least one route")
        legs: list[Leg] = []
        for number, table in enumerate(top["routes"], 1):
            legs += self._route(f"[[routes]] #{number}", number, table, sites, hops)
        for at, leg in enumerate(legs):
            if any(leg.name == other.name for other in legs[:at]):
                self.add("[[routes]]", f"two are called {leg.name}: give each another name")
        return BridgeSettings(
            name=name,
            legs=tuple(legs),
            status=Path(top["status"]) if top["status"] else None,
            metrics=self._address("metrics", top["metrics"]),
        )

    def _table(
        self, place: str, found: Any, keys: Mapping[str, tuple[type, Any]]
    ) -> dict[str, Any]:
        values = {key: default for key, (_, default) in keys.items()}
        if not isinstance(found, dict):
            self.add(place, "must be a table")
            return values
        try:
            found = canonical(found, keys)
        except ConfigurationError as error:
            self.add(place, str(error))
        for key, given in found.items():
            value: Any = given
            where = f"{place} {key}".strip()
            if key not in keys:
                self.add(where, f"unknown; {suggestion(key, keys)}")
                continue
            kind = keys[key][0]
            if kind is list and isinstance(value, str):
                value = [value]
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                self.add(where, f"must be {_KINDS[kind]}")
            elif kind is list and key != "routes" and not _are_strings(value):
                self.add(where, f"must be {_KINDS[list]}")
            else:
                values[key] = value
        return values

    def _site(self, place: str, name: str, found: Any) -> Site:
        table = self._table(place, found, _SITE)
        self._name(place, name)
        url = BrokerUrl(hosts=())
        if not table["url"]:
            self.add(place, "url is missing: stomp://HOST:PORT, stomps://, env:NAME or file:PATH")
        else:
            try:
                url = BrokerUrl.parse(resolve(table["url"]))
            except ValueError as error:
                self.add(f"{place} url", str(error))
            if url.destination:
                self.add(f"{place} url", "names a destination: these belong into routes")
        dialects = ("auto", *DIALECTS)
        if table["dialect"] not in dialects:
            self.add(f"{place} dialect", f"must be one of {', '.join(dialects)}")
        prefixes = table["prefixes"]
        if not all(isinstance(each, str) for each in prefixes.values()):
            self.add(f"{place} prefixes", "must be strings, such as {'/queue/' = 'jms.queue.'}")
            prefixes = {}
        return Site(name=name, url=url, dialect=table["dialect"], prefixes=prefixes)

    def _route(
        self, place: str, number: int, found: Any, sites: Mapping[str, Site], hops: int
    ) -> list[Leg]:
        table = self._table(place, found, _ROUTE)
        name = self._name(f"{place} name", table["name"] or f"route{number}")
        ends = {key: self._ends(f"{place} {key}", table[key], sites) for key in ("from", "to")}
        pairs = [(a, b) for a in ends["from"] for b in ends["to"] if a.name != b.name]
        if ends["from"] and ends["to"] and not pairs:
            self.add(place, "from and to are the same site")
        queues, topics = list(table["queues"]), list(table["topics"])
        if not queues and not topics:
            self.add(place, "names no destination: set queues or topics")
        if wrong := template_mistake(table["destination"]):
            self.add(f"{place} destination", wrong)
            return []
        for key, each in [("queues", q) for q in queues] + [("topics", t) for t in topics]:
            self._destination(f"{place} {key}", each, is_queues=key == "queues")
        window = self._number(f"{place} window", table["window"], _MOST)
        if table["both_ways"]:
            self._check_both_ways(place, queues, table["destination"], pairs)
            pairs += [(b, a) for a, b in pairs]
        legs: list[Leg] = []
        for source, to in pairs:
            for kind, listed in (("queues", queues), ("topics", topics)):
                if not listed:
                    continue
                own = name
                if len(pairs) > 1:
                    own += f"-{source.name}-{to.name}"
                if queues and topics:
                    own += f"-{kind}"
                legs.append(
                    Leg(
                        name=own,
                        source=source,
                        to=to,
                        destinations=tuple(listed),
                        template=table["destination"],
                        window=window,
                        buffer=Path(table["buffer"]) / own if table["buffer"] else None,
                        selector=table["selector"],
                        refused=table["refused"],
                        durable=table["durable"],
                        persistent=table["persistent"],
                        max_hops=hops,
                    )
                )
        return legs

    def _ends(self, place: str, names: list[str], sites: Mapping[str, Site]) -> list[Site]:
        if not names:
            self.add(place, "is missing: the name of a site, or a list of names")
        for each in names:
            if each not in sites:
                there = ", ".join(sites) or "none"
                self.add(place, f"there is no site {each}; there are: {there}")
        return [sites[each] for each in dict.fromkeys(names) if each in sites]

    def _destination(self, place: str, name: str, *, is_queues: bool) -> None:
        if not name.strip() or any(not each.isprintable() for each in name):
            self.add(place, "each is the name of a destination, such as /queue/orders")
        elif is_queue(name) != is_queues:
            self.add(place, f"{name} is no {'queue' if is_queues else 'topic'}")

    def _check_both_ways(
        self, place: str, queues: list[str], template: str, pairs: list[tuple[Site, Site]]
    ) -> None:
        for source, to in pairs:
            for queue in queues:
                there = named(template, queue, source.name)
                if there in queues or is_pattern(queue) or named(template, there, to.name) == queue:
                    self.add(
                        f"{place} both_ways",
                        f"{queue}: a message of a queue would be moved there and back; write two"
                        " routes with different names for what comes and what goes",
                    )
                    return

    def _name(self, place: str, name: str) -> str:
        if _IS_NAME(name) is None:
            self.add(place, "a name is up to 64 ASCII letters, digits and any of ._-")
        return name

    def _number(self, place: str, value: int, most: int) -> int:
        if not 1 <= value <= most:
            self.add(place, f"must be a whole number from 1 to {most}")
            return 1
        return value

    def _address(self, place: str, text: str) -> Address | None:
        try:
            return parse_address(text) if text else None
        except ValueError as error:
            self.add(place, str(error))
            return None


def _are_strings(values: Any) -> bool:
    return all(isinstance(each, str) for each in values)
