"""The meaning of a seed: the fault, the settings, the producers and the consumers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.campaign.clients import Client, Consumer, Habits, Producer, World
from tests.campaign.history import Setting, dead_letters_of

__all__ = ["LATE", "PLACES", "SETTING", "TOPICS", "Plan", "clients", "settings"]

_TOPIC: Final = "/topic/t"
#: Subscribed from the beginning, by clients of these names.
_DURABLES: Final = ("d1", "d2")
#: Subscribes later, and does not try again after a refusal.
LATE: Final = "late"
TOPICS: Final = {f"/durable/{name}/campaign": _TOPIC for name in (*_DURABLES, LATE)}
SETTING: Final = Setting({"/fanout/f": ("/queue/f1", "/queue/f2")}, TOPICS)
#: All places, before their dead letters: draining may dead-letter a message, so these come last.
PLACES: Final = (
    *(f"/queue/{name}" for name in ("a", "b", "c", "in", "out", "f1", "f2")),
    *TOPICS,
)
#: Places without losses through transactions and faults: not those consumed in the mode auto.
_LASTING: Final = ("/queue/a", "/queue/b", "/queue/in", "/fanout/f", _TOPIC)
_BLIND: Final = ("partition", "half-open", "mixed", "namespace", "lease")
_TARGETS: Final = (*_LASTING, "/queue/a", "/queue/c")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run, as far as a seed determines it."""

    seed: int
    fault: str
    #: Number of receipted messages after which the run ends.
    quota: int
    #: Number of rounds of the fault; 0 for the default of the fault.
    rounds: int = 0

    def chance(self, what: str) -> random.Random:
        """Return a random generator for one purpose."""
        return random.Random(f"{self.seed} {what}")


def settings(plan: Plan) -> str:
    """Return the configuration of the broker."""
    chance = plan.chance("settings")
    return (
        "[broker]\n"
        f"window_messages = {chance.choice((1_000, 1_000, 50, 8))}\n"
        f"prefetch = {chance.choice((100, 20))}\n"
        "[[destination]]\n"
        'name = "/fanout/f"\n'
        'children = ["/queue/f1", "/queue/f2"]\n'
    )


def clients(plan: Plan, world: World) -> list[Client]:
    """Return the producers and consumers."""
    chance = plan.chance("clients")

    def habits(mode: str, **more: float | int | str) -> Habits:
        prefetch = chance.choice((1, 5, 30, 100))
        confirms = chance.choice((0.3, 0.7, 1.0))
        wanted = {"mode": mode, "prefetch": prefetch, "confirms": confirms}
        return Habits(**{**wanted, **more})  # type: ignore[arg-type]

    made: list[Client] = []

    def consumer(name: str, how: Habits, place: str, **more: str | bool) -> None:
        own = plan.chance(name)
        made.append(Consumer(world, name, own, how, place, **more))  # type: ignore[arg-type]

    for number in range(chance.randint(2, 4)):
        name = f"producer {number}"
        window = chance.choice((1, 8, 32, 128))
        made.append(
            Producer(
                world, name, plan.chance(name), window=window, targets=_TARGETS, lasting=_LASTING
            )
        )
    for number in range(chance.randint(1, 3)):
        rejects = chance.choice((0.0, 0.05, 0.2))
        consumer(f"a {number}", habits("client-individual", rejects=rejects), "/queue/a")
    for number in range(chance.randint(1, 2)):
        consumer(f"b {number}", habits("client", holds=0.3), "/queue/b")
    # If a broker does not notice that its client is gone, losses in the mode auto have no limit.
    mode = "client" if plan.fault.partition(":")[0] in _BLIND else "auto"
    consumer("c", habits(mode), "/queue/c")
    for number in range(chance.randint(1, 2)):
        batch = chance.randint(1, 4)
        # A batch that is larger than the prefetch would never be complete.
        worker = habits("client-individual", prefetch=20, batch=batch, answers="/queue/out")
        consumer(f"worker {number}", worker, "/queue/in")
    if chance.random() < 0.7:
        consumer("out", habits("client", holds=0.5), "/queue/out")
    consumer(
        "f1", habits("client-individual", prefetch=10, batch=chance.randint(2, 5)), "/queue/f1"
    )
    if chance.random() < 0.5:
        consumer("f2", habits("client"), "/queue/f2")
    first, second, late = TOPICS
    consumer(_DURABLES[0], habits("client-individual", leaves=0.02), first, topic=_TOPIC)
    consumer(_DURABLES[1], habits("client", leaves=0.02), second, topic=_TOPIC)
    late_habits = habits("client-individual", holds=0.5)
    consumer(LATE, late_habits, late, topic=_TOPIC, gives_up=True)
    return made


def all_places() -> list[str]:
    """Return all places and their dead letters, in the order of draining."""
    return [*PLACES, *map(dead_letters_of, PLACES)]
