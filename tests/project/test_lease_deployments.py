"""The examples with a lease, for Compose and Kubernetes: the checks that need no daemon."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from stompkit.server.operations import Settings, parse_settings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "packaging" / "docker"
KUBERNETES = ROOT / "packaging" / "kubernetes" / "stompkit.yaml"
SECRETS = "/run/stompkit/secrets"
URL = "postgresql://me:sesame@db/mq"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The Compose file."""
    document: dict[str, Any] = yaml.safe_load((DOCKER / "compose-lease.yaml").read_text())
    return document


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """The objects of Kubernetes by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(KUBERNETES.read_text())}


@pytest.fixture
def pod(objects: dict[str, Any]) -> dict[str, Any]:
    """The specification of each pod."""
    found: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return found


def port_of(endpoint: str) -> int:
    return int(endpoint.split(":")[1])


def extras_of(text: str) -> list[str]:
    """Return the extras of each build of the image in a text."""
    return re.findall(r"EXTRAS[=:] ?([a-z,]+)", text)


# Those of 2024 and today.
@pytest.mark.parametrize("version", ["1.31", kubernetes_validate.latest_version()])
def test_objects_conform_to_the_schemas_of_kubernetes(
    objects: dict[str, Any], version: str
) -> None:
    assert set(objects) >= {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"}
    for each in objects.values():
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("file", [DOCKER / "compose-lease.yaml", KUBERNETES])
def test_the_image_has_a_driver_for_the_database(file: Path) -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    [extras] = extras_of(file.read_text())
    assert {"admin", "sql", "postgresql"} <= set(extras.split(","))
    assert set(extras.split(",")) <= set(setup["options.extras_require"])


def test_brokers_of_compose_differ_in_name_and_port(compose: dict[str, Any]) -> None:
    brokers = [compose["services"][name] for name in ("mq-1", "mq-2")]
    assert len({each["hostname"] for each in brokers}) == 2
    ports = [port for each in brokers for port in each["ports"]]
    assert ports == ["127.0.0.1:61613:61613", "127.0.0.1:61614:61613"]
    assert set(compose["services"]) == {"mq-1", "mq-2", "database"}


def test_brokers_of_compose_use_its_database(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, database = compose["services"]["mq-1"], compose["services"]["database"]
    [(name, url)] = broker["environment"].items()
    monkeypatch.setenv(name, URL)
    [(file, where, how)] = [each.split(":") for each in broker["volumes"]]
    settings = parse_settings((DOCKER / file).read_text(), file)
    assert settings.store.database_url == URL
    assert (where, how) == ("/etc/stompkit/stompkit.toml", "ro")
    variables = database["environment"]
    password = variables["POSTGRES_PASSWORD"]
    user, name = variables["POSTGRES_USER"], variables["POSTGRES_DB"]
    assert url == f"postgresql://{user}:{password}@database/{name}"
    [admin] = settings.admin.endpoints
    assert f"127.0.0.1:{port_of(admin)}/health" in broker["healthcheck"]["test"][-1]


def test_no_password_is_in_the_files(compose: dict[str, Any], objects: dict[str, Any]) -> None:
    assert compose["services"]["database"]["environment"]["POSTGRES_PASSWORD"].startswith("${")
    assert "Secret" not in objects


def settings_of(objects: dict[str, Any], secrets: Path) -> Settings:
    for name, text in (("store-url", URL), ("admin-token", "x" * 32), ("users", "")):
        (secrets / name).write_text(text)
        (secrets / name).chmod(0o440)
    [(file, text)] = objects["ConfigMap"]["data"].items()
    return parse_settings(text.replace(SECRETS, str(secrets)), file)


def test_settings_and_secrets_are_mounted(
    objects: dict[str, Any], pod: dict[str, Any], tmp_path: Path
) -> None:
    settings = settings_of(objects, tmp_path)
    assert settings.store.database_url == URL
    assert settings.high_availability.lease == "database"
    [container] = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"settings": "/etc/stompkit", "secrets": SECRETS, "temporary": "/tmp"}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert set(volumes) == set(mounts)
    assert volumes["settings"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert container["args"] == ["--config", "/etc/stompkit/stompkit.toml"]
    # The command in the comment makes the secret with these keys.
    [secret] = re.findall(r"create secret generic (\w+)", KUBERNETES.read_text())
    assert volumes["secrets"]["secret"]["secretName"] == secret
    made = re.findall(r"--from-(?:file|literal)=([a-z-]+)", KUBERNETES.read_text())
    used = re.findall(rf"{SECRETS}/([a-z-]+)", objects["ConfigMap"]["data"]["stompkit.toml"])
    assert sorted(made) == sorted(used)


def test_the_service_has_the_active_broker_only(
    objects: dict[str, Any], pod: dict[str, Any], tmp_path: Path
) -> None:
    settings = settings_of(objects, tmp_path)
    [container] = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    [admin], [stomp] = settings.admin.endpoints, settings.descriptions
    assert ports == {"stomp": port_of(stomp), "admin": port_of(admin)}
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "admin"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/health", "port": "admin"}
    service, labels = objects["Service"]["spec"], objects["Deployment"]["spec"]["template"]
    assert service["selector"] == labels["metadata"]["labels"]
    assert service["ports"] == [{"name": "stomp", "port": ports["stomp"], "targetPort": "stomp"}]
    assert "publishNotReadyAddresses" not in service


def test_one_broker_stays_during_updates_and_evictions(objects: dict[str, Any]) -> None:
    deployment, budget = objects["Deployment"]["spec"], objects["PodDisruptionBudget"]["spec"]
    assert deployment["replicas"] == 2
    # With 2, the active broker would be replaced together with the passive one.
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 1
    assert budget["minAvailable"] == 1
    assert budget["selector"] == deployment["selector"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
