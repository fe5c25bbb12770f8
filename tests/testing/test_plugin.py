"""The pytest plug-in, in separate runs of pytest."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing._settings import OPTIONS
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.ports import is_listening
from tests.testing.plugin_runs import alone, run

__all__ = ["alone"]

LONG_S = 60.0
USAGE_ERROR = 4


@pytest.fixture
def listening() -> Iterator[list[int]]:
    """The ports of three servers that accept connections and never answer."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    yield [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    """A broker that was started without the plug-in."""
    with launch(LaunchConfig()) as broker:
        yield broker


SHOW = """
def test_show(stomp_broker):
    b = stomp_broker
    server = "{}:{}".format(*b.server_address)
    print("SHOWN", b.name, server, b.login, b.passcode, b.vhost, "END")
"""


def shown(pytester: pytest.Pytester, *arguments: str) -> str:
    """Return the description that a test prints of its broker."""
    pytester.makepyfile(SHOW)
    result = run(pytester, "-s", *arguments)
    result.assert_outcomes(passed=1)
    return result.stdout.str().partition("SHOWN ")[2].partition(" END")[0]


# Launched brokers.


def test_tests_share_a_broker_that_stops_with_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from stompkit.testing.launching.ports import is_listening

        def test_first(stomp_broker):
            assert is_listening(stomp_broker.host, stomp_broker.port)
            open("port", "x").write(str(stomp_broker.port))

        def test_second(stomp_broker):
            assert stomp_broker.name == "stompkit"
            assert open("port").read() == str(stomp_broker.port)
        """
    )
    run(pytester).assert_outcomes(passed=2)
    assert not is_listening("127.0.0.1", int((pytester.path / "port").read_text()))


def test_a_run_without_brokers_starts_none_and_says_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    result = run(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*STOMP*")


def test_the_factory_launches_as_many_as_wanted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_two(stomp_broker_factory, tmp_path):
            first = stomp_broker_factory()
            second = stomp_broker_factory("stompkit", directory=tmp_path / "d", vhost="v")
            assert first.port != second.port
            assert (second.vhost, second.directory) == ("v", tmp_path / "d")
            open("ports", "x").write(f"{first.port} {second.port}")
            second.stop()
        """
    )
    run(pytester).assert_outcomes(passed=1)
    for port in (pytester.path / "ports").read_text().split():
        assert not is_listening("127.0.0.1", int(port))


def test_nothing_is_left_when_pytest_is_killed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pathlib, signal

        def test_for_ever(stomp_broker):
            pathlib.Path("part").write_text(str(stomp_broker.port))
            pathlib.Path("part").rename("port")
            signal.pause()
        """
    )
    command = [sys.executable, "-m", "pytest", "-p", "stompkit.testing.plugin"]
    port = pytester.path / "port"
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL) as tests:
        assert wait_until(port.exists, LONG_S)
        assert is_listening("127.0.0.1", int(port.read_text()))
        tests.kill()
    assert wait_until(lambda: not is_listening("127.0.0.1", int(port.read_text())), LONG_S)


def test_a_failure_shows_the_broker_s_log(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_own(stomp_broker_factory): stomp_broker_factory("coilmq")
        def test_fails(stomp_broker): assert False
        def test_fails_too(stomp_broker_factory): assert not stomp_broker_factory()
        def test_passes(stomp_broker): pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["*- log of stompkit at stomp://127.0.0.1:* -*"])
    result.stdout.no_fnmatch_line("*log of coilmq*")


