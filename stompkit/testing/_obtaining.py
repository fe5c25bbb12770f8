"""The broker that the settings select: a launched one, or one that is already running."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from stompkit._common.spelling import suggestion
from stompkit.testing._settings import Settings
from stompkit.testing.launching.brokers import launcher_for
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.launch import RunningBroker, given, launch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.ports import is_listening
from stompkit.testing.launching.running import CLOCK_MOVED

__all__ = ["OwnBrokerNeededError", "obtain", "obtain_given", "set_apart"]

#: Timeout in seconds for a given broker to accept connections: it may have just been started.
_GIVEN_S: Final = 2.0
#: The fields of LaunchConfig that say how to use a broker, and not how to run it.
_OF_ANY: Final = frozenset(
    {"login", "passcode", "vhost", "queue_template", "topic_template", "frames"}
)
#: Fields of the settings that only some brokers support; others are launched without them.
_OF_SOME: Final = frozenset({"config", "quirks"})


class OwnBrokerNeededError(BrokerError):
    """The request is not possible with a broker that was not launched here."""


def obtain(settings: Settings, name: str | None = None, **fields: Any) -> RunningBroker:
    """Return a broker; ``fields`` are those of LaunchConfig and override the settings.

    Without a name it is the broker of the settings, given or launched. With a name a broker is
    launched, whatever the settings say. Raises BrokerMissingError, BrokerStartError,
    OwnBrokerNeededError, and BrokerError for invalid combinations.
    """
    _check_names(fields)
    if name is None and settings.addresses:
        return obtain_given(settings, 0, **fields)
    said = settings.fields if name is None else {}
    name = name or settings.broker
    features = launcher_for(name).features
    said = {key: value for key, value in said.items() if key not in _OF_SOME - features}
    defaults = {"frames": settings.frames, "control": "control" in features}
    broker = launch(LaunchConfig(name=name, **{**defaults, **said, **fields}))
    return _advised(broker, settings, fields)


def _check_names(fields: Mapping[str, object]) -> None:
    """Raise TypeError for a keyword that is no field of LaunchConfig."""
    known = [field.name for field in dataclasses.fields(LaunchConfig) if field.name != "name"]
    for name in fields:
        if name not in known:
            raise TypeError(
                f"{name!r} is no field of LaunchConfig, whose fields are the keywords of"
                f" stomp_broker_factory(): {suggestion(name, known)}"
            )


def _advised(
    broker: RunningBroker, settings: Settings, fields: Mapping[str, object]
) -> RunningBroker:
    """Add the advice on settings that the broker shows in errors caused by them."""
    if "frames" in fields:
        broker.frames_remedy = (
            "leave out frames=False, or ask for a broker with LaunchConfig(frames=True) or "
            "stomp_broker_factory(frames=True)"
        )
    else:
        where = settings.frames_from
        broker.frames_remedy = (
            f"{where} says so; leave it out, or use stomp_broker_factory(frames=True)"
        )
    return broker


def obtain_given(settings: Settings, number: int, **fields: Any) -> RunningBroker:
    """Return the broker at the settings' address with this number, counted from 0."""
    place = settings.addresses[number]
    host, port = place.host, place.port
    others = sorted(fields.keys() - _OF_ANY)
    if others:
        chosen = ", ".join(f"{name}=..." for name in others)
        raise OwnBrokerNeededError(
            f"stomp_broker_factory({chosen}) launches a broker, and --mq gives the one at {place}:"
            f' leave --mq out, or use stomp_broker_factory("stompkit", {chosen})'
        )
    if not wait_until(lambda: is_listening(host, port), _GIVEN_S, interval_s=0.1):
        raise BrokerError(
            f"nothing listens at {place}, where --mq (or mq, or STOMPKIT_MQ) says that "
            "a broker runs: start it, or leave the option out to have one started"
        )
    said = {key: value for key, value in settings.fields.items() if key in _OF_ANY}
    wanted = {"frames": settings.frames, **said, **fields}
    if place.is_plain:
        return _advised(given(host, port, name=settings.given_name, **wanted), settings, fields)
    # Imported on demand: TLS imports slowly.
    from stompkit.testing.tunnel import Tunnel

    with ExitStack() as undo:
        tunnel = undo.enter_context(Tunnel(place))
        if not settings.broker_names:
            wanted.setdefault("vhost", host)
        broker = given(tunnel.host, tunnel.port, name=settings.given_name, **wanted)
        broker.keep_until_stopped(undo.pop_all())
    return _advised(broker, settings, fields)


def set_apart(settings: Settings, broker: RunningBroker) -> None:
    """Isolate a test from earlier tests, by the method that the settings select.

    A broker that a test has left unusable is not reset: it gets new names.
    """
    if settings.isolation == "reset" and broker.defects in ((), (CLOCK_MOVED,)):
        broker.reset()
    else:
        broker.new_names()
    if broker.records_frames:
        broker.frames.clear()
