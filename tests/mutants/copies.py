"""A copy of one commit, to which mutants are applied."""

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

#: Modification times, in seconds: older than those of all checked-out files.
_OLDEST_S, _NEWEST_S = 1, 1_000_000_000
_CHANCE: Final = random.SystemRandom()


class Copy:
    """A clone of a tree's commit, without uncommitted changes."""

    def __init__(self, tree: Path, folder: Path) -> None:
        """Clone into a folder, or check out the tree's commit in the existing clone."""
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
        """Return the place of a mutant; None if its text is missing."""
        return locate(mutant, self.sources)

    @contextmanager
    def changed(self, place: Place) -> Iterator[None]:
        """Apply one mutant within the block."""
        path = self.folder / place.file
        self._write(path, place.text)
        try:
            yield
        finally:
            self._write(path, self.sources[place.file])

    def _write(self, path: Path, text: str) -> None:
        """Write a module with a new modification time.

        Python reuses compiled code of a file with the same size and the same second of
        modification, and a mutant often has the size of the original.
        """
        path.write_text(text, encoding="utf-8")
        age_s = _CHANCE.randrange(_OLDEST_S, _NEWEST_S)
        os.utime(path, (age_s, age_s))


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
