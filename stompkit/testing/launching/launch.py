"""Launch a broker in a separate process, and wait until it is ready."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stompkit._common.files import reason_of
from stompkit.frames import Frame, LocalProtocolError, encode
from stompkit.testing.launching.brokers import (
    LAUNCHERS,
    Launcher,
    kind_of,
    launcher_for,
    short_name,
)
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError, BrokerMissingError, BrokerStartError
from stompkit.testing.launching.failures import check_port, port_was_taken
from stompkit.testing.launching.installation import Installation
from stompkit.testing.launching.ports import loopback, usable
from stompkit.testing.launching.running import RunningBroker

if TYPE_CHECKING:
    from stompkit.testing.proxy import Proxy

__all__ = ["RunningBroker", "given", "launch"]

#: Maximum number of attempts with different ports when the port is taken meanwhile.
_PORT_ATTEMPTS: Final = 3
_LAST_PORT: Final = 65_535


def launch(config: LaunchConfig) -> RunningBroker:
    """Start a broker and return when it answers CONNECT.

    Raises BrokerMissingError if the server software is not installed, and BrokerStartError if the
    broker does not start. Raises BrokerError for an unknown name or a setting that the broker does
    not support.
    """
    launcher = launcher_for(config.name)
    return launch_with(launcher, replace(config, name=short_name(config.name)))


def launch_with(launcher: Launcher, config: LaunchConfig) -> RunningBroker:
    """Start a broker by the given launcher, whatever the ``name`` of the configuration."""
    _check(launcher, config)
    missing = launcher.missing()
    if missing is not None:
        raise BrokerMissingError(config.name, missing)
    config = replace(config, host=usable(config.host))
    config = _complete(launcher, config)
    _check_connect(config)
    # With a proxy, the proxy listens at the configured address.
    if config.frames:
        check_port(config)
    own = replace(config, port=0) if config.frames else config
    installation = _started(launcher, own)
    try:
        tap = _tapped((config.host, installation.port), config) if config.frames else None
    except BaseException:
        installation.close(kill=True)
        installation.remove_directory()
        raise
    return RunningBroker(
        config,
        installation.port,
        versions=launcher.versions,
        installation=installation,
        tap=tap,
    )


def given(
    host: str,
    port: int,
    *,
    name: str = "given",
    login: str | None = None,
    passcode: str | None = None,
    vhost: str | None = None,
    frames: bool = False,
    queue_template: str = LaunchConfig.queue_template,
    topic_template: str = LaunchConfig.topic_template,
) -> RunningBroker:
    """Describe a broker that is already running; it is not started, probed or stopped.

    For the name of a known broker, its default login, passcode and virtual host are used if none
    are given; an empty login means none.  With ``frames`` a proxy is started in front of it, on a
    free port of 127.0.0.1 (::1 if there is no IPv4). ``host`` and ``port`` of the result are then
    those of the proxy.
    """
    config = LaunchConfig(
        name=name,
        host=host,
        port=port,
        login=login,
        passcode=passcode,
        vhost=vhost,
        frames=frames,
        queue_template=queue_template,
        topic_template=topic_template,
    )
    launcher = LAUNCHERS.get(kind_of(name))
    config = _complete(launcher, config)
    tap = _tapped((host, port), replace(config, host=loopback(), port=0)) if frames else None
    versions = None if launcher is None else launcher.versions
    return RunningBroker(config, port, versions=versions, tap=tap)


def _check(launcher: Launcher, config: LaunchConfig) -> None:
    """Reject settings that the broker does not support."""
    wanted = {
        "persistent": config.persistent is True,
        "control": config.control,
        "admin": config.admin,
        "quirks": config.quirks is not None,
        "config": config.config is not None,
        "websocket": config.websocket,
    }
    for feature, is_wanted in wanted.items():
        if is_wanted and feature not in launcher.features:
            having = ", ".join(name for name, each in LAUNCHERS.items() if feature in each.features)
            raise BrokerError(
                f"{config.name} cannot be launched with LaunchConfig({feature}=...), which is for "
                f"{having}: leave it out, or choose one of these by --mq-broker or"
                " stomp_broker_factory(NAME)"
            )
    for name, port in (("port", config.port), ("websocket_port", config.websocket_port)):
        if not 0 <= port <= _LAST_PORT:
            raise BrokerError(
                f"{config.name} cannot listen on port {port}, which is not from 1 to {_LAST_PORT}:"
                f" leave LaunchConfig({name}=...) out to have a free port chosen"
            )


def _check_connect(config: LaunchConfig) -> None:
    """Raise BrokerError for a setting that CONNECT cannot carry; the message shows no passcode."""
    values: dict[str, object] = {
        "login": config.login,
        "passcode": config.passcode,
        "vhost": config.vhost,
    }
    for name, value in values.items():
        problem = _unsendable("host" if name == "vhost" else name, value)
        if problem:
            raise BrokerError(
                f"{config.name} cannot be launched with this {name}: {problem}. Choose another by"
                f" --mq-{name} or LaunchConfig({name}=...)"
            )


def _unsendable(header: str, value: object) -> str:
    """Return why CONNECT cannot have this header; empty if it can."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return f"it is {type(value).__name__}, not str"
    try:
        encode(Frame("CONNECT", {header: value}), None)
    except LocalProtocolError as error:
        return str(error)
    return ""


