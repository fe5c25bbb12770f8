"""Conformance of STOMP clients: the suite plays the server, one port for each case.

``python -m stompkit.conformance --exec 'CMD {host} {port} {case}'`` runs a client program against
each case; ``docs/howto/conformance-clients.rst`` specifies the program.  The names here are for
cases.
"""

from stompkit.conformance.clients.caller import Caller, Message
from stompkit.conformance.clients.case import client_case
from stompkit.conformance.clients.client import Client

__all__ = ["Caller", "Client", "Message", "client_case"]
