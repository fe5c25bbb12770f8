"""Permissions: rules add up, patterns cover, and names of users widen no rule."""

from __future__ import annotations

import pytest

from stompkit.server.interfaces import Action, Decision, Request, User
from stompkit.server.login.rights import Rights, RightsAuthoriser

ALICE = User("alice", frozenset({"ops", "dev"}))
BOB = User("bob")
NOBODY = User()
READ, WRITE, CREATE, ADMIN = Action.READ, Action.WRITE, Action.CREATE, Action.ADMIN


def may(
    authoriser: RightsAuthoriser,
    user: User,
    action: Action,
    destination: str,
    host: str = "",
) -> bool:
    answers: list[Decision] = []
    authoriser.authorise(Request(user, host, action, destination, {}, b""), answers.append)
    [decision] = answers
    assert decision.body is None
    return decision.allowed


def of(*rules: Rights) -> RightsAuthoriser:
    return RightsAuthoriser(rules)


def test_without_rules_everything_is_allowed() -> None:
    assert may(of(), NOBODY, ADMIN, "/queue/a")


def test_with_a_rule_what_it_does_not_allow_is_denied() -> None:
    authoriser = of(Rights(destination="/queue/a", allow=("read", "write")))
    assert may(authoriser, NOBODY, READ, "/queue/a")
    assert may(authoriser, NOBODY, WRITE, "/queue/a")
    assert not may(authoriser, NOBODY, CREATE, "/queue/a")
    assert not may(authoriser, NOBODY, ADMIN, "/queue/a")
    assert not may(authoriser, NOBODY, READ, "/queue/b")
    assert not may(authoriser, NOBODY, READ, "/topic/a")
    assert not may(authoriser, NOBODY, READ, "/queue/a.b")


@pytest.mark.parametrize("action", Action)
def test_no_right_implies_another(action: Action) -> None:
    authoriser = of(Rights(destination="/queue/a", allow=(action.value,)))
    assert [each for each in Action if may(authoriser, BOB, each, "/queue/a")] == [action]


def test_rules_add_up() -> None:
    authoriser = of(
        Rights(destination="/queue/>", allow=("read",)),
        Rights(destination="/queue/a", allow=("write",), users=("alice",)),
        Rights(destination="/queue/a", allow=("create",), groups=("ops",)),
    )
    assert [each for each in Action if may(authoriser, ALICE, each, "/queue/a")] == [
        CREATE,
        READ,
        WRITE,
    ]
    assert [each for each in Action if may(authoriser, BOB, each, "/queue/a")] == [READ]


@pytest.mark.parametrize(
    ("users", "groups", "allowed"),
    [
        ((), (), [ALICE, BOB, NOBODY]),
        (("*",), (), [ALICE, BOB]),
        (("alice",), (), [ALICE]),
        (("alice", "bob"), (), [ALICE, BOB]),
        ((), ("dev", "none"), [ALICE]),
        (("bob",), ("ops",), [ALICE, BOB]),
        (("",), (), []),
        (("carol",), ("none",), []),
    ],
)
def test_a_rule_is_for_its_users_and_the_members_of_its_groups(
    users: tuple[str, ...], groups: tuple[str, ...], allowed: list[User]
) -> None:
    authoriser = of(Rights(destination="/queue/a", allow=("read",), users=users, groups=groups))
    assert [
        user for user in (ALICE, BOB, NOBODY) if may(authoriser, user, READ, "/queue/a")
    ] == allowed


def test_a_rule_holds_on_its_virtual_hosts() -> None:
    authoriser = of(Rights(destination="/queue/a", allow=("read",), hosts=("one", "two")))
    assert may(authoriser, BOB, READ, "/queue/a", "two")
    assert not may(authoriser, BOB, READ, "/queue/a", "three")


@pytest.mark.parametrize(
    "destination",
    ["/queue/a", "/topic/a.b", "/fanout/x", "/dlq/a", "/queue/>", "/topic/*.b"],
)
def test_the_rule_for_everything_is_about_every_kind(destination: str) -> None:
    authoriser = of(Rights(destination=">", allow=("read",), users=("alice",)))
    assert may(authoriser, ALICE, READ, destination)
    assert not may(authoriser, BOB, READ, destination)


# Patterns.


