"""Authentication: checkers, password files, certificates, and handling of failures."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from pytest_twisted import ensureDeferred  # type: ignore[import-untyped]  # it ships no types
from twisted.cred.checkers import (
    AllowAnonymousAccess,
    FilePasswordDB,
    ICredentialsChecker,
    InMemoryUsernamePasswordDatabaseDontUse,
)
from twisted.cred.credentials import IUsernameHashedPassword, IUsernamePassword
from twisted.cred.error import LoginDenied, UnauthorizedLogin
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import capturedLogs, formatEvent
from zope.interface import implementer, providedBy

from stompkit.server.interfaces import Credentials, User
from stompkit.server.login.auth import CredAuthenticator, certificate_user, checkers_from
from stompkit.server.login.limited_authenticator import Decided
from stompkit.server.login.password_files import (
    Cost,
    HashedPasswordFile,
    IniPasswordFile,
    JsonPasswordFile,
    hash_passcode,
)
from stompkit.server.login.scrypt import Scrypt

#: The lowest cost of scrypt.
CHEAP = Cost(log2_n=1, r=1, p=1)
#: The hash of "x" with a salt of "0123456789abcdef", as computed by hashlib alone.
GOOD = "scrypt$ln=1,r=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$YdoiefAjF/ZEafb3bpa3Z/pqkNXoq7t7x9b3HJo93yU"
SALT, KEY = GOOD.split("$")[2:]
ALICE = User("alice")
SECRET = "open sesame"
Logged = Callable[[], list[str]]
Test = Callable[[Path], Coroutine[Any, Any, None]]
#: For tests that wait for the reactor.
in_reactor: Callable[[Test], Test] = ensureDeferred


@pytest.fixture
def logged() -> Iterator[Logged]:
    """The lines logged so far in a test."""
    with capturedLogs() as events:
        yield lambda: [formatEvent(event) for event in events]


def credentials(
    login: str | None = None, passcode: str | None = None, certificate: bytes | None = None
) -> Credentials:
    return Credentials(login, passcode, "host", "peer:1", certificate)


def ask(authenticator: CredAuthenticator, asked: Credentials) -> list[User | None]:
    """Return the answers received, in a list to which later answers are added."""
    answers: list[User | None] = []
    authenticator.authenticate(asked, answers.append)
    return answers


async def wait(authenticator: CredAuthenticator, login: str, passcode: str) -> User | None:
    """Return the answer when it arrives."""
    answer: Deferred[User | None] = Deferred()
    authenticator.authenticate(credentials(login, passcode), answer.callback)
    return await answer


def memory(**users: bytes) -> ICredentialsChecker:
    checker: ICredentialsChecker = InMemoryUsernamePasswordDatabaseDontUse(**users)
    return checker


@implementer(ICredentialsChecker)
class Checker:
    """Returns or raises a given result, and records its calls."""

    credentialInterfaces: Sequence[Any] = (IUsernamePassword,)

    def __init__(self, result: object) -> None:
        """Set the result, which is raised if it is an exception."""
        self.result = result
        self.asked: list[Any] = []

    def requestAvatarId(self, credentials: Any) -> Any:
        """Return the result."""
        self.asked.append(credentials)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@implementer(ICredentialsChecker)
class HashedOnly(Checker):
    """A checker that knows passwords in clear text, and lets the credentials compare them."""

    credentialInterfaces = (IUsernameHashedPassword,)

    def requestAvatarId(self, credentials: Any) -> Any:
        """Accept every user whose passcode is "right"."""
        assert IUsernameHashedPassword in providedBy(credentials)
        if credentials.checkPassword(b"right"):
            return succeed(credentials.username)
        return fail(UnauthorizedLogin())


# Logins and passcodes.


def test_a_right_login_is_its_user() -> None:
    authenticator = CredAuthenticator([memory(alice=b"right")])
    assert ask(authenticator, credentials("alice", "right")) == [ALICE]


@pytest.mark.parametrize(
    ("login", "passcode"),
    [
        ("alice", "wrong"),
        ("bob", "right"),
        ("", "right"),
        (None, "right"),
        ("alice", ""),
        ("alice", None),
        ("Alice", "right"),
    ],
)
@pytest.mark.parametrize("anonymous", [False, True])
def test_any_other_login_is_turned_away(
    login: str | None,
    passcode: str | None,
    anonymous: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    authenticator = CredAuthenticator([memory(alice=b"right")], anonymous=anonymous)
    assert ask(authenticator, credentials(login, passcode)) == [None]


def test_an_empty_passcode_reaches_no_checker() -> None:
    checker = Checker(b"alice")
    authenticator = CredAuthenticator([checker])
    assert ask(authenticator, credentials("alice", "")) == [None]
    assert checker.asked == []


@pytest.mark.parametrize("login", ["a" * 321, "é" * 161, "a\nb", "a\tb", "\x00", "\x1b[31m"])
def test_a_login_that_can_be_no_name_reaches_no_checker(login: str) -> None:
    checker = Checker(b"alice")
    assert ask(CredAuthenticator([checker]), credentials(login, "x")) == [None]
    assert checker.asked == []


@pytest.mark.parametrize("login", ["a" * 320, "é" * 160, "alice@example.org", "Ann Other"])
def test_a_login_of_other_printable_characters_is_asked_for(login: str) -> None:
    checker = Checker(login.encode())
    assert ask(CredAuthenticator([checker]), credentials(login, "x")) == [User(login)]


def test_users_on_the_command_line_can_log_in() -> None:
    authenticator = CredAuthenticator(checkers_from(["memory:joe:secret"]))
    assert ask(authenticator, credentials("joe", "secret")) == [User("joe")]
    assert ask(authenticator, credentials("joe", "other")) == [None]


def test_a_checker_that_compares_by_the_credentials_works() -> None:
    authenticator = CredAuthenticator([HashedOnly(None)])
    assert ask(authenticator, credentials("alice", "right")) == [ALICE]
    assert ask(authenticator, credentials("alice", "wrong")) == [None]


def test_checkers_are_asked_in_order_until_one_says_yes() -> None:
    first, last = Checker(UnauthorizedLogin()), Checker(b"last")
    authenticator = CredAuthenticator([first, Checker(LoginDenied()), Checker(b"alice"), last])
    assert ask(authenticator, credentials("alice", "x")) == [ALICE]
    assert len(first.asked) == 1
    assert last.asked == []


def test_a_checker_may_take_its_time() -> None:
    later: Deferred[bytes] = Deferred()
    answers = ask(CredAuthenticator([Checker(later)]), credentials("alice", "x"))
    assert answers == []
    later.callback(b"alice")
    assert answers == [ALICE]


def test_the_name_is_the_one_that_the_checker_gives() -> None:
    assert ask(CredAuthenticator([Checker(b"alice")]), credentials("ALICE", "x")) == [ALICE]
    assert ask(CredAuthenticator([Checker("alice")]), credentials("ALICE", "x")) == [ALICE]
    assert ask(CredAuthenticator([Checker(())]), credentials("guest", "x")) == [User()]


@pytest.mark.parametrize("avatar", [b"", "", None, b"\xff", b"a\n", 7])
def test_a_checker_that_gives_no_name_lets_nobody_in(avatar: object, logged: Logged) -> None:
    assert ask(CredAuthenticator([Checker(avatar)]), credentials("alice", "x")) == [None]
    assert any("peer:1 refused" in line for line in logged())


def test_a_checker_that_breaks_is_logged_and_turns_away_without_the_secret(
    logged: Logged,
) -> None:
    after = Checker(b"alice")
    authenticator = CredAuthenticator([Checker(KeyError(SECRET)), after])
    assert ask(authenticator, credentials("alice", SECRET)) == [None]
    assert after.asked == []
    [line] = [line for line in logged() if "peer:1 refused" in line]
    assert "KeyError at test_auth.py:" in line
    decided: list[Decided] = []
    authenticator.decide(credentials("alice", SECRET), decided.append)
    assert decided == [Decided(None, is_certain=False)]
    assert SECRET not in "".join(logged())


def test_a_source_of_groups_that_breaks_turns_away(logged: Logged) -> None:
    class Broken(Checker):
        def groups_of(self, user: str) -> Sequence[str]:
            raise OSError(user)

    assert ask(CredAuthenticator([Broken(b"alice")]), credentials("alice", "x")) == [None]
    assert any("OSError" in line for line in logged())


def test_an_answer_that_fails_is_logged_and_given_once(logged: Logged) -> None:
    answers: list[User | None] = []

    def answer(user: User | None) -> None:
        answers.append(user)
        raise RuntimeError("gone")

    CredAuthenticator([memory(alice=b"x")]).authenticate(credentials("alice", "x"), answer)
    assert answers == [ALICE]
    assert any("error while a login was processed" in line for line in logged())


def test_what_checkers_are_given_does_not_show_the_passcode() -> None:
    checker = Checker(b"alice")
    ask(CredAuthenticator([checker]), credentials("alice", SECRET))
    assert SECRET not in repr(checker.asked)
    assert SECRET not in repr(credentials("alice", SECRET))


def test_a_checker_of_something_else_is_refused() -> None:
    class Keys(Checker):
        credentialInterfaces = ()

    with pytest.raises(ValueError, match="Keys checks neither passcodes nor anonymity"):
        CredAuthenticator([Keys(b"")])


# Anonymous users.


@pytest.mark.parametrize(("login", "passcode"), [(None, None), ("", ""), ("", None), (None, "")])
def test_without_login_one_is_anonymous_where_that_is_allowed(
    login: str | None, passcode: str | None
) -> None:
    asked = credentials(login, passcode)
    assert ask(CredAuthenticator([], anonymous=True), asked) == [User()]
    assert ask(CredAuthenticator([]), asked) == [None]
    assert ask(CredAuthenticator([AllowAnonymousAccess()]), asked) == [User()]


# Groups.


def test_groups_come_from_the_settings_and_from_the_password_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(
        f"alice:{hash_passcode('x', CHEAP)}:ops, dev\nbob:{hash_passcode('x', CHEAP)}\n"
    )
    authenticator = CredAuthenticator(
        [memory(alice=b"1", bob=b"2", eve=b"3"), HashedPasswordFile(path)],
        groups={"all": ["alice", "bob"], "dev": ["bob"], "none": []},
    )
    assert ask(authenticator, credentials("alice", "1")) == [
        User("alice", frozenset({"all", "ops", "dev"}))
    ]
    assert ask(authenticator, credentials("bob", "2")) == [User("bob", frozenset({"all", "dev"}))]
    assert ask(authenticator, credentials("eve", "3")) == [User("eve")]


# Certificates.


def certificate(names: Sequence[str] = (), emails: Sequence[str] = ()) -> bytes:
    """Return a self-signed certificate with common names and e-mail addresses, as DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names])
    start = datetime.datetime(2020, 1, 1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
    )
    if emails:
        others = x509.SubjectAlternativeName([x509.RFC822Name(each) for each in emails])
        builder = builder.add_extension(others, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("names", "emails", "user"),
    [
        (["alice"], [], "alice"),
        (["alice"], ["bob@example.org"], "alice"),
        ([], ["bob@example.org"], "bob@example.org"),
        ([], ["bob@example.org", "eve@example.org"], None),
        (["alice", "root"], ["bob@example.org"], None),
        (["a\nb"], [], None),
        ([], [], None),
    ],
)
def test_a_certificate_stands_for_its_common_name_or_address(
    names: list[str], emails: list[str], user: str | None
) -> None:
    assert certificate_user(certificate(names, emails)) == user


