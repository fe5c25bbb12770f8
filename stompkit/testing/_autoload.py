"""The entry point that pytest loads, so that ``-p no:stompkit`` disables the plug-in.

The plug-in is registered under the name of its module. It is not registered twice if ``-p`` or
``pytest_plugins`` names that module, and ``-p no:stompkit.testing.plugin`` disables it, too.
"""

from __future__ import annotations

import pytest

_PLUGIN = "stompkit.testing.plugin"


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plug-in, unless it is loaded already or disabled."""
    pluginmanager.import_plugin(_PLUGIN)
