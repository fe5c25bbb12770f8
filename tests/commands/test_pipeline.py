"""The command ``stompkit pipeline``, as far as it does not need Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from stompkit._commands.pipeline.command import main
from stompkit.spool import SpoolWriter
from tests.spool.made import record

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command here; it returns its status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main([*map(str, arguments)])
        except SystemExit as error:
            status = int(error.code or 0)
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline with both jobs, which have never run."""
    path = tmp_path / "shop.toml"
    path.write_text(
        f"""
        name = "shop"
        state-dir = "{tmp_path}/state"
        [source]
        spool = "{tmp_path}/spool"
        [target]
        url = "sqlite:///{tmp_path}/copy.sqlite"
        [events]
        path = "{tmp_path}/events"
        """
    )
    return path


@pytest.mark.parametrize("command", ["", "run", "check", "status"])
def test_each_command_explains_itself(run: Run, command: str) -> None:
    status, output, _ = run(*filter(None, [command]), "--help")
    assert status == 0
    assert "usage: stompkit pipeline" in output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "COMMAND"),
        (("run",), "JOB"),
        (("run", "replicate"), "--config"),
        (("run", "rebild", "--config", "x"), "compact, rebuild, verify; did you mean rebuild?"),
        (("run", "events", "--config", "x", "--trigger", "soon"), "such as 500ms"),
        (("run", "events", "--config", "x", "--trigger", "1s", "--once"), "not allowed with"),
        (("run", "events", "--config", "/nowhere/shop.toml"), "No such file"),
    ],
)
def test_a_command_line_that_is_wrong_is_told_in_words(
    run: Run, arguments: tuple[str, ...], complaint: str
) -> None:
    status, _, errors = run(*arguments)
    assert status == 2
    assert complaint in errors


def test_a_file_is_checked(run: Run, file: Path, tmp_path: Path) -> None:
    status, output, errors = run("check", file)
    assert status == 0
    assert output.splitlines() == [
        f"{file}: replicate: valid, but cannot run here yet: apply changes to a database",
        f"{file}: events: valid, but cannot run here yet: store changes in an event store",
    ]
    assert "not yet: " in errors
    assert "there is no spool in" in errors
    SpoolWriter(tmp_path / "spool").close()
    status, output, errors = run("check", file)
    assert (status, errors) == (0, "")
    assert output.splitlines() == [
        f"{file}: replicate: OK: apply changes to a database",
        f"{file}: events: OK: store changes in an event store",
    ]
    assert not (tmp_path / "copy.sqlite").exists()


def test_a_target_that_cannot_be_used_is_told(run: Run, file: Path, tmp_path: Path) -> None:
    """The run would stop there; the file itself may be right."""
    (tmp_path / "copy.sqlite").write_text("no database at all")
    status, output, errors = run("check", file)
    assert status == 0
    assert f"{file}: not yet: replicate: target.url: " in errors
    assert "copy.sqlite cannot be used: the file is no database of SQLite" in errors
    assert "not yet: events: " not in errors
    assert f"{file}: replicate: valid, but cannot run here yet" in output


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [
        ("delta:///nowhere", "deltalake", "delta"),
        ("postgresql://me@127.0.0.1:1/shop", "psycopg", "postgresql"),
        ("mariadb://me@127.0.0.1:1/shop", "pymysql", "mysql"),
    ],
)
def test_a_library_that_a_target_lacks_is_told_with_its_extra(
    run: Run, file: Path, tmp_path: Path, url: str, library: str, extra: str
) -> None:
    SpoolWriter(tmp_path / "spool").close()
    file.write_text(file.read_text().replace(f"sqlite:///{tmp_path}/copy.sqlite", url))
    told = f"this needs {library}: pip install 'stompkit[{extra}]'"
    program = WITHOUT_PYSPARK.replace('["pyspark", "numpy", "pyarrow"]', f'["{library}"]')
    done = {}
    for words in ("check", "run replicate --config"):
        command = [sys.executable, "-c", program, *words.split(), str(file)]
        done[words] = subprocess.run(command, capture_output=True, text=True, check=False)
        assert told in done[words].stderr
    checked, ran = done.values()
    assert (checked.returncode, ran.returncode) == (0, 2)
    assert f"{file}: replicate: valid, but cannot run here yet" in checked.stdout
    assert f"{file}: events: OK" in checked.stdout


