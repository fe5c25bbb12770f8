"""Work of tasks in files: a job removes what killed jobs of the same pipeline have left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stompkit.spark.targets import Committed, Staged
from stompkit.spark.targets.files.staged_work import FOLDER
from tests.spark.change_rows import row_of
from tests.spark.targets.test_file_targets import LETTERS, Place, place
from tests.spark.targets.test_targets import JOB, Pipeline, rows_of, write

__all__ = ["place"]

#: Number of rows of a batch, which are long enough to be staged in a file.
ROWS = 20


def staged(place: Place) -> set[str]:
    """Return the names of all that is staged."""
    parent = place.folder / LETTERS if place.kind == "delta" else place.folder
    return {path.name for path in (parent / FOLDER).glob("*")}


def names_of(parts: list[Staged]) -> set[str]:
    """Return the names of what is staged for parts."""
    return {part.stored for part in parts if part.stored}


def batch(made: Pipeline) -> list[dict[str, Any]]:
    """Return the next rows of a pipeline."""
    begin = made.fence().get(0, -1) + 1
    return [row_of(write(n, a=str(n) * 30_000), n) for n in range(begin, begin + ROWS)]


def stage(made: Pipeline) -> list[Staged]:
    """Return what a task stages for the next rows."""
    return made.stage(batch(made), made.begin())


def test_first_commit_removes_what_earlier_jobs_have_staged(place: Place) -> None:
    killed, driver = place.pipeline(), place.pipeline()
    killed.run(rows_of(write(0, a="x")))
    others = [place.pipeline(replace(JOB, pipeline="q")), place.pipeline(replace(JOB, spool="t"))]
    kept = names_of([part for each in others for part in stage(each)])
    left = stage(killed)
    job = driver.begin()
    assert staged(place) == names_of(left) | kept
    assert (len(names_of(left)), len(kept)) == (1, 2)
    # Few rows are not staged in a file.
    assert driver.run(rows_of(write(0, a="y"), first=1)) == Committed(written=1)
    assert staged(place) == kept
    assert killed.target.commit(left, job) is None, "its fence has moved"


def test_later_commit_removes_what_tasks_of_an_earlier_job_still_staged(place: Place) -> None:
    if place.kind == "delta":
        pytest.skip("a task finds in the table that it has the rows")
    killed, driver = place.pipeline(), place.pipeline()
    driver.run(rows_of(write(0, a="x")))
    rows, job = batch(killed), killed.begin()
    assert driver.run(batch(driver)) == Committed(written=ROWS)
    late = killed.stage(rows, job)
    assert staged(place) == names_of(late)
    assert driver.run(batch(driver)) == Committed(written=ROWS)
    assert staged(place) == set()


def test_commit_leaves_what_another_job_stages_after_it(place: Place) -> None:
    driver, other = place.pipeline(), place.pipeline()
    driver.run(rows_of(write(0, a="x")))
    parts, job = stage(driver), driver.begin()
    then = {0: ROWS}
    # The other job has seen the new position before this one cleans up.
    later = other.stage(
        [row_of(write(n, a=str(n) * 30_000), n) for n in range(ROWS + 1, 2 * ROWS)],
        replace(JOB, fence=then),
    )
    assert driver.target.commit(parts, job) == Committed(written=ROWS)
    assert driver.fence() == then
    assert staged(place) == names_of(later)
    assert other.target.commit(later, other.begin()) == Committed(written=ROWS - 1)
