"""List sentences that are too long, vague headings, and words that pages do not use.

``python docs/check_prose.py PAGE ...`` checks some pages, and without arguments all. The words are
in ``prose.toml``. Code is not searched, and neither are pages that quote the specifications.
``tests/project`` has the rules for docstrings.

Existing linters do not fit: proselint does not read reStructuredText and takes no list of words,
and the package of vale downloads a program.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from docutils import nodes
from docutils.core import publish_doctree

ROOT: Final = Path(__file__).resolve().parents[1]
#: Most words in a sentence.
_MOST_WORDS: Final = 25
#: Pages that quote specifications, or results as programs have printed them.
_QUOTING: Final = (
    "docs/reference/conformance-coverage.rst",
    "docs/reference/conformance-results.rst",
)
#: Only Sphinx understands these.
_FOR_SPHINX: Final = re.compile(r"docs/index\.rst|docs/reference/api/.*")
#: Parts of a sentence that a colon or semicolon divides count separately, as in an enumeration.
_END: Final = re.compile(r"(?<=[.!?])\s+|[:;]\s+|\s+--?\s+")
#: Stands for code, which counts as one word and contains none of the words.
_CODE: Final = "_"
#: An enumeration of code counts as one word.
_CODES: Final = re.compile(r"_(?:,? (?:and |or )?_)+")
#: Opening of a heading that names no subject.
_VAGUE: Final = re.compile(r"(What|Where|Who|Whether)\b")
#: Words in a quotation are those of others.
_QUOTATION: Final = re.compile(r'"[^"]*"')
_SETTINGS: Final = {
    "report_level": 5,
    "syntax_highlight": "none",
    "doctitle_xform": False,
    "smart_quotes": False,
}


class Finding(NamedTuple):
    """A place to improve."""

    place: str
    text: str

    def __str__(self) -> str:
        """Return a line as compilers print it."""
        return f"{self.place}: {self.text}"


@dataclass(frozen=True)
class Word:
    """A word or phrase that pages do not use."""

    pattern: re.Pattern[str]
    instead: str
    exempt: Sequence[str]
    """Pages that may use it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the pages that the arguments name, or all; return 1 if there is a finding."""
    names = sys.argv[1:] if arguments is None else list(arguments)
    paths = [Path(name).resolve() for name in names] or pages()
    words = read_words()
    found = [each for path in paths for each in check(path, words)]
    for each in found:
        print(each)
    if found:
        print(f"{len(found)} findings; docs/prose.toml has the words")
    return 1 if found else 0


def pages() -> list[Path]:
    """Return all pages that people write."""
    found = [*ROOT.glob("*.rst"), *ROOT.glob("docs/**/*.rst"), *ROOT.glob("newsfragments/**/*.rst")]
    return sorted(path for path in found if not _is_skipped(path.relative_to(ROOT).as_posix()))


def _is_skipped(name: str) -> bool:
    return name in _QUOTING or _FOR_SPHINX.fullmatch(name) is not None or "template" in name


def read_words(path: Path = ROOT / "docs" / "prose.toml") -> list[Word]:
    """Return the words of a word list."""
    listed: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["word"]
    return [
        Word(re.compile(each["pattern"], re.IGNORECASE), each["instead"], each.get("except", ()))
        for each in listed
    ]


def check(path: Path, words: Sequence[Word]) -> Iterator[Finding]:
    """Yield the findings of a page."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
    used = [each for each in words if name not in each.exempt]
    document = publish_doctree(path.read_text(encoding="utf-8"), settings_overrides=_SETTINGS)
    for node in document.findall(_is_text):
        place = f"{name}:{_line(node)}"
        text = _plain(node)
        own = _QUOTATION.sub("", text)
        if isinstance(node, nodes.title) and _VAGUE.match(text):
            yield Finding(place, f"{text}: a heading is a term that people search for")
        for word in used:
            for match in word.pattern.finditer(own):
                yield Finding(place, f'"{match[0]}": {word.instead}')
        for sentence in _END.split(text):
            count = sum(any(map(_is_of_word, each)) for each in sentence.split())
            if count > _MOST_WORDS:
                yield Finding(place, f"{count} words, more than {_MOST_WORDS}: {sentence}")


def _is_text(node: nodes.Node) -> bool:
    # docutils puts its remarks into the document.
    is_remark = isinstance(node.parent, nodes.system_message)
    return isinstance(node, nodes.paragraph | nodes.title | nodes.term) and not is_remark


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == _CODE


def _line(node: nodes.Node) -> int:
    """Return the line of a node, or of the closest one around it that has a line."""
    around: nodes.Node | None = node
    while around is not None and around.line is None:
        around = around.parent
    return 0 if around is None else around.line or 0


def _plain(node: nodes.Node) -> str:
    """Return the text of a node, in which each piece of code is one word."""
    parts: list[str] = []

    def walk(inner: nodes.Node) -> None:
        if isinstance(inner, nodes.literal):
            parts.append(_CODE)
        elif isinstance(inner, nodes.Text):
            parts.append(inner.astext())
        else:
            for child in inner.children:
                walk(child)

    walk(node)
    return _CODES.sub(_CODE, re.sub(r"\s+", " ", "".join(parts)).strip())


if __name__ == "__main__":
    sys.exit(main())
