"""``--update-baseline``: updates a list of known deviations to match a run.

Entries for cases that came out as listed, or were not run, stay as written: reasons, links,
comments, patterns. Therefore the text of the file is edited, and only as far as necessary:
rewritten TOML would lose its comments.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

import msgspec

from stompkit.conformance.report.expectations import Deviation, Expectations, ExpectationsError
from stompkit.conformance.report.report import Report, TargetInfo, write
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["Update", "new_baseline", "update", "update_file"]

_STRING = r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
#: Start of an entry, including the comments directly above it.
_ENTRY = re.compile(r"(?:^[ \t]*#.*\n)*^[ \t]*\[\[\s*deviation\s*\]\]", re.MULTILINE)
_CASES = re.compile(
    rf"(?P<head>^[ \t]*cases[ \t]*=[ \t]*\[)(?P<names>(?:{_STRING}|#.*|[^\]\"'#])*)\]",
    re.MULTILINE,
)
#: A name in the list of cases, with its comment; or a separate comment, which stays.
_NAME = re.compile(rf"(?P<name>{_STRING})(?P<rest>[ \t]*,?(?:[ \t]*#.*)?)|#.*")
#: Text after the last line of an entry that does not belong to it.
_APART = re.compile(r"\n(?P<apart>[ \t]*\n(?:[ \t]*(?:#.*)?\n)*)\Z")
_DEVIATIONS = (Verdict.FAILED, Verdict.NON_STRICT)
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Update:
    """The changes of a file."""

    text: str
    #: Ids of the cases that were added and dropped; one whose verdict has changed is in both.
    added: list[str]
    dropped: list[str]


def update_file(path: Path, report: Report, case_ids: Sequence[str]) -> None:
    """Update a file to match a run, or create it, and print a summary; see :func:`update`.

    An interrupted run, or one with errors of the suite itself, changes nothing. Raises ``OSError``
    if the file cannot be written.
    """
    if not report.complete or report.errors:
        print(f"left {path} as it was: the run is not whole")
        return
    is_new = not path.exists()
    text = new_baseline(report.target) if is_new else path.read_text("utf-8")
    done = update(text, report.results, case_ids)
    if is_new or done.text != text:
        write(path, done.text.encode())
    print(f"{path}: {len(done.added)} added, {len(done.dropped)} dropped")


def new_baseline(target: TargetInfo) -> str:
    """Return the head of a new file for a server."""
    broker, version = target.product()
    return f"broker = {_quoted(broker)}\nversions = {_quoted(version or 'not said')}\n"


def update(text: str, results: Sequence[CaseResult], case_ids: Sequence[str]) -> Update:
    """Update the text of a file to match a run; ``case_ids`` are the ids of all cases.

    A deviation that did not occur is dropped, unless it occurs only sometimes. A case that is
    UNSUPPORTED or was not run changes nothing. The reason of a new entry is the observed behaviour.

    Raises :class:`ExpectationsError` if the text is written in a form that cannot be edited.
    """
    before = msgspec.toml.decode(text, type=Expectations)
    by_id = {result.id: result for result in results}
    starts = [match.start() for match in _ENTRY.finditer(text)]
    if len(starts) != len(before.deviation):
        raise _unchangeable("an entry does not begin with a line [[deviation]]")
    bounds = [*starts, len(text)]
    kept = [text[: bounds[0]]]
    known: set[str] = set()
    dropped: dict[str, None] = {}
    for entry, (begin, end) in zip(before.deviation, pairwise(bounds), strict=True):
        covered = [case_id for case_id in case_ids if entry.covers(case_id)]
        stay = [each for each in covered if each not in by_id or _holds(entry, by_id[each])]
        known.update(stay)
        dropped.update((each, None) for each in covered if each not in stay)
        part = text[begin:end]
        kept.append(part if stay == covered else _narrowed(part, covered, stay))
    new = [each for each in results if each.verdict in _DEVIATIONS and each.id not in known]
    if not new and not dropped:
        return Update(text, [], [])
    changed = "\n".join(["".join(kept).rstrip("\n") + "\n", *_entries(new)])
    _check(before, changed, by_id, case_ids)
    return Update(changed, [each.id for each in new], list(dropped))


def _holds(entry: Deviation, result: CaseResult) -> bool:
    """Return True if the result of a case agrees with its entry."""
    return result.verdict is Verdict.UNSUPPORTED or entry.expects(result.verdict)


def _narrowed(part: str, covered: Sequence[str], stay: Sequence[str]) -> str:
    """Return the text of an entry that now covers fewer cases."""
    if not stay:
        apart = _APART.search(part)
        return apart["apart"].lstrip("\n") if apart and "#" in apart["apart"] else ""

    def name(match: re.Match[str]) -> str:
        if match["name"] is None:
            return match[0]
        pattern: str = tomllib.loads(f"name = {match['name']}")["name"]
        named = [each for each in covered if fnmatchcase(each, pattern)]
        left = [each for each in named if each in stay]
        if left == named:
            return match[0]
        return ", ".join(map(_quoted, left)) + match["rest"] if left else ""

    def cases(match: re.Match[str]) -> str:
        names = _NAME.sub(name, match["names"])
        if "\n" in names:
            names = re.sub(r"\n[ \t]*(?=\n)", "", names)
        else:
            names = re.sub(r" {2,}", " ", names).strip(" ,")
        return f"{match['head']}{names}]"

    return _CASES.sub(cases, part, count=1)


def _entries(results: Sequence[CaseResult]) -> list[str]:
    """Return an entry for each verdict and reason."""
    alike: dict[tuple[Verdict, str], list[str]] = {}
    for result in results:
        alike.setdefault((result.verdict, result.detail), []).append(_quoted(result.id))
    entries = []
    for (verdict, reason), names in alike.items():
        cases = f"cases = [{', '.join(names)}]"
        if len(cases) > _WIDTH:
            cases = "cases = [\n" + "".join(f"    {each},\n" for each in names) + "]"
        told = f'verdict = "{verdict}"\nreason = {_quoted(reason)}\n'
        entries.append(f"[[deviation]]\n{cases}\n{told}")
    return entries


def _quoted(text: str) -> str:
    """Return a text as a TOML string; JSON writes it the same way, except for DEL."""
    shown = text.encode("utf-8", "backslashreplace").decode()
    return json.dumps(shown, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check(
    before: Expectations, changed: str, by_id: dict[str, CaseResult], case_ids: Sequence[str]
) -> None:
    """Check that the new text has the intended meaning, whatever the form of the old one."""
    try:
        after = msgspec.toml.decode(changed, type=Expectations)
    except msgspec.DecodeError as error:
        raise _unchangeable(str(error)) from None
    for case_id in case_ids:
        result, entry = by_id.get(case_id), after.of(case_id)
        if result is None:
            is_right = _told(entry) == _told(before.of(case_id))
        elif entry is None:
            is_right = result.verdict not in _DEVIATIONS
        else:
            is_right = _holds(entry, result)
        if not is_right:
            raise _unchangeable(f"what it says of {case_id} cannot be told from the rest")


def _told(entry: Deviation | None) -> Deviation | None:
    """Return an entry without the names of its cases."""
    return msgspec.structs.replace(entry, cases=[]) if entry is not None else None


def _unchangeable(why: str) -> ExpectationsError:
    return ExpectationsError(
        f"--update-baseline: the file is written in a way that cannot be kept: {why}"
    )
