"""A shared broker is reset for each test, whatever the test before did to it."""

from __future__ import annotations

import pytest

from tests.testing.launched import require
from tests.testing.plugin_runs import alone, run

__all__ = ["alone"]

#: Actions of a test on the broker, and the words of the warning about its state.
LEFT = {
    "kill()": "killed",
    "stop()": "stopped",
    "pause()": "paused",
    "fill_disk()": "without room on its disk",
}


def test_next_test_finds_the_broker_as_it_was(pytester: pytest.Pytester) -> None:
    """Each action of a test is undone, some of them with a warning."""
    works = """
import time

def works(broker):
    with broker.client() as client:
        client.send(broker.queue(), "x")
    assert not broker.defects
    assert abs(broker.clock.now() - time.time()) < 60
"""
    tests = [
        f"""
def test_{number}_leaves(stomp_broker): stomp_broker.{call}
def test_{number}_works(stomp_broker): works(stomp_broker)
"""
        for number, call in enumerate([*LEFT, "clock.advance(3_600)"])
    ]
    pytester.makepyfile(works + "".join(tests))
    result = run(pytester)
    result.assert_outcomes(passed=2 * len(tests), warnings=len(LEFT))
    result.stdout.fnmatch_lines(
        [
            f"*StompBrokerWarning: *::test_{number}_leaves left stompkit at * {how};*"
            for number, how in enumerate(LEFT.values())
        ]
    )


def test_broker_is_repaired_for_tests_that_ask_for_it_as_they_run(
    pytester: pytest.Pytester,
) -> None:
    """Their fixtures do not name it; they get new names of destinations, too."""
    pytester.makepyfile(
        """
import pytest

names = []

@pytest.fixture
def chosen(request):
    return request.getfixturevalue("stomp_broker")

def test_pauses(stomp_broker): stomp_broker.pause()

@pytest.mark.parametrize("number", range(2))
def test_works(chosen, number):
    assert not chosen.defects
    chosen.client().close()
    names.append(chosen.queue())
    assert len(set(names)) == len(names)
"""
    )
    run(pytester).assert_outcomes(passed=3, warnings=1)


@pytest.mark.parametrize("isolation", ["names", "reset"])
def test_brokers_asked_for_by_name_are_set_apart(pytester: pytest.Pytester, isolation: str) -> None:
    """No test sees frames of another one, nor with resets its messages, even through a factory."""
    pytester.makepyfile(
        f"""
import pytest

IS_RESET = {isolation == "reset"}

@pytest.fixture(scope="session")
def own(request):
    return request.getfixturevalue("stomp_broker_factory")()

@pytest.mark.parametrize("name", ["stomp_broker", "own"])
@pytest.mark.parametrize("number", range(2))
def test_one(request, name, number):
    broker = request.getfixturevalue(name)
    assert broker.frames.all == []
    with broker.client() as client:
        client.subscribe("/queue/fixed")
        if number and not IS_RESET:
            client.receive()
        client.receive_nothing()
        client.unsubscribe("s1")
        client.send("/queue/fixed", b"left")
    broker.frames.wait_for("SEND")

@pytest.fixture(scope="module")
def killed(request):
    broker = request.getfixturevalue("stomp_broker")
    broker.kill()
    yield broker

@pytest.mark.parametrize("number", range(2))
def test_two(killed, number):
    assert killed.frames.all == []
"""
    )
    run(pytester, f"--mq-isolation={isolation}").assert_outcomes(passed=6)


def test_fixture_of_a_module_decides_for_its_tests(pytester: pytest.Pytester) -> None:
    """Its action lasts until its teardown; then it counts as left by the last test."""
    pytester.makepyfile(
        test_first="""
import pytest

@pytest.fixture(scope="module")
def dead(stomp_broker):
    stomp_broker.kill()

def test_one(dead, stomp_broker): assert not stomp_broker.is_running
def test_two(dead, stomp_broker): assert not stomp_broker.is_running
""",
        test_second="def test_three(stomp_client): pass",
    )
    run(pytester).assert_outcomes(passed=3, warnings=1)


def test_brokers_of_other_tests_fail_no_test(pytester: pytest.Pytester) -> None:
    """One that was left unusable is not reset; one that cannot be reset is named."""
    pytester.makepyfile(
        """
import shutil

def test_full(stomp_broker_factory):
    own = stomp_broker_factory("stompkit", persistent=True)
    own.client().send("/queue/a", "x")
    own.fill_disk()
def test_next(stomp_client): pass
def test_lost(stomp_broker_factory):
    own = stomp_broker_factory("stompkit")
    shutil.rmtree(own.directory)
def test_last(stomp_client): pass
"""
    )
    result = run(pytester, "--mq-isolation=reset")
    result.assert_outcomes(passed=4, warnings=1)
    result.stdout.fnmatch_lines(["*StompBrokerWarning: stompkit could not be reset before this*"])


