"""The fixtures of the plug-in, in separate runs of pytest."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from stompkit.testing import LaunchConfig, launch
from stompkit.testing.launching.polling import wait_until
from tests.effort import in_matrix
from tests.testing.launched import processes_below
from tests.testing.plugin_runs import alone, run

__all__ = ["alone"]

LONG_S = 60.0


# Frames.


def test_a_failure_shows_the_last_frames_without_the_passcode(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_fails(stomp_client, stomp_broker):
            stomp_client.send(stomp_broker.queue(), "hello")
            assert False

        def test_passes(stomp_client): pass
        """
    )
    arguments = ("--mq-login=me", "--mq-passcode=sesame-open")
    result = run(pytester, *arguments)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["*- last frames of stompkit at stomp://127.0.0.1:* -*", "* SEND *", "* RECEIPT *"]
    )
    assert "sesame-open" not in result.stdout.str()


def test_frames_are_those_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_first(stomp_broker):
            with stomp_broker.client() as client:
                client.send(stomp_broker.queue(), "first")

        def test_second(stomp_broker, stomp_client):
            stomp_client.send(stomp_broker.queue(), "second")
            bodies = [seen.text for seen in stomp_broker.frames.find("SEND")]
            assert bodies == ["second"]
            assert stomp_broker.frames.received[0].command in ("CONNECT", "STOMP")
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_frames_can_be_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from stompkit.testing import BrokerError

        def test_direct(stomp_broker, stomp_client):
            assert stomp_broker.server_address == (stomp_broker.host, stomp_broker.port)
            with pytest.raises(BrokerError, match="not recorded"):
                stomp_broker.frames

        def test_fails(stomp_broker): assert False
        """
    )
    result = run(pytester, "--mq-frames=off")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*last frames*")


def test_the_setting_is_named_that_keeps_frames_from_being_recorded(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from stompkit.testing import BrokerError

        def test_setting(stomp_broker):
            assert stomp_broker.frames

        def test_field(stomp_broker_factory):
            assert stomp_broker_factory(frames=False).frames
        """
    )
    monkeypatch.setenv("STOMPKIT_MQ_FRAMES", "off")
    result = run(pytester)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*not recorded: environment variable STOMPKIT_MQ_FRAMES says so; leave it out*",
            "*not recorded: leave out frames=False, or ask for a broker with *",
        ]
    )


def test_golden_files_are_written_when_asked_for_and_compared(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        BODY = "one pizza"

        def test_order(stomp_broker, stomp_client, stomp_golden):
            stomp_client.send("/queue/orders", BODY)
            stomp_client.disconnect()
            stomp_golden("order.stomp")
        """
    )
    run(pytester).assert_outcomes(failed=1)
    run(pytester, "--mq-update-golden").assert_outcomes(passed=1)
    assert "one pizza" in (pytester.path / "golden" / "order.stomp").read_text()
    run(pytester).assert_outcomes(passed=1)
    test = next(pytester.path.glob("test_*.py"))
    test.write_text(test.read_text().replace("one pizza", "one salad"))
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*-one pizza*", "*+one salad*"])


def test_golden_files_have_stable_names_of_destinations(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os

        def test_order(stomp_broker, stomp_client, stomp_golden):
            run = os.urandom(8).hex()
            for place in (stomp_broker.queue("orders"), stomp_broker.topic("news")):
                stomp_client.send(place, f"to {place} in {run}")
            stomp_client.disconnect()
            stomp_golden("order.stomp", replacements={run: "this run"})
        """
    )
    run(pytester, "--mq-update-golden").assert_outcomes(passed=1)
    written = (pytester.path / "golden" / "order.stomp").read_text()
    assert "to /queue/orders in this run" in written
    assert "destination:/topic/news" in written
    run(pytester).assert_outcomes(passed=1)


# Isolation.


SAME_NAME = """
def test_first(stomp_broker, stomp_client):
    stomp_client.send(stomp_broker.queue("orders"), "left behind")
    stomp_client.send("/queue/fixed", "left behind")

def test_second(stomp_broker, stomp_client):
    stomp_client.subscribe(stomp_broker.queue("orders"), receipt=True)
    stomp_client.receive_nothing()

def test_fixed(stomp_client):
    stomp_client.subscribe("/queue/fixed", receipt=True)
    stomp_client.receive_nothing()
"""


