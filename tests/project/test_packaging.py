"""Packaging: the wheel, the editable install, and that both work outside the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email import message_from_string
from html.parser import HTMLParser
from pathlib import Path

import pytest
from readme_renderer import rst

import stompkit
from tests.effort import in_matrix

ROOT = Path(__file__).parents[2]

CONSUMER = """\
import stomp


def test_message(stomp_broker):
    connection = stomp.Connection12([(stomp_broker.host, stomp_broker.port)])
    connection.connect(wait=True)
    connection.send("/queue/a", "hello", receipt="r")
    connection.disconnect()
"""


def run(*command: str | Path, cwd: Path, status: int = 0, **more: str) -> str:
    """Run a command as a user would, without this process's settings; return its output.

    ``more`` has additional environment variables.
    """
    hidden = ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "STOMPKIT_PURE")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and not name.startswith("COV_")
    }
    environment.update(more)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == status, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


# The parts of the suite that run on compiled modules cover the compiled wheel.
@pytest.fixture(scope="session", params=[False, in_matrix(True)], ids=["python", "compiled"])
def is_compiled(request: pytest.FixtureRequest) -> bool:
    """Return True if the wheel is to be compiled."""
    return bool(request.param)


@pytest.fixture(scope="session")
def built(is_compiled: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: FBT001
    """Return a folder with the sdist, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--outdir", folder, ROOT)
    if is_compiled:
        run(*build, cwd=folder, STOMPKIT_COMPILE="1", STOMPKIT_COMPILE_LEVEL="0")
    else:
        run(*build, cwd=folder, STOMPKIT_PURE="1")
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    """The wheel."""
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment that has the wheel, and stomp.py for its user."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    extras = f"{wheel}[testing,conformance]"
    run(python, "-m", "pip", "install", "--quiet", extras, "stomp.py", cwd=folder)
    return folder / "bin"


def names(wheel: Path) -> set[str]:
    """Return the names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def read_info(wheel: Path, name: str) -> str:
    """Return a file of the wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        [path] = [each for each in archive.namelist() if each.endswith(f".dist-info/{name}")]
        return archive.read(path).decode()


def test_the_tag_of_the_wheel_says_if_it_is_compiled(wheel: Path, is_compiled: bool) -> None:  # noqa: FBT001
    python = f"cp3{sys.version_info.minor}"
    tag = rf"{python}-{python}-linux_\w+" if is_compiled else "py3-none-any"
    assert re.fullmatch(rf"stompkit-{re.escape(stompkit.__version__)}-{tag}\.whl", wheel.name)
    assert f"Root-Is-Purelib: {str(not is_compiled).lower()}" in read_info(wheel, "WHEEL")


