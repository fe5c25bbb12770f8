"""The image and its Compose example: the checks that need no daemon."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from stompkit._commands import COMMANDS
from stompkit.server.operations import parse_settings
from stompkit.server.tap import Options

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "packaging" / "docker"
#: Valid instructions; MAINTAINER is deprecated.
KNOWN = set(
    "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL ONBUILD RUN SHELL STOPSIGNAL"
    " USER VOLUME WORKDIR".split()
)


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage: name and arguments, in one line."""
    lines = (DOCKER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if line and not line.startswith("#"))
    found: list[list[tuple[str, str]]] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest))
    return found


def only(stage: list[tuple[str, str]], name: str) -> str:
    [value] = [rest for each, rest in stage if each == name]
    return value


def test_the_instructions_are_known_and_begin_with_an_image_of_a_version() -> None:
    for stage in stages():
        assert {name for name, _ in stage} <= KNOWN
        assert re.match(r"python:3\.\d+-slim( AS \w+)?$", stage[0][1])


def test_what_is_copied_exists_and_is_sent_to_the_daemon() -> None:
    ignore = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    sent = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    for name in sent:
        assert (ROOT / name).exists(), name
    *_, last = stages()
    for name, rest in last:
        if name == "COPY" and not rest.startswith("--from"):
            assert rest.split()[0] in sent
    needed = {"setup.py", "setup.cfg", "pyproject.toml", "README.rst", "LICENSE"}
    assert needed | {"stompkit", "conformance", "twisted"} <= set(sent)


def test_the_image_is_compiled_and_has_no_compiler() -> None:
    build, last = stages()
    assert only(build, "ENV") == "STOMPKIT_COMPILE=1"
    assert not [rest for name, rest in last if name == "RUN" and "apt-get" in rest]


def test_the_broker_is_not_root_and_keeps_its_data_in_the_volume() -> None:
    *_, last = stages()
    names = [name for name, _ in last]
    assert only(last, "USER") not in ("root", "0")
    assert names.index("USER") < names.index("ENTRYPOINT")
    settings = parse_settings((DOCKER / "stompkit.toml").read_text(), "stompkit.toml")
    assert str(settings.store.path).startswith(only(last, "VOLUME") + "/")
    assert settings.descriptions == [f"tcp:{only(last, 'EXPOSE')}"]
    text = "".join(rest for stage in stages() for _, rest in stage).lower()
    assert not re.search(r"passw|secret|token|://\w+:\w+@", text)


def test_the_image_runs_the_broker_and_asks_it() -> None:
    *_, last = stages()
    *program, broker = json.loads(only(last, "ENTRYPOINT"))
    assert program == ["twistd", "--nodaemon", "--pidfile="]
    assert broker == "stompkit"
    option, path = json.loads(only(last, "CMD"))
    assert f"{option[2:]}=" in Options().longOpt
    assert path in [shlex.split(rest)[-1] for name, rest in last if name == "COPY"]
    check = json.loads(only(last, "HEALTHCHECK").partition("CMD ")[2])
    assert check[:2] == ["stompkit", "ping"]
    assert check[1] in COMMANDS
    assert check[-1].endswith(f":{only(last, 'EXPOSE')}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The Compose example."""
    document: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return document


def test_the_example_builds_this_image(compose: dict[str, Any]) -> None:
    assert set(compose) == {"services", "volumes"}
    broker, example = compose["services"]["broker"], compose["services"]["example"]
    context = (DOCKER / broker["build"]["context"]).resolve()
    assert context == ROOT.resolve()
    assert (context / broker["build"]["dockerfile"]).is_file()
    assert example["image"] == broker["image"]
    assert set(broker) <= set(
        "build image restart ports volumes read_only tmpfs cap_drop security_opt ulimits"
        " stop_grace_period".split()
    )


def test_the_example_is_open_to_nobody_else(compose: dict[str, Any]) -> None:
    broker, example = compose["services"]["broker"], compose["services"]["example"]
    *_, last = stages()
    port = only(last, "EXPOSE")
    assert broker["ports"] == [f"127.0.0.1:{port}:{port}"]
    [volume] = broker["volumes"]
    name, _, path = volume.partition(":")
    assert name in compose["volumes"]
    assert path == only(last, "VOLUME")
    assert example["depends_on"] == {"broker": {"condition": "service_healthy"}}
    # Before the option, which accepts the name of a destination.
    assert example["entrypoint"] == ["stompkit", "ping", f"broker:{port}", "--round-trip"]
