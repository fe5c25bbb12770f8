"""Authorisation by rules that grant rights on destinations to users; rules add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.names import Kind, Pattern, is_pattern
from stompkit.server.interfaces import Action, Decision, Request, User

__all__ = ["Right", "Rights", "RightsAuthoriser"]

Right = Literal["create", "read", "write", "admin"]

#: In ``users``: everybody with a name.
EVERYBODY: Final = "*"
#: In ``destination``: every destination of any kind.
ALL: Final = ">"
#: Characters not allowed in the value of ``{user}`` or ``{group}``. The braces are included so that
#: a user called ``{group}`` does not get the rights of its groups.
_SPECIAL: Final = frozenset(".*>#/{}")


class Rights(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rights that some users have with some destinations; they add to those of other rules."""

    destination: str
    """A destination, as ``/queue/orders``, a pattern, as ``/queue/orders.>``, or ``>`` for all.
    A level may be ``{user}``, for the name of the user who asks, or ``{group}``, for each of its
    groups; names that have a dot, slash or wildcard in them are not put there."""
    allow: tuple[Right, ...]
    """``create`` is needed to bring a destination into being, ``read`` to subscribe, ``write`` to
    send, ``admin`` to look into and purge it from outside. None of them implies another."""
    users: tuple[str, ...] = ()
    """Names of users; ``*`` stands for all who have one. Where both this and ``groups`` are
    empty, the rule is for everybody, with a name or without."""
    groups: tuple[str, ...] = ()
    """Groups whose members have these rights, too."""
    hosts: tuple[str, ...] = ()
    """Virtual hosts on which the rule holds; all if none is named."""


class RightsAuthoriser:
    """Allows operations that a rule allows, and no others; without rules, allows everything.

    A subscription to a pattern is allowed if one rule covers all possible matches.
    """

    def __init__(self, rules: Sequence[Rights], *, max_cached: int = 10_000) -> None:
        """Check the rules; raises ValueError for an invalid one.

        ``max_cached`` decisions are cached. Patterns have the same meaning in all dialects.
        """
        self._rules = [_Rule(number, rule) for number, rule in enumerate(rules, 1)]
        self._decide = lru_cache(maxsize=max_cached)(self._look_up)

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Answer immediately; see :class:`~stompkit.server.interfaces.Authoriser`."""
        allowed = self._decide(request.user, request.host, request.action, request.destination)
        answer(Decision(allowed))

    def _look_up(self, user: User, host: str, action: Action, destination: str) -> bool:
        if not self._rules:
            return True
        try:
            # A name that is not subscribed to is literal, with or without wildcards.
            requested = Pattern(destination) if _reads_pattern(action, destination) else None
        except RefusedError:
            return False
        return any(
            pattern.matches(destination) if requested is None else pattern.covers(requested)
            for rule in self._rules
            if rule.is_for(user, host, action)
            for pattern in rule.patterns(user)
        )


def _reads_pattern(action: Action, destination: str) -> bool:
    return action is Action.READ and is_pattern(destination)


class _Rule:
    """One parsed rule."""

    def __init__(self, number: int, rule: Rights) -> None:
        self._rule = rule
        text = rule.destination
        texts = [kind.value + ">" for kind in Kind] if text == ALL else [text]
        self._templates = [text for text in texts if _has_holders(text)]
        try:
            self._patterns = [Pattern(text) for text in texts if not _has_holders(text)]
            for text in self._templates:
                _check_template(text)
        except (RefusedError, ValueError) as error:
            raise ValueError(f"rights, rule {number}: {error}") from None

    def is_for(self, user: User, host: str, action: Action) -> bool:
        """Return True if the rule gives a user this right on any destination."""
        rule = self._rule
        if action.value not in rule.allow or (rule.hosts and host not in rule.hosts):
            return False
        if not rule.users and not rule.groups:
            return True
        if user.name and (EVERYBODY in rule.users or user.name in rule.users):
            return True
        return not user.groups.isdisjoint(rule.groups)

    def patterns(self, user: User) -> Iterable[Pattern]:
        """Yield the destinations of the rule, for a user."""
        yield from self._patterns
        for template in self._templates:
            for text in _filled(template, user):
                yield Pattern(text)


def _has_holders(text: str) -> bool:
    return "{" in text or "}" in text


def _check_template(text: str) -> None:
    levels = text[len(Pattern(text).kind.value) :].split(".")
    for level in levels:
        if _has_holders(level) and level not in ("{user}", "{group}"):
            raise ValueError(f"{level!r} is not a whole level {{user}} or {{group}}")


def _filled(template: str, user: User) -> list[str]:
    """Return a template with the user's names inserted, once for each combination."""
    texts = [template]
    for holder, names in (("{user}", [user.name]), ("{group}", sorted(user.groups))):
        if holder in template:
            fitting = [name for name in names if name and _SPECIAL.isdisjoint(name)]
            texts = [text.replace(holder, name) for text in texts for name in fitting]
    return texts
