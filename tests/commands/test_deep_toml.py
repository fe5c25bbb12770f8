"""Files of settings that are too deep to parse: one sentence, without a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stompkit.bridge import BridgeError
from stompkit.bridge import load as load_bridge
from stompkit.server.operations import SettingsError, read_settings
from stompkit.spark.jobs.settings import PipelineError
from stompkit.spark.jobs.settings import load as load_pipeline
from stompkit.testing.proxy import FaultScript, FaultScriptError

READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "broker": (read_settings, SettingsError),
    "bridge": (load_bridge, BridgeError),
    "pipeline": (load_pipeline, PipelineError),
    "script": (FaultScript.load, FaultScriptError),
}


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 20_000 + "]" * 20_000, "a = " + "9" * 20_000, "a = \udcff", "a = {"],
    ids=["deep", "long", "no-text", "open"],
)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_can_not_be_read_is_told_by_its_name(
    reader: str, text: str, tmp_path: Path
) -> None:
    read, error = READERS[reader]
    path = tmp_path / "settings.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(error, match=r"settings\.toml"):
        read(path)