def test_what_is_no_certificate_stands_for_nobody() -> None:
    assert certificate_user(b"x") is None


def test_a_certificate_logs_in_where_it_may_and_no_login_is_sent() -> None:
    shown = certificate(["alice"])
    checkers = [memory(bob=b"x")]
    authenticator = CredAuthenticator(
        checkers, certificate_users=True, anonymous=True, groups={"ops": ["alice"]}
    )
    assert ask(authenticator, credentials(None, None, shown)) == [User("alice", frozenset({"ops"}))]
    assert ask(authenticator, credentials("bob", "x", shown)) == [User("bob")]
    assert ask(authenticator, credentials("bob", "y", shown)) == [None]
    assert ask(CredAuthenticator(checkers), credentials(None, None, shown)) == [None]


def test_a_certificate_without_a_name_is_as_good_as_none() -> None:
    asked = credentials(None, None, certificate())
    assert ask(CredAuthenticator([], certificate_users=True), asked) == [None]
    assert ask(CredAuthenticator([], certificate_users=True, anonymous=True), asked) == [User()]


# Descriptions of checkers.


def test_descriptions_make_checkers_in_their_order(tmp_path: Path) -> None:
    hashed, ini, clear = tmp_path / "hashed", tmp_path / "ini", tmp_path / "clear"
    hashed.write_text(f"alice:{hash_passcode('x', CHEAP)}\n")
    ini.write_text("[auth]\n")
    clear.write_text("alice:x\n")
    checkers = checkers_from(
        [f"stompkit:{hashed}", f"ini:{ini}", f"file:{clear}", "memory:a:b", "anonymous"]
    )
    assert [type(checker) for checker in checkers] == [
        HashedPasswordFile,
        IniPasswordFile,
        FilePasswordDB,
        InMemoryUsernamePasswordDatabaseDontUse,
        AllowAnonymousAccess,
    ]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("fil:users", "no kind 'fil' of authentication; there are .*file.*ini.*stompkit"),
        ("", "no kind '' of authentication"),
        ("file:nowhere", "authentication by file: nowhere: No such file"),
        ("ini:nowhere", "authentication by ini: nowhere: No such file"),
        (
            "stompkit:nowhere",
            "authentication by stompkit: nowhere: No such file or directory: create it with"
            " `stompkit passwd nowhere USER`",
        ),
        ("stompkit", "authentication by stompkit: it needs the path of a file"),
        ("memory:alice:open sesame:bob", "authentication by memory needs other arguments"),
    ],
)
def test_a_mistaken_description_is_told_without_what_it_holds(
    description: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        checkers_from(["anonymous", description])
    assert SECRET not in str(caught.value)


# The file with hashes.


def written(path: Path, text: str) -> None:
    """Replace a file atomically; each version has another size."""
    partial = path.with_name("partial")
    partial.write_text(text + "#" * path.stat().st_size if path.exists() else text)
    partial.replace(path)


def at_once(work: Scrypt) -> Deferred[bytes]:
    return succeed(work())


def of_file(path: Path, **settings: Any) -> CredAuthenticator:
    return CredAuthenticator([HashedPasswordFile(path, compute=at_once, **settings)])


def test_two_hashes_of_a_passcode_differ_and_show_nothing_of_it() -> None:
    first, second = hash_passcode("sesame", CHEAP), hash_passcode("sesame", CHEAP)
    assert first != second
    assert first.startswith("scrypt$ln=1,r=1,p=1$")
    assert "sesame" not in first
    assert ":" not in first


@in_reactor
async def test_a_passcode_is_checked_against_its_hash_in_a_process(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(
        f"# users\n\nalice:{hash_passcode('é', CHEAP)}:ops\n  bob:{hash_passcode('b', CHEAP)}  \n"
    )
    authenticator = CredAuthenticator([HashedPasswordFile(path)])
    assert await wait(authenticator, "alice", "é") == User("alice", frozenset({"ops"}))
    assert await wait(authenticator, "alice", "e") is None
    assert await wait(authenticator, "bob", "b") == User("bob")
    assert await wait(authenticator, "eve", "é") is None


@pytest.mark.parametrize("passcode", ["", "a:b", "$", " ", "x" * 8_000])
def test_every_passcode_can_be_hashed(tmp_path: Path, passcode: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"alice:{hash_passcode(passcode, CHEAP)}\n")
    assert ask(of_file(path), credentials("alice", passcode)) == [ALICE if passcode else None]


def test_the_default_cost_works(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"alice:{hash_passcode('x')}\n")
    assert ask(of_file(path), credentials("alice", "x")) == [ALICE]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("alice", "line 2: a passcode is not of the form"),
        ("alice:secret", "line 2: a passcode is not of the form"),
        (f"alice:bcrypt$ln=1,r=1,p=1${SALT}${KEY}", "line 2: a passcode is not of the form"),
        (f"alice:scrypt$ln=1,r=1${SALT}${KEY}", "line 2: the settings, salt or key"),
        (f"alice:scrypt$ln=1,r=1,p=1${SALT}$*", "line 2: the settings, salt or key"),
        (f"alice:scrypt$ln=0,r=1,p=1${SALT}${KEY}", "line 2: the settings .* out of range"),
        (f"alice:scrypt$ln=1,r=0,p=1${SALT}${KEY}", "line 2: the settings .* out of range"),
        (f"alice:scrypt$ln=1,r=1,p=17${SALT}${KEY}", "line 2: the settings .* out of range"),
        (f"alice:scrypt$ln=20,r=8,p=1${SALT}${KEY}", "line 2: .* more than 256 MiB"),
        (f"alice:scrypt$ln=1,r=1,p=1$AA${KEY}", "line 2: the salt or key .* too short"),
        (f"alice:scrypt$ln=1,r=1,p=1${SALT}$", "line 2: the salt or key .* too short"),
        (f":{GOOD}", "line 2: no name"),
        (f"first:{GOOD}", "line 2: no name, or one that has a line already"),
    ],
)
def test_a_broken_line_is_told_by_its_number_and_not_quoted(
    tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "users"
    path.write_text(f"first:{GOOD}\n{line}\n")
    with pytest.raises(ValueError, match=message) as caught:
        HashedPasswordFile(path)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="users: not UTF-8"):
        HashedPasswordFile(path)


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "users"
    written(path, f"alice:{hash_passcode('old', CHEAP)}\n")
    authenticator = of_file(path)
    assert ask(authenticator, credentials("alice", "old")) == [ALICE]
    written(path, f"alice:{hash_passcode('new', CHEAP)}:ops\n")
    assert ask(authenticator, credentials("alice", "old")) == [None]
    assert ask(authenticator, credentials("alice", "new")) == [User("alice", frozenset({"ops"}))]
    written(path, f"bob:{hash_passcode('new', CHEAP)}\n")
    assert ask(authenticator, credentials("alice", "new")) == [None]


