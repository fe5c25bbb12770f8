"""A copy of one commit, in which mutants are applied."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.mutants.drawing import sources_of
from tests.mutants.mutant import Mutant, Place, locate

__all__ = ["Copy"]

#: Times of change, in seconds: older than any file that was checked out.
_OLDEST_S, _NEWEST_S = 1, 1_000_000_000
_CHANCE: Final = random.SystemRandom()


class Copy:
    """A clone of a tree's commit; what is not committed there is not in it."""

    def __init__(self, tree: Path, folder: Path) -> None:
        """Make a clone in a folder, or take the one that is there to the commit of the tree."""
        self.folder = folder.resolve()
        commit = _git(tree, "rev-parse", "HEAD")
        if not (folder / ".git").exists():
            _git(tree, "clone", "--quiet", "--shared", "--no-checkout", ".", str(self.folder))
        else:
            _git(self.folder, "fetch", "--quiet", str(tree.resolve()), "HEAD")
        _git(self.folder, "checkout", "--quiet", "--force", "--detach", commit)
        self.commit = commit
        self.sources = sources_of(self.folder)

    def place_of(self, mutant: Mutant) -> Place | None:
        """Return where a mutant is; None if its text is gone."""
        return locate(mutant, self.sources)

    @contextmanager
    def changed(self, place: Place) -> Iterator[None]:
        """Have one mutant applied for a while."""
        path = self.folder / place.file
        self._write(path, place.text)
        try:
            yield
        finally:
            self._write(path, self.sources[place.file])

    def _write(self, path: Path, text: str) -> None:
        """Write a module with a time of change that it has not had before.

        Python takes compiled code for current that was made of a file with the same size and the
        same second of change, and a mutant often has the size of the original.
        """
        path.write_text(text, encoding="utf-8")
        age_s = _CHANCE.randrange(_OLDEST_S, _NEWEST_S)
        os.utime(path, (age_s, age_s))


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
