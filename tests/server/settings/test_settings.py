"""The file of settings: its contents, the errors in it, and the printed settings."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from enum import Flag
from pathlib import Path
from types import FrameType
from typing import Any, Literal, get_args, get_origin

import pytest
from msgspec import structs

from stompkit.frames import AFTER_LOGIN, BEFORE_LOGIN, Tolerance
from stompkit.server import BrokerConfig, DestinationConfig, Policy
from stompkit.server.operations import (
    SettingsError,
    hash_passcode,
    parse_settings,
    read_settings,
    settings_text,
)
from stompkit.server.settings.decoding import Decoder
from stompkit.server.settings.process import (
    AuthSettings,
    Endpoint,
    LogSettings,
    Settings,
    StoreSettings,
)
from stompkit.server.settings.schema import (
    REQUIRED,
    fields,
    flag_names,
    list_item,
    present,
    table_of,
    tables_of,
)
from stompkit.server.settings.toml import parse

DOCS = Path(__file__).parents[3] / "docs"


def parsed(text: str, **overrides: Any) -> Settings:
    return parse_settings(text, "f.toml", overrides)


def problems(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parsed(text)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


# Contents of a file.


def test_an_empty_file_is_the_default_broker() -> None:
    settings = parsed("")
    assert settings == Settings()
    assert settings.config == BrokerConfig()
    assert settings.descriptions == ["tcp:61613:interface=127.0.0.1"]
    assert not settings.store.has_store


def test_every_table_is_read() -> None:
    settings = parsed(
        """
        [broker]
        max_connections = 7
        login_timeout_s = 3
        hosts = ["a", "b"]
        [[destination]]
        name = "/queue/a"
        nack = "discard"
        [[destination]]
        name = "/fanout/f"
        children = ["/queue/a", "/queue/b"]
        [store]
        path = "/data"
        sync = "interval:250"
        [[listen]]
        endpoint = "tcp:1"
        [[listen]]
        endpoint = "unix:/s"
        [auth]
        checkers = ["memory:joe:secret"]
        anonymous = true
        groups = {ops = ["joe", "ann"]}
        [[rights]]
        destination = ">"
        allow = ["read"]
        hosts = ["a"]
        [log]
        format = "json"
        frames = true
        """
    )
    assert settings.broker == BrokerConfig(max_connections=7, login_timeout_s=3.0, hosts=("a", "b"))
    assert settings.config.destinations == (
        DestinationConfig(name="/queue/a", nack="discard"),
        DestinationConfig(name="/fanout/f", children=("/queue/a", "/queue/b")),
    )
    assert settings.store == StoreSettings(path="/data", sync="interval:250")
    assert settings.descriptions == ["tcp:1", "unix:/s"]
    assert settings.auth == AuthSettings(
        checkers=("memory:joe:secret",), anonymous=True, groups={"ops": ("joe", "ann")}
    )
    assert [rule.allow for rule in settings.rights] == [("read",)]
    assert settings.log == LogSettings(format="json", frames=True)


def test_limits_that_are_not_said_are_those_of_their_kind_of_frame() -> None:
    settings = parsed(
        "[broker.limits]\nmax_headers = 3\n[broker.limits_before_login]\nmax_headers = 2"
    )
    assert settings.broker.limits.max_headers == 3
    assert settings.broker.limits.max_body_bytes == AFTER_LOGIN.max_body_bytes
    assert settings.broker.limits_before_login.max_headers == 2
    assert settings.broker.limits_before_login.max_body_bytes == BEFORE_LOGIN.max_body_bytes


@pytest.mark.parametrize(
    ("names", "tolerance"),
    [
        ("[]", Tolerance.NONE),
        ('["none"]', Tolerance.NONE),
        ('["crlf"]', Tolerance.CRLF),
        ('["raw-colon", "no-blank-line"]', Tolerance.RAW_COLON | Tolerance.NO_BLANK_LINE),
        ('["lenient"]', Tolerance.LENIENT),
    ],
)
def test_tolerance_is_a_list_of_names(names: str, tolerance: Tolerance) -> None:
    assert parsed(f"[broker]\ntolerance = {names}").broker.tolerance == tolerance


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("", "none"),
        ('path = "/d"', "lmdb"),
        ('url = "sqlite://"', "sqlalchemy"),
        ('url = "sqlite://"\npath = "/d"', "sqlalchemy"),
        ('kind = "none"', "none"),
        ('kind = "lmdb"\npath = "/d"', "lmdb"),
    ],
)
def test_the_kind_of_store_follows_from_what_is_said_of_it(table: str, kind: str) -> None:
    store = parsed(f"[store]\n{table}").store
    assert store.effective_kind == kind
    assert store.has_store is (kind != "none")


def test_the_url_of_a_database_can_be_somewhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_URL", "postgresql://joe:sesame@h/d")
    file = tmp_path / "url"
    file.write_text("postgresql://joe:sesame@h/d\n")
    for place in ("env:STORE_URL", f"file:{file}"):
        lease = '[high_availability]\nlease = "database"'
        store = parsed(f'{lease}\n[store]\nurl = "{place}"').store
        assert store.database_url == "postgresql://joe:sesame@h/d"
        assert "sesame" not in repr(store)


@pytest.mark.parametrize(
    ("sync", "is_synchronous", "interval_s"),
    [("always", True, None), ("never", False, None), ("interval:250", False, 0.25)],
)
def test_sync_says_when_data_is_on_the_disk(
    sync: str, is_synchronous: object, interval_s: float | None
) -> None:
    store = parsed(f'[store]\nsync = "{sync}"').store
    assert store.is_synchronous is is_synchronous
    assert store.sync_interval_s == interval_s


def test_what_is_said_over_the_file_stands_and_leaves_the_rest_of_it() -> None:
    settings = parsed(
        '[broker]\nprefetch = 5\nmax_connections = 6\n[[listen]]\nendpoint = "tcp:1"',
        broker={"prefetch": 9},
        listen=[{"endpoint": "tcp:2"}, {"endpoint": "tcp:3"}],
        store={"path": "/d"},
    )
    assert (settings.broker.prefetch, settings.broker.max_connections) == (9, 6)
    assert settings.descriptions == ["tcp:2", "tcp:3"]
    assert settings.store.effective_kind == "lmdb"


def test_what_is_wrong_with_that_has_no_line() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings("", "the options", {"store": {"lock_timeout_s": 1.0}})
    assert caught.value.problems == [
        "the options: [store] lock_timeout_s: needs path: without it nothing is locked"
    ]


def test_a_store_of_the_command_line_makes_persistent_queues_possible() -> None:
    text = '[broker]\nstorage = "persistent"'
    assert parsed(text, store={"path": "/d"}).broker.storage == "persistent"
    assert problems(text)


# Errors in a file.

MISTAKES = {
    "a key with a letter missing": (
        "[broker]\nmax_conections = 1",
        "line 2: [broker] max_conections: unknown; did you mean max_connections?",
    ),
    "a key that is like no other": (
        "[broker]\nxyzzy = 1",
        "line 2: [broker] xyzzy: unknown; `stompkit show-config` lists all that there is",
    ),
    "a key of a small table": (
        "[log]\nxyzzy = 1",
        "line 2: [log] xyzzy: unknown; there are format, file, frames",
    ),
    "a key of another table": (
        "[store]\nmax_connections = 1",
        "line 2: [store] max_connections: unknown here; it belongs into [broker]",
    ),
    "a key of an inner table above it": (
        "[broker]\nmax_headers = 1",
        "line 2: [broker] max_headers: unknown here; it belongs into [broker.limits]",
    ),
    "a table within one of several": (
        '[[destination]]\nname = "/queue/a"\n[destination.xyzzy]',
        "line 3: [[destination]] #1 xyzzy: unknown; `stompkit show-config` lists all that there is",
    ),
    "a key above all tables": (
        "prefetch = 1",
        "line 1: prefetch: unknown here; it belongs into [broker]",
    ),
    "a table with a letter missing": (
        "\n[brokr]\nprefetch = 1",
        "line 2: [brokr]: unknown; did you mean broker?",
    ),
    "a key of an inner table": (
        "[broker]\n[broker.limits]\nmax_header = 1",
        "line 3: [broker.limits] max_header: unknown; did you mean max_headers?",
    ),
    "destinations within the broker": (
        "[broker]\ndestinations = []",
        "line 2: [broker] destinations: write a [[destination]] table for each",
    ),
    "one table where there may be many": (
        '[destination]\nname = "/queue/a"',
        "line 1: [destination]: write [[destination]], once for each",
    ),
    "a value where there may be many tables": (
        "destination = true",
        "line 1: destination: write [[destination]], once for each",
    ),
    "many tables where there is one": (
        "[[broker]]",
        "line 1: [[broker]]: there is only one: write [broker]",
    ),
    "a value where a table belongs": (
        "broker = 3",
        "line 1: broker: must be a table, [broker], not 3",
    ),
    "a string for a number": (
        '[broker]\nprefetch = "many"',
        "line 2: [broker] prefetch: must be a whole number of 1 or more, not a string",
    ),
    "a number that is too small": (
        "[broker]\nprefetch = 0",
        "line 2: [broker] prefetch: must be a whole number of 1 or more, not 0",
    ),
    "a fraction for a whole number": (
        "[broker]\nprefetch = 1.5",
        "line 2: [broker] prefetch: must be a whole number of 1 or more, not 1.5",
    ),
    "true for a number": (
        "[broker]\nprefetch = true",
        "line 2: [broker] prefetch: must be a whole number of 1 or more, not true",
    ),
    "a number without end": (
        "[broker]\nlinger_s = inf",
        "line 2: [broker] linger_s: must be a number of 0 or more, not inf",
    ),
    "a number that is none": (
        "[broker]\nlinger_s = nan",
        "line 2: [broker] linger_s: must be a number of 0 or more, not nan",
    ),
    "a number for a word": (
        "[broker]\nflow = 1",
        'line 2: [broker] flow: must be "prefetch" or "one-in-flight", not 1',
    ),
    "a date for a word": (
        "[broker]\nflow = 2020-01-01",
        'line 2: [broker] flow: must be "prefetch" or "one-in-flight", not a date or time',
    ),
    "a word that is none of some": (
        '[broker]\nstorage = "disk"',
        'line 2: [broker] storage: must be "persistent" or "memory", not "disk"',
    ),
    "a word with a letter too many": (
        '[broker]\nflow = "prefetches"',
        'line 2: [broker] flow: must be "prefetch" or "one-in-flight", not "prefetches"; did you'
        " mean prefetch?",
    ),
    "yes for true": (
        '[broker]\npriority = "yes"',
        "line 2: [broker] priority: must be true or false, not a string",
    ),
    "a tolerance that is none": (
        '[broker]\ntolerance = ["crlf", "raw-comma"]',
        'line 2: [broker] tolerance: item 2 must be "none", "raw-colon", "crlf",'
        ' "unknown-escape", "invalid-utf8", "extra-nul", "body", "no-blank-line", "padding" or'
        ' "lenient", not "raw-comma"; did you mean raw-colon?',
    ),
    "a tolerance without a list": (
        '[broker]\ntolerance = "crlf"',
        'line 2: [broker] tolerance: must be a list of "none", "raw-colon", "crlf",'
        ' "unknown-escape", "invalid-utf8", "extra-nul", "body", "no-blank-line", "padding",'
        ' "lenient", not a string',
    ),
    "three heart-beats": (
        "[broker]\nheart_beat_ms = [1, 2, 3]",
        "line 2: [broker] heart_beat_ms: must be a list of 2 whole numbers, not a list of 3",
    ),
    "a heart-beat before time": (
        "[broker]\nheart_beat_ms = [-1, 0]",
        "line 2: [broker] heart_beat_ms: must be two numbers from 0 to 2147483647: [1000, 1000]",
    ),
    "a limit of nothing": (
        "[broker.limits]\nmax_headers = 0",
        "line 2: [broker.limits] max_headers: must be a whole number of 1 or more",
    ),
    "a body larger than its frame": (
        "[broker.limits]\nmax_body_bytes = 100_000_000",
        "line 2: [broker.limits] max_body_bytes: a body of 100000000 octets does not fit into a"
        " frame of 69206016: set max_frame_bytes to more than max_body_bytes",
    ),
    "a frame smaller than its body": (
        "[broker.limits]\nmax_frame_bytes = 1000",
        "line 2: [broker.limits] max_frame_bytes: a body of 67108864 octets does not fit into a"
        " frame of 1000: set max_frame_bytes to more than max_body_bytes",
    ),
    "more prefetch than may be": (
        "[broker]\nprefetch = 20_000",
        "line 2: [broker] prefetch: must not be above max_prefetch, which is 10000",
    ),
    "no time to log in": (
        "[broker]\nlogin_timeout_s = 0",
        "line 2: [broker] login_timeout_s: must be above 0, or nobody could log in",
    ),
    "one host twice": (
        '[broker]\nhosts = ["a", "a"]',
        "line 2: [broker] hosts: must be different names, none of them empty",
    ),
    "a destination without a name": (
        '[[destination]]\nnack = "requeue"',
        "line 1: [[destination]] #1: name is missing: it must be a string",
    ),
    "a destination of no kind": (
        '[[destination]]\nname = "/quee/a"',
        "line 2: [[destination]] #1 name: destination '/quee/a' is unknown: names begin with"
        " /queue/ or /topic/ or /fanout/ or /temp-queue/ or /temp-topic/ or /dlq/",
    ),
    "a pattern with a wildcard amidst": (
        '[[destination]]\nname = "/queue/>.a"',
        "line 2: [[destination]] #1 name: pattern '/queue/>.a': > and # can be the last level only",
    ),
    "a destination's name that is too long": (
        f'[[destination]]\nname = "/queue/{"x" * 1018}"',
        "line 2: [[destination]] #1 name: must not be longer than 1024 octets",
    ),
    "one destination twice": (
        '[[destination]]\nname = "/queue/a"\n[[destination]]\nname = "/queue/a"',
        'line 4: [[destination]] #2 name: "/queue/a" has a table already, #1: join the two',
    ),
    "a wrong value in the second of several tables": (
        '[[destination]]\nname = "/queue/a"\n\n[[destination]]\nname = "/queue/b"\nnack = "drop"',
        'line 6: [[destination]] #2 nack: must be "requeue", "dead-letter", "discard" or'
        ' "requeue-then-dead-letter", not "drop"',
    ),
    "children of a queue": (
        '[[destination]]\nname = "/queue/a"\nchildren = ["/queue/b"]',
        "line 3: [[destination]] #1 children: only a destination of the name /fanout/NAME has"
        " children",
    ),
    "a fan-out to nobody": (
        '[[destination]]\nname = "/fanout/a"',
        'line 1: [[destination]] #1: children is missing: without any, what is sent to "/fanout/a"'
        ' gets lost. List the queues that get a copy: children = ["/queue/NAME"]',
    ),
    "a fan-out to a topic": (
        '[[destination]]\nname = "/fanout/a"\nchildren = ["/topic/b"]',
        'line 3: [[destination]] #1 children: "/topic/b" is not the name of a queue, /queue/NAME',
    ),
    "a fan-out to a pattern": (
        '[[destination]]\nname = "/fanout/a"\nchildren = ["/queue/*"]',
        'line 3: [[destination]] #1 children: "/queue/*" is not the name of a queue, /queue/NAME',
    ),
    "a fan-out to one queue twice": (
        '[[destination]]\nname = "/fanout/a"\nchildren = ["/queue/b", "/queue/b"]',
        "line 3: [[destination]] #1 children: must be different queues",
    ),
    "what only topics have, for a queue": (
        '[[destination]]\nname = "/queue/a.>"\nslow_reader = "disconnect"',
        'line 3: [[destination]] #1 slow_reader: has no effect on "/queue/a.>": it is for the'
        " subscribers of topics. Leave this line out",
    ),
    "dead letters of dead letters": (
        '[[destination]]\nname = "/dlq/a"\ndead_letters = true',
        'line 3: [[destination]] #1 dead_letters: has no effect on "/dlq/a": dead letters that are'
        " refused or expire are dropped. Leave this line out",
    ),
    "what a full topic does": (
        '[[destination]]\nname = "/topic/a"\nwhen_full = "block"',
        'line 3: [[destination]] #1 when_full: has no effect on "/topic/a": a durable subscription'
        " that is full always drops its oldest messages. Leave this line out",
    ),
    "where temporary queues are": (
        '[[destination]]\nname = "/temp-queue/>"\nstorage = "memory"',
        'line 3: [[destination]] #1 storage: has no effect on "/temp-queue/>": temporary queues are'
        " in memory, and have no dead letters. Leave this line out",
    ),
    "the room of temporary topics": (
        '[[destination]]\nname = "/temp-topic/>"\nmax_queue_messages = 5',
        "line 3: [[destination]] #1 max_queue_messages: has no effect on"
        ' "/temp-topic/>": temporary topics keep no messages. Leave this line out',
    ),
    "the room of a fan-out": (
        '[[destination]]\nname = "/fanout/a"\nchildren = ["/queue/a"]\nmax_queue_bytes = 5',
        'line 4: [[destination]] #1 max_queue_bytes: has no effect on "/fanout/a": a fan-out keeps'
        " no messages: set it for its children. Leave this line out",
    ),
    "deliveries that nobody counts": (
        '[[destination]]\nname = "/queue/a"\nmax_deliveries = 3\nnack = "requeue"',
        'line 3: [[destination]] #1 max_deliveries: has no effect with nack = "requeue". Leave one'
        " of the two out",
    ),
    "dead letters of what has none": (
        '[[destination]]\nname = "/queue/a"\nexpired = "dead-letter"\ndead_letters = false',
        "line 3: [[destination]] #1 expired: has no effect with dead_letters = false. Leave one of"
        " the two out",
    ),
    "a temporary queue by name": (
        '[[destination]]\nname = "/temp-queue/a"\nprefetch = 3',
        'line 2: [[destination]] #1 name: "/temp-queue/a" matches nothing: the broker gives each'
        " temporary destination a name of its own. Write /temp-queue/> for all of them",
    ),
    "a pattern of no fan-out": (
        '[[destination]]\nname = "/fanout/a.>"\nmessage_ttl_s = 3',
        'line 2: [[destination]] #1 name: "/fanout/a.>" matches no fan-out: there are those only'
        " that have a table with children",
    ),
    "the size of another store's file": (
        '[store]\nurl = "sqlite:////tmp/x.sqlite"\nmax_octets = 2000000',
        "line 3: [store] max_octets: has no effect with sqlalchemy, whose database has its own"
        " limits: leave this line out",
    ),
    "when nothing is on the disk": (
        '[store]\nkind = "none"\nsync = "never"',
        'line 3: [store] sync: has no effect with kind = "none": leave one out',
    ),
    "a name that is more than one": (
        '[[websocket]]\nendpoint = "tcp:0"\nhosts = ["mq.example:15674"]',
        'line 3: [[websocket]] #1 hosts: "mq.example:15674" is not a name: write it as mq.example,'
        " without port or path",
    ),
    "a persistent queue without a store": (
        '[[destination]]\nname = "/queue/a"\nstorage = "persistent"',
        "line 3: [[destination]] #1 storage: persistent needs a store: set path in [store], or"
        " leave this line out",
    ),
    "persistent queues, and a store that keeps nothing": (
        '[broker]\nstorage = "persistent"\n[store]\nkind = "none"',
        "line 2: [broker] storage: persistent needs a store: set path in [store], or leave this"
        " line out",
    ),
    "a kind of store that there isn't": (
        '[store]\nkind = "sql"',
        'line 2: [store] kind: must be "lmdb", "sqlalchemy" or "none", not "sql"',
    ),
    "a store that is nowhere": (
        '[store]\nkind = "lmdb"',
        "line 2: [store] kind: lmdb needs a directory: add path ="
        ' "/var/lib/stompkit/messages", say',
    ),
    "a store with an empty path": (
        '[store]\npath = ""',
        "line 2: [store] path: must not be empty",
    ),
    "a database that is nowhere": (
        '[store]\nkind = "sqlalchemy"',
        "line 2: [store] kind: sqlalchemy needs a database: add url ="
        ' "sqlite:////var/lib/stompkit.sqlite", say',
    ),
    "a database that cannot be": (
        '[store]\nurl = "nonsense:secret"',
        "line 2: [store] url: the URL of an SQL store has to be like"
        " postgresql://USER:PASSWORD@HOST/DATABASE or"
        " sqlite:////var/lib/stompkit/messages.sqlite",
    ),
    "a database whose URL is nowhere": (
        '[high_availability]\nlease = "database"\n[store]\nurl = "env:NOSUCH"',
        "line 4: [store] url: there is no NOSUCH in the environment",
    ),
    "a database for LMDB": (
        '[store]\nkind = "lmdb"\npath = "/d"\nurl = "sqlite://"',
        'line 4: [store] url: goes with kind = "sqlalchemy", not with "lmdb"',
    ),
    "a place for what is kept nowhere": (
        '[store]\nkind = "none"\npath = "/d"',
        "line 2: [store] kind: none keeps nothing: leave this line out, or path and url",
    ),
    "a sync that is none": (
        '[store]\nsync = "interval:0"',
        'line 2: [store] sync: must be "always", "never", or "interval:" and a number of'
        ' milliseconds, as in "interval:200", not "interval:0"',
    ),
    "a wait for no lock": (
        "[store]\nlock_timeout_s = 1",
        "line 2: [store] lock_timeout_s: needs path: without it nothing is locked",
    ),
    "a lease of no database": (
        '[high_availability]\nlease = "database"\n[store]\nurl = "sqlite:////tmp/x"',
        'line 2: [high_availability] lease: "database" needs a store in PostgreSQL: set url ='
        ' "postgresql://..." in [store]',
    ),
    "a lease that does not exist": (
        '[high_availability]\nlease = "etcd"',
        'line 2: [high_availability] lease: must be "database", not "etcd"',
    ),
    "a name without a lease": (
        '[high_availability]\nname = "a"',
        'line 2: [high_availability] name: has no effect without lease = "database": add that line',
    ),
    "a name that is none": (
        '[high_availability]\nlease = "database"\nname = "a b"\n[store]\nurl = "postgresql://h/d"',
        "line 3: [high_availability] name: must be 1 to 100 letters, digits, dots, _ and - of"
        " ASCII",
    ),
    "a lease that is too short": (
        '[high_availability]\nlease = "database"\nlease_s = 0.5\n[store]\nurl = "postgresql://h/d"',
        "line 3: [high_availability] lease_s: must be a number from 1 to 3600, not 0.5",
    ),
    "a lease beside a lock": (
        '[high_availability]\nlease = "database"\n[store]\nurl = "postgresql://h/d"\npath = "/d"',
        'line 5: [store] path: has no effect with lease = "database", which takes the place of the'
        " lock: leave this line out",
    ),
    "a lease with a socket that can be opened once": (
        '[[listen]]\nendpoint = "systemd:domain=INET:index=0"\n[high_availability]\n'
        'lease = "database"\n[store]\nurl = "postgresql://h/d"',
        "line 2: [[listen]] #1 endpoint: a socket of systemd can't be opened again, as lease ="
        ' "database" requires: use tcp:PORT',
    ),
    "an endpoint of no kind": (
        '[[listen]]\nendpoint = "nonsense:1"',
        "line 2: [[listen]] #1 endpoint: cannot listen on nonsense:1: there is no kind of"
        " endpoint 'nonsense'; there are haproxy, ssl, stomps, systemd, tcp, tcp6, unix",
    ),
    "an endpoint with no port": (
        '[[listen]]\nendpoint = "tcp:61613"\n[[listen]]\nendpoint = "tcp:notaport"',
        "line 4: [[listen]] #2 endpoint: cannot listen on tcp:notaport: 'notaport' is not a port:"
        " a port is a number from 0 to 65535.",
    ),
    "an endpoint whose file is missing": (
        '[[listen]]\nendpoint = "ssl:0:privateKey=/nonexistent"',
        "line 2: [[listen]] #1 endpoint: cannot listen on ssl:0:privateKey=/nonexistent:"
        " /nonexistent: No such file or directory",
    ),
    "a checker of no kind": (
        '[auth]\ncheckers = ["memory:joe:secret", "ldap:secret"]',
        "line 2: [auth] checkers: item 2: there is no kind 'ldap' of authentication; there are"
        " {kinds}",
    ),
    "a password file that is not there": (
        '[auth]\ncheckers = ["file:/nonexistent"]',
        "line 2: [auth] checkers: item 1: authentication by file: /nonexistent: No such file or"
        " directory",
    ),
    "checkers without a list": (
        '[auth]\ncheckers = "memory:joe:secret"',
        "line 2: [auth] checkers: must be a list of strings, not a string",
    ),
    "a group without a list": (
        '[auth]\ncheckers = ["memory:joe:secret"]\ngroups = {ops = "joe"}',
        "line 3: [auth.groups]: ops must be a list of strings, not a string",
    ),
    "a group with a number in it": (
        '[auth]\ncheckers = ["memory:joe:secret"]\n[auth.groups]\nops = ["joe", 3]',
        "line 3: [auth.groups]: ops item 2 must be a string, not 3",
    ),
    "nobody let in": (
        "[auth]\nanonymous = false",
        "line 2: [auth] anonymous: with false, nobody can log in, as no login is checked: add"
        " checkers, or leave this line out",
    ),
    "groups of nobody": (
        '[auth]\ngroups = {ops = ["joe"]}',
        "line 2: [auth.groups]: nobody has a name where no login is checked: add checkers",
    ),
    "a service without an address": (
        "[auth.http]\ntimeout_s = 1",
        "line 1: [auth.http]: url is missing: it must be a string",
    ),
    "a service and checkers": (
        '[auth]\ncheckers = ["memory:joe:secret"]\n[auth.http]\nurl = "http://127.0.0.1/"',
        "line 2: [auth] checkers: has no effect beside [auth.http], which is asked about every"
        " client: leave one of the two out",
    ),
    "a right that there isn't": (
        '[[rights]]\ndestination = ">"\nallow = ["raed"]',
        'line 3: [[rights]] #1 allow: item 1 must be "create", "read", "write" or "admin", not'
        ' "raed"; did you mean read?',
    ),
    "rights to what is no destination": (
        '[[rights]]\ndestination = "orders"\nallow = ["read"]',
        "line 2: [[rights]] #1 destination: destination 'orders' is unknown: names begin with"
        " /queue/ or /topic/ or /fanout/ or /temp-queue/ or /temp-topic/ or /dlq/",
    ),
    "rights on a host that there isn't": (
        '[[rights]]\ndestination = ">"\nallow = ["read"]\nhosts = ["a"]',
        'line 4: [[rights]] #1 hosts: "a" is not among the hosts of [broker]',
    ),
    "a format of the log that there isn't": (
        '[log]\nformat = "xml"',
        'line 2: [log] format: must be "text" or "json", not "xml"',
    ),
    "a line that is no TOML": (
        "[broker]\nprefetch = many",
        "line 2: not TOML: Invalid value in column 12",
    ),
    "a string that does not end": (
        '[broker]\nflow = "pre',
        "not TOML: Unterminated string at the end of the file",
    ),
    "a key twice": (
        "[broker]\nprefetch = 1\nprefetch = 2\n",
        "line 3: not TOML: Cannot overwrite a value in column 13",
    ),
}


@pytest.mark.parametrize(("text", "problem"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_with_its_place_and_its_remedy(text: str, problem: str) -> None:
    [told] = problems(text)
    expected = ("f.toml, " if problem.startswith("line") else "f.toml: ") + problem
    begin, has_kinds, _ = expected.partition("{kinds}")
    if has_kinds:
        # The available plug-ins depend on the installation.
        assert told.startswith(begin)
        assert {"memory", "file", "stompkit"} <= set(told.removeprefix(begin).split(", "))
    else:
        assert told == expected


def test_all_mistakes_are_told_in_the_order_of_the_file() -> None:
    text = """\
