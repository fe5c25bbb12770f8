"""The table of commands against the words of the specifications."""

from __future__ import annotations

import dataclasses

import pytest

from stompkit.frames import COMMANDS, Role, Version
from tests.frames.helpers import VERSIONS, requirement

#: By version: headers that each command requires; ``a|b`` means either. The session checks CONNECT.
REQUIRED: dict[Version, dict[str, str]] = {
    "1.0": {
        "CONNECT": "",
        "SEND": "destination",
        "SUBSCRIBE": "destination",
        "UNSUBSCRIBE": "destination|id",
        "BEGIN": "transaction",
        "COMMIT": "transaction",
        "ABORT": "transaction",
        "ACK": "message-id",
        "DISCONNECT": "",
        "CONNECTED": "session",
        "MESSAGE": "destination message-id",
        "RECEIPT": "receipt-id",
        "ERROR": "",
    },
    "1.1": {
        "CONNECT": "",
        "STOMP": "",
        "SEND": "destination",
        "SUBSCRIBE": "destination id",
        "UNSUBSCRIBE": "id",
        "BEGIN": "transaction",
        "COMMIT": "transaction",
        "ABORT": "transaction",
        "ACK": "message-id subscription",
        "NACK": "message-id subscription",
        "DISCONNECT": "",
        "CONNECTED": "version",
        "MESSAGE": "destination message-id subscription",
        "RECEIPT": "receipt-id",
        "ERROR": "",
    },
    "1.2": {
        "CONNECT": "",
        "STOMP": "",
        "SEND": "destination",
        "SUBSCRIBE": "destination id",
        "UNSUBSCRIBE": "id",
        "BEGIN": "transaction",
        "COMMIT": "transaction",
        "ABORT": "transaction",
        "ACK": "id",
        "NACK": "id",
        "DISCONNECT": "",
        "CONNECTED": "version",
        "MESSAGE": "destination message-id subscription",
        "RECEIPT": "receipt-id",
        "ERROR": "",
    },
}
SERVER_COMMANDS = {"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"}


@requirement("1.2/headers/send", "1.2/headers/subscribe", "1.2/headers/unsubscribe")
@requirement("1.2/headers/ack-nack", "1.2/headers/transactions", "1.2/headers/disconnect")
@requirement("1.2/headers/message", "1.2/headers/receipt", "1.2/headers/error")
@requirement("1.2/headers/connected", "1.0/connected/session-header")
@requirement("1.0/send/destination-required", "1.0/subscribe/destination-required")
@requirement("1.0/unsubscribe/destination-or-id-required", "1.0/ack/message-id-required")
@requirement("1.1/ack/message-id-required", "1.1/ack/subscription-required")
@requirement("1.1/nack/headers-like-ack", "1.2/nack/headers-like-ack")
@pytest.mark.parametrize("version", VERSIONS)
def test_headers_required_are_those_of_the_specification(version: Version) -> None:
    table = {
        row.name: " ".join("|".join(names) for names in row.required[version])
        for row in COMMANDS.values()
        if version in row.required
    }
    assert table == REQUIRED[version]


@requirement("1.0/bnf/client-command-set", "1.0/commands/allowed-after-connect")
@requirement("1.1/bnf/client-commands", "1.2/bnf/client-commands")
@requirement("1.1/client-frames/list", "1.2/client-frames/list")
@requirement("1.0/bnf/server-command-set", "1.0/server-frames/closed-set")
@requirement("1.1/bnf/server-commands", "1.2/bnf/server-commands")
@requirement("1.1/server-frames/closed-set", "1.2/server-frames/closed-set")
def test_the_server_sends_four_commands_and_the_client_all_others() -> None:
    by_sender = {role: {r.name for r in COMMANDS.values() if r.sender is role} for role in Role}
    assert by_sender[Role.SERVER] == SERVER_COMMANDS
    assert by_sender[Role.CLIENT] == REQUIRED["1.2"].keys() - SERVER_COMMANDS


@requirement("1.1/body/only-send-message-error", "1.2/body/only-send-message-error")
@requirement("1.1/body/others-must-not", "1.2/body/others-must-not")
def test_three_commands_may_have_a_body() -> None:
    with_body = {name for name, row in COMMANDS.items() if row.body}
    assert with_body == {"SEND", "MESSAGE", "ERROR"}


@requirement("1.1/connect/stomp-command")
def test_stomp_is_handled_as_connect() -> None:
    assert COMMANDS["STOMP"].handler == COMMANDS["CONNECT"].handler == "on_connect"


def test_every_other_command_has_a_handler_of_its_own() -> None:
    handlers = [row.handler for row in COMMANDS.values() if row.name != "STOMP"]
    assert len(set(handlers)) == len(handlers)
    assert all(handler.startswith("on_") and handler.isidentifier() for handler in handlers)


@requirement("1.0/bnf/commands-uppercase")
@requirement("1.1/frame/case-sensitive", "1.2/frame/case-sensitive")
def test_names_are_the_words_on_the_wire() -> None:
    assert all(name == row.name == name.upper() for name, row in COMMANDS.items())


def test_rows_are_values() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        COMMANDS["SEND"].body = False  # type: ignore[misc]
