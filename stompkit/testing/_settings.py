"""Settings that select the broker for tests, from all sources."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from stompkit.testing.launching.brokers import LAUNCHERS, launcher_for
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.place import Place

__all__ = [
    "OPTIONS",
    "Option",
    "Settings",
    "SettingsError",
    "Source",
    "from_environment",
    "register_run",
]

_DEFAULT_BROKER: Final = "stompkit"
#: Prefix of the name of a broker that is a user's command.
_COMMAND: Final = "command:"
_KNOWN: Final = ", ".join(LAUNCHERS)


class SettingsError(BrokerError):
    """A setting is invalid; the message says where it was set."""


@dataclass(frozen=True)
class Option:
    """One setting, with its names in each source."""

    name: str
    """The name in pytest's configuration file."""
    metavar: str
    """Placeholder for the value in the help."""
    help: str
    """Description of the setting for the help."""

    @property
    def flag(self) -> str:
        """The option on pytest's command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return "STOMPKIT_" + self.name.upper()


#: Function that returns the value of an option, ``None`` if it is not set, and its source.
Source = Callable[[Option], tuple[str | None, str]]


def from_environment(option: Option) -> tuple[str | None, str]:
    """Read an option from the environment; an empty variable counts as not set."""
    return os.environ.get(option.variable) or None, f"environment variable {option.variable}"


#: Sources of the runs of pytest in this process; a run within another one is last.
_RUNS: Final[list[Source]] = []


def register_run(source: Source) -> Callable[[], None]:
    """Make a run of pytest known to brokers without fixtures; return a function that ends this."""
    _RUNS.append(source)
    return partial(_RUNS.remove, source)


_MQ: Final = Option(
    "mq",
    "HOST:PORT",
    "use the running broker at this address, such as localhost:61613; stomps://HOST:PORT?ca=FILE "
    "for TLS, with &cert=FILE&key=FILE for a client certificate, ws:// or wss:// "
    "for WebSockets; a second address after a comma is the failover "
    "target (default: start a broker)",
)
_BROKER: Final = Option(
    "mq_broker",
    "NAME",
    f"start this broker: {_KNOWN}, or 'command:PROGRAM --port {{port}}' for any other "
    f"(default: {_DEFAULT_BROKER}), with an optional version as in rabbitmq:4; with several "
    "comma-separated names, each test runs on each broker",
)
_QUIRK: Final = Option(
    "mq_quirk",
    "NAMES",
    "let the stompkit broker imitate another broker, as in --mq-quirk artemis",
)
_CONFIG: Final = Option(
    "mq_config",
    "FILE",
    "let the stompkit broker use the settings of this file, without its listeners and store",
)
_LOGIN: Final = Option("mq_login", "USER", "login name for the broker")
_PASSCODE: Final = Option("mq_passcode", "PASSWORD", "password of --mq-login")
_VHOST: Final = Option(
    "mq_vhost", "NAME", "virtual host of the broker, sent in the host header of CONNECT"
)
_QUEUE: Final = Option(
    "mq_queue_template", "TEMPLATE", "template of queue names (default: /queue/{})"
)
_TOPIC: Final = Option(
    "mq_topic_template", "TEMPLATE", "template of topic names (default: /topic/{})"
)
_FRAMES: Final = Option(
    "mq_frames",
    "on|off",
    "record frames with a relay between tests and broker (default: on)",
)
_ISOLATION: Final = Option(
    "mq_isolation",
    "names|reset",
    "isolation of tests: unique destination names for each test, or a reset of the broker before "
    "each test (default: names)",
)
_SEED: Final = Option("mq_seed", "NUMBER", "seed of the random faults of stomp_proxy (default: 0)")
_MISSING: Final = Option(
    "mq_missing",
    "skip|fail",
    "skip or fail tests whose broker is not installed (default: skip)",
)
OPTIONS: Final = (
    _MQ,
    _BROKER,
    _QUIRK,
    _CONFIG,
    _LOGIN,
    _PASSCODE,
    _VHOST,
    _QUEUE,
    _TOPIC,
    _FRAMES,
    _ISOLATION,
    _SEED,
    _MISSING,
)


@dataclass(frozen=True)
class Settings:
    """Values of all options."""

    addresses: tuple[Place, ...]
    """Addresses of the given brokers, which are already running."""
    broker_names: tuple[str, ...]
    """Names of the selected brokers; empty if none was named."""
    fields: dict[str, str]
    """Fields of LaunchConfig that have options."""
    frames: bool
    """True if frames are recorded."""
    frames_from: str
    """Source of the ``frames`` setting."""
    isolation: str
    """Method of test isolation: ``names`` or ``reset``."""
    seed: int
    """Seed of the random faults of ``stomp_proxy``."""
    missing: str
    """Outcome of a test whose server is missing: ``skip`` or ``fail``."""

    @classmethod
    def read(cls, source: Source) -> Self:
        """Read the options; raise SettingsError for an invalid one."""
        addresses = _addresses(*source(_MQ))
        fields = {
            "login": source(_LOGIN)[0],
            "passcode": source(_PASSCODE)[0],
            "vhost": source(_VHOST)[0],
            "queue_template": _template(*source(_QUEUE)),
            "topic_template": _template(*source(_TOPIC)),
            "quirks": _quirks(*source(_QUIRK)),
            "config": source(_CONFIG)[0],
        }
        names = _names(*source(_BROKER), is_given=bool(addresses))
        for field, option, what in (
            ("quirks", _QUIRK, "imitates others"),
            ("config", _CONFIG, "reads this file"),
        ):
            if fields[field] is not None:
                _check_is_ours(source(option)[1], what, names, is_given=bool(addresses))
        return cls(
            addresses=addresses,
            broker_names=names,
            fields={name: value for name, value in fields.items() if value is not None},
            frames=_choice(*source(_FRAMES), "on", "off") == "on",
            frames_from=source(_FRAMES)[1],
            isolation=_choice(*source(_ISOLATION), "names", "reset"),
            seed=_number(*source(_SEED)),
            missing=_choice(*source(_MISSING), "skip", "fail"),
        )

    @classmethod
    def of_run(cls) -> Self:
        """Read the options of the run of pytest, or else the environment."""
        return cls.read(_RUNS[-1] if _RUNS else from_environment)

    @property
    def broker(self) -> str:
        """Name of the broker to launch; raises SettingsError if there are several.

        A test that pytest repeats for each of them has settings with one name.
        """
        if len(self.broker_names) > 1:
            raise SettingsError(
                f"this run names several brokers ({', '.join(self.broker_names)}), and this test"
                ' cannot be repeated for each: use @pytest.mark.usefixtures("stomp_broker") if it'
                " asks for its broker as it runs; for a TestCase of unittest, or without pytest,"
                " run the tests with one name at a time (--mq-broker or STOMPKIT_MQ_BROKER)"
            )
        return self.broker_names[0] if self.broker_names else _DEFAULT_BROKER

    @property
    def given_name(self) -> str:
        """Name of the brokers that are already running."""
        return self.broker_names[0] if self.broker_names else "given"

    def header(self) -> str | None:
        """Return a line for the header of pytest's output; ``None`` if no option was given."""
        if self.addresses:
            where = ", ".join(str(each) for each in self.addresses)
            name = f"{self.given_name} " if self.broker_names else ""
            return f"STOMP broker: {name}at {where} (given)"
        if self.broker_names:
            names = ", ".join(self.broker_names)
            return f"STOMP broker: {names} (launched when a test wants it)"
        return None