def test_a_broker_that_does_not_start_fails_the_tests_with_its_log(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from stompkit.testing import BrokerStartError

        def test_own(stomp_broker_factory):
            with pytest.raises(BrokerStartError, match="--no-such-option"):
                stomp_broker_factory(arguments=("--no-such-option",))

        def test_shared(stomp_broker): pass
        """
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        pytester.makeconftest(
            f"""
            import pytest

            @pytest.fixture(scope="session")
            def stomp_broker_factory(stomp_broker_factory):
                def factory(**fields):
                    return stomp_broker_factory(**({{"port": {other.getsockname()[1]}}} | fields))
                return factory
            """
        )
        result = run(pytester)
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["stompkit did not start: it was not run: * is in use."])
    result.stdout.no_fnmatch_line("*_launch.py*")
    result.stdout.no_fnmatch_line("*direct cause*")


# Given brokers.


def test_a_given_broker_is_used_and_left_running(
    pytester: pytest.Pytester, running: RunningBroker
) -> None:
    address = f"localhost:{running.port}"
    pytester.makepyfile(SHOW)
    result = run(pytester, "-s", "--mq", address)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"STOMP broker: at {address} (given)", f"* given {address} *"])
    assert is_listening("127.0.0.1", running.port)


def test_a_given_broker_of_a_known_kind_has_its_usual_login(
    pytester: pytest.Pytester, listening: list[int]
) -> None:
    mq = f"--mq=127.0.0.1:{listening[0]}"
    server = f"127.0.0.1:{listening[0]}"
    assert shown(pytester, mq) == f"given {server} None None 127.0.0.1"
    assert shown(pytester, mq, "--mq-broker=rabbitmq") == f"rabbitmq {server} guest guest /"
    arguments = ("--mq-login=a", "--mq-passcode=b", "--mq-vhost=v", "--mq-broker=artemis")
    assert shown(pytester, mq, *arguments) == f"artemis {server} a b v"


def test_an_ipv6_address_stands_in_brackets(pytester: pytest.Pytester) -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        port = server.getsockname()[1]
        assert shown(pytester, "--mq", f"[::1]:{port}") == f"given ::1:{port} None None ::1"


def test_nobody_listening_at_the_given_address_is_told(pytester: pytest.Pytester) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pytester.makepyfile(SHOW)
    result = run(pytester, f"--mq=127.0.0.1:{port}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"nothing listens at 127.0.0.1:{port}, where --mq *"])


def test_the_factory_can_not_shape_a_given_broker(
    pytester: pytest.Pytester, listening: list[int]
) -> None:
    pytester.makepyfile(
        """
        def test_same(stomp_broker_factory, stomp_broker):
            assert stomp_broker_factory().server_address == stomp_broker.server_address
            assert stomp_broker_factory(vhost="v").vhost == "v"

        def test_own(stomp_broker_factory):
            stomp_broker_factory(arguments=("--prefetch", "1"))

        def test_named(stomp_broker_factory, stomp_broker):
            own = stomp_broker_factory("stompkit")
            assert own.server_address != stomp_broker.server_address
        """
    )
    result = run(pytester, "-rs", f"--mq=127.0.0.1:{listening[0]}")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*stomp_broker_factory(arguments=...) launches a broker, *"]
    )


# Options.


@pytest.mark.parametrize(
    "text",
    [
        "localhost",
        ":61613",
        "localhost:",
        "localhost:stomp",
        "localhost:0",
        "localhost:65536",
        "localhost:\N{ARABIC-INDIC DIGIT THREE}",
        "::1:61613",
        "[::1]",
        "[]:61613",
        "a:1,b:2,",
    ],
)
def test_a_malformed_address_is_told_before_any_test_runs(
    pytester: pytest.Pytester, text: str
) -> None:
    pytester.makepyfile(SHOW)
    result = run(pytester, "--mq", text)
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --mq: expected HOST:PORT, as in localhost:61613 or [[]::1]:61613, not *"]
    )
    assert text.rpartition(",")[2] in result.stderr.str()


def test_an_unknown_broker_is_told_with_the_known_ones(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--mq-broker", "hornetq")
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--mq-broker: no broker is called 'hornetq'; known: stompkit, coilmq, activemq, *"]
    )


@pytest.mark.parametrize("text", ["hornetq", "artemis,", "begin-restart"])
def test_an_unknown_quirk_is_told_before_any_test_runs(
    pytester: pytest.Pytester, text: str
) -> None:
    pytester.makepyfile(SHOW)
    result = run(pytester, f"--mq-quirk={text}")
    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --mq-quirk: *", "brokers: morbidq, activemq, artemis, *"])


@pytest.mark.parametrize(
    ("option", "those"),
    [("--mq=localhost:1", "a broker that runs already"), ("--mq-broker=coilmq", "coilmq")],
)
@pytest.mark.parametrize("own", ["--mq-quirk=artemis", "--mq-config=stompkit.toml"])
def test_an_option_for_our_broker_is_an_error_with_others(
    pytester: pytest.Pytester, own: str, option: str, those: str
) -> None:
    pytester.makepyfile(SHOW)
    result = run(pytester, own, option)
    assert result.ret == USAGE_ERROR
    name = own.partition("=")[0]
    result.stderr.fnmatch_lines([f"ERROR: {name}: only the broker stompkit *{those}: leave *"])


def test_a_mistake_is_told_with_the_place_where_it_was_made(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOMPKIT_MQ_MISSING", "ignore")
    result = run(pytester)
    assert result.ret == USAGE_ERROR
    expected = "expected skip or fail, not 'ignore'"
    result.stderr.fnmatch_lines([f"ERROR: environment variable STOMPKIT_MQ_MISSING: {expected}"])
    ini = pytester.makeini("[pytest]\nmq_missing = ignore")
    run(pytester).stderr.fnmatch_lines([f"ERROR: mq_missing in {ini}: {expected}"])


def test_command_line_before_configuration_file_before_environment(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, listening: list[int]
) -> None:
    line, ini, variable = (f"127.0.0.1:{port}" for port in listening)
    monkeypatch.setenv("STOMPKIT_MQ", variable)
    monkeypatch.setenv("STOMPKIT_MQ_LOGIN", "from-environment")
    monkeypatch.setenv("STOMPKIT_MQ_VHOST", "v")
    assert shown(pytester) == f"given {variable} from-environment None v"
    pytester.makeini(f"[pytest]\nmq = {ini}\nmq_login = from-ini")
    assert shown(pytester) == f"given {ini} from-ini None v"
    arguments = ("--mq", line, "--mq-login", "from-line")
    assert shown(pytester, *arguments) == f"given {line} from-line None v"


def test_an_empty_value_on_the_command_line_takes_the_others_back(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOMPKIT_MQ", "localhost:1")
    assert shown(pytester, "--mq", "").startswith("stompkit 127.0.0.1:")


def test_an_empty_variable_says_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOMPKIT_MQ", "")
    assert shown(pytester).startswith("stompkit 127.0.0.1:")


def test_options_and_fixtures_are_documented(pytester: pytest.Pytester) -> None:
    text = run(pytester, "--help").stdout.str()
    for option in OPTIONS:
        assert f"{option.flag}=" in text
        assert f"{option.name} (string):" in text
    result = run(pytester, "--fixtures")
    shown_fixtures = result.stdout.str()
    for name in ("broker", "broker_factory", "client", "proxy", "failover", "golden"):
        assert f"stomp_{name} " in shown_fixtures
    assert "stomp_requires(" in run(pytester, "--markers").stdout.str()


# Servers that are not installed: without any program on PATH there is neither Java nor Erlang.

THREE = """
import pytest

def test_shared_1(stomp_broker): pass
def test_shared_2(stomp_broker): pass
def test_own(stomp_broker_factory): stomp_broker_factory("rabbitmq")
def test_none(): pass
"""


def test_a_missing_server_skips_its_tests_and_is_told_at_the_end(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    pytester.makepyfile(THREE)
    result = run(pytester, "-rs", "--mq-broker=activemq")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(
        [
            "STOMP broker: activemq (launched when a test wants it)",
            "*= STOMP brokers that are not installed =*",
            "activemq: 2 tests skipped",
            "  not found: the program 'java' on PATH*apt-get install activemq*",
            "rabbitmq: 1 test skipped",
            "  *'erl' on PATH*apt-get install rabbitmq-server*",
            "SKIPPED [[]*] *: activemq is not installed: not found: *",
        ]
    )


def test_a_missing_server_can_fail_its_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    pytester.makepyfile(THREE)
    result = run(pytester, "--mq-broker=activemq", "--mq-missing=fail")
    result.assert_outcomes(passed=1, errors=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "activemq is not installed: *",
            "*= STOMP brokers that are not installed =*",
            "activemq: 2 tests failed",
            "rabbitmq: 1 test failed",
        ],
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*direct cause*")


def test_missing_servers_are_counted_across_processes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setenv("PATH", "")
    pytester.makepyfile(THREE)
    result = run(pytester, "-p", "xdist", "-n2", "--mq-broker=activemq")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["activemq: 2 tests skipped"])
    result.stdout.fnmatch_lines(["rabbitmq: 1 test skipped"])


# Isolation from other plug-ins.


def test_the_plug_in_imports_no_twisted() -> None:
    program = "import sys, stompkit.testing.plugin; print('twisted' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


def test_pytest_with_the_plug_in_imports_no_twisted(pytester: pytest.Pytester) -> None:
    """A launched broker is another process."""
    pytester.makepyfile(
        "import sys\n\ndef test_modules(stomp_broker): assert 'twisted' not in sys.modules"
    )
    run(pytester).assert_outcomes(passed=1)
