"""Registration with kombu at import, and errors before any connection."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from kombu.connection import Connection
from kombu.transport import TRANSPORT_ALIASES

from stompkit.kombu import Channel, SecureTransport, Transport, register
from stompkit.kombu._tls import tls_context


def test_to_register_again_changes_nothing() -> None:
    before = dict(TRANSPORT_ALIASES)
    register()
    assert before == TRANSPORT_ALIASES
    assert Connection("stomp://localhost").transport_cls == "stomp"
    assert isinstance(Connection("stomp://localhost").transport, Transport)
    assert isinstance(Connection("stomps://localhost").transport, SecureTransport)
    assert Transport.Channel is Channel


def test_the_transport_needs_no_twisted() -> None:
    program = "import sys, stompkit.kombu; print('twisted' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr


def test_a_broker_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="stompkit, rabbitmq, activemq"):
        Connection("stomp://localhost", transport_options={"broker": "hornet"}).connect()


def test_ssl_options_are_checked_and_safe_by_default(tmp_path: Path) -> None:
    assert tls_context(True).verify_mode == ssl.CERT_REQUIRED
    assert tls_context(True).check_hostname
    assert tls_context({"cert_reqs": ssl.CERT_NONE}).verify_mode == ssl.CERT_NONE
    ready = ssl.create_default_context()
    assert tls_context({"context": ready}) is ready
    with pytest.raises(ValueError, match="ca_cert is not known"):
        tls_context({"ca_cert": "x"})


def test_no_passcode_is_shown() -> None:
    connection = Connection("stomp://me:secret@localhost:1//")
    assert "secret" not in repr(connection) + connection.as_uri()
    with pytest.raises(ConnectionError) as failed:
        connection.connect()
    assert "secret" not in str(failed.value)