def test_a_library_that_metrics_lack_is_told(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(file.read_text() + '[metrics]\nlisten = "127.0.0.1:0"\n')
    assert "prometheus" not in run("check", file)[2]
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, _, errors = run("check", file)
    assert status == 0
    assert "not yet: [metrics]: metrics need prometheus_client" in errors


def test_mistakes_of_a_file_are_listed(run: Run, file: Path) -> None:
    file.write_text(file.read_text().replace("url =", "ulr =") + "\ntll = '1d'\n")
    status, output, errors = run("check", file)
    assert (status, output) == (1, "")
    assert errors.splitlines() == [
        f"{file}: target.ulr: there is no such setting; did you mean url?",
        f"{file}: target.url: this is needed",
        f"{file}: events.tll: there is no such setting; did you mean ttl?",
    ]
    assert run("run", "events", "--config", file)[0] == 2
    assert run("status", file)[0] == 1


def test_a_server_of_spark_connect_is_no_master(run: Run, file: Path) -> None:
    file.write_text(file.read_text() + '[spark]\nmaster = "sc://spark:15002"\n')
    status, _, errors = run("check", file)
    assert status == 1
    assert errors.startswith(f"{file}: spark.master: a job drives Spark from its own process")


def test_a_function_is_not_hidden_by_its_module() -> None:
    import stompkit.spark.ship
    from stompkit.spark import ship

    assert ship is stompkit.spark.ship
    assert callable(ship)


#: The command without the libraries of the extra ``spark``.
WITHOUT_PYSPARK = """
import sys
sys.modules.update(dict.fromkeys(["pyspark", "numpy", "pyarrow"]))
from stompkit._commands.pipeline.command import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--help"], 0, "usage: stompkit pipeline"),
        (["run", "--help"], 0, "usage: stompkit pipeline run"),
        (["check", "FILE"], 0, "not yet: PySpark is not installed: pip install 'stompkit[spark]'"),
        (["run", "events", "--config", "FILE"], 1, "pip install 'stompkit[spark]'"),
        (["run", "verify", "--config", "FILE"], 1, "pip install 'stompkit[spark]'"),
        (["run", "nothing", "--config", "FILE"], 2, "'nothing' is not one of"),
    ],
)
def test_what_needs_no_spark_works_without_it(
    file: Path, arguments: list[str], status: int, words: str
) -> None:
    named = [str(file) if each == "FILE" else each for each in arguments]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK, *named],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["oracle://db", "nothing"])
def test_a_target_that_there_is_not_is_told(run: Run, file: Path, tmp_path: Path, url: str) -> None:
    file.write_text(file.read_text().replace(f"sqlite:///{tmp_path}/copy.sqlite", url))
    for arguments, expected in ((("check", file), 1), (("run", "replicate", "--config", file), 2)):
        status, _, errors = run(*arguments)
        assert status == expected
        assert "target.url: " in errors


def test_a_job_that_the_file_does_not_describe_is_refused(
    run: Run, file: Path, tmp_path: Path
) -> None:
    text = file.read_text()
    file.write_text(text[: text.index("[events]")])
    status, _, errors = run("run", "events", "--config", file)
    assert status == 2
    assert "[events]: the job events needs this table" in errors
    assert not (tmp_path / "state").exists()


def test_the_status_of_what_has_never_run_is_told(run: Run, file: Path, tmp_path: Path) -> None:
    status, _, errors = run("status", file)
    assert status == 1
    assert "there is no spool in" in errors
    SpoolWriter(tmp_path / "spool", partitions=2).close()
    status, output, errors = run("status", file)
    assert (status, errors) == (0, "")
    assert output.count("not running on this machine, lag 0 messages") == 2
    told = json.loads(run("status", file, "--json")[1])
    assert told["name"] == "shop"
    assert [each["job"] for each in told["jobs"]] == ["replicate", "events"]
    assert told["jobs"][0]["places"] == [
        {"partition": 0, "next": 0, "head": 0},
        {"partition": 1, "next": 0, "head": 0},
    ]
    # Nothing was changed.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.toml", "spool"]


def test_messages_that_a_job_has_not_applied_are_its_lag(
    run: Run, file: Path, tmp_path: Path
) -> None:
    with SpoolWriter(tmp_path / "spool", partitions=2) as writer:
        writer.append([record(each) for each in range(3)])
    output = run("status", file)[1]
    assert output.count("not running on this machine, lag 3 messages") == 2