def test_names_are_new_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SAME_NAME)
    run(pytester).assert_outcomes(passed=2, failed=1)


def test_the_broker_can_be_reset_before_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SAME_NAME)
    run(pytester, "--mq-isolation=reset").assert_outcomes(passed=3)


# Faults.


def test_a_proxy_s_faults_end_with_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from stompkit.testing.client import ConnectionLostError

        def test_reset(stomp_broker, stomp_proxy):
            stomp_proxy.reset("RECEIPT")
            client = stomp_broker.client(via=stomp_proxy)
            with pytest.raises(ConnectionLostError):
                client.send(stomp_broker.queue())
            client.close()

        def test_none(stomp_broker, stomp_proxy):
            assert stomp_proxy.seed == 7
            with stomp_broker.client(via=stomp_proxy) as client:
                client.send(stomp_broker.queue())
        """
    )
    run(pytester, "--mq-seed=7").assert_outcomes(passed=2)


# Two brokers.


def test_a_pair_fails_over_and_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_over(stomp_failover):
            first, second = stomp_failover.brokers
            assert stomp_failover.active is first
            assert stomp_failover.url == f"failover:({first.url},{second.url})"
            assert stomp_failover.addresses == [(b.host, b.port) for b in (first, second)]
            first.client().close()
            assert stomp_failover.fail_over() is second
            second.client().close()
            with pytest.raises(ConnectionRefusedError):
                first.client()
            assert stomp_failover.fail_over() is first
            first.client().close()
            with pytest.raises(ConnectionRefusedError):
                second.client()

        def test_own(stomp_failover):
            for broker in stomp_failover.brokers:
                broker.client().close()
        """
    )
    run(pytester).assert_outcomes(passed=2)


