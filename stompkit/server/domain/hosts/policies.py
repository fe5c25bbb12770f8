"""Policies: the settings that apply to the destinations of a host."""

from __future__ import annotations

from typing import Final

from stompkit.server.domain.destinations import (
    BrokerBase,
)
from stompkit.server.domain.hosts.choices import ChoosingHost
from stompkit.server.domain.names import (
    DEAD_LETTERS,
    Pattern,
    dead_letter_source,
    is_pattern,
)
from stompkit.server.settings.broker import DestinationConfig, Policy

__all__ = ["HostPolicies"]

#: Maximum number of cached destination policies.
_MOST_POLICIES: Final = 10_000


class HostPolicies(ChoosingHost):
    """The settings of the destinations of one host."""

    def __init__(self, name: str, broker: BrokerBase) -> None:
        """Read the settings."""
        self.name = name
        self.broker = broker
        self.scheduler = broker.scheduler
        #: Shared policies, by the configuration tables that apply.
        self._policies: dict[tuple[int, ...], Policy] = {}
        self._rules: list[tuple[int, Pattern | None, DestinationConfig]] = []
        self._read_rules()

    def _read_rules(self) -> None:
        """Read the broker's settings, initially or after a change."""
        self._rules = [
            (index, self.pattern(each.name) if is_pattern(each.name) else None, each)
            for index, each in enumerate(self.broker.config.destinations)
        ]
        self._policies.clear()

    def stored_name(self, name: str) -> str:
        """Return the name of a queue in the store."""
        return f"{self.name}\n{name}"

    def pattern(self, text: str) -> Pattern:
        """Parse a pattern by the rules of the dialect; raises RefusedError if it is invalid."""
        return Pattern(text, like_activemq=self.broker.config.dialect == "activemq")

    # Destinations.

    def policy(self, name: str) -> Policy:
        """Return the policy of a destination."""
        is_for_letters = name.startswith(DEAD_LETTERS)
        key = (-1 if is_for_letters else -2, *(index for index, _ in self._tables(name)))
        found = self._policies.get(key)
        if found is None:
            usual: dict[str, object] = {"message_ttl_s": 0.0} if is_for_letters else {}
            found = self.broker.config.policy(usual | self._own_settings(name))
            self._policies[key] = found
            if len(self._policies) > _MOST_POLICIES:
                self._policies.clear()
        return found

    def _tables(self, name: str) -> list[tuple[int, DestinationConfig]]:
        """Return the configuration tables that apply to a destination."""
        return [
            (index, each)
            for index, pattern, each in self._rules
            if each.name == name or (pattern is not None and pattern.matches(name))
        ]

    def own_ttl_s(self, name: str) -> float:
        """Return the time-to-live in seconds set for this destination in particular, or 0."""
        if "message_ttl_s" not in self._own_settings(name):
            return 0.0
        return self.policy(name).message_ttl_s

    def _own_settings(self, name: str) -> dict[str, object]:
        """Return the settings that apply to a destination in particular."""
        own: dict[str, object] = {}
        for _, each in self._tables(name):
            own.update(each.overrides())
        return own

    def is_configured(self, name: str) -> bool:
        """Return True if the configuration names a destination or its dead-letter source."""
        names = [name]
        if name.startswith(DEAD_LETTERS):
            names.append(dead_letter_source(name))
        return any(
            each.name in names or (pattern is not None and any(map(pattern.matches, names)))
            for _, pattern, each in self._rules
        )
