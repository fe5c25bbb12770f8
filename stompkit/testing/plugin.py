"""pytest plug-in: a STOMP broker for tests, launched for them or already running.

pytest loads it wherever this package is installed. It therefore does not import Twisted, since
another plug-in may choose the reactor, nor any other module that imports slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from stompkit.testing import (
    BrokerError,
    BrokerMissingError,
    FailoverPair,
    RunningBroker,
)
from stompkit.testing._failover import obtain_pair
from stompkit.testing._obtaining import OwnBrokerNeededError, obtain, set_apart
from stompkit.testing._reporting import Reporting
from stompkit.testing._settings import (
    OPTIONS,
    Option,
    Settings,
    SettingsError,
    Source,
    from_environment,
    register_run,
)
from stompkit.testing._sharing import Sharing, StompBrokerWarning

if TYPE_CHECKING:
    from stompkit.testing.client import StompClient
    from stompkit.testing.proxy import Proxy

__all__ = [
    "BrokerFactory",
    "CompareGolden",
    "settings_of",
    "stomp_broker",
    "stomp_broker_factory",
    "stomp_client",
    "stomp_failover",
    "stomp_golden",
    "stomp_proxy",
]

_T = TypeVar("_T", RunningBroker, FailoverPair)

#: A function that stops brokers, with these brokers.
_Stop = tuple[Callable[[], None], tuple[RunningBroker, ...]]

_SETTINGS = pytest.StashKey[Settings]()
#: Running brokers of all factories.
_RUNNING = pytest.StashKey[list[RunningBroker]]()
_FACTORIES = pytest.StashKey[list["BrokerFactory"]]()
_SHARING = pytest.StashKey[Sharing]()
#: Message about wrong arguments of a test's marker.
_MISTAKE = pytest.StashKey[str]()
_MARKER = "stomp_requires"
_MARKER_HELP = (
    f"{_MARKER}(*names): skip the test, with the reason, on a broker that lacks one of these, "
    'as in stomp_requires("nack", "durable"); "Testing with pytest" in the documentation lists them'
)
#: Tests that use one of these fixtures use a shared broker; others may ask for it as they run.
_OF_BROKERS = ("stomp_broker", "stomp_broker_factory", "_stomp_requirements")
_UPDATE_FLAG = "--mq-update-golden"


def settings_of(config: pytest.Config) -> Settings:
    """Return the settings given by the options of a pytest run."""
    return config.stash[_SETTINGS]


class BrokerFactory:
    """Creates brokers: ``factory(name=None, **fields)``, with the fields of LaunchConfig."""

    def __init__(self, settings: Settings, running: list[RunningBroker]) -> None:
        """Create brokers by the settings; ``running`` lists them until they stop."""
        self._settings = settings
        self._running = running
        self._stops: list[_Stop] = []

    def __call__(self, name: str | None = None, **fields: Any) -> RunningBroker:
        """Return a broker, and stop it at the end of the run if not before.

        Without a name it is the broker that the options select: the given broker, whose
        configuration cannot be changed, or one launched with the options' login and so on. With a
        name a broker is launched, whatever the options say.
        """
        __tracebackhide__ = True
        broker = self._get(lambda: obtain(self._settings, name, **fields))
        self._note(broker.stop, broker)
        return broker

    def pair(self, name: str | None = None, *, shared: bool = False, **fields: Any) -> FailoverPair:
        """Return two brokers for failover, with ``shared`` on one store; else as a call."""
        __tracebackhide__ = True
        pair = self._get(lambda: obtain_pair(self._settings, name, shared=shared, **fields))
        self._note(pair.stop, *pair.brokers)
        return pair

    def _get(self, get: Callable[[], _T]) -> _T:
        """Create brokers; turn a failure into an outcome of the test."""
        __tracebackhide__ = True
        try:
            return get()
        except BrokerMissingError as error:
            outcome = pytest.fail if self._settings.missing == "fail" else pytest.skip
            # The cause would repeat the same message; the context remains for the report.
            raise outcome.Exception(str(error), pytrace=False) from None
        except OwnBrokerNeededError as error:
            raise pytest.skip.Exception(str(error)) from None

    @property
    def brokers(self) -> list[RunningBroker]:
        """The brokers that were created, except those that ``forget`` has removed."""
        return [broker for _, brokers in self._stops for broker in brokers]

    def _note(self, stop: Callable[[], None], *brokers: RunningBroker) -> None:
        self._stops.append((stop, brokers))
        self._running += brokers

    def forget(self) -> None:
        """Remove the brokers that tests have stopped: their logs need memory."""
        gone = [each for each in self._stops if all(broker.is_gone for broker in each[1])]
        self._close(gone)

    def close(self) -> None:
        """Stop the brokers, in reverse order of creation."""
        self._close(self._stops)

    def _close(self, closed: list[_Stop]) -> None:
        brokers = [broker for _, brokers in closed for broker in brokers]
        self._stops = [each for each in self._stops if each not in closed]
        with ExitStack() as last_first:
            for stop, _ in closed:
                last_first.callback(stop)
        self._running[:] = [broker for broker in self._running if broker not in brokers]


class CompareGolden(Protocol):
    """The function that the fixture stomp_golden returns."""

    def __call__(self, name: str, *, replacements: Mapping[str, str] | None = None) -> None:
        """Raise AssertionError with the difference from the file, if there is one."""


@contextmanager
def _failing_tests() -> Iterator[None]:
    """Turn an error of a launch into a failure, which shows no traceback of the harness."""
    try:
        yield
    except BrokerError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


# Fixtures.


@pytest.fixture(scope="session")
def _stomp_settings(request: pytest.FixtureRequest) -> Settings:
    """The settings, reduced to the one broker that these tests run on."""
    settings = settings_of(request.config)
    name: str | None = getattr(request, "param", None)
    return settings if name is None else replace(settings, broker_names=(name,))


@pytest.fixture(scope="session")
def stomp_broker_factory(
    _stomp_settings: Settings, pytestconfig: pytest.Config
) -> Iterator[BrokerFactory]:
    """Launch more STOMP brokers: ``factory(name=None, **fields)`` returns a RunningBroker.

    The name is one that --mq-broker takes, and by default what that says; the fields are those of
    stompkit.testing.LaunchConfig. ``factory.pair()`` returns two, as stomp_failover is. All are
    stopped at the end of the run.
    """
    factories = pytestconfig.stash[_FACTORIES]
    with closing(BrokerFactory(_stomp_settings, pytestconfig.stash[_RUNNING])) as factory:
        factories.append(factory)
        yield factory
        factories.remove(factory)


@pytest.fixture(scope="session")
def stomp_broker(
    stomp_broker_factory: BrokerFactory, pytestconfig: pytest.Config
) -> Iterator[RunningBroker]:
    """A STOMP broker, shared by all tests: host, port, url, login, frames, log, restart() and more.

    It is launched on a free port of 127.0.0.1 when it is first asked for, and stopped at the end;
    --mq-broker says which one, and --mq HOST:PORT names one that is already running instead.
    What a test stops, kills, pauses or moves in time is put right before the next one.
    """
    with _failing_tests():
        broker = stomp_broker_factory()
    with pytestconfig.stash[_SHARING].share(broker):
        yield broker


@pytest.fixture
def stomp_client(stomp_broker: RunningBroker) -> Iterator[StompClient]:
    """A blocking client, logged in to stomp_broker; stomp_broker.client() makes more of them."""
    with stomp_broker.client() as client:
        yield client


@pytest.fixture
def stomp_proxy(stomp_broker: RunningBroker, _stomp_settings: Settings) -> Iterator[Proxy]:
    """An address (host, port, url) in front of stomp_broker that breaks what you tell it to.

    As in ``stomp_proxy.drop("MESSAGE", nth=3)``; stompkit.testing.proxy.Proxy lists the faults.
    """
    with stomp_broker.proxy(seed=_stomp_settings.seed) as proxy:
        yield proxy


@pytest.fixture
def stomp_failover(
    _stomp_settings: Settings, pytestconfig: pytest.Config
) -> Iterator[FailoverPair]:
    """Two STOMP brokers, for this test alone: addresses, url, active, fail_over().

    ``stomp_broker_factory.pair(shared=True)`` makes two that share their messages.
    """
    with closing(BrokerFactory(_stomp_settings, pytestconfig.stash[_RUNNING])) as factory:
        with _failing_tests():
            pair = factory.pair()
        yield pair


@pytest.fixture
def stomp_golden(stomp_broker: RunningBroker, request: pytest.FixtureRequest) -> CompareGolden:
    """Compare the frames of this test with a file: ``stomp_golden("login.stomp")``.

    The file is beside the test module, in ``golden/``; --mq-update-golden writes it. It has the
    destinations of ``stomp_broker.queue()`` and ``topic()`` under their stable names, such as
    ``/queue/orders``. ``replacements`` maps further texts that differ between runs to stable ones.
    """
    from stompkit.testing.transcripts import assert_golden

    def compare(name: str, *, replacements: Mapping[str, str] | None = None) -> None:
        """Raise AssertionError with the difference, if there is one."""
        __tracebackhide__ = True
        assert_golden(
            stomp_broker.frames,
            request.path.parent / "golden" / name,
            update=request.config.getoption(_UPDATE_FLAG),
            replacements={**stomp_broker.name_replacements, **(replacements or {})},
        )

    return compare


@pytest.fixture
def _stomp_requirements(request: pytest.FixtureRequest) -> None:
    """Skip the test if the broker lacks a capability that the test's markers require."""
    names = _required(request.node)
    has_own = "stomp_broker" not in request.fixturenames
    broker: RunningBroker = request.getfixturevalue("stomp_broker")
    for name in names:
        if has_own and broker.capabilities.is_at_launch(name):
            continue
        if name not in broker.capabilities:
            reason = broker.capabilities.why(name)
            pytest.skip(f"{broker.name} at {broker.url} lacks {name}: {reason}")