[store]
syncc = "always"
kind = "lmdb"

[broker]
prefetch = 0
max_conections = 1

[[destination]]
name = "nonsense"

[[destination]]
nack = "discard"

[[destination]]
name = "/queue/a"
children = ["/queue/b"]
"""
    assert [problem.partition(": ")[0] for problem in problems(text)] == [
        f"f.toml, line {number}" for number in (2, 3, 6, 7, 10, 12, 17)
    ]


@pytest.mark.parametrize(
    "text",
    [
        'name = """\n[broker]\nx = 1\n"""\n[broker]\nx = 2',
        "name = [\n  1,\n  2, # [broker]\n]\n[broker]\nx = 2",
        "name = 'x' # '''\n\n# x = 1\n\n[broker]\nx = 2",
        'name = 1\r\n\r\n\r\n\r\n[ "broker" ]\r\nx = 2\r\n',
        "name.x = 1\n\n\n\n\nbroker.x = 2",
        "name = 1\n\n\n\n\nbroker = { x = 2 }",
        'name = """\n[ " ""\\""" {"""""\n\n[broker]#"\n\nx = 2',
        "name = '''\n{ ' '''''\n\n[broker]#'\n\nx = 2",
        'name = { a = [ \']\', "\\"}",\n\n# ]\n] }\n[broker]\nx = 2',
    ],
)
def test_the_line_is_that_of_the_key_whatever_stands_before_it(text: str) -> None:
    told = problems(text)
    [problem] = [each for each in told if "[broker] x" in each]
    assert problem.startswith("f.toml, line 6: [broker] x: unknown")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 3_000 + "]" * 3_000,
        "a = " + "{a = " * 3_000 + "1" + "}" * 3_000,
        ".".join(["a"] * 3_000) + " = 1",
    ],
)
def test_what_is_nested_too_deeply_is_told(text: str) -> None:
    [problem] = problems(text)
    assert problem == "f.toml: tables or arrays are nested too deeply to be read"


def test_a_number_of_very_many_digits_is_told() -> None:
    [problem] = problems(f"[broker]\nprefetch = {'9' * 5_000}\n")
    assert problem.startswith("f.toml: not TOML: Exceeds the limit")


def test_a_long_list_is_not_read_again_and_again() -> None:
    def calls(lines: int) -> int:
        """Return the number of calls to locate an error after a list of *lines* lines."""
        text = "[broker]\nhosts = [\n" + '"x",\n' * lines + "]\nwrong = 1"
        made = 0

        def count(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(count)
        try:
            problems(text)
        finally:
            sys.setprofile(None)
        return made

    assert calls(400) < 3 * calls(200)


@pytest.mark.parametrize("secret", ["checkers = 'SECRET'", "checkers = ['SECRET:SECRET']"])
def test_what_may_be_a_passcode_is_not_told(secret: str) -> None:
    told = problems(f"[auth]\n{secret}\n[store]\nurl = 'x:SECRET@'\n[broker]\nprefetch = 'SECRET'")
    assert len(told) == 3
    assert [each for each in told if "SECRET" in each.replace("kind 'SECRET'", "")] == []


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "missing"
    with pytest.raises(SettingsError) as caught:
        read_settings(path)
    assert caught.value.problems == [f"{path}: cannot be read: No such file or directory"]


def test_a_file_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes("# für".encode("latin-1"))
    with pytest.raises(SettingsError) as caught:
        read_settings(path)
    assert caught.value.problems == [f"{path}: not UTF-8. Save the file as UTF-8."]


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_text("[broker]\nprefetch = 7\n", encoding="utf-8-sig")
    assert read_settings(path).broker.prefetch == 7


def test_mistakes_of_a_file_are_told_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "stompkit.toml"
    path.write_text("[brokr]")
    with pytest.raises(SettingsError, match=f"{path}, line 1"):
        read_settings(path)


def test_an_endpoint_of_systemd_is_not_looked_into() -> None:
    text = '[[listen]]\nendpoint = "systemd:domain=INET:index=0"'
    assert parsed(text).endpoints == (Endpoint(endpoint="systemd:domain=INET:index=0"),)


# Printed settings.


def test_what_is_printed_of_the_defaults_gives_the_defaults() -> None:
    assert parsed(settings_text(Settings())) == Settings()


def test_what_is_printed_sets_nothing_that_is_the_default() -> None:
    lines = settings_text(Settings()).splitlines()
    assert {line for line in lines if line and not line.startswith("#")} == {
        f"[{name}]"
        for name in (
            "broker",
            "broker.limits",
            "broker.limits_before_login",
            "store",
            "high_availability",
            "auth",
            "auth.throttle",
            "log",
            "admin",
            "beanstalk",
        )
    }


def other(hint: Any, value: Any) -> Any:
    """Return another value of the same type."""
    hint = present(hint)
    if get_origin(hint) is not None and get_origin(hint) not in (Literal, tuple, dict):
        hint = get_args(hint)[0]
    if get_origin(hint) is Literal:
        return next(each for each in get_args(hint) if each != value)
    if list_item(hint) is not None:
        return (other(list_item(hint), None), *(value or ()))
    if get_origin(hint) is tuple:
        return tuple(each + 1 for each in value)
    if get_origin(hint) is dict:
        return {'a "b"': ("c", "d\n")}
    if issubclass(hint, Flag):
        return list(flag_names(hint).values())[2]
    if hint is bool:
        return not value
    if hint is str:
        return 'so"me\\thing \u00fc \x7f'
    return hint((value or 0) + 2)


def all_other(cls: type, base: object = None) -> Any:
    """Return a struct with other values than the defaults in all attributes."""
    values = {}
    for each in fields(cls):
        default = each.default if base is None else getattr(base, each.attribute)
        default = None if default is REQUIRED else default
        single, several = table_of(each.hint), tables_of(each.hint)
        if single is not None:
            values[each.attribute] = all_other(single, default)
        elif several is not None:
            values[each.attribute] = (all_other(several), all_other(several))
        else:
            values[each.attribute] = other(each.hint, default)
    return cls(**values)


def test_what_is_printed_says_every_setting_that_is_another() -> None:
    made: Settings = all_other(Settings)
    settings = structs.replace(made, broker=made.broker.changed(destinations=()))
    document = parse(settings_text(settings), "printed")
    # These values contradict each other, so only parsing is tested.
    assert Decoder(document, owners={}, elsewhere={}).table(Settings) == settings
    assert document.problems == []


def test_what_is_printed_of_several_tables_says_their_meaning_once() -> None:
    text = settings_text(parsed('[[listen]]\nendpoint = "tcp:1"\n[[listen]]\nendpoint = "tcp:2"'))
    assert text.count("Server endpoint description of Twisted") == 1
    assert '[[listen]]\nendpoint = "tcp:2"\n' in text


# Documentation.


def every_table() -> list[type]:
    """Return the classes of all tables."""

    def within(cls: type) -> list[type]:
        inner = [table_of(each.hint) or tables_of(each.hint) for each in fields(cls)]
        return [cls, *(table for each in inner if each is not None for table in within(each))]

    return within(Settings)[1:]


@pytest.mark.parametrize("cls", dict.fromkeys(every_table()))
def test_every_key_says_what_it_means(cls: type) -> None:
    inherited = Policy.__struct_fields__ if cls is DestinationConfig else ()
    for each in fields(cls):
        is_table = tables_of(each.hint) is not None
        assert each.text or is_table or each.attribute in inherited, f"{cls.__name__}.{each.name}"


def test_the_reference_is_that_of_the_structs(capsys: pytest.CaptureFixture[str]) -> None:
    main: Callable[[list[str]], int] = runpy.run_path(str(DOCS / "make_configuration.py"))["main"]
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_a_reference_that_is_not_of_the_structs_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main: Callable[[list[str]], int] = runpy.run_path(str(DOCS / "make_configuration.py"))["main"]
    assert main(["--check", "--into", str(tmp_path)]) == 1
    assert main(["--into", str(tmp_path)]) == 0
    assert main(["--check", "--into", str(tmp_path)]) == 0
    page = tmp_path / "configuration.rst"
    page.write_text(page.read_text().replace("octets", "bytes"))
    assert main(["--check", "--into", str(tmp_path)]) == 1
    assert "make_configuration.py" in capsys.readouterr().err


def test_the_example_is_right(tmp_path: Path) -> None:
    text = (DOCS / "examples" / "stompkit.toml").read_text(encoding="utf-8")
    (tmp_path / "users").write_text(f"alice:{hash_passcode('secret')}:ops\n")
    # The test has no certificate.
    text = text.replace("/etc/stompkit/users", str(tmp_path / "users"))
    endpoint = "stomps:61614:certificate=/etc/stompkit/broker.pem"
    settings = parsed(text.replace(endpoint, "tcp:61614"))
    assert endpoint in text
    assert settings.store.effective_kind == "lmdb"
