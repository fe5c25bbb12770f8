"""Known deviations of a broker: what a run on it is expected to find.

A TOML file says of one broker which cases do not come out OK, and why::

    broker = "RabbitMQ"
    versions = "3.10.8"

    [[deviation]]
    cases = ["1.2/error/must-close"]
    verdict = "FAILED"
    reason = "keeps the connection open after most errors"
    link = "https://..."

A name of a case may be a pattern (``1.?/error/*``).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from stompkit._common.files import describe
from stompkit._common.settings import wrong_type
from stompkit._common.spelling import did_you_mean
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = [
    "Deviation",
    "Expectations",
    "ExpectationsError",
    "UsageError",
    "check",
    "compare",
    "load",
]


_GOOD = (Verdict.OK, Verdict.INFORMATIONAL)
#: Verdicts that are better than a verdict; UNSUPPORTED is not, since it proves nothing.
_BETTER: dict[Verdict, tuple[Verdict, ...]] = {
    Verdict.FAILED: (Verdict.NON_STRICT, *_GOOD),
    Verdict.NON_STRICT: _GOOD,
    Verdict.UNSUPPORTED: _GOOD,
}


class UsageError(Exception):
    """Invalid arguments of the command."""


class ExpectationsError(UsageError):
    """A file of expectations that is invalid, or that refers to unknown cases."""


class Deviation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cases with an expected verdict other than OK."""

    cases: list[str]
    verdict: Verdict
    reason: str
    link: str = ""
    #: True if it depends on timing: every better verdict is as expected, too.
    sometimes: bool = False

    def is_worse_than(self, verdict: Verdict) -> bool:
        """Return True if a case with that verdict is better than listed here."""
        return verdict in _BETTER.get(self.verdict, ())

    def expects(self, verdict: Verdict) -> bool:
        """Return True if a case that is listed here may have this verdict."""
        return verdict is self.verdict or (self.sometimes and self.is_worse_than(verdict))

    def covers(self, case_id: str) -> bool:
        """Return True if one of the names or patterns matches this case."""
        return any(fnmatchcase(case_id, pattern) for pattern in self.cases)


class Expectations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All known deviations of one broker."""

    broker: str
    versions: str
    link: str = ""
    deviation: list[Deviation] = []

    def of(self, case_id: str) -> Deviation | None:
        """Return the first entry that covers a case."""
        return next((each for each in self.deviation if each.covers(case_id)), None)


#: Keys of a file, for suggestions.
_KEYS = (*Expectations.__struct_fields__, *Deviation.__struct_fields__)
#: Verdicts that a deviation may have.
_LISTED = tuple(verdict.value for verdict in Verdict)


def load(path: Path, option: str = "--expect") -> Expectations:
    """Read the file given by an option.

    Raises :class:`ExpectationsError` with all that is wrong with it.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Expectations)
    except OSError as error:
        raise ExpectationsError(f"{option}: {describe(error)}") from None
    except msgspec.DecodeError as error:
        reason = wrong_type(error, _KEYS)
        if "Invalid enum value" in reason:
            reason += f"; the verdicts are {', '.join(_LISTED)}"
        raise ExpectationsError(f"{option}: {path}: {reason}") from None


def check(expectations: Expectations, case_ids: list[str], option: str = "--expect") -> None:
    """Raise :class:`ExpectationsError` for a pattern that matches none of all cases."""
    for deviation in expectations.deviation:
        for pattern in deviation.cases:
            if not any(fnmatchcase(case_id, pattern) for case_id in case_ids):
                raise ExpectationsError(
                    f"{option}: no case is called {pattern!r}, which a deviation names"
                    f"{did_you_mean(pattern, case_ids)}"
                )


def compare(results: list[CaseResult], expectations: Expectations) -> list[str]:
    """Mark the expected results; return the ids of those that came out better.

    They include deviations that did not occur, if their case was run and is not UNSUPPORTED: the
    broker may have been fixed.
    """
    better = []
    for result in results:
        deviation = expectations.of(result.id)
        if deviation is None:
            continue
        if deviation.expects(result.verdict):
            if result.verdict is deviation.verdict or result.verdict not in _GOOD:
                result.expected = deviation.reason
        elif deviation.is_worse_than(result.verdict):
            better.append(result.id)
    return better
