"""The client as a program: host, port, and perhaps a switch."""

from __future__ import annotations

import sys

from tests.conformance.second_client.client import Client

if __name__ == "__main__":
    sys.exit(Client([(sys.argv[1], int(sys.argv[2]))], *sys.argv[3:]).run())