@pytest.mark.parametrize(
    ("rule", "asked", "allowed"),
    [
        ("/queue/a.>", "/queue/a.b", True),
        ("/queue/a.>", "/queue/a.b.c", True),
        ("/queue/a.>", "/queue/a", False),
        ("/queue/a.#", "/queue/a", True),
        ("/queue/a.*", "/queue/a.b", True),
        ("/queue/a.*", "/queue/a.b.c", False),
        ("/queue/a.*", "/queue/a.*", True),
        ("/queue/a.*", "/queue/a.>", False),
        ("/queue/a.>", "/queue/a.>", True),
        ("/queue/a.>", "/queue/a.*", True),
        ("/queue/a.>", "/queue/a.*.c", True),
        ("/queue/a.>", "/queue/a.b.>", True),
        ("/queue/a.>", "/queue/a.#", False),
        ("/queue/a.>", "/queue/>", False),
        ("/queue/a.>", "/queue/*.b", False),
        ("/queue/a.b", "/queue/a.*", False),
        ("/queue/a.b", "/queue/*.b", False),
        ("/queue/*.b", "/queue/*.b", True),
        ("/queue/*.b", "/queue/*.*", False),
        ("/queue/>", "/topic/>", False),
        ("/queue/>", "/queue/>.a", False),
        ("/queue/>", "/other/>", False),
    ],
)
def test_a_subscription_to_a_pattern_needs_a_rule_that_covers_all_of_it(
    rule: str,
    asked: str,
    allowed: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    authoriser = of(Rights(destination=rule, allow=("read",)))
    assert may(authoriser, BOB, READ, asked) is allowed


def test_two_rules_together_cover_no_pattern() -> None:
    authoriser = of(
        Rights(destination="/queue/a.b", allow=("read",)),
        Rights(destination="/queue/a.c", allow=("read",)),
    )
    assert not may(authoriser, BOB, READ, "/queue/a.*")


@pytest.mark.parametrize(
    "destination", ["", "a", "/queue/", "queue/a", "/nothing/a", "/queue/>.a", "*", ">>"]
)
def test_a_rule_about_no_destination_is_refused(destination: str) -> None:
    rules = [
        Rights(destination="/queue/a", allow=()),
        Rights(destination=destination, allow=("read",)),
    ]
    with pytest.raises(ValueError, match="rights, rule 2: "):
        RightsAuthoriser(rules)


# Names of users and groups in patterns.

HOME = "/queue/home.{user}.>"


def test_a_user_has_rights_in_the_place_of_its_name() -> None:
    authoriser = of(Rights(destination=HOME, allow=("read", "write")))
    assert may(authoriser, BOB, WRITE, "/queue/home.bob.inbox")
    assert may(authoriser, BOB, READ, "/queue/home.bob.>")
    assert may(authoriser, BOB, READ, "/queue/home.bob.*.x")
    assert not may(authoriser, BOB, WRITE, "/queue/home.alice.inbox")
    assert not may(authoriser, BOB, READ, "/queue/home.*.inbox")
    assert not may(authoriser, BOB, READ, "/queue/home.>")
    assert not may(authoriser, NOBODY, READ, "/queue/home..inbox")
    assert not may(authoriser, NOBODY, READ, "/queue/home.{user}.inbox")


def test_a_user_has_rights_in_the_place_of_each_of_its_groups() -> None:
    authoriser = of(Rights(destination="/queue/{group}.{user}", allow=("read",)))
    assert may(authoriser, ALICE, READ, "/queue/ops.alice")
    assert may(authoriser, ALICE, READ, "/queue/dev.alice")
    assert not may(authoriser, ALICE, READ, "/queue/none.alice")
    assert not may(authoriser, ALICE, READ, "/queue/ops.bob")
    assert not may(authoriser, BOB, READ, "/queue/ops.bob")


@pytest.mark.parametrize("name", ["*", ">", "#", "a.b", "alice.>", "a/b", "{group}", "{user}"])
@pytest.mark.parametrize(
    "asked",
    ["/queue/home.{name}.x", "/queue/home.alice.x", "/queue/home.ops.x", "/queue/home.*.x"],
)
def test_a_name_that_is_more_than_a_name_widens_nothing(name: str, asked: str) -> None:
    authoriser = of(Rights(destination=HOME, allow=("read", "write")))
    for user in (User(name), User(name, frozenset({"ops"}))):
        for action in (READ, WRITE):
            assert not may(authoriser, user, action, asked.replace("{name}", name))
    groups = of(Rights(destination="/queue/home.{group}.>", allow=("read", "write")))
    for action in (READ, WRITE):
        asked_of_group = asked.replace("{name}", name)
        assert not may(groups, User("eve", frozenset({name})), action, asked_of_group)


@pytest.mark.parametrize(
    "destination",
    [
        "/queue/home-{user}",
        "/queue/{user}x.a",
        "/queue/{users}",
        "/queue/{",
        "/queue/a.}.b",
        "/{user}/a",
        "/queue/{user}{group}",
    ],
)
def test_a_holder_is_a_whole_level_or_refused(destination: str) -> None:
    with pytest.raises(ValueError, match="rights, rule 1: "):
        of(Rights(destination=destination, allow=("read",)))


# Caching.


def test_the_answer_does_not_depend_on_what_was_asked_before() -> None:
    # Room for two decisions, so that many are cached and some are not.
    authoriser = RightsAuthoriser(
        [
            Rights(destination=HOME, allow=("read",), hosts=("one",)),
            Rights(destination="/queue/shared", allow=("read",), groups=("ops",)),
        ],
        max_cached=2,
    )
    questions = [
        (user, action, destination, host)
        for user in (ALICE, User("alice"), BOB)
        for action in (READ, WRITE)
        for destination in ("/queue/home.alice.x", "/queue/home.bob.x", "/queue/shared")
        for host in ("one", "two")
    ]
    allowed = [
        question
        for question in questions
        for _ in range(2)
        if may(authoriser, question[0], question[1], question[2], question[3])
    ]
    assert allowed[::2] == allowed[1::2]
    assert set(allowed) == {
        (ALICE, READ, "/queue/home.alice.x", "one"),
        (User("alice"), READ, "/queue/home.alice.x", "one"),
        (BOB, READ, "/queue/home.bob.x", "one"),
        (ALICE, READ, "/queue/shared", "one"),
        (ALICE, READ, "/queue/shared", "two"),
    }
