"""What grows while a job of a pipeline runs very many small batches.

A spool has one changeset of one row for each batch, all of 1,000 keys. The job reads one message a
batch, without a pause. At each tenth of the batches, these are measured: memory of all processes of
the job, as the sum of the proportional set sizes (PSS); its open files; files and bytes of the
target's folder, of the state and of the spool; and the size of the catalog of PostgreSQL. Nothing
of this may grow with the number of batches, except for what a target's format keeps by design. To
try::

    python -m benchmarks.small_batches --target postgresql --batches 200
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import create_engine, text

from benchmarks._job import TABLE, fill, running
from benchmarks._process import MIB, disk_bytes, family, need_proc, shared_memory
from benchmarks._report import Figure, make_parser, positive, report, unusable
from tests.servers import PostgreSql, ServerMissing

_KEYS: Final = 1_000
_TARGETS: Final = ("postgresql", "delta", "events")
_STEPS: Final = 10
#: Longer than some batches take, in seconds.
_STUCK_S: Final = 300.0
_CATALOG: Final = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname = 'pg_catalog' AND c.relkind = 'r'"
)


class _Job(NamedTuple):
    process: subprocess.Popen[bytes]
    folder: Path
    #: URL of the target's database; empty for folders.
    database: str

    def batches(self) -> int:
        """Return the number of completed batches."""
        commits = self.folder.glob("state/*/*/checkpoint/commits/[0-9]*")
        return max((int(path.name) + 1 for path in commits), default=0)


def main() -> int:
    """Measure and print."""
    parser = make_parser("small_batches", __doc__ or "")
    parser.add_argument("--target", choices=_TARGETS, default="postgresql")
    parser.add_argument("--batches", type=positive, default=100_000, metavar="N")
    options = parser.parse_args()
    need_proc()
    found: list[Figure] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stompkit-")))
        fill(folder / "spool", options.batches, _KEYS)
        job = stack.enter_context(_running(folder, options.target))
        began = time.monotonic()
        for step in range(1, _STEPS + 1):
            number = _wait(job, options.batches * step // _STEPS)
            now = list(_figures(job, number))
            values = ", ".join(f"{each.name} {each.value:{each.form}}" for each in now)
            # Each step takes long, so its figures are not kept until the end.
            taken = f"{number:,} batches in {time.monotonic() - began:,.0f} s"
            print(f"{taken}: {values}", flush=True)
            found += now
    return report(parser, options.json, found, [])


@contextmanager
def _running(folder: Path, target: str) -> Iterator[_Job]:
    """Run a job until the end of the block."""
    with ExitStack() as stack:
        database = _database(stack) if target == "postgresql" else ""
        place = f'[target]\nurl = "{database or f"delta://{folder}/target"}"\ncreate = true\n'
        if target == "events":
            place = f'[events]\npath = "{folder}/target"\n'
        settings = folder / "pipeline.toml"
        settings.write_text(
            f'name = "small-batches"\nstate-dir = "{folder}/state"\ntrigger = "0s"\n{place}'
            f'[source]\nspool = "{folder}/spool"\nmaxRecordsPerTrigger = 1\n'
        )
        name = "events" if target == "events" else "replicate"
        process = stack.enter_context(running(name, settings, folder / "log"))
        yield _Job(process, folder, database)


def _database(stack: ExitStack) -> str:
    """Start PostgreSQL; return the URL of a database with the table."""
    try:
        server = PostgreSql()
    except ServerMissing as missing:
        raise unusable(str(missing)) from None
    stack.callback(server.remove)
    server.start()
    url = server.url(server.new_database())
    with create_engine(url).begin() as connection:
        connection.execute(text(TABLE))
    return url


def _wait(job: _Job, number: int) -> int:
    """Wait until so many batches are completed; return how many there are."""
    last, since = -1, time.monotonic()
    while (done := job.batches()) < number:
        if done > last:
            last, since = done, time.monotonic()
        if job.process.poll() is not None or time.monotonic() - since > _STUCK_S:
            log = (job.folder / "log").read_text(errors="replace")[-4_000:]
            raise unusable(f"the job does not go on after {done} batches:\n{log}")
        time.sleep(0.5)
    return done


def _figures(job: _Job, number: int) -> Iterator[Figure]:
    pids = family(job.process.pid)
    made: dict[str, tuple[str, float]] = {
        "memory_mib": ("MiB of all processes", sum(map(shared_memory, pids)) / MIB),
        "open_files": ("open files", sum(map(_open_files, pids))),
    }
    for name in ("target", "state", "spool"):
        folder = job.folder / name
        if folder.exists():
            files = sum(path.is_file() for path in folder.rglob("*"))
            made[f"{name}_files"] = (f"files in the folder of the {name}", files)
            made[f"{name}_mib"] = (f"MiB in the folder of the {name}", disk_bytes(folder) / MIB)
    if job.database:
        with create_engine(job.database).connect() as connection:
            size = connection.execute(text(_CATALOG)).scalar_one()
            count = connection.execute(text("SELECT count(*) FROM pg_class")).scalar_one()
        made["catalog_mib"] = ("MiB of PostgreSQL's catalog", float(size) / MIB)
        made["relations"] = ("tables and indexes of the database", count)
    for name, (title, value) in made.items():
        form = ",.1f" if name.endswith("_mib") else ",.0f"
        yield Figure(f"{name}_{number}", f"after {number:,} batches: {title}", value, form)


def _open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0  # it has ended


if __name__ == "__main__":
    sys.exit(main())
