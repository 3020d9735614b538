from __future__ import annotations

import pytest

from stream_calib.errors import ConfigurationError
from stream_calib.events.contracts import ModelKey
from workers.cli_models import selected_key, selected_keys

A1, A2, B1 = ModelKey("a", "1"), ModelKey("a", "2"), ModelKey("b", "1")


@pytest.mark.parametrize(
    ("known", "model", "version", "found"),
    [
        ([A1], None, None, A1),
        ([A1, A2, B1], "b", None, B1),
        ([A1, A2, B1], None, "2", A2),
        ([A1, A2, B1], "a", "1", A1),
    ],
)
def test_the_only_one_that_fits(known: list[ModelKey], model: str | None, version: str | None, found: ModelKey) -> None:
    assert selected_key(known, model, version) == found


@pytest.mark.parametrize(
    ("known", "model", "version", "says"),
    [
        ([A1, A2, B1], None, None, "which one. There are a/1, a/2, b/1; say it with --model and --version"),
        ([A1, A2, B1], "a", None, "There are a/1, a/2;"),
        ([A1, A2, B1], "c", None, r"no model key is c/.any.; there are a/1, a/2, b/1"),
        ([A1], "a", "3", "no model key is a/3"),
        ([], None, None, "no model key yet"),
        ([], "a", None, "there are none yet"),
    ],
)
def test_none_or_several(known: list[ModelKey], model: str | None, version: str | None, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        selected_key(known, model, version)


def test_of_all_keys_those_that_fit() -> None:
    assert selected_keys([A1, A2, B1], None, None) == [A1, A2, B1]
    assert selected_keys([A1, A2, B1], None, "1") == [A1, B1]
    assert selected_keys([], None, None) == []
    with pytest.raises(ConfigurationError, match="no model key is"):
        selected_keys([A1], "b", None)
