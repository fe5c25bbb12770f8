"""Launch Apache ActiveMQ (Classic) with only a STOMP connector."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stompkit.testing.launching.address import format_address
from stompkit.testing.launching.brokers.java import JavaLauncher, java_command
from stompkit.testing.launching.brokers.launcher import (
    Prepared,
    check_blanks,
    check_controls,
    check_escapes,
    inherited_environment,
    xml_attribute,
)
from stompkit.testing.launching.brokers.releases import Release, choose, explain_missing
from stompkit.testing.launching.config import LaunchConfig

__all__ = ["ActiveMQ"]

_NAME: Final = "activemq"
#: Name of the current release in ``make servers``.
_FETCH: Final = "activemq-6"
_JAVA_DIRECTORY: Final = Path("/usr/share/java")
#: The library whose file name contains the version.
_BROKER: Final = "activemq-broker"

#: Without these ActiveMQ does not start, accepts no users, or writes no log.
_NEEDED: Final = (
    "activemq-broker activemq-client activemq-console activemq-jaas activemq-kahadb-store "
    "activemq-protobuf activemq-spring activemq-stomp "
    "geronimo-jms_1.1_spec geronimo-j2ee-management-1.1-spec "
    "hawtbuf jcl-over-slf4j slf4j-api slf4j-simple "
    "spring3-beans spring3-context spring3-core spring3-expression xbean-spring"
).split()
#: Optional libraries for some features, such as messages in JSON or selectors by XPath.
_WANTED: Final = (
    "activemq-openwire-legacy commons-lang3 commons-net commons-pool2 "
    "geronimo-annotation-1.3-spec geronimo-j2ee-connector-1.5-spec geronimo-jacc_1.1_spec "
    "geronimo-jta-1.2-spec hawtbuf-proto jackson-annotations jackson-core jackson-databind "
    "javax.activation jaxb-api spring3-aop xpp3 xstream"
).split()

_SETTINGS: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="
         http://www.springframework.org/schema/beans
         http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core
         http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="stompkit"
          useJmx="false" schedulerSupport="true" dataDirectory="data">
    <persistenceAdapter>
      <kahaDB directory="data/kahadb" journalMaxFileLength="8mb"/>
    </persistenceAdapter>
    {plugins}
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage limit="128 mb"/></memoryUsage>
        <storeUsage><storeUsage limit="1 gb"/></storeUsage>
        <tempUsage><tempUsage limit="256 mb"/></tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
      <transportConnector name="stomp" uri={uri}/>
    </transportConnectors>
  </broker>
</beans>
"""
#: In the short form of the elements, a value that begins with # would refer to another bean.
_PLUGINS: Final = """\
<plugins>
      <bean xmlns="http://www.springframework.org/schema/beans"
            class="org.apache.activemq.security.SimpleAuthenticationPlugin">
        <property name="anonymousAccessAllowed" value="false"/>
        <property name="users">
          <list>
            <bean class="org.apache.activemq.security.AuthenticationUser">
              <property name="username" value={login}/>
              <property name="password" value={passcode}/>
              <property name="groups" value="users"/>
            </bean>
          </list>
        </property>
      </bean>
    </plugins>"""


class ActiveMQ(JavaLauncher):
    """ActiveMQ as a plain Java program: Debian's own script requires a system service."""

    def missing(self) -> str | None:
        """Check for Java, and for the libraries of Debian's package or of a fetched release."""
        release = self._release()
        if release is None and self._version:
            return explain_missing(_NAME, self._version, _installed(), _FETCH)
        wanted = []
        if shutil.which("java") is None:
            wanted.append("the program 'java' on PATH")
        if release is None:
            wanted.append(f"in {_JAVA_DIRECTORY} the libraries {', '.join(_lacking())}")
        if not wanted:
            return None
        return (
            f"not found: {'; '.join(wanted)}. Install Debian's package activemq: "
            "apt-get install activemq (its system service is not needed)"
        )

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Write the configuration and compose the class path."""
        check_escapes(config, "ActiveMQ", r"\\[\\cnr]")
        check_blanks(config, "ActiveMQ")
        check_controls(config, "ActiveMQ")
        settings = directory / "activemq.xml"
        settings.write_text(_settings(config), encoding="utf-8")
        settings.chmod(0o600)
        release = self._release()
        if release is None or release.fetched is None:
            jars = [jar for jar in map(_jar, [*_NEEDED, *_WANTED]) if jar is not None]
        else:
            jars = sorted(release.fetched.folder.glob("*.jar"))
        properties = {
            "activemq.home": directory,
            "activemq.base": directory,
            "activemq.conf": directory,
            "activemq.data": directory / "data",
        }
        command = java_command(config, directory, properties)
        command += ["-cp", os.pathsep.join(map(str, jars))]
        command += ["org.apache.activemq.console.command.ShellCommand"]
        command += ["start", f"xbean:file:{settings.name}"]
        version = "" if release is None else release.version
        return Prepared(command, inherited_environment("ACTIVEMQ_", "CLASSPATH"), version=version)

    def _release(self) -> Release | None:
        """Return the release to launch, if it is available."""
        return choose(_NAME, self._version, _installed())


def _installed() -> str | None:
    """Return the version of Debian's package; ``None`` if it is not installed."""
    if _lacking():
        return None
    versions = sorted(_JAVA_DIRECTORY.glob(f"{_BROKER}-[0-9]*.jar"))
    return versions[-1].stem.removeprefix(f"{_BROKER}-") if versions else ""


def _lacking() -> list[str]:
    """Return the missing libraries of Debian's package."""
    return [name for name in _NEEDED if _jar(name) is None]


def _jar(name: str) -> Path | None:
    """Return the library's file: the one without a version in its name, else the newest."""
    plain = _JAVA_DIRECTORY / f"{name}.jar"
    if plain.exists():
        return plain
    versions = sorted(_JAVA_DIRECTORY.glob(f"{name}-[0-9]*.jar"))
    return versions[-1] if versions else None


def _settings(config: LaunchConfig) -> str:
    """Return the configuration file; its folders are those of the working directory."""
    plugins = ""
    if config.login is not None:
        plugins = _PLUGINS.format(
            login=xml_attribute(_literal(config.login)),
            passcode=xml_attribute(_literal(config.passcode or "")),
        )
    return _SETTINGS.format(
        plugins=plugins,
        uri=xml_attribute(f"stomp://{format_address(config.host, config.port)}"),
    )


def _literal(text: str) -> str:
    """Return a value for Spring, escaped so that Spring does not evaluate it as an expression."""
    if "#{" not in text:
        return text
    escaped = text.replace("'", "''")
    return f"#{{'{escaped}'}}"
