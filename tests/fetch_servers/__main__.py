"""``python -m tests.fetch_servers``: download servers, or list the downloaded ones."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stompkit.testing.launching.fetched import CACHE_VARIABLE, cache_folder, fetched
from tests.fetch_servers._catalogue import CATALOGUE, Source
from tests.fetch_servers._commands import FetchError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Download the requested servers and list the result; return the exit status.

    It is 1 if a named server is missing at the end, or if a download failed although its programs
    and rights were available.
    """
    options = _parser().parse_args(arguments)
    cache = cache_folder()
    # The named servers; without names, all that are possible here.
    names = list(dict.fromkeys(options.names)) or list(CATALOGUE)
    problems: dict[str, str] = {}
    failed = False
    if not options.list:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache):
            for number, name in enumerate(names, 1):
                print(f"{name} ({number} of {len(names)}): {CATALOGUE[name].about}", flush=True)
                obstacle = CATALOGUE[name].obstacle()
                problem = obstacle or _fetch(CATALOGUE[name], cache, again=options.update)
                if problem:
                    print(f"  left out: {problem}", flush=True)
                    problems[name] = problem
                failed |= bool(problem) and (obstacle is None or bool(options.names))
    print("\n".join(_listing(cache, problems)))
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="make servers",
        description="Fetch servers in versions of today, for tests, the conformance suite and"
        f" benchmarks. They go into {CACHE_VARIABLE}, by default ~/.cache/stompkit/servers.",
    )
    made.add_argument(
        "names",
        nargs="*",
        metavar="SERVER",
        type=_name,
        help=f"by default all: {', '.join(CATALOGUE)}",
    )
    made.add_argument("--list", action="store_true", help="fetch nothing, show what is there")
    made.add_argument(
        "--update", action="store_true", help="look for newer packages of what is there"
    )
    return made


def _name(text: str) -> str:
    if text not in CATALOGUE:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(CATALOGUE)}")
    return text


def _fetch(source: Source, cache: Path, *, again: bool) -> str | None:
    """Download one server if needed; return the reason of a failure."""
    there = next((each for each in fetched(cache=cache) if each.name == source.name), None)
    if there is not None and source.is_current(there) and not again:
        print(f"  {there.version} is there", flush=True)
        return None
    started = time.monotonic()
    try:
        found = source.fetch(cache, lambda line: print(line, flush=True), newest=again)
    except FetchError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or 'a file'}: {error.strerror}"
    found.save()
    if there is not None and there.folder != found.folder:
        # An older version, which is not referenced any more.
        shutil.rmtree(there.folder, ignore_errors=True)
    print(f"  {found.version}, after {time.monotonic() - started:.0f} s", flush=True)
    return None


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Wait until no other process fetches servers into the folder."""
    with (cache / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that fetches servers into {cache}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _listing(cache: Path, problems: dict[str, str]) -> list[str]:
    """Return the lines about downloaded and missing servers, and the reasons."""
    there = {each.name: each for each in fetched(cache=cache)}
    lines = ["", f"Servers in {cache}:"]
    for name in dict.fromkeys([*CATALOGUE, *there]):
        found = there.get(name)
        problem = problems.get(name, "")
        if found is not None:
            words = f"{found.version}  (not renewed: {problem})" if problem else found.version
        else:
            words = f"missing: {problem}" if problem else "missing"
        lines.append(f"  {name:<14} {words}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