# Hooks.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each also as a setting of the configuration file."""
    group = parser.getgroup("stompkit", "STOMP brokers for tests (stompkit)")
    for option in OPTIONS:
        # No defaults here: a missing option must not override the other sources.
        group.addoption(option.flag, metavar=option.metavar, default=None, help=option.help)
        parser.addini(option.name, f"{option.help} (see {option.flag})", default=None)
    group.addoption(
        _UPDATE_FLAG, action="store_true", help="write the files that stomp_golden compares with"
    )


def _from(config: pytest.Config) -> Source:
    """Read options from the command line, before the configuration file, before the environment."""

    def read(option: Option) -> tuple[str | None, str]:
        # An empty value on the command line is valid: it overrides the other sources.
        value: str | None = config.getoption(option.name)
        if value is not None:
            return value or None, option.flag
        value = config.getini(option.name)
        if value:
            return value, f"{option.name} in {config.inipath or 'the configuration'}"
        return from_environment(option)

    return read


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, so that an invalid one is reported before any test runs."""
    source = _from(config)
    try:
        config.stash[_SETTINGS] = Settings.read(source)
    except SettingsError as error:
        raise pytest.UsageError(str(error)) from None
    config.add_cleanup(register_run(source))
    config.stash[_RUNNING] = []
    config.stash[_FACTORIES] = []
    config.stash[_SHARING] = Sharing()
    config.pluginmanager.register(config.stash[_SHARING], "stompkit-sharing")
    config.addinivalue_line("markers", _MARKER_HELP)
    config.pluginmanager.register(Reporting(config.stash[_RUNNING]), "stompkit-reporting")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return a line that names the broker, if one was selected."""
    return settings_of(config).header()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses a broker once for each selected broker."""
    settings = settings_of(metafunc.config)
    names = settings.broker_names
    if len(names) > 1 and not settings.addresses and "_stomp_settings" in metafunc.fixturenames:
        metafunc.parametrize("_stomp_settings", names, indirect=True, scope="session")


def _required(node: pytest.Item) -> list[str]:
    """Return the capabilities that a test's markers require, without duplicates.

    Raises pytest.UsageError for names that are unknown, and for other arguments.
    """
    marks = list(node.iter_markers(_MARKER))
    if any(mark.kwargs or not all(isinstance(name, str) for name in mark.args) for mark in marks):
        raise pytest.UsageError(
            f'{node.nodeid}: {_MARKER} takes names only, as in {_MARKER}("nack", "durable")'
        )
    names = list(dict.fromkeys(name for mark in marks for name in mark.args))
    if names:
        from stompkit.testing.capabilities.capabilities import Capabilities

        unknown = [name for name in names if name not in Capabilities.names]
        if unknown:
            raise pytest.UsageError(
                f"{node.nodeid}: {_MARKER} knows no {', '.join(map(repr, unknown))}; it knows "
                + ", ".join(Capabilities.names)
            )
    return names


def pytest_itemcollected(item: pytest.Item) -> None:
    """Check the requirements of a test before any of its own fixtures is set up."""
    try:
        names = _required(item)
    except pytest.UsageError as error:
        if not hasattr(item.config, "workerinput"):
            raise
        # pytest-xdist would drop the message with the worker, so the test fails later.
        item.stash[_MISTAKE] = str(error)
        return
    if names and isinstance(item, pytest.Function):
        item.fixturenames.insert(0, "_stomp_requirements")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Isolate tests that share a broker.

    A test may ask for one later, by ``request.getfixturevalue()``. Therefore all tests get what a
    test that names a broker gets. If that is impossible, only the latter fails, and only because
    of a shared broker. It is unknown which tests use a broker of a factory.
    """
    __tracebackhide__ = True
    if _MISTAKE in item.stash:
        raise pytest.fail.Exception(item.stash[_MISTAKE], pytrace=False)
    settings, sharing = settings_of(item.config), item.config.stash[_SHARING]
    is_user = any(name in _OF_BROKERS for name in getattr(item, "fixturenames", ()))
    for factory in item.config.stash[_FACTORIES]:
        factory.forget()
    sharing.repair(is_needed=is_user)
    for broker in item.config.stash[_RUNNING]:
        try:
            set_apart(settings, broker)
        except (BrokerError, OSError) as error:
            if is_user and sharing.has(broker):
                raise
            item.warn(
                StompBrokerWarning(f"{broker.name} could not be reset before this test: {error}")
            )
    # A reset has undone changes of fixtures, such as a moved clock.
    sharing.repair(is_needed=is_user)
