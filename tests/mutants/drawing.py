"""The draw of mutants: each part of the product in proportion to its lines."""

from __future__ import annotations

import ast
import io
import random
import subprocess
import tarfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.mutant import Mutant, MutantSet, neighbours, occurrences
from tests.mutants.operators import Defaults, Span, defaults_of, spans

__all__ = ["PARTS", "draw", "part_of", "sources_of", "sources_of_commit"]

#: Parts of the product by their folders; the first match counts.
PARTS: Final = {
    "frames": "stompkit/frames/",
    "stores": "stompkit/server/stores/",
    "server": "stompkit/server/",
    "client": "stompkit/client/",
    "link": "stompkit/link/",
    "kombu": "stompkit/kombu/",
    "spool": "stompkit/spool/",
    "bridge": "stompkit/bridge/",
    "replica": "stompkit/replica/",
    "replication": "stompkit/replication/",
    "spark": "stompkit/spark/",
    "testing": "stompkit/testing/",
    "conformance": "stompkit/conformance/",
    "commands": "stompkit/_commands/",
    "rest": "stompkit/",
}
#: Minimum for each part.
_LEAST: Final = 5


def part_of(file: str) -> str:
    """Return the part of the product that a file belongs to."""
    return next(part for part, folder in PARTS.items() if file.startswith(folder))


def sources_of(tree: Path) -> dict[str, str]:
    """Return the modules of the product in a folder, by their paths in it."""
    return {
        path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((tree / "stompkit").rglob("*.py"))
    }


def sources_of_commit(repository: Path, commit: str) -> dict[str, str]:
    """Return the modules of the product in a commit, by their paths."""
    packed = subprocess.run(
        ["git", "archive", commit, "stompkit"], cwd=repository, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = {
            member.name: archive.extractfile(member)
            for member in archive
            if member.name.endswith(".py")
        }
        return {name: file.read().decode() for name, file in sorted(files.items()) if file}


def draw(sources: Mapping[str, str], *, seed: int, count: int, commit: str = "") -> MutantSet:
    """Draw *count* mutants; the same ones for the same sources and *seed*."""
    defaults = defaults_of(sources.values())
    files: dict[str, list[str]] = defaultdict(list)
    for file in sorted(sources):
        files[part_of(file)].append(file)
    lines = {part: sum(sources[each].count("\n") for each in files[part]) for part in files}
    drawn: list[Mutant] = []
    for part, quota in _quotas(lines, count).items():
        chance = random.Random(f"{seed} {part}")
        own = {file: sources[file] for file in files[part]}
        drawn += _drawn(part, own, quota, chance, defaults, len(drawn) + 1)
    return MutantSet(seed=seed, commit=commit, mutants=tuple(drawn))


def _quotas(lines: Mapping[str, int], count: int) -> dict[str, int]:
    """Return the number of mutants of each part: by its lines, with a minimum."""
    parts = [part for part in PARTS if part in lines]
    least = min(_LEAST, count // len(parts))
    rest = count - least * len(parts)
    total = sum(lines.values())
    quotas = {part: least + rest * lines[part] // total for part in parts}
    largest = sorted(parts, key=lambda part: -lines[part])
    for part in largest[: count - sum(quotas.values())]:
        quotas[part] += 1
    return quotas


def _drawn(
    part: str,
    sources: Mapping[str, str],
    quota: int,
    chance: random.Random,
    defaults: Defaults,
    first_id: int,
) -> list[Mutant]:
    """Draw from the files, large ones likely first, the operators that were drawn least."""
    left = {file: spans(text, defaults) for file, text in sources.items()}
    order = sorted(sources, key=lambda file: -(chance.random() ** (1 / _length(sources[file]))))
    taken: Counter[str] = Counter()
    drawn: list[Mutant] = []
    while len(drawn) < quota and any(left.values()):
        for file in order:
            while left[file] and len(drawn) < quota:
                span = _next(left[file], taken, chance)
                mutant = _made(first_id + len(drawn), part, file, sources[file], span)
                if mutant is not None:
                    left[file] = [each for each in left[file] if each.start[0] != span.start[0]]
                    taken[span.operator] += 1
                    drawn.append(mutant)
                    break
                left[file].remove(span)
    return drawn


def _length(text: str) -> int:
    return text.count("\n") + 1


def _next(left: list[Span], taken: Counter[str], chance: random.Random) -> Span:
    least = min(taken[each.operator] for each in left)
    operator = chance.choice(sorted({s.operator for s in left if taken[s.operator] == least}))
    return chance.choice([each for each in left if each.operator == operator])


def _made(number: int, part: str, file: str, source: str, span: Span) -> Mutant | None:
    """Return a mutant of a span; None if the result is invalid or unchanged."""
    lines = source.split("\n")
    first, last = span.start[0] - 1, span.end[0] - 1
    before = lines[first : last + 1]
    head = before[0].encode()[: span.start[1]].decode()
    tail = before[-1].encode()[span.end[1] :].decode()
    after = f"{head}{span.text}{tail}".split("\n")
    if not "".join(after).strip():
        return None
    changed = "\n".join([*lines[:first], *after, *lines[last + 1 :]])
    try:
        if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source)):
            return None
        compile(changed, file, "exec", dont_inherit=True)
    except SyntaxError:
        return None
    above, below = neighbours(lines, first, len(before))
    mutant = Mutant(
        id=number,
        part=part,
        file=file,
        scope=span.scope,
        line=first + 1,
        operator=span.operator,
        before="\n".join(before),
        after="\n".join(after),
        nth=0,
        of=0,
        above=above,
        below=below,
    )
    places = occurrences(mutant, source)
    return msgspec.structs.replace(mutant, nth=places.index(first), of=len(places))