class Targets(HTMLParser):
    """Targets of the links and pictures of a page."""

    def __init__(self, html: str) -> None:
        """Read a page."""
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the target of a tag."""
        self.found += [value for name, value in attrs if name in ("href", "src") and value]


def test_the_page_on_an_index_has_links_that_work(wheel: Path, built: Path, tmp_path: Path) -> None:
    """The index renders README.rst; each link of ours leads to a file of this version."""
    metadata = message_from_string(read_info(wheel, "METADATA"))
    [source] = [
        address
        for label, address in (each.split(", ") for each in metadata.get_all("Project-URL", []))
        if label == "Source"
    ]
    assert dict(each.split(", ") for each in metadata.get_all("Project-URL", [])) == {
        "Source": source,
        "Documentation": "https://stompkit.github.io/stompkit/",
        "Changes": f"{source}/blob/main/CHANGES.rst",
        "Issues": f"{source}/issues",
    }
    page = rst.render(str(metadata.get_payload()))
    assert page is not None
    targets = Targets(page).found
    ours = rf"{source}/(?:blob|raw)/v{re.escape(stompkit.__version__)}/(.+)"
    paths = [found[1] for found in (re.fullmatch(ours, each) for each in targets) if found]
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert [each for each in targets if not re.match("https?://|#", each)] == []
    run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), cwd=tmp_path)


def test_wheel_leaves_twisted_alone(wheel: Path) -> None:
    in_twisted = {name for name in names(wheel) if name.startswith("twisted/")}
    plugins = ("stompkit_cred", "stompkit_plugin", "stompkit_tls")
    assert in_twisted == {f"twisted/plugins/{plugin}.py" for plugin in plugins}


def test_checkout_does_not_shadow_twisted() -> None:
    assert not (ROOT / "twisted" / "__init__.py").exists()
    assert not (ROOT / "twisted" / "plugins" / "__init__.py").exists()


def test_wheel_claims_no_other_name(wheel: Path, is_compiled: bool) -> None:  # noqa: FBT001
    tops = {name.partition("/")[0] for name in names(wheel)}
    ours = {top for top in tops if not top.endswith(".dist-info")}
    # Spark finds data sources only in modules with such names. The library has the compiled code.
    library = f"stompkit__mypyc{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert ours - {library} == {"stompkit", "twisted", "pyspark_stompkit.py"}
    assert (library in ours) == is_compiled


def test_wheel_has_every_case_and_data_file(wheel: Path) -> None:
    cases = {
        f"stompkit/conformance/cases/{path.relative_to(ROOT / 'conformance').as_posix()}"
        for path in (ROOT / "conformance").rglob("*")
        if path.suffix in {".py", ".ini", ".toml", ".md", ".mjs", ".pl", ".rb"}
        and "__pycache__" not in path.parts
    }
    reports = {"requirements.json", "report-schema.json"}
    data = {"stompkit/py.typed", *(f"stompkit/conformance/{name}" for name in reports)}
    assert cases | data <= names(wheel)


def test_sdist_has_what_its_tests_need(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        ".ci/debian-packages",
        ".github/workflows/release.yml",
        "LICENSE",
        "Makefile",
        "action.yml",
        "conformance/pytest.ini",
        "docs/examples/stompkit.toml",
        "tests/integration/clients/stompjs/package-lock.json",
        "tests/campaign/disk.c",
        "tests/project/test_packaging.py",
        "tox.ini",
    }
    assert wanted <= inside


@pytest.mark.matrix
def test_installed_wheel_is_compiled_and_can_do_without(
    installed: Path,
    is_compiled: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    if not is_compiled:
        assert ", not compiled" in run(installed / "stompkit", "--version", cwd=tmp_path)
        return
    version = (installed / "stompkit", "--version")
    assert ", compiled" in run(*version, cwd=tmp_path)
    assert ", not compiled" in run(*version, cwd=tmp_path, STOMPKIT_PURE="1")
    # If the package is loaded as Python, users' later imports are Python, too.
    every = "import stompkit.server, sys; print([n for n, m in sys.modules.items() if '.so' in str("
    every += "getattr(m, '__file__', '')) and 'stompkit' in n])"
    assert run(installed / "python", "-c", every, cwd=tmp_path, STOMPKIT_PURE="1") == "[]\n"
    case = (installed / "python", "-m", "stompkit.conformance", "1.2/send/delivers")
    assert "none failed" in run(*case, cwd=tmp_path, STOMPKIT_PURE="1")


@pytest.mark.matrix
def test_a_wheel_without_a_compiler_is_python(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "tests", "docs"))
    wheels = (sys.executable, "-m", "pip", "-v", "wheel", "--no-deps", "--wheel-dir", tmp_path)
    output = run(*wheels, source, cwd=tmp_path, CC="/no/compiler")
    assert "the broker will be slower" in output
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "Root-Is-Purelib: true" in read_info(wheel, "WHEEL")
    inside = names(wheel)
    assert "stompkit/frames/_decoder.py" in inside
    assert not [name for name in inside if name.endswith(".so")]


@pytest.mark.matrix
def test_installed_wheel_offers_the_twistd_plugin(installed: Path, tmp_path: Path) -> None:
    assert "A STOMP 1.0, 1.1 and 1.2 broker." in run(installed / "twistd", "--help", cwd=tmp_path)
    assert "--endpoint" in run(installed / "twistd", "stompkit", "--help", cwd=tmp_path)
    assert "--endpoint" in run(installed / "twist", "stompkit", "--help", cwd=tmp_path)


@pytest.mark.matrix
def test_installed_wheel_has_the_command(installed: Path, tmp_path: Path) -> None:
    assert "check-config" in run(installed / "stompkit", "--help", cwd=tmp_path)
    assert "StompkitDown" in run(installed / "stompkit", "monitoring", "alerts", cwd=tmp_path)
    settings = run(installed / "stompkit", "show-config", cwd=tmp_path)
    (tmp_path / "stompkit.toml").write_text(settings)
    run(installed / "stompkit", "check-config", "stompkit.toml", cwd=tmp_path)


@pytest.mark.matrix
def test_installed_wheel_tests_its_own_broker(installed: Path, tmp_path: Path) -> None:
    output = run(
        installed / "python",
        "-m",
        "stompkit.conformance",
        "--strict",
        "--html=report.html",
        "*/connect/*",
        "*/ack/*",
        cwd=tmp_path,
    )
    assert "none failed" in output
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.matrix
def test_conformance_ignores_the_pytest_settings_around_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise SystemExit('this conftest must not be read')\n")
    command = (installed / "python", "-m", "stompkit.conformance", "1.2/send/delivers")
    assert "none failed" in run(*command, cwd=tmp_path)


@pytest.mark.matrix
def test_installed_wheel_brings_the_fixture(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_consumer.py").write_text(CONSUMER)
    output = run(installed / "python", "-m", "pytest", "-q", "--strict-config", cwd=tmp_path)
    assert "1 passed" in output


@pytest.mark.matrix
@pytest.mark.parametrize(
    "arguments",
    [("-p", "stompkit"), ("-p", "stompkit.testing.plugin"), ("-p", "conftest_like")],
    ids=lambda each: each[-1],
)
def test_the_plug_in_is_loaded_once_by_any_of_its_names(
    installed: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "conftest_like.py").write_text('pytest_plugins = ["stompkit.testing.plugin"]\n')
    (tmp_path / "test_it.py").write_text(
        "def test_it(pytestconfig):\n"
        "    names = [name for name, _ in pytestconfig.pluginmanager.list_name_plugin()]\n"
        "    assert names.count('stompkit.testing.plugin') == names.count('stompkit') == 1\n"
        "    assert pytestconfig.getoption('--mq') is None\n"
    )
    output = run(installed / "python", "-m", "pytest", "-q", *arguments, cwd=tmp_path)
    assert "1 passed" in output


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["stompkit", "stompkit.testing.plugin"])
def test_the_plug_in_can_be_kept_out(installed: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(stomp_broker): pass\n")
    command = (installed / "python", "-m", "pytest", "-p", f"no:{name}")
    assert "fixture 'stomp_broker' not found" in run(*command, cwd=tmp_path, status=1)


@pytest.mark.matrix
def test_twisted_can_be_reinstalled_and_stompkit_removed(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = (python, "-m", "pip", "--quiet")
    run(*pip, "install", wheel, cwd=tmp_path)
    run(*pip, "install", "--force-reinstall", "--no-deps", "twisted", cwd=tmp_path)
    assert "stompkit" in run(python, "-m", "twisted", "--help", cwd=tmp_path)
    run(*pip, "uninstall", "--yes", "stompkit", cwd=tmp_path)
    output = run(python, "-m", "twisted", "--help", cwd=tmp_path)
    assert "stompkit" not in output
    assert "web" in output


def test_this_environment_offers_plugin_and_types(tmp_path: Path) -> None:
    # Under `make test` this is an editable install, in which both are easily lost.
    assert "--endpoint" in run(sys.executable, "-m", "twisted", "stompkit", "--help", cwd=tmp_path)
    (tmp_path / "user.py").write_text(
        "from stompkit.frames import Frame\nreveal_type(Frame('SEND').body)\n"
    )
    output = run(sys.executable, "-m", "mypy", "--strict", "user.py", cwd=tmp_path)
    assert 'Revealed type is "bytes"' in output or 'Revealed type is "builtins.bytes"' in output
