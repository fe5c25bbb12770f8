"""Logins that servers refuse: messages name the option or the key to change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stompkit._commands import main
from tests.commands.test_replicate import Shop, add
from tests.servers import MariaDb, PostgreSql, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

Run = Callable[..., tuple[int, str]]
#: A user that no server has.
GHOST = "ghost:s3cr3t"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command here; it returns its status and errors."""

    def run(*arguments: object) -> tuple[int, str]:
        more = ("--state-dir", str(tmp_path / "state"), "--quiet")
        status = main(["replicate", *map(str, arguments), *more])
        return status, capsys.readouterr().err

    return run


@pytest.fixture
def postgresql_url(postgresql: PostgreSql) -> str:
    return f"postgresql://{GHOST}@/postgres?host={postgresql.directory}&port=5432"


@pytest.fixture
def mariadb_url(mariadb: MariaDb) -> str:
    return f"mysql://{GHOST}@localhost/?unix_socket={mariadb.socket}"


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
@pytest.mark.parametrize("kind", ["", "outbox+"])
def test_source_that_refuses_a_login_is_named(
    run: Run, request: pytest.FixtureRequest, tmp_path: Path, server: str, kind: str
) -> None:
    url = kind + request.getfixturevalue(f"{server}_url")
    status, errors = run("--from", url, "--to", "print")
    assert status == 1
    assert errors.splitlines()[-1].startswith("stompkit replicate: --from: ")
    assert "ghost" in errors
    assert "s3cr3t" not in errors
    file = tmp_path / "job.toml"
    file.write_text(f'from = "{url}"\nto = "print"\n')
    status, errors = run("--config", file)
    assert errors.splitlines()[-1].startswith(f"stompkit replicate: {file}: from: ")
    (state,) = (tmp_path / "state").glob("*.status.json")
    assert json.loads(state.read_text())["error"].startswith("--from: ")


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_target_that_refuses_a_login_is_named(
    run: Run, request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    shop = Shop(tmp_path / "shop.db")
    shop.change(add(1))
    url = request.getfixturevalue(f"{server}_url")
    status, errors = run("--from", shop.url, "--to", url, "--once")
    assert status == 1
    assert errors.splitlines()[-1].startswith("stompkit replicate: --to: ")
    assert "ghost" in errors
    assert "s3cr3t" not in errors