def test_a_broken_edit_is_logged_once_and_changes_nothing(tmp_path: Path, logged: Logged) -> None:
    path = tmp_path / "users"
    written(path, f"alice:{GOOD}\n")
    authenticator = of_file(path)
    written(path, f"bob:{GOOD}\nalice\n")
    assert ask(authenticator, credentials("alice", "x")) == [ALICE]
    assert ask(authenticator, credentials("bob", "x")) == [None]
    path.unlink()
    assert ask(authenticator, credentials("alice", "x")) == [ALICE]
    assert ask(authenticator, credentials("alice", "x")) == [ALICE]
    stays = [line for line in logged() if "stays" in line]
    assert len(stays) == 2
    assert "users, line 2" in stays[0]
    assert "No such file" in stays[1]


class Slow:
    """Runs work on request."""

    def __init__(self) -> None:
        """Start without work."""
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, work: Scrypt) -> Deferred[bytes]:
        """Record the work."""
        done: Deferred[bytes] = Deferred()
        self.waiting.append(lambda: done.callback(work()))
        return done

    def finish(self) -> None:
        """Do the oldest work."""
        self.waiting.pop(0)()


def test_an_unknown_name_takes_the_same_work_as_a_wrong_passcode(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"alice:{GOOD}\n")
    slow = Slow()
    authenticator = CredAuthenticator([HashedPasswordFile(path, compute=slow)])
    for name in ("alice", "nobody"):
        answers = ask(authenticator, credentials(name, "wrong"))
        assert answers == []
        slow.finish()
        assert answers == [None]


