"""What pytest loads by itself, so that ``-p no:stompkit`` is what keeps the plug-in out.

The plug-in has the name of its module: it is not registered twice where ``-p`` or
``pytest_plugins`` name that, and ``-p no:stompkit.testing.plugin`` keeps it out, too.
"""

from __future__ import annotations

import pytest

_PLUGIN = "stompkit.testing.plugin"


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plug-in, unless it is there or is not wanted."""
    pluginmanager.import_plugin(_PLUGIN)
