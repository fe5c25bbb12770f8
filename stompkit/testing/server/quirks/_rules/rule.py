"""Rules, and sets of active rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stompkit._common.spelling import did_you_mean

__all__ = ["Quirks", "Rule", "parse"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A deviation of a broker from the specifications, or from stompkit's behaviour."""

    id: str
    """The rule's name on the command line."""
    sentence: str
    """Description of the broker's behaviour."""
    source: str
    """Evidence: the broker, its version, and the code or behaviour that was examined."""
    topic: str = ""
    """Group of mutually exclusive rules."""


class Quirks:
    """A set of active rules."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[str]) -> None:
        """Create a set from the ids of rules."""
        self._ids = frozenset(ids)

    def __contains__(self, rule: str) -> bool:
        return rule in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._ids))

    def __len__(self) -> int:
        return len(self._ids)

    def isdisjoint(self, rules: Iterable[str]) -> bool:
        """Return True if none of the rules is active."""
        return self._ids.isdisjoint(rules)

    def __repr__(self) -> str:
        return f"Quirks({', '.join(self)})"


def parse(
    text: str,
    rules: Mapping[str, Rule],
    profiles: Mapping[str, Sequence[str]],
    opposites: Mapping[str, str],
) -> Quirks:
    """Parse a comma-separated list of profiles and rules; ``-RULE`` removes a rule.

    ``opposites`` maps former rules, whose behaviour is now stompkit's default, to their opposite
    rules. Case does not matter. Raises ValueError for an unknown name, for a removed rule that is
    not in the list, and for mutually exclusive rules.
    """
    known = {name.lower(): name for name in [*rules, *profiles, *opposites]}
    held: dict[str, None] = {}
    for item in (word.strip() for word in text.split(",")):
        name = known.get(item.removeprefix("-").strip().lower())
        if name is None:
            raise ValueError(_unknown(item, rules, profiles))
        if name in opposites:
            held.pop(opposites[name], None)
            if item.startswith("-"):
                held[opposites[name]] = None
        elif not item.startswith("-"):
            held.update(dict.fromkeys(profiles.get(name, (name,))))
        elif name in profiles:
            raise ValueError(f"{item}: only rules can be taken away, not all of {name}")
        elif name in held:
            del held[name]
        else:
            raise ValueError(f"{item}: there is no {name} before it to be taken away")
    _check_topics([rules[name] for name in held])
    return Quirks(held)


def _unknown(item: str, rules: Mapping[str, Rule], profiles: Mapping[str, Sequence[str]]) -> str:
    meant = did_you_mean(item.removeprefix("-").lower(), [*rules, *profiles])
    return (
        f"{item[:40]!r} is neither a broker nor a rule{meant}\n"
        f"brokers: {', '.join(profiles)}\n"
        f"rules: {', '.join(rules)}"
    )


def _check_topics(held: Iterable[Rule]) -> None:
    seen: dict[str, Rule] = {}
    for rule in held:
        other = seen.setdefault(rule.topic, rule) if rule.topic else rule
        if other is not rule:
            raise ValueError(
                f"{other.id} and {rule.id} exclude each other; take one away: -{other.id}"
            )