def test_only_so_many_passcodes_are_checked_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"alice:{GOOD}\n")
    slow = Slow()
    checker = HashedPasswordFile(path, max_concurrent=2, max_waiting=1, compute=slow)
    authenticator = CredAuthenticator([checker])
    answers = [ask(authenticator, credentials("alice", "x")) for _ in range(4)]
    # Two are being checked, one waits, and the last one exceeds the limit.
    assert answers == [[], [], [], [None]]
    assert len(slow.waiting) == 2
    slow.finish()
    assert answers == [[ALICE], [], [], [None]]
    assert len(slow.waiting) == 2
    slow.finish()
    slow.finish()
    assert answers == [[ALICE], [ALICE], [ALICE], [None]]


def test_a_passcode_found_right_is_not_computed_again_until_the_file_changes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "users"
    written(path, f"alice:{GOOD}\nbob:{hash_passcode('x', CHEAP)}\n")
    slow = Slow()
    authenticator = CredAuthenticator([HashedPasswordFile(path, compute=slow)])
    ask(authenticator, credentials("alice", "x"))
    slow.finish()
    assert ask(authenticator, credentials("alice", "x")) == [ALICE]
    for asked in (credentials("alice", "y"), credentials("bob", "x")):
        assert ask(authenticator, asked) == []
        slow.finish()
    written(path, f"alice:{GOOD}\n")
    assert ask(authenticator, credentials("alice", "x")) == []


