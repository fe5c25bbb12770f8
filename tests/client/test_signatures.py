"""The clients for Twisted, asyncio and blocking programs take the same parameters.

The signatures stay written out, for editors, ``help()`` and the API pages. They may differ only in
what the tables here say.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from stompkit import client as on_twisted
from stompkit.client import aio
from stompkit.client.blocking import Link

#: Name, kind, default and annotation of each parameter.
Parameters = dict[str, tuple[object, object, object]]

CLASSES = ["Client", "Message", "Subscription", "Transaction"]
#: Parameters and types of constructors that differ: endpoints and reactors are Twisted's.
OWN_OF_TWISTED = {"hosts", "reactor"}
OWN_OF_ASYNCIO = {"hosts", "tls"}
#: Methods of the Twisted client that its other parts call.
INTERNAL = {
    "announce",
    "connection_lost",
    "deliver",
    "end",
    "has_ended",
    "send_each",
    "when_filled",
    "when_ready",
}
#: Parameters of the blocking client that differ, with the reasons.
BLOCKING = {
    "hosts": "it takes no endpoints",
    "reconnect": "its programs wait meanwhile, so it waits less between attempts",
    "on_connected": "its callers do not need the headers",
    "ack": "True and False are names of modes, too",
    "prefetch": "its inbox holds the messages, and has a limit",
}


def parameters(function: Callable[..., object]) -> Parameters:
    """Return the parameters of a function."""
    found = inspect.signature(function).parameters.values()
    return {each.name: (each.kind, each.default, each.annotation) for each in found}


def members(kind: type) -> dict[str, object]:
    """Return the public methods and properties that a class or its bases define."""
    return {
        name: inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and not inspect.ismemberdescriptor(getattr(kind, name))
    }


@pytest.mark.parametrize("name", CLASSES)
def test_asyncio_client_has_the_methods_of_the_twisted_one(name: str) -> None:
    own, other = members(getattr(aio, name)), members(getattr(on_twisted, name))
    # Attributes of instances there are properties here.
    missing = other.keys() - own.keys() - INTERNAL
    assert not missing
    for method in own.keys() & other.keys():
        assert callable(own[method]) == callable(other[method]), method


@pytest.mark.parametrize("name", CLASSES)
def test_methods_of_the_asyncio_client_take_the_same_parameters(name: str) -> None:
    own, other = getattr(aio, name), getattr(on_twisted, name)
    for method, function in inspect.getmembers(own, inspect.isfunction):
        if not method.startswith("_"):
            assert parameters(function) == parameters(getattr(other, method)), method


@pytest.mark.parametrize("name", CLASSES)
def test_methods_of_the_asyncio_client_return_futures_of_the_same(name: str) -> None:
    own, other = getattr(aio, name), getattr(on_twisted, name)
    for method, function in inspect.getmembers(own, inspect.isfunction):
        if method.startswith("_"):
            continue
        returned = str(inspect.signature(getattr(other, method)).return_annotation)
        if inspect.iscoroutinefunction(function):
            assert returned.startswith("Deferred[")
            returned = returned.removeprefix("Deferred[").removesuffix("]")
        else:
            returned = returned.replace("Deferred[", "asyncio.Future[")
        assert inspect.signature(function).return_annotation == returned, method


def test_asyncio_client_is_made_with_the_same_settings() -> None:
    own, other = parameters(aio.Client.__init__), parameters(on_twisted.Client.__init__)
    assert own.keys() - other.keys() == OWN_OF_ASYNCIO - {"hosts"}
    assert other.keys() - own.keys() == OWN_OF_TWISTED - {"hosts"}
    shared = own.keys() & other.keys() - {"hosts"}
    assert {name: own[name] for name in shared} == {name: other[name] for name in shared}


def test_blocking_client_takes_the_same_parameters() -> None:
    """A parameter of the same name has the same type and default, or is in the table."""
    pairs: list[tuple[Callable[..., object], Callable[..., object]]] = [
        (Link.__init__, on_twisted.Client.__init__),
        (Link.subscribe, on_twisted.Client.subscribe),
        (Link.close, on_twisted.Client.disconnect),
    ]
    different = set()
    for blocking, twisted in pairs:
        own, other = parameters(blocking), parameters(twisted)
        shared = own.keys() & other.keys() - {"self"}
        assert shared, blocking
        different |= {name for name in shared if own[name][1:] != other[name][1:]}
    assert different == BLOCKING.keys()
