"""A broker is ready when it accepts every user and virtual host that it was configured with."""

from __future__ import annotations

import pytest

from stompkit.testing import LaunchConfig, launch
from stompkit.testing.client import StompClient
from stompkit.testing.launching import readiness
from stompkit.testing.launching.brokers import Access
from stompkit.testing.launching.launch import launch_with
from tests.effort import in_matrix
from tests.testing.launched import Scripted, require

#: Listens after the time in the second argument. Refuses as many CONNECTs with each virtual host as
#: the host's name says, and accepts later ones.
REFUSING = r"""
import collections, re, socket, sys, time
time.sleep(float(sys.argv[2]))
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
left = collections.defaultdict(int)
while True:
    connection, _ = server.accept()
    host = re.search(rb"host:(\w+?)(\d*)\n", connection.recv(4096))
    if host is None:
        continue
    left[host[1]] += 1
    if left[host[1]] > int(host[2] or 0):
        connection.sendall(b"CONNECTED\nversion:1.2\n\n\0")
    else:
        connection.sendall(b"ERROR\nmessage:Virtual host access denied\n\n\0")
"""


def test_every_configured_access_is_waited_for() -> None:
    """The next CONNECT of each is accepted at the first attempt."""
    accesses = tuple(Access(vhost, "me", "x") for vhost in ("now", "soon1", "later4"))
    launcher = Scripted(REFUSING, "0", accesses=accesses)
    with launch_with(launcher, LaunchConfig(name="refusing", vhost="own2")) as broker:
        for vhost in ("own2", "now", "soon1", "later4"):
            StompClient.connect(broker.host, broker.port, vhost=vhost).close()


def test_broker_that_starts_slowly_may_refuse_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, the users and virtual hosts also come later."""
    monkeypatch.setattr(readiness, "_REFUSED_S", 0.0)
    launcher = Scripted(REFUSING, "2")
    with launch_with(launcher, LaunchConfig(name="refusing", vhost="own3")) as broker:
        StompClient.connect(broker.host, broker.port, vhost="own3").close()


#: Accepts CONNECT at once, and says a second later that it has started.
HASTY = r"""
import socket, sys, threading
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
threading.Timer(1.0, print, ["Startup complete"], {"flush": True}).start()
while True:
    connection, _ = server.accept()
    connection.recv(4096)
    connection.sendall(b"CONNECTED\nversion:1.2\n\n\0")
"""


def test_start_is_waited_for_that_the_broker_logs() -> None:
    """The text in the log of an earlier start does not count."""
    launcher = Scripted(HASTY, started_text="Startup complete")
    with launch_with(launcher, LaunchConfig(name="hasty")) as broker:
        assert broker.log.count("Startup complete") == 1
        broker.kill()
        broker.restart()
        assert broker.log.count("Startup complete") == 2


@pytest.mark.parametrize("name", [in_matrix("rabbitmq"), in_matrix("rabbitmq:4")])
def test_rabbitmq_has_started(name: str) -> None:
    """RabbitMQ answers CONNECT before that, but sessions may hang until then."""
    # On a busy machine it starts slowly.
    config = LaunchConfig(name=require(name), start_timeout_s=180.0)
    with launch(config) as broker:
        assert broker.log.count("Server startup complete") == 1
        broker.kill()
        broker.restart()
        assert broker.log.count("Server startup complete") == 2