def test_a_computation_that_breaks_frees_its_place(tmp_path: Path, logged: Logged) -> None:
    path = tmp_path / "users"
    path.write_text(f"alice:{GOOD}\n")

    def broken(work: Scrypt) -> Deferred[bytes]:
        return fail(MemoryError())

    checker = HashedPasswordFile(path, max_concurrent=1, compute=broken)
    authenticator = CredAuthenticator([checker])
    assert ask(authenticator, credentials("alice", "x")) == [None]
    assert ask(authenticator, credentials("alice", "x")) == [None]


# CoilMQ's file.


def ini(path: Path, text: str) -> CredAuthenticator:
    path.write_text(text)
    return CredAuthenticator([IniPasswordFile(path)])


def test_an_ini_file_keeps_case_and_percent_signs(tmp_path: Path) -> None:
    authenticator = ini(tmp_path / "i", "[auth]\nAlice = 100%s%(x)s\nalice: é ;=\n[other]\nbob=x\n")
    assert ask(authenticator, credentials("Alice", "100%s%(x)s")) == [User("Alice")]
    assert ask(authenticator, credentials("alice", "é ;=")) == [ALICE]
    assert ask(authenticator, credentials("alice", "100%s%(x)s")) == [None]
    assert ask(authenticator, credentials("bob", "x")) == [None]