def test_a_pair_that_can_not_be_launched_is_told_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(stomp_failover): pass")
    result = run(pytester, "--mq-broker=command:/no/such/mq {port}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["there is no program '/no/such/mq' on PATH: *"])
    result.stdout.no_fnmatch_line("*_obtaining.py*")


@pytest.mark.parametrize("name", ["stompkit", in_matrix("activemq")])
def test_a_pair_can_share_its_messages(pytester: pytest.Pytester, name: str) -> None:
    pytester.makepyfile(
        """
        def test_shared(stomp_broker_factory):
            pair = stomp_broker_factory.pair(shared=True)
            for body in ("one", "two"):
                with pair.active.client() as client:
                    client.send("/queue/a", body, persistent="true")
                pair.fail_over()
            with pair.active.client() as client:
                client.subscribe("/queue/a")
                assert [frame.body for frame in client.receive_many(2)] == [b"one", b"two"]
        """
    )
    run(pytester, f"--mq-broker={name}", "--mq-missing=fail").assert_outcomes(passed=1)


def test_a_pair_of_given_brokers_is_cut_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_over(stomp_failover):
            first, second = stomp_failover.brokers
            client = first.client()
            assert stomp_failover.fail_over() is second
            client.wait_closed()
            client.close()
            with pytest.raises(ConnectionRefusedError):
                first.client()
            second.client().close()
            stomp_failover.fail_over()
            first.client().close()

        def test_shared(stomp_broker_factory):
            stomp_broker_factory.pair(shared=True)
        """
    )
    with launch(LaunchConfig()) as first, launch(LaunchConfig()) as second:
        both = f"--mq=127.0.0.1:{first.port},127.0.0.1:{second.port}"
        run(pytester, both).assert_outcomes(passed=1, skipped=1)
        result = run(pytester, "-rs", f"--mq=127.0.0.1:{first.port}")
        result.assert_outcomes(skipped=2)
        result.stdout.fnmatch_lines(["SKIPPED*need two brokers, and --mq gives one: use --mq *"])
        first.client().close()


# Several brokers.


MATRIX = """
import pytest

def test_broker(stomp_broker): print("RAN", stomp_broker.name)
def test_factory(stomp_broker_factory): print("RAN", stomp_broker_factory().name)
def test_client(stomp_client): pass
def test_none(): pass
"""


def test_each_test_runs_on_each_broker_that_was_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MATRIX)
    result = run(pytester, "-v", "-s", "--mq-broker=stompkit,coilmq", "--mq-missing=fail")
    result.assert_outcomes(passed=7)
    ids = re.findall(r"::(\S+)", result.stdout.str())
    assert {name for name in ids if name.startswith("test_")} == {
        "test_none",
        *(
            f"test_{what}[{name}]"
            for what in ("broker", "factory", "client")
            for name in ("stompkit", "coilmq")
        ),
    }
    for name in ("stompkit", "coilmq"):
        assert result.stdout.str().count(f"RAN {name}") == 2


#: Tests that pytest cannot repeat for each broker, unless they say that they use one.
UNSEEN = """
import unittest
import pytest
from stompkit.testing import broker
from stompkit.testing.unittest import StompBrokerMixin

class TestMixin(StompBrokerMixin, unittest.TestCase):
    def test_it(self): print("RAN", self.stomp_broker.name)

@pytest.fixture(scope="class")
def of_class(request, stomp_broker): request.cls.broker = stomp_broker

@pytest.mark.usefixtures("of_class")
class TestFixture(unittest.TestCase):
    def test_it(self): print("RAN", self.broker.name)

def test_asks(request): print("RAN", request.getfixturevalue("stomp_broker").name)
def test_makes(request): print("RAN", request.getfixturevalue("stomp_broker_factory")().name)
def test_pairs(request):
    print("RAN", request.getfixturevalue("stomp_failover").active.name)
def test_context():
    with broker() as running: print("RAN", running.name)
"""

SAID = """
@pytest.mark.usefixtures("stomp_broker")
def test_says(request): print("RAN", request.getfixturevalue("stomp_broker").name)

def test_named(request): request.getfixturevalue("stomp_broker_factory")("stompkit")
"""


def test_no_test_runs_silently_on_one_of_several_brokers(pytester: pytest.Pytester) -> None:
    """It fails and states the remedy, unless it names a broker itself."""
    pytester.makepyfile(UNSEEN + SAID)
    result = run(pytester, "-s", "--mq-broker=stompkit,coilmq", "--mq-missing=fail")
    counts = result.parseoutcomes()
    assert counts.pop("failed", 0) + counts.pop("errors", 0) == UNSEEN.count("RAN")
    assert counts == {"passed": 3}
    output = result.stdout.str()
    assert [output.count(f"RAN {name}") for name in ("stompkit", "coilmq")] == [1, 1]
    result.stdout.fnmatch_lines(["*several brokers (stompkit, coilmq), and this test cannot*"])


@pytest.mark.parametrize("how", ["option", "configuration", "environment"])
def test_options_of_pytest_hold_for_brokers_without_fixtures(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The mixin of unittest and the context manager run on the broker of the run."""
    pytester.makepyfile(UNSEEN)
    if how == "configuration":
        pytester.makeini("[pytest]\nmq_broker = coilmq")
    elif how == "environment":
        monkeypatch.setenv("STOMPKIT_MQ_BROKER", "coilmq")
    result = run(pytester, "-s", *(["--mq-broker=coilmq"] if how == "option" else []))
    result.assert_outcomes(passed=UNSEEN.count("RAN"))
    assert result.stdout.str().count("RAN coilmq") == UNSEEN.count("RAN")


def test_any_other_broker_is_launched_by_its_command(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(stomp_broker, stomp_client):
            stomp_client.send(stomp_broker.queue(), "x")
        """
    )
    endpoint = "tcp:{port}:interface={host}"
    command = f"command:{sys.executable} -m twisted stompkit --endpoint {endpoint}"
    run(pytester, f"--mq-broker={command}").assert_outcomes(passed=1)


def test_ours_takes_on_the_behaviour_of_another(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.stomp_requires("quirks")
        def test_it(stomp_broker, stomp_client):
            queue = stomp_broker.queue()
            stomp_client.send(queue, "x")
            stomp_client.subscribe(queue, ack="client-individual")
            stomp_client.nack(stomp_client.receive())
            stomp_client.receive_nothing()
        """
    )
    run(pytester, "--mq-quirk=artemis").assert_outcomes(passed=1)
    run(pytester).assert_outcomes(skipped=1)


SETTINGS = """
[broker]
hosts = ["/"]
max_deliveries = 2
[store]
path = "/nosuch/messages"
[auth]
checkers = ["stompkit:/nosuch/users"]
[auth.groups]
shops = ["berlin"]
[[rights]]
destination = "/queue/orders"
groups = ["shops"]
allow = ["create", "read", "write"]
[[listen]]
endpoint = "unix:/nosuch/socket"
[admin]
endpoints = ["unix:/nosuch/admin"]
[log]
file = "/nosuch/log"
"""


def test_the_settings_of_a_real_broker_apply_without_its_files(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_anybody(stomp_client):
            stomp_client.subscribe("/queue/a", ack="client-individual")
            stomp_client.subscribe("/dlq/a")
            stomp_client.send("/queue/a", "x")
            stomp_client.nack(stomp_client.receive())
            stomp_client.nack(stomp_client.receive())
            assert stomp_client.receive().headers["dead-letter-reason"] == "max-deliveries"

        def test_rights(stomp_broker_factory):
            broker = stomp_broker_factory(login="berlin", passcode="x")
            client = broker.client()
            client.send("/queue/orders", "x")
            client.send("/queue/a", "x", receipt=False)
            assert client.next_frame().headers["stompkit-code"] == "not-authorised"
        """
    )
    (pytester.path / "stompkit.toml").write_text(SETTINGS, encoding="utf-8")
    run(pytester, "--mq-config=stompkit.toml").assert_outcomes(passed=2)


def test_a_mistake_in_the_settings_of_a_real_broker_is_reported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(stomp_client): pass")
    result = run(pytester, "--mq-config=stompkit.toml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*settings of stompkit.toml: No such file or directory. *"])
    (pytester.path / "stompkit.toml").write_text("[broker]\nprefech = 1\n", encoding="utf-8")
    result = run(pytester, "--mq-config=stompkit.toml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*stompkit.toml, line 2: *prefech: unknown; *prefetch?"])


# Capabilities.


def test_a_test_is_skipped_on_a_broker_that_lacks_what_it_requires(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def setting_up(stomp_broker):
            raise RuntimeError("not to be reached")

        @pytest.mark.stomp_requires("selector", "nack")
        def test_lacks(setting_up): pass

        @pytest.mark.stomp_requires("receipt")
        def test_has(stomp_broker): pass

        @pytest.mark.stomp_requires("nack")
        class TestMany:
            @pytest.mark.stomp_requires("receipt")
            def test_one(self, stomp_broker): pass
        """
    )
    result = run(pytester, "-rs", "--mq-broker=coilmq", "--mq-missing=fail")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*coilmq at stomp://127.0.0.1:* lacks selector: *"])
    result.stdout.fnmatch_lines(["SKIPPED*coilmq at stomp://127.0.0.1:* lacks nack: *"])


def test_what_a_test_s_own_broker_is_launched_with_need_not_be_the_shared_one_s(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.stomp_requires("persistence", "restart")
        def test_own(stomp_broker_factory):
            broker = stomp_broker_factory(persistent=True)
            with broker.client() as client:
                client.send("/queue/a", "kept")
            broker.restart()
            with broker.client() as client:
                client.subscribe("/queue/a")
                assert client.receive().body == b"kept"

        @pytest.mark.stomp_requires("persistence")
        def test_shared(stomp_broker): pass

        @pytest.mark.stomp_requires("clock")
        def test_none(stomp_broker_factory): pass
        """
    )
    run(pytester).assert_outcomes(passed=2, skipped=1)
    run(pytester, "--mq-broker=coilmq").assert_outcomes(passed=1, skipped=2)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('"nak"', "knows no 'nak'; it knows 1.0, "),
        ('["nack", "durable"]', 'takes names only, as in stomp_requires("nack", "durable")'),
        ('names=("nack",)', 'takes names only, as in stomp_requires("nack", "durable")'),
        ('"nack", reason="x"', 'takes names only, as in stomp_requires("nack", "durable")'),
    ],
)
def test_a_requirement_that_nobody_knows_is_told_before_any_test_runs(
    pytester: pytest.Pytester, arguments: str, problem: str
) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.stomp_requires({arguments})
        def test_it(stomp_broker): pass
        """
    )
    result = run(pytester, "--strict-markers")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*test_it: stomp_requires {problem}*"])
    # A worker of pytest-xdist has no other way to tell than a failure.
    pytest.importorskip("xdist")
    result = run(pytester, "-p", "xdist", "-n1")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*test_it: stomp_requires {problem}*"])


# Options.


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--mq-frames=yes", "--mq-frames: expected on or off, not 'yes'"),
        ("--mq-isolation=all", "--mq-isolation: expected names or reset, not 'all'"),
        ("--mq-seed=x", "--mq-seed: expected a whole number, not 'x'"),
        ("--mq-queue-template=/queue/", "--mq-queue-template: expected {} once, *"),
        ("--mq-topic-template={}{}", "--mq-topic-template: expected {} once, *"),
        (
            "--mq-broker=a,b --mq=localhost:1",
            "--mq-broker: the broker of --mq runs already *one name*",
        ),
    ],
)
def test_a_mistake_is_told(pytester: pytest.Pytester, argument: str, said: str) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    result = run(pytester, *argument.split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])


