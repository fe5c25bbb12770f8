"""Values that are kept out of the command line."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit._common.secrets import SecretError, first_line, mask, mask_url, resolve


@pytest.mark.parametrize("text", ["", "secret", "stomp://a:b@host", "environment:x", "postgresql:"])
def test_what_is_no_reference_stands_for_itself(text: str) -> None:
    assert resolve(text) == text


def test_a_variable_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_URL", " with blanks ")
    assert resolve("env:SOME_URL") == " with blanks "
    monkeypatch.delenv("SOME_URL")
    with pytest.raises(SecretError, match=r"^there is no SOME_URL in the environment$"):
        resolve("env:SOME_URL")


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\nmore\n"])
def test_the_first_line_of_a_file_is_read(tmp_path: Path, end: str) -> None:
    path = tmp_path / "url"
    path.write_bytes(f" ümläut {end}".encode())
    assert first_line(path) == " ümläut "
    assert resolve(f"file:{path}") == "ümläut"


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("stomp://host\n", encoding="utf-8-sig")
    assert first_line(path) == "stomp://host"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "url"
    with pytest.raises(SecretError, match=f"^{path}: No such file or directory$"):
        resolve(f"file:{path}")
    path.write_bytes(b"\xff")
    with pytest.raises(SecretError, match=f"^{path}: .*utf-8"):
        resolve(f"file:{path}")


@given(passcode=st.text(min_size=1).filter(str.strip))
def test_no_passcode_of_a_url_is_left_in_it(passcode: str) -> None:
    encoded = quote(passcode, safe="")
    url = f"stomp://host:61613/queue/a?password={encoded}&x=1"
    assert mask_url(url) == "stomp://host:61613/queue/a?password=***&x=1"
    assert mask_url(f"stomp://user:{encoded}@host/queue/a") == "stomp://user:***@host/queue/a"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot connect to db://me:word@host/x", "cannot connect to db://me:***@host/x"),
        ("db://me:word@host/y is away", "db://me:***@host/y is away"),
        ("password='word' is wrong", "password='***' is wrong"),
        # This ordinary word does not reveal that it is also the password.
        ("a word of a sentence", "a word of a sentence"),
    ],
)
def test_a_password_is_masked_where_it_stands_as_one(text: str, shown: str) -> None:
    assert mask(text, ["db://me:word@host/x"]) == shown


def test_what_can_be_no_word_is_masked_everywhere() -> None:
    assert mask("s3cr3t! and s3cr3t!", secrets=["s3cr3t!"]) == "*** and ***"
    assert mask("given", urls=[""], secrets=[""]) == "given"
