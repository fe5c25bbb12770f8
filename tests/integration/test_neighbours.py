"""Small projects run beside other pytest plug-ins and in other test runners, from a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = Path(__file__).with_name("neighbours")
LONG_S = 600.0
#: Packages that are also in the extra ``dev``.
USUAL = ("pytest-asyncio", "pytest-twisted", "pytest-xdist", "stomp.py")
#: Packages that only these tests use.
OTHERS = (
    "Django",
    "anyio[trio]",
    "fastapi",
    "httpx",
    "pytest-django",
    "pytest-randomly",
    "pytest-repeat",
    "tblib",
)
PARALLEL = "-n 2"
SHUFFLED = "-p randomly --randomly-seed 1"


@dataclass(frozen=True)
class Run:
    """A run of one project, with the number of tests that pass."""

    project: str
    passed: int
    arguments: str = ""
    runner: str = "pytest"

    def __str__(self) -> str:
        """Return the name of the test."""
        runner = "" if self.runner == "pytest" else self.runner
        return " ".join(filter(None, (self.project, runner, self.arguments)))


#: pytest-randomly and pytest-django are active if a run selects them.
RUNS = (
    Run("scopes", 8),
    Run("scopes", 8, "-p no:twisted -p no:asyncio -p no:anyio"),
    Run("scopes", 8, f"{SHUFFLED} {PARALLEL}"),
    Run("scopes", 24, f"--count 3 {PARALLEL}"),
    Run("scopes", 16, f"--count 2 --repeat-scope session {SHUFFLED}"),
    Run("asyncio_strict", 6, "-p no:twisted"),
    Run("asyncio_strict", 6, f"{SHUFFLED} {PARALLEL}"),
    Run("asyncio_auto", 4, "-p no:twisted"),
    Run("asyncio_auto", 4, f"{SHUFFLED} {PARALLEL}"),
    Run("twisted", 4),
    Run("twisted", 3, "--reactor asyncio -p no:asyncio --deselect tests.py::test_of_asyncio"),
    Run("twisted", 4, f"{SHUFFLED} {PARALLEL}"),
    Run("anyio_trio", 7),
    Run("anyio_trio", 7, f"-p no:asyncio -p no:twisted {SHUFFLED} {PARALLEL}"),
    Run("unittests", 7),
    Run("unittests", 7, f"{SHUFFLED} {PARALLEL}"),
    Run("unittests", 5, "tests", runner="unittest"),
    Run("django_shop", 7, "-p django"),
    Run("django_shop", 7, f"-p django {SHUFFLED} {PARALLEL}"),
    Run("django_shop", 3, "test tests", runner="django"),
    Run("django_shop", 3, "test tests --parallel 2", runner="django"),
    Run("fastapi_shop", 4),
    Run("fastapi_shop", 4, f"{SHUFFLED} {PARALLEL}"),
)
#: Runs whose packages are all in the environment of these tests.
HERE = (Run("asyncio_strict", 6, PARALLEL),)


def give_up(reason: str, *, is_optional: bool) -> NoReturn:
    """Skip a test that cannot run; in CI only optional parts may be missing."""
    if not is_optional and os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def clean_environment() -> dict[str, str]:
    """Return the environment without the settings of this run of pytest."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STOMPKIT_MQ", "PYTEST_", "COV_"))
        and name not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE")
    }


def execute(
    command: Sequence[str | Path], cwd: Path = PROJECTS, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in the environment above, with output and errors in one stream."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean_environment(), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
        check=False,
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from a copy, as other tests may build in the checkout."""
    folder = tmp_path_factory.mktemp("neighbours-wheel")
    left_out = shutil.ignore_patterns(".*", "*.egg-info", "build", "docs", "report", "tests")
    shutil.copytree(ROOT, folder / "source", ignore=left_out)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    built = execute([*command, folder, folder / "source"], STOMPKIT_PURE="1")
    if built.returncode:
        give_up(f"the wheel cannot be built:\n{built.stdout}", is_optional=False)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def usual(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment with the wheel and the usual plug-ins."""
    folder = tmp_path_factory.mktemp("neighbours")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    installed = execute([*pip, f"{wheel}[testing]", *USUAL])
    if installed.returncode:
        give_up(f"pip cannot install the wheel:\n{installed.stdout}", is_optional=False)
    return python


@pytest.fixture(scope="session")
def python(usual: Path) -> Path:
    """Return the Python of that environment, with all packages that the projects use."""
    pip = (usual, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    installed = execute([*pip, *OTHERS])
    if installed.returncode:
        reason = f"pip cannot install {', '.join(OTHERS)}:\n{installed.stdout}"
        give_up(reason, is_optional=True)
    return usual


def passed(run: Run, python: Path, folder: Path) -> int:
    """Run a copy of a project in a new folder; return how many tests have passed."""
    project = folder / run.project
    shutil.copytree(PROJECTS / run.project, project)
    temporary = folder / "temporary"
    temporary.mkdir()
    arguments = run.arguments.split()
    if run.runner == "pytest":
        left_out = [f"-pno:{name}" for name in ("django", "randomly") if name not in arguments]
        arguments = ["-q", "--tb=short", *left_out, *arguments]
    settings = {"DJANGO_SETTINGS_MODULE": "shop"} if run.runner == "django" else {}
    result = execute(
        [python, "-m", run.runner, *arguments],
        cwd=project,
        STOMPKIT_MQ_MISSING="fail",
        TMPDIR=str(temporary),
        **settings,
    )
    assert result.returncode == 0, result.stdout
    # No broker's folder remains, and no warning about a faulty broker.
    left = [path.name for path in temporary.iterdir() if path.name.startswith("stompkit")]
    assert not left, left
    assert "StompBrokerWarning" not in result.stdout
    found = re.search(r"^(\d+) passed|^Ran (\d+) tests", result.stdout, re.MULTILINE)
    assert found is not None, result.stdout
    return int(found[1] or found[2])


@pytest.mark.matrix
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_project_passes(run: Run, python: Path, tmp_path: Path) -> None:
    assert passed(run, python, tmp_path) == run.passed


@pytest.mark.parametrize("run", HERE, ids=str)
def test_a_project_passes_here(run: Run, tmp_path: Path) -> None:
    assert passed(run, Path(sys.executable), tmp_path) == run.passed


def test_the_page_shows_these_projects() -> None:
    page = (ROOT / "docs" / "howto" / "testing-frameworks.rst").read_text(encoding="utf-8")
    shown = re.findall(
        r"^\.\. tests/integration/neighbours/(\S+)\n\n\.\. code-block:: \w+\n\n((?: .*\n|\n)*)",
        page,
        re.MULTILINE,
    )
    projects = {"asyncio_auto", "django_shop", "fastapi_shop"}
    assert {Path(name).parent.name for name, _ in shown if name.endswith(".py")} == projects
    assert {Path(name).parent.name for name, _ in shown if name.endswith(".ini")} == projects
    for name, code in shown:
        text = (PROJECTS / name).read_text(encoding="utf-8")
        # Without the docstring of a module.
        program = text.split('"""', 2)[-1]
        lines = [line for line in program.splitlines() if line and "__future__" not in line]
        assert [line.removeprefix("    ") for line in code.splitlines() if line] == lines