def test_templates_name_destinations(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_names(stomp_broker):
            assert stomp_broker.queue("a").startswith("/queue/mine.")
            assert stomp_broker.topic("a").startswith("/topic/mine.")
        """
    )
    templates = ("--mq-queue-template=/queue/mine.{}", "--mq-topic-template=/topic/mine.{}")
    run(pytester, *templates).assert_outcomes(passed=1)


# Other plug-ins.


def test_processes_of_xdist_have_brokers_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, pytest

        @pytest.mark.parametrize("number", range(12))
        def test_many(stomp_broker, stomp_client, number, worker_id):
            stomp_client.send(stomp_broker.queue(), "x")
            with open(f"{worker_id}.port", "a") as file:
                print(stomp_broker.port, file=file)
        """
    )
    result = run(
        pytester,
        "-p",
        "xdist",
        "-n4",
        "--mq-isolation=reset",
        f"--basetemp={pytester.path / 'tmp'}",
    )
    result.assert_outcomes(passed=12)
    ports = [set(path.read_text().split()) for path in pytester.path.glob("gw*.port")]
    assert len(ports) > 1
    assert all(len(each) == 1 for each in ports)
    assert len(set.union(*ports)) == len(ports)


def test_a_host_project_with_a_strict_configuration_is_not_disturbed(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini(
        """
        [pytest]
        addopts = --strict-markers --strict-config --import-mode=importlib -ra
        filterwarnings = error
        xfail_strict = true
        markers =
        asyncio_mode = auto
        asyncio_default_fixture_loop_scope = function
        """
    )
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(autouse=True)
        def away(monkeypatch, tmp_path):
            monkeypatch.chdir(tmp_path)
            monkeypatch.setenv("HOME", str(tmp_path))
            monkeypatch.setenv("LANG", "C")
        """
    )
    pytester.makepyfile(
        """
        import pytest
        from stompkit.testing import AsyncBroker

        @pytest.mark.stomp_requires("receipt")
        def test_sync(stomp_client, stomp_broker, stomp_proxy):
            stomp_client.send(stomp_broker.queue())

        async def test_async(stomp_broker):
            broker = AsyncBroker(stomp_broker)
            await broker.restart()
            assert await broker.has("restart")
        """
    )
    run(pytester, "-p", "pytest_asyncio.plugin").assert_outcomes(passed=2)


def test_a_project_that_uses_no_broker_pays_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            names = ("asyncio", "twisted", "stompkit.testing.proxy", "stompkit.testing.client")
            assert not [name for name in names if name in sys.modules]
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_nothing_is_left_of_proxies_and_pairs_when_pytest_is_killed(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    pytester.makepyfile(
        """
        import os, signal

        def test_ends(stomp_broker, stomp_client, stomp_proxy, stomp_failover):
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    command = (sys.executable, "-m", "pytest", "-p", "stompkit.testing.plugin")
    result = pytester.run("env", f"TMPDIR={tmp_path}", *command)
    assert result.ret == -signal.SIGKILL
    assert wait_until(lambda: not processes_below(tmp_path), LONG_S)
    assert wait_until(lambda: not list(tmp_path.glob("stompkit-*")), LONG_S)