def test_nothing_stopped_is_kept_until_the_end(pytester: pytest.Pytester) -> None:
    """Logs of proxies and brokers take memory; the last ones may stay for the report."""
    pytester.makepyfile(
        """
import gc
import weakref
import pytest

seen = {"proxy": [], "broker": [], "pair": []}

@pytest.mark.parametrize("number", range(4))
def test_proxies(number, stomp_broker, stomp_proxy):
    stomp_broker.client(via=stomp_proxy).close()
    seen["proxy"].append(weakref.ref(stomp_proxy))

@pytest.mark.parametrize("number", range(4))
def test_brokers(number, stomp_broker_factory):
    with stomp_broker_factory() as broker:
        seen["broker"].append(weakref.ref(broker))

@pytest.mark.parametrize("number", range(3))
def test_pairs(number, stomp_broker_factory):
    with stomp_broker_factory.pair(shared=True) as pair:
        seen["pair"].append(weakref.ref(pair))

def test_gone(stomp_broker):
    gc.collect()
    kept = {kind: sum(each() is not None for each in all) for kind, all in seen.items()}
    assert kept == {"proxy": 1, "broker": 0, "pair": 0}
    stomp_broker.client().close()
"""
    )
    run(pytester).assert_outcomes(passed=12)


#: Changes of a fixture, with the condition that tests find.
HELD = {
    "clock.advance(3_600)": "with its clock moved",
    "kill()": "killed",
    "stop()": "stopped",
    "pause()": "paused",
    "fill_disk()": "without room on its disk",
}


@pytest.mark.parametrize("isolation", ["names", "reset"])
@pytest.mark.parametrize("change", HELD)
def test_each_test_finds_the_broker_as_the_fixture_left_it(
    pytester: pytest.Pytester, change: str, isolation: str
) -> None:
    """Whatever the test before did to it; only that test is accused."""
    others = [each for each in HELD if each != change]
    tests = "".join(
        f"""
def test_{number}_finds(stomp_broker): finds(stomp_broker)
def test_{number}_leaves(stomp_broker):
    stomp_broker.repair()
    stomp_broker.{other}
"""
        for number, other in enumerate(others)
    )
    pytester.makepyfile(
        test_first=f"""
import time
import pytest

@pytest.fixture(scope="module", autouse=True)
def changed(stomp_broker):
    stomp_broker.{change}
    yield
    stomp_broker.repair()

def finds(broker):
    assert broker.defects == ({HELD[change]!r},)
    if {change.startswith("clock")}:
        assert 3_500 < broker.clock.now() - time.time() < 3_700
{tests}
def test_last_finds(stomp_broker): finds(stomp_broker)
""",
        test_second="""
def test_as_launched(stomp_client, stomp_broker): assert not stomp_broker.defects
""",
    )
    result = run(pytester, f"--mq-isolation={isolation}")
    warned = [
        f"*_{number}_leaves left * {HELD[other]};*"
        for number, other in enumerate(others)
        if not other.startswith("clock")
    ]
    result.assert_outcomes(passed=2 * len(others) + 2, warnings=len(warned))
    result.stdout.fnmatch_lines(warned)


def test_brokers_of_the_factory_are_left_alone(pytester: pytest.Pytester) -> None:
    """An unshared broker is neither repaired nor reported."""
    pytester.makepyfile(
        """
import pytest

@pytest.fixture(scope="session")
def own(stomp_broker_factory): return stomp_broker_factory()

def test_kill(own): own.kill()
def test_dead(own): assert not own.is_running
def test_stop(own): own.restart(); own.stop()
def test_gone(own): assert not own.directory.exists()
def test_pause(stomp_broker_factory): stomp_broker_factory().pause()
def test_other(stomp_client): pass
"""
    )
    run(pytester, "--mq-isolation=reset").assert_outcomes(passed=6, warnings=0)


def test_broker_that_cannot_be_started_again_names_the_test(pytester: pytest.Pytester) -> None:
    """Tests that need it fail, and name the test that caused it."""
    pytester.makepyfile(
        """
from pathlib import Path

def test_kill(stomp_broker):
    stomp_broker.kill()
    # Its configuration cannot be written any more.
    import shutil
    shutil.rmtree(stomp_broker.directory)

def test_next(stomp_client): pass
"""
    )
    result = run(pytester, "-Wignore")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*::test_kill left stompkit at * killed, and it could not be*"])


@pytest.mark.parametrize("change", LEFT)
@pytest.mark.parametrize("names", ["stompkit", "stompkit,coilmq"])
def test_last_test_is_warned_too(pytester: pytest.Pytester, change: str, names: str) -> None:
    """Its broker is torn down together with its own fixtures."""
    if "coilmq" in names:
        require("coilmq")
    pytester.makepyfile(f"def test_last(stomp_broker): stomp_broker.{change}")
    number = len(names.split(","))
    result = run(pytester, f"--mq-broker={names}")
    result.assert_outcomes(passed=number, warnings=number)
    result.stdout.fnmatch_lines([f"*::test_last* left * {LEFT[change]};*"])


def test_stopped_broker_leaves_nothing_behind(pytester: pytest.Pytester) -> None:
    """Its directory is removed after the last test, even if that one stopped it."""
    pytester.makepyfile(
        """
from pathlib import Path

def test_stop(stomp_broker):
    stomp_broker.stop()
    assert stomp_broker.directory.exists()
    Path("where").write_text(str(stomp_broker.directory))
"""
    )
    run(pytester, "-Wignore").assert_outcomes(passed=1)
    assert not pytester.path.joinpath(pytester.path.joinpath("where").read_text()).exists()
