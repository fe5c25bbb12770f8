"""Imports of a broker, except for a reactor: brokers are forked afterwards."""

from __future__ import annotations

import sys

import twisted.application.twist._twist
import twisted.internet.epollreactor  # noqa: F401
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins

import stompkit.server.tap
import stompkit.testing.server.tap  # noqa: F401

list(getPlugins(IServiceMaker))
if "twisted.internet.reactor" in sys.modules:
    raise RuntimeError("a module has installed a reactor, which brokers would share")
