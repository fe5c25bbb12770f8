"""What a rule is, and which of them hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stompkit._common.spelling import closest

__all__ = ["Quirks", "Rule", "parse"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One way in which a broker differs from the specifications, or from what ours does."""

    id: str
    """What it is called on the command line."""
    sentence: str
    """What the broker does."""
    source: str
    """Where that is known from: the broker, its version, and what was read or observed."""
    topic: str = ""
    """Of the rules of one topic only one can hold."""


class Quirks:
    """The rules that hold, in no order."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[str]) -> None:
        """Take the ids of rules."""
        self._ids = frozenset(ids)

    def __contains__(self, rule: str) -> bool:
        return rule in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._ids))

    def __len__(self) -> int:
        return len(self._ids)

    def isdisjoint(self, rules: Iterable[str]) -> bool:
        """Whether none of the rules holds."""
        return self._ids.isdisjoint(rules)

    def __repr__(self) -> str:
        return f"Quirks({', '.join(self)})"


def parse(
    text: str,
    rules: Mapping[str, Rule],
    profiles: Mapping[str, Sequence[str]],
    opposites: Mapping[str, str],
) -> Quirks:
    """Read a list, with commas, of profiles and rules; ``-RULE`` takes a rule away again.

    ``opposites`` are former rules for what our broker does by itself now, each with the rule
    that is its opposite. Case does not matter. Raises ValueError for a name that there is not,
    for a rule that is taken away and was not there, and for rules that exclude each other.
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
    close = closest(item.removeprefix("-").lower(), [*rules, *profiles])
    meant = f"; did you mean {close}?" if close else ""
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
