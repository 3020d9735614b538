"""Without an engine the tests of docker compose say what is missing; they are never skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_calib.errors import StreamCalibError
from tests.compose.engine import engine
from tests.debian_packages import unpacked


def test_without_an_engine_and_means_to_get_one_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StreamCalibError, match=r"no Docker engine answers.*DOCKER_HOST"), engine():
        pass


def test_packages_that_cannot_be_had_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(StreamCalibError, match="prometheus: not found"):
        unpacked(["prometheus"], "bookworm")
