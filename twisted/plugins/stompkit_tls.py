"""Makes ``stomps:`` endpoints, TLS with client certificates, known to Twisted."""

from importlib import import_module
from typing import Any

from twisted.internet.interfaces import IStreamServerEndpointStringParser
from twisted.plugin import IPlugin
from zope.interface import implementer


@implementer(IStreamServerEndpointStringParser, IPlugin)
class StompsParser:
    """``stomps:PORT:certificate=FILE:privateKey=FILE:clientCAs=FILE:clients=required``."""

    prefix = "stomps"

    def parseStreamServer(self, reactor: Any, *args: Any, **kwargs: Any) -> Any:
        """Make the endpoint; OpenSSL is imported when one is asked for."""
        module = import_module("stompkit.server.listen.tls_endpoint")
        return module.endpoint(reactor, *args, **kwargs)


stomps = StompsParser()
