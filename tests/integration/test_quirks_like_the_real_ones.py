"""Quirk mode against the emulated brokers: the same bytes have the same result on both.

MorbidQ is included if a Python 2.7 has it: see ``STOMPKIT_MORBIDQ_PYTHON``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import pytest

from stompkit.testing import RunningBroker
from stompkit.testing.launching.brokers.morbidq import morbidq_python
from stompkit.testing.server.quirks import PROFILES
from tests.integration.quirks import messages, morbidq, sessions
from tests.integration.quirks.peer import Site
from tests.integration.quirks.scripts import SCRIPTS, Script
from tests.testing.launched import require

#: The modules whose scripts are run; importing them registers the scripts.
MODULES: Final = (sessions, messages, morbidq)
BROKERS: Final = ("activemq", "artemis", "rabbitmq", "coilmq", "morbidq")
#: Brokers with a slow start, which are compared in the matrix lane.
IN_MATRIX: Final = frozenset({"activemq", "artemis", "rabbitmq"})
RUNNING: Final = [name for name in BROKERS if name != "morbidq" or morbidq_python()]
#: Rules without a script, and the reasons.
UNSEEN: Final = {"Q12": "no release of MorbidQ can be told about logins and rights"}

#: Times in seconds to wait for further frames. On a busy machine the longer ones distinguish a late
#: message from a missing one.
QUIET_S: Final = (0.15, 1.0, 4.0)

Pair = tuple[Site, Site]


@pytest.fixture(scope="module")
def pair(stomp_broker_factory: Callable[..., RunningBroker]) -> Iterator[Callable[[str], Pair]]:
    """A function that returns a broker and its emulation, by the broker's name."""
    pairs: dict[str, Pair] = {}
    with ExitStack() as stack:

        def get(name: str) -> Pair:
            if name not in pairs:
                real = stack.enter_context(stomp_broker_factory(require(name), frames=False))
                double = stack.enter_context(
                    stomp_broker_factory(
                        "stompkit",
                        frames=False,
                        quirks=name,
                        login=real.login,
                        passcode=real.passcode,
                        vhost=real.vhost,
                    )
                )
                pairs[name] = Site(real, name), Site(double, name)
            return pairs[name]

        yield get


@pytest.mark.parametrize(
    ("name", "script"),
    [
        pytest.param(
            name,
            script,
            id=f"{name}-{script.name}",
            marks=[pytest.mark.matrix] if name in IN_MATRIX else [],
        )
        for name in RUNNING
        for script in SCRIPTS
        if name in script.brokers
    ],
)
def test_the_double_does_what_the_broker_does(
    pair: Callable[[str], Pair], name: str, script: Script
) -> None:
    sites = pair(name)
    for quiet_s in QUIET_S:
        for site in sites:
            site.quiet_s = quiet_s
        with ThreadPoolExecutor() as pool:
            real, double = pool.map(script.run, sites)
        if double == real:
            break
    assert double == real


@pytest.mark.parametrize("name", BROKERS)
def test_each_rule_of_a_broker_shows_in_a_script(name: str) -> None:
    shown = set[str]().union(*(each.rules for each in SCRIPTS if name in each.brokers))
    assert set(PROFILES[name]) - shown - set(UNSEEN) == set()


def test_scripts_show_rules_that_there_are() -> None:
    rules = {rule for name in BROKERS for rule in PROFILES[name]}
    assert {rule for each in SCRIPTS for rule in each.rules} <= rules
