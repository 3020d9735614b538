"""Base maps that may be chosen: only those are compared, fitted, and taken before there is evidence."""

from __future__ import annotations

from typing import Any

import pytest

from stream_calib.calibration.configuration import RUNGS
from stream_calib.config import CANDIDATE_RUNGS, Config
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import variants
from stream_calib.refit.fit import fit_structure
from stream_calib.refit.forward_evidence import ForwardDay
from stream_calib.refit.settings import config_hash
from tests.unit.refit.test_certificate import evidence_of
from tests.unit.refit.world import SIGNATURES, config


def configured(**calibration: Any) -> Config:
    return Config.model_validate({"model": {"name": "m"}, "windows": {"horizon": "2h"}, "calibration": calibration})


def days(made: Config, losses: dict[str, float]) -> list[ForwardDay]:
    """Ten days of 1,000 rows; losses a row by variant, .5 for the others."""
    return [ForwardDay(day, 1_000, tuple(1_000 * losses.get(v.name, 0.5) for v in variants(made))) for day in range(10)]


def test_all_but_identity_by_default() -> None:
    assert (*CANDIDATE_RUNGS,) == RUNGS[1:]
    assert configured() == configured(rungs=list(reversed(CANDIDATE_RUNGS)))


def test_only_allowed_ones_are_compared() -> None:
    made = configured(rungs=["isotonic", "platt"])
    assert [(v.name, v.configuration.rung) for v in variants(made) if v.change in ("none", "rung")] == [
        ("full", "isotonic"),
        ("rung platt", "platt"),
    ]


def test_the_richest_is_taken_before_there_is_evidence_and_the_simplest_that_does_with_it() -> None:
    made = configured(rungs=["platt", "beta"])
    assert choose(variants(made), [], "h", made).configuration.rung == "beta"
    assert choose(variants(made), days(made, {"rung platt": 0.5}), "h", made).configuration.rung == "platt"
    assert choose(variants(made), days(made, {"rung platt": 0.6}), "h", made).configuration.rung == "beta"


def test_a_single_one_is_fitted() -> None:
    made = config()
    made = made.model_copy(update={"calibration": made.calibration.model_copy(update={"rungs": ["platt"]})})
    choice = choose(variants(made), [], "h", made)
    fit = fit_structure(evidence_of(made, 24, 200), choice, lambda _: SIGNATURES, made)
    assert fit.choices.rung == "platt"


def test_requests_name_what_is_allowed() -> None:
    hashes = [config_hash(configured(**given)) for given in ({}, {"rungs": list(CANDIDATE_RUNGS)}, {"rungs": ["girb"]})]
    assert hashes[0] == hashes[1] != hashes[2]


def test_one_must_be_allowed_and_identity_is_none_of_them() -> None:
    with pytest.raises(ValueError, match="at least 1 item"):
        configured(rungs=[])
    with pytest.raises(ValueError, match="'platt', 'beta', 'isotonic' or 'girb'"):
        configured(rungs=["identity"])
    with pytest.raises(ValueError, match="'girb' is there twice"):
        configured(rungs=["girb", "girb"])