def _addresses(text: str | None, where: str) -> tuple[Place, ...]:
    if text is None:
        return ()
    try:
        return Place.all_of(text)
    except ValueError as error:
        if "://" in text:
            raise SettingsError(f"{where}: {error}") from None
        raise SettingsError(
            f"{where}: expected HOST:PORT, as in localhost:61613 or [::1]:61613, not {text!r}"
        ) from None


def _names(text: str | None, where: str, *, is_given: bool) -> tuple[str, ...]:
    if text is None:
        return ()
    if text.startswith(_COMMAND):
        # A command line may contain commas.
        return (text,)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if is_given:
        # A running broker requires no launcher, only a name for messages and reports.
        if len(names) > 1:
            raise SettingsError(
                f"{where}: the broker of --mq runs already and has one name, not"
                f" {', '.join(names)}: give one, or an empty name"
            )
        return names
    for name in names:
        try:
            launcher_for(name)
        except BrokerError as error:
            raise SettingsError(f"{where}: {error}") from None
    return names


def _template(text: str | None, where: str) -> str | None:
    if text is not None and text.count("{}") != 1:
        raise SettingsError(f"{where}: expected {{}} once, for the name, as in /queue/{{}}")
    return text


def _quirks(text: str | None, where: str) -> str | None:
    if text is not None:
        # Imported on demand: the broker imports slowly.
        from stompkit.testing.server.quirks import parse_quirks

        try:
            parse_quirks(text)
        except ValueError as error:
            # The rules come last; their list is too long for a terminal.
            said = str(error).partition("\nrules: ")[0]
            raise SettingsError(
                f"{where}: {said}\n"
                'rules: see the page "Quirks of other brokers" of the documentation'
            ) from None
    return text


def _check_is_ours(where: str, what: str, names: Sequence[str], *, is_given: bool) -> None:
    """Raise SettingsError if no broker of this run is one that can do this."""
    if not is_given and any(
        "quirks" in launcher_for(name).features for name in names or (_DEFAULT_BROKER,)
    ):
        return
    those = "a broker that runs already" if is_given else ", ".join(names)
    raise SettingsError(
        f"{where}: only the broker {_DEFAULT_BROKER} {what} when tests start it, and this"
        f" run uses {those}: leave one of the options out"
    )


def _choice(text: str | None, where: str, *choices: str) -> str:
    """Return *text* if it is one of the choices; the first choice is the default."""
    if text is None:
        return choices[0]
    if text not in choices:
        raise SettingsError(f"{where}: expected {' or '.join(choices)}, not {text!r}")
    return text


def _number(text: str | None, where: str) -> int:
    try:
        return int(text or "0")
    except ValueError:
        raise SettingsError(f"{where}: expected a whole number, not {text!r}") from None