def _complete(launcher: Launcher | None, config: LaunchConfig) -> LaunchConfig:
    """Fill in the defaults of the broker, if it is a known one."""
    if launcher is None:
        return replace(config, login=config.login or None)
    login, passcode = config.login, config.passcode
    if login is None:
        login = launcher.login
        passcode = launcher.passcode if passcode is None else passcode
    if passcode and not login:
        # Without the login it would have no effect, and the broker would accept everybody.
        raise BrokerError(
            f"{config.name} has a passcode and no login: give one by --mq-login or"
            " LaunchConfig(login=...), or leave the passcode out"
        )
    return replace(
        config,
        login=login or None,
        passcode=passcode if login else None,
        vhost=launcher.vhost(config) if config.vhost is None else config.vhost,
        persistent=(
            "persistent" in launcher.features if config.persistent is None else config.persistent
        ),
        start_timeout_s=(
            launcher.start_timeout_s if config.start_timeout_s is None else config.start_timeout_s
        ),
    )


def _started(launcher: Launcher, config: LaunchConfig) -> Installation:
    """Start a broker, on another port if the first one was taken meanwhile."""
    attempts = 1 if config.port or launcher.chooses_port else _PORT_ATTEMPTS
    while True:
        attempts -= 1
        installation = Installation(launcher, config)
        try:
            installation.start(_import_proxy if config.frames else None)
            return installation
        except BrokerStartError as error:
            installation.close(kill=True)
            is_last = not attempts or not port_was_taken(error)
            # Keep the log for the reader of the message, if there is one.
            if is_last and error.attempt.log_path is not None:
                installation.keep_directory()
            installation.remove_directory()
            if is_last:
                raise
        except BaseException:
            installation.close(kill=True)
            installation.remove_directory()
            raise


def _import_proxy() -> None:
    """Import what ``_tapped`` needs: it takes time in which a broker can start."""
    import stompkit.testing.frames.log
    import stompkit.testing.proxy  # noqa: F401


def _tapped(server: tuple[str, int], config: LaunchConfig) -> Proxy:
    """Start a proxy that records frames, at the address that the configuration gives to clients."""
    from stompkit.testing.frames.log import FrameLog
    from stompkit.testing.proxy import Proxy

    frames = FrameLog(secrets=config.secrets)
    try:
        return Proxy(*server, host=config.host, port=config.port, frames=frames).start()
    except OSError as error:
        raise BrokerError(
            f"{config.name} cannot be put behind a proxy at {config.host} port {config.port}: "
            f"{reason_of(error)}. Leave the port out, or the proxy by --mq-frames off or"
            " LaunchConfig(frames=False)"
        ) from error
