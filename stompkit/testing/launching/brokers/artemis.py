"""Launch Apache ActiveMQ Artemis with only a STOMP acceptor."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Final

from stompkit.testing.launching.address import format_address
from stompkit.testing.launching.brokers.java import JavaLauncher, java_command
from stompkit.testing.launching.brokers.launcher import (
    Prepared,
    check_blanks,
    inherited_environment,
    xml_attribute,
)
from stompkit.testing.launching.brokers.releases import Release, choose, explain_missing
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.fetched import how_to_fetch

__all__ = ["Artemis"]

_NAME: Final = "artemis"
_FETCH: Final = "artemis"
_MAIN: Final = "org.apache.activemq.artemis.boot.Artemis"
#: The prefixes of the conventional names, which Artemis does not configure by default.
_PREFIXES: Final = "anycastPrefix=/queue/;multicastPrefix=/topic/"
#: The broker decodes a password of this form, which therefore cannot be used literally.
_ENCODED: Final = "ENC("

_BOOTSTRAP: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq"/>
  <server configuration={settings}/>
</broker>
"""
# The output of `artemis create`, without other listeners, and without the checks that end the
# broker when it has been paused or when the machine's disk is nearly full.
_SETTINGS: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>stompkit</name>
    <persistence-enabled>true</persistence-enabled>
    <security-enabled>{has_users}</security-enabled>
    <jmx-management-enabled>false</jmx-management-enabled>
    <journal-type>NIO</journal-type>
    <paging-directory>{data}/paging</paging-directory>
    <bindings-directory>{data}/bindings</bindings-directory>
    <journal-directory>{data}/journal</journal-directory>
    <large-messages-directory>{data}/large-messages</large-messages-directory>
    <journal-min-files>2</journal-min-files>
    <journal-pool-files>10</journal-pool-files>
    <journal-file-size>10M</journal-file-size>
    <journal-buffer-timeout>1000000</journal-buffer-timeout>
    <max-disk-usage>-1</max-disk-usage>
    <global-max-size>128M</global-max-size>
    <critical-analyzer>false</critical-analyzer>
    <acceptors>
      <acceptor name="stomp">{acceptor}</acceptor>
    </acceptors>
    <security-settings>
      <security-setting match="#">
        <permission type="createNonDurableQueue" roles="users"/>
        <permission type="deleteNonDurableQueue" roles="users"/>
        <permission type="createDurableQueue" roles="users"/>
        <permission type="deleteDurableQueue" roles="users"/>
        <permission type="createAddress" roles="users"/>
        <permission type="deleteAddress" roles="users"/>
        <permission type="consume" roles="users"/>
        <permission type="browse" roles="users"/>
        <permission type="send" roles="users"/>
      </security-setting>
    </security-settings>
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <expiry-address>ExpiryQueue</expiry-address>
        <redelivery-delay>0</redelivery-delay>
        <max-size-bytes>-1</max-size-bytes>
        <address-full-policy>PAGE</address-full-policy>
        <auto-create-queues>true</auto-create-queues>
        <auto-create-addresses>true</auto-create-addresses>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
      <address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
    </addresses>
  </core>
</configuration>
"""
#: Artemis does not start without this file, which configures nothing.
_MANAGEMENT: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<management-context xmlns="http://activemq.apache.org/schema"/>
"""
_LOGIN: Final = """\
activemq {
   org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
       org.apache.activemq.jaas.properties.user="users.properties"
       org.apache.activemq.jaas.properties.role="roles.properties";
};
"""
# Its audit would log every message, at several times the cost of the message itself.
_LOGGING: Final = """\
rootLogger = INFO, console
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5level [%logger] %msg%n
"""


class Artemis(JavaLauncher):
    """Artemis in a separate instance, without console and management."""

    def missing(self) -> str | None:
        """Check for Java, and for a fetched release."""
        release = self._release()
        if release is None and self._version:
            return explain_missing(_NAME, self._version, None, _FETCH)
        if release is None:
            return f"no version of it was found. To fetch it, {how_to_fetch(_FETCH)}"
        if shutil.which("java") is None:
            return (
                "not found: the program 'java' on PATH. Install Java 17 or newer: "
                "apt-get install default-jre-headless"
            )
        return None

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Write the files of an instance and return the command."""
        release = self._release()
        if release is None or release.fetched is None:
            raise BrokerError(
                f"{config.name} has been removed from the folder of fetched servers:"
                f" {how_to_fetch(_NAME)}"
            )
        home = release.fetched.folder
        etc, data = (directory / name for name in ("etc", "data"))
        for folder in (etc, data):
            folder.mkdir(exist_ok=True)
        _write_settings(etc, data, config)
        properties = {
            "artemis.home": home,
            "artemis.instance": directory,
            "artemis.instance.etc": etc.name,
            "data.dir": data,
            "java.security.auth.login.config": f"{etc.name}/login.config",
            "log4j2.configurationFile": f"{etc.name}/log4j2.properties",
            "hawtio.disableProxy": "true",
        }
        command = java_command(config, directory, properties)
        command += ["-cp", str(home / "lib" / "artemis-boot.jar"), _MAIN, "run"]
        environment = inherited_environment("ARTEMIS_", "CLASSPATH", "JAVA_ARGS")
        return Prepared(command, environment, version=release.version)

    def _release(self) -> Release | None:
        """Return the release to launch, if it is available."""
        return choose(_NAME, self._version, None)


def _write_settings(etc: Path, data: Path, config: LaunchConfig) -> None:
    """Write the configuration files."""
    settings = etc / "broker.xml"
    address = format_address(config.host, config.port)
    acceptor = f"tcp://{address}?protocols=STOMP;{_PREFIXES}"
    files = {
        "bootstrap.xml": _BOOTSTRAP.format(settings=xml_attribute(settings.as_uri())),
        "broker.xml": _SETTINGS.format(
            has_users="false" if config.login is None else "true",
            data=data.name,
            acceptor=escape(acceptor),
        ),
        "management.xml": _MANAGEMENT,
        "log4j2.properties": _LOGGING,
        "login.config": _LOGIN,
        "users.properties": "",
        "roles.properties": "",
    }
    if config.login is not None:
        check_blanks(config, "Artemis")
        passcode = config.passcode or ""
        if passcode.startswith(_ENCODED):
            raise BrokerError(
                f"Artemis takes a passcode that begins with {_ENCODED} for a cipher: choose another"
                " one by --mq-passcode or LaunchConfig(passcode=...)"
            )
        files["users.properties"] = f"{_property(config.login)} = {_property(passcode)}\n"
        files["roles.properties"] = f"users = {_property(config.login)}\n"
    for name, text in files.items():
        path = etc / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)


def _property(text: str) -> str:
    """Return a key or value in the format of Java property files."""
    units = text.encode("utf-16-be")
    pairs = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(
        chr(unit) if chr(unit).isascii() and chr(unit).isalnum() else f"\\u{unit:04x}"
        for unit in pairs
    )
