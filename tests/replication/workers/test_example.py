"""The example of a cache in Redis runs, by one command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.servers import RedisServer

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "replication" / "repl_redis.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_cache_has_what_was_committed(redis: RedisServer) -> None:
    done = run(redis.url)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        'repl_redis:users:1 {"name": "Ann"}',
        'repl_redis:users:2 {"name": "Robert"}',
        "repl_redis:users:3 (nothing)",
    ]


def test_without_a_url_it_says_what_it_needs() -> None:
    done = run()
    assert done.returncode == 1
    assert done.stderr == "usage: python repl_redis.py REDIS_URL\n"
