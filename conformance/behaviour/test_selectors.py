"""Selectors: conditions on headers, which 1.0 mentions, in the language that JMS gives them.

They are tried on topics, so that no message stays behind. Numbers are those of the message's
priority: every other header is text, which JMS does not compare with numbers.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, trial

Function = TypeVar("Function", bound=Callable[..., Any])
SECTION = "SUBSCRIBE (selector); JMS 1.1, 3.8.1"
#: Messages by their bodies; all have all headers.
FRUITS = {
    "apple": {"colour": "red", "shape": "round", "label": "100% pure", "priority": "7"},
    "cherry": {"colour": "red", "shape": "small", "label": "it's sweet", "priority": "2"},
    "banana": {"colour": "yellow", "shape": "long", "label": "pure", "priority": "3"},
    "pear": {"colour": "green", "shape": "long", "label": "a_b", "priority": "5"},
}
INVALID = ("colour =", "colour = 'red", "(colour = 'red'", "colour = 'red' AND")


def need_selectors(target: Target) -> None:
    """Raise UnsupportedError where a selector does not keep a message back."""
    peer, topic = target.connect(), target.topic()
    try:
        target.subscribe(peer, topic, headers={"selector": "colour = 'red'"})
    except FailedError as error:
        raise UnsupportedError(f"the target refuses a selector: {error}") from None
    sender = target.connect()
    for colour in ("blue", "red"):
        sender.send("SEND", {"destination": topic, "colour": colour}, colour.encode())
    if peer.expect("MESSAGE").body == b"blue":
        raise UnsupportedError("the target ignores selectors")
    peer.close()


def check(
    target: Target,
    expected: Mapping[str, str],
    messages: Mapping[str, Mapping[str, str]] = FRUITS,
) -> None:
    """Fail if a subscription with a condition does not get just the messages named behind it."""
    need_selectors(target)
    peer, topic = target.connect(), target.topic()
    for condition in expected:
        # What comes last shows that all before it has been dealt with.
        selector = f"({condition}) OR last = 'yes'"
        target.subscribe(peer, topic, id=condition, headers={"selector": selector})
    sender = target.connect()
    for body, headers in messages.items():
        sender.send("SEND", {"destination": topic, **headers}, body.encode())
    sender.send("SEND", {"destination": topic, "last": "yes", "priority": "0"})
    for condition, names in expected.items():
        peer.expect("MESSAGE", {"subscription": condition, "last": "yes"})
        taken = sorted(body.decode() for body in bodies_of(peer, condition))
        assert taken == sorted(names.split()), (
            f"{condition} takes {' '.join(taken) or 'nothing'}, not {names or 'nothing'}"
        )


def bodies_of(peer: Peer, subscription: str) -> list[bytes]:
    """What has come to a subscription, but for what comes last."""
    return [
        frame.body
        for frame in peer.frames
        if frame.headers.get("subscription") == subscription and "last" not in frame.headers
    ]


def selecting(name: str, statement: str) -> Callable[[Function], Function]:
    """Make a case of what JMS says."""
    return trial(f"behaviour/selector/{name}", statement, level="SHOULD", section=SECTION)


@trial(
    "behaviour/selector/honoured",
    "A server may let a subscription select messages by their headers.",
    level="MAY",
    section=SECTION,
)
def test_selectors(target: Target) -> None:
    """SUBSCRIBE with a selector and send what it rules out; record whether that comes."""
    try:
        need_selectors(target)
    except UnsupportedError as reason:
        target.note(str(reason))
        target.profile("selector", "refused" if "refuses" in str(reason) else "ignored")
        return
    target.profile("selector", "honoured")


@selecting("equality", "= and <> compare a header with a text, octet by octet.")
def test_equality(target: Target) -> None:
    """Compare a header with texts by = and <>, in other letters, too."""
    check(
        target,
        {
            "colour = 'red'": "apple cherry",
            "colour <> 'red'": "banana pear",
            "colour = 'Red'": "",
            "'long' = shape": "banana pear",
        },
    )


@selecting("order", "<, <=, > and >= compare numbers, and BETWEEN includes its limits.")
def test_order(target: Target) -> None:
    """Compare the priority with numbers by <, <=, >, >=, BETWEEN and NOT BETWEEN."""
    check(
        target,
        {
            "JMSPriority < 3": "cherry",
            "JMSPriority <= 3": "cherry banana",
            "JMSPriority > 5": "apple",
            "JMSPriority >= 5": "apple pear",
            "JMSPriority BETWEEN 3 AND 5": "banana pear",
            "JMSPriority NOT BETWEEN 3 AND 5": "apple cherry",
        },
    )


@selecting(
    "logic",
    "NOT binds closer than AND, AND closer than OR; parentheses and the case of the words are as"
    " in SQL.",
)
def test_logic(target: Target) -> None:
    """Combine comparisons by AND, OR, NOT and parentheses, and write the words small."""
    check(
        target,
        {
            "colour = 'red' AND shape = 'round'": "apple",
            "colour = 'green' OR colour = 'red'": "apple cherry pear",
            "NOT colour = 'red' AND shape = 'long'": "banana pear",
            "shape = 'round' OR shape = 'long' AND colour = 'green'": "apple pear",
            "(shape = 'round' OR shape = 'long') AND colour = 'green'": "pear",
            "not (colour = 'red' or colour = 'green')": "banana",
        },
    )


@selecting("sets", "IN takes the header that is one of some texts.")
def test_sets(target: Target) -> None:
    """Look for a header among texts by IN and NOT IN."""
    check(
        target,
        {
            "colour IN ('green', 'yellow')": "banana pear",
            "colour NOT IN ('green', 'yellow')": "apple cherry",
            "colour IN ('red')": "apple cherry",
        },
    )


@selecting(
    "like", "LIKE takes % for any characters, _ for one, and neither behind the ESCAPE character."
)
def test_like(target: Target) -> None:
    """Compare headers with patterns by LIKE, NOT LIKE and ESCAPE."""
    check(
        target,
        {
            "colour LIKE '%e%'": "apple cherry banana pear",
            "shape LIKE '_o%'": "apple banana pear",
            "shape NOT LIKE '_o%'": "cherry",
            "label LIKE '%pure'": "apple banana",
            r"label LIKE '%\%%' ESCAPE '\'": "apple",
            "label LIKE 'a!_b' ESCAPE '!'": "pear",
            "label LIKE 'pur'": "",
        },
    )


@selecting("arithmetic", "+, -, * and / are as in arithmetic; * and / come first.")
def test_arithmetic(target: Target) -> None:
    """Calculate with the priority and with numbers alone."""
    check(
        target,
        {
            "JMSPriority + 2 = 9": "apple",
            "JMSPriority * 2 - 1 > 8": "apple pear",
            "-JMSPriority > 0 - 3": "cherry",
            "JMSPriority / 2.0 = 1.5": "banana",
            "2 + 3 * 2 = 8 AND (2 + 3) * 2 = 10": "apple cherry banana pear",
        },
    )


@selecting("quoting", "Two apostrophes in a text stand for one.")
def test_quoting(target: Target) -> None:
    """Compare a header with a text that has an apostrophe, and with one that looks like words."""
    check(target, {"label = 'it''s sweet'": "cherry", "label = 'pure OR colour = red'": ""})


@selecting(
    "missing-header", "A header that a message does not have is null: only IS NULL is true of it."
)
def test_missing_header(target: Target) -> None:
    """Select by a header that one of two messages lacks; only IS NULL takes that one."""
    check(
        target,
        {
            "colour IS NULL": "stone",
            "colour IS NOT NULL": "apple",
            "colour <> 'green'": "apple",
            "NOT (colour = 'green')": "apple",
            "colour NOT LIKE 'g%'": "apple",
            "colour NOT IN ('green')": "apple",
        },
        {"apple": FRUITS["apple"], "stone": {"shape": "round"}},
    )


@trial(
    "behaviour/selector/number-in-header",
    "Headers are texts; a server may take one for a number where it is compared with one.",
    level="MAY",
    section=SECTION,
)
def test_numbers_in_headers(target: Target) -> None:
    """Compare a header that holds a number with a number; record whether it is taken for one."""
    does = "a number"
    try:
        check(target, {"weight > 9": "heavy"}, {"heavy": {"weight": "10"}})
    except AssertionError as reason:
        target.note(str(reason))
        does = "a text"
    target.profile("selector: a number in a header is", does)


@selecting(
    "invalid",
    "A condition that makes no sense is refused, instead of selecting nothing or everything.",
)
def test_invalid_selectors(target: Target) -> None:
    """SUBSCRIBE with some conditions that are not complete; each is refused."""
    need_selectors(target)
    for condition in INVALID:
        peer = target.connect()
        headers = {"destination": target.topic(), "id": "s", "selector": condition}
        try:
            peer.call("SUBSCRIBE", headers)
        except FailedError:
            if any(frame.command == "ERROR" for frame in peer.frames) or peer.is_closed_by_target:
                continue
            raise
        raise FailedError(f"the selector {condition} is accepted")


@selecting(
    "others-stay",
    "What the selectors of a queue's subscribers rule out stays in the queue for others.",
)
def test_what_is_not_selected_stays(target: Target, peer: Peer) -> None:
    """Select one of two messages of a queue; a new subscriber gets the other one."""
    need_selectors(target)
    queue = target.queue()
    target.subscribe(peer, queue, headers={"selector": "colour = 'red'"})
    for colour in ("blue", "red"):
        peer.call("SEND", {"destination": queue, "colour": colour}, colour.encode())
    assert peer.expect("MESSAGE").body == b"red", "the selector was ignored on a queue"
    peer.call("UNSUBSCRIBE", {"id": "s1", "destination": queue})
    bodies = target.leftovers(queue, 1)
    assert bodies == [b"blue"], f"a new subscriber got {bodies}"
