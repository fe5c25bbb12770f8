"""The right of a broker to its data directory."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path
from typing import cast

import pytest
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock

from stompkit.server.process.activation import Owner, StartError
from stompkit.server.process.lock_activation import LockActivation


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_directory_of_another_user_needs_an_owner_that_is_named() -> None:
    """A backup that root has restored belongs to root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        activation = LockActivation(Path(name), None, cast("IReactorTime", Clock()))
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
        try:
            with pytest.raises(StartError) as raised:
                activation.start(cast("Owner", None))
        finally:
            os.seteuid(0)
        assert str(raised.value) == (
            f"cannot keep messages in {name}: Permission denied. It has to belong to nobody, the"
            f" user of the broker, with everything in it: chown -R nobody {name}"
        )