@pytest.mark.parametrize(
    ("login", "passcode"),
    [("a:b", "x"), (" me ", " pad "), ("#me", "#x"), ("me", "a:b=\u20ac\\"), ("me", "%(x)s\t\n")],
)
def test_a_json_file_has_any_characters(tmp_path: Path, login: str, passcode: str) -> None:
    path = tmp_path / "users"
    path.write_text(json.dumps({login: passcode}))
    [checker] = checkers_from([f"json:{path}"])
    assert isinstance(checker, JsonPasswordFile)
    authenticator = CredAuthenticator([checker])
    assert ask(authenticator, credentials(login, passcode)) == [User(login)]
    assert ask(authenticator, credentials(login, passcode.strip() + "x")) == [None]
    assert ask(authenticator, credentials(login.upper() + "x", passcode)) == [None]


@pytest.mark.parametrize("name", ["bob", "nobody"])
@pytest.mark.parametrize("passcode", ["", None])
def test_only_an_empty_passcode_that_is_in_the_file_is_right(
    tmp_path: Path, name: str, passcode: str | None
) -> None:
    path = tmp_path / "users"
    path.write_text(json.dumps({"alice": "", "bob": "x"}))
    authenticator = CredAuthenticator(
        [*checkers_from([f"json:{path}"]), memory(alice=b"", bob=b"", nobody=b"")]
    )
    assert ask(authenticator, credentials("alice", "")) == [ALICE]
    assert ask(authenticator, credentials("alice", None)) == [None]
    assert ask(authenticator, credentials("alice", "x")) == [None]
    assert ask(authenticator, credentials(name, passcode)) == [None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: not JSON"),
        ('{"me":\n "secret', "line 2: not JSON"),
        ('["secret"]', "not a JSON object of users"),
        ('{"me": {"secret": 1}}', "not a JSON object of users"),
    ],
)
def test_a_broken_json_file_is_not_quoted(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        JsonPasswordFile(path)
    assert "secret" not in str(caught.value)


def test_a_section_called_default_is_nothing_special(tmp_path: Path) -> None:
    authenticator = ini(tmp_path / "i", "[DEFAULT]\nroot = x\n[auth]\nalice = x\n")
    assert ask(authenticator, credentials("root", "x")) == [None]
    assert ask(authenticator, credentials("alice", "x")) == [ALICE]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no section"),
        ("[users]\nalice = x\n", "there is no section"),
        ("alice = secret\n", "line 1: not as an INI file"),
        ("[auth]\nsecret\n", "line 2: not as an INI file"),
        ("[auth]\nalice = secret\nalice = b\n", "line 3: not as an INI file"),
        ("[auth]\na = b\n[auth]\n", "line 3: not as an INI file"),
    ],
)
def test_a_broken_ini_file_is_told_by_line_and_not_quoted(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ini(tmp_path / "i", text)
    assert "secret" not in str(caught.value)


def test_a_changed_ini_file_counts_at_once(tmp_path: Path) -> None:
    authenticator = ini(tmp_path / "i", "[auth]\nalice = old\n")
    written(tmp_path / "i", "[auth]\nalice = new\n")
    assert ask(authenticator, credentials("alice", "new")) == [ALICE]
    assert ask(authenticator, credentials("alice", "old")) == [None]
