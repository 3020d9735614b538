"""What older versions wrote is read, or refused with the number of its format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stream_calib.alerts.delivery_record import given_up_of
from stream_calib.alerts.redelivery import redeliver
from stream_calib.config_file import load_config
from stream_calib.config_identity import semantic_hash
from stream_calib.errors import StateError, StateFormatError
from stream_calib.snapshot.store import SnapshotStore
from stream_calib.windows.registration import STATE_FORMAT
from tests.upgrade.acts import KEY, NOW_MS, read, state_of
from tests.upgrade.sample import SAMPLES, go_on, read_anew

pytestmark = pytest.mark.services

ALL = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())


def expected_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLES / name / "expected.json").read_text(encoding="utf-8"))
    return found


def facts(expected: dict[str, Any], *without: str) -> dict[str, Any]:
    return {name: value for name, value in expected.items() if name not in ("state_format", "semantic_hash", *without)}


def test_there_is_a_sample_of_this_format() -> None:
    assert STATE_FORMAT in {expected_of(name)["state_format"] for name in ALL}


@pytest.mark.parametrize("name", ALL)
def test_its_configuration_means_the_same(name: str) -> None:
    config = load_config(SAMPLES / name / "stream-calib.toml", {})
    assert semantic_hash(config) == expected_of(name)["semantic_hash"]


@pytest.mark.parametrize("name", ALL)
def test_its_state_goes_on_or_is_refused_by_its_number(name: str, redis_url: str) -> None:
    expected = expected_of(name)
    if expected["state_format"] != STATE_FORMAT:
        with pytest.raises(StateFormatError, match=f"format {expected['state_format']}"):
            go_on(SAMPLES / name, redis_url)
        return
    assert go_on(SAMPLES / name, redis_url) == facts(expected)


@pytest.mark.parametrize("name", ALL)
def test_its_log_is_read_anew(name: str, redis_url: str) -> None:
    found, expected = read_anew(SAMPLES / name, redis_url), expected_of(name)
    # When a refit comes, and so what is published, hangs on how fast the log is read.
    assert facts(found, "snapshot", "served") == facts(expected, "snapshot", "served")


@pytest.mark.parametrize("name", ALL)
def test_what_people_did_and_what_hooks_are_owed_is_read_and_goes_on(name: str) -> None:
    sample = json.loads((SAMPLES / name / "acts.json").read_text(encoding="utf-8"))
    state = state_of(sample)
    assert_holds(read(state), sample["read"], name)
    store = SnapshotStore(state, KEY, "g", 1_000, lambda: NOW_MS)
    store.unpin("bo", "audit is over")
    (held,) = store.log().held
    store.reject(held, "ann", "no")
    assert redeliver(state, "ops", lambda alert: True, NOW_MS).owed > 0
    assert (store.log().pin, store.log().held, given_up_of(state)[1]) == (None, {}, [])


def assert_holds(found: Any, expected: Any, where: str) -> None:
    """What is expected is there; a later version may know more of a record."""
    if isinstance(expected, dict):
        assert expected.keys() <= found.keys(), where
        for key, value in expected.items():
            assert_holds(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for n, value in enumerate(expected):
            assert_holds(found[n], value, f"{where}[{n}]")
    else:
        assert found == expected, where


def test_a_file_of_another_format_is_refused_with_its_number(tmp_path: Path, redis_url: str) -> None:
    folder = tmp_path / "later"
    shutil.copytree(SAMPLES / ALL[-1], folder)
    path = folder / "state.scs"
    path.write_bytes(b"stream-calib state 17\n" + path.read_bytes().partition(b"\n")[2])
    with pytest.raises(StateError, match="is of format 17, this version reads format 1"):
        go_on(folder, redis_url)
