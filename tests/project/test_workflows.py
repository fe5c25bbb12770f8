"""Workflows of GitHub: they are valid, have few privileges, and run only commands that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import check_jsonschema
import pytest
import yaml

from stompkit import __version__ as VERSION

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
FILES = [*WORKFLOWS, ACTION]
#: Commands of the system that scripts may use.
SYSTEM = {"apt-get", "git", "sudo"}
#: The permissions to write that a job may have.
WRITES = {
    ("docs.yml", "publish"): {"pages", "id-token"},
    ("release.yml", "publish"): {"id-token"},
}


class Script(NamedTuple):
    """A script that a workflow runs."""

    file: str
    job: str
    text: str


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def jobs() -> Iterator[tuple[Path, str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            yield path, name, job


def steps() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, name, job in jobs():
        yield from ((path.name, name, each) for each in job.get("steps", ()))
    yield from ((ACTION.name, "", each) for each in read(ACTION)["runs"]["steps"])


def scripts() -> list[Script]:
    return [Script(file, job, each["run"]) for file, job, each in steps() if "run" in each]


def commands() -> Iterator[list[str]]:
    """Yield the words of each command in the scripts of workflows."""
    for each in scripts():
        if each.file != ACTION.name:
            for line in re.split(r"\n|&&", each.text.replace("\\\n", " ")):
                if line.strip():
                    yield shlex.split(line)


def extra(name: str) -> str:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup["options.extras_require"][name]


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.github-actions", [ACTION]),
        ("vendor.dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("vendor.compose-spec", sorted((ROOT / "packaging" / "docker").glob("compose*.yaml"))),
    ],
)
def test_each_file_conforms_to_the_schema_of_its_kind(schema: str, paths: list[Path]) -> None:
    assert paths
    arguments = ["--builtin-schema", schema, *map(str, paths)]
    with pytest.raises(SystemExit) as ended:
        check_jsonschema.main(arguments)
    assert ended.value.code == 0


def test_an_audit_finds_no_weakness() -> None:
    """Find no unpinned actions, scripts with inputs in them, stored tokens or similar."""
    zizmor = [str(Path(sys.executable).with_name("zizmor")), "--offline", "--quiet", str(ROOT)]
    done = subprocess.run(zizmor, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_a_job_may_do_only_what_it_needs() -> None:
    for path in WORKFLOWS:
        assert read(path)["permissions"] == {}, path.name
    for path, name, job in jobs():
        writes = {what for what, level in job["permissions"].items() if level == "write"}
        assert writes == WRITES.get((path.name, name), set()), f"{path.name}: {name}"
        # A job that may write runs no code of the repository.
        if writes:
            assert not [each for each in job["steps"] if "run" in each or "checkout" in str(each)]


def test_an_action_has_one_version_everywhere() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FILES)
    used = set(re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40}) # (v[\d.]+)$", text, re.MULTILINE))
    assert len({name for name, _, _ in used}) == len(used)
    assert len(re.findall(r"uses: [^.]", text)) == len(re.findall(r"@[0-9a-f]{40} # v", text))


@pytest.mark.parametrize("script", scripts(), ids=lambda each: f"{each.file}-{each.job}")
def test_a_script_is_a_script(script: Script) -> None:
    done = subprocess.run(["bash", "-n"], input=script.text, text=True, check=False)
    assert done.returncode == 0


def test_commands_exist_that_workflows_run() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for words in commands():
        name, *rest = words
        if name == "make":
            assert set(rest) <= targets, words
        elif name == "bash":
            assert (ROOT / rest[0]).is_file(), words
        elif words[:3] == ["python", "-m", "pip"]:
            assert rest[2] == "install"
            packages = [re.split(r"[<>=]", each)[0] for each in rest[3:]]
            # What workflows install, developers have.
            known = {re.split(r"[<>=\[]", line)[0] for line in extra("dev").splitlines()}
            assert set(packages) <= known, words
        elif words[:2] == ["python", "-m"]:
            assert find_spec(rest[1]) is not None, words
        elif name == "python":
            assert (ROOT / rest[0]).is_file(), words
        else:
            assert name in SYSTEM, words


def test_files_that_workflows_use_exist() -> None:
    for path, _, job in jobs():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file(), path.name
    for path in WORKFLOWS:
        triggers = read(path)[True]  # YAML reads the key "on" as a boolean.
        for each in (triggers.get("pull_request") or {}).get("paths", ()):
            assert list(ROOT.glob(each)), f"{path.name}: {each}"


def test_artifacts_that_a_workflow_downloads_are_uploaded() -> None:
    used = [
        (each["uses"].partition("@")[0], each["with"]) for _, _, each in steps() if "with" in each
    ]
    kept = [options["name"] for name, options in used if name == "actions/upload-artifact"]
    wanted = [options["pattern"] for name, options in used if name == "actions/download-artifact"]
    assert wanted == ["dist-*"] * 2
    assert len([name for name in kept if name.startswith("dist-")]) == 2


# The files of a release.


def test_wheels_are_built_for_the_versions_of_python_that_are_supported() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    supported = re.findall(r"Python :: 3\.(\d+)", setup["metadata"]["classifiers"])
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers"]
    platform = ["--platform", "linux", "--archs", "x86_64,aarch64", str(ROOT)]
    done = subprocess.run(
        [*command, *platform], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    architectures = ("x86_64", "aarch64")
    wanted = {f"cp3{minor}-manylinux_{each}" for minor in supported for each in architectures}
    assert set(done.stdout.split()) == wanted


def checked(tag: str, folder: Path) -> tuple[int, str]:
    """Return the exit status and the errors of the check of a release."""
    command = [sys.executable, str(ROOT / "packaging" / "check_release.py"), tag, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def release(folder: Path) -> list[str]:
    """Create empty files of a release; return their names."""
    version = VERSION
    names = [f"stompkit-{version}.tar.gz", f"stompkit-{version}-py3-none-any.whl"]
    for python in ("cp311", "cp312", "cp313"):
        for machine in ("x86_64", "aarch64"):
            names.append(
                f"stompkit-{version}-{python}-{python}-manylinux_2_17_{machine}"
                f".manylinux2014_{machine}.whl"
            )
    for name in names:
        (folder / name).touch()
    return names


def test_a_whole_release_is_accepted(tmp_path: Path) -> None:
    release(tmp_path)
    assert checked(f"v{VERSION}", tmp_path) == (0, "")


def test_a_release_with_a_wrong_tag_is_refused(tmp_path: Path) -> None:
    release(tmp_path)
    status, errors = checked("v0.0.1", tmp_path)
    assert status == 1
    assert f"the tag is v0.0.1, but stompkit/__init__.py has version {VERSION}" in errors


def test_a_release_with_a_missing_or_a_foreign_file_is_refused(tmp_path: Path) -> None:
    for name in release(tmp_path):
        (tmp_path / name).rename(tmp_path / "other.whl")
        status, errors = checked(f"v{VERSION}", tmp_path)
        assert status == 1
        assert "missing" in errors
        assert "other.whl does not belong to the release" in errors
        (tmp_path / "other.whl").rename(tmp_path / name)
