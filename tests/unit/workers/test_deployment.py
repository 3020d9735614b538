from __future__ import annotations

import pytest

from stream_calib.config import Config
from stream_calib.errors import StateUnavailableError, TransportError
from workers.deployment import open_log, open_state


@pytest.fixture
def config() -> Config:
    address = "redis://someone:hunter2@127.0.0.1:1/0"
    return Config.model_validate(
        {
            "model": {"name": "m"},
            "log": {"url": address},
            "redis": {"url": address},
            "windows": {"horizon": "24h"},
        }
    )


def test_a_server_that_is_away_is_named_without_its_password(config: Config) -> None:
    with pytest.raises(StateUnavailableError, match=r"redis://\*\*\*@127\.0\.0\.1:1/0") as state:
        open_state(config)
    with pytest.raises(TransportError, match=r"redis://\*\*\*@127\.0\.0\.1:1/0") as log:
        open_log(config)
    assert "hunter2" not in f"{state.value} {log.value}"
