"""A group of which too few scores have a label is left out of the map, and people are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_calib.calibration.grid import locate
from stream_calib.calibration.groups import family_rule, make_family
from stream_calib.calibration.maps.served_map import ServedMap
from stream_calib.config import Config
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import variants
from stream_calib.refit.decayed_counts import DecayedCounts
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import StructureFit, fit_structure
from stream_calib.refit.forward_evidence import ForwardEvidence
from stream_calib.refit.gate_evidence import JudgedMap, gate_cells
from stream_calib.refit.groups import fitted_rules
from stream_calib.refit.labelled import PaneCells
from stream_calib.refit.min_coverage import ALL_COVERED, uncovered_groups
from stream_calib.refit.settings import config_hash
from stream_calib.snapshot.compiled import map_document
from stream_calib.windows.cells import MaturedCells
from tests.unit.refit.test_group_coverage import FIRST_PANE, SIGNATURES, config_of, evidence_of, signatures
from workers.candidate_texts import coverage_rows

OF_A, OF_B = SIGNATURES
RULES = fitted_rules(config_of())


def asking(share: float, **scores: Any) -> Config:
    config = config_of(**scores)
    return config.model_copy(update={"calibration": config.calibration.model_copy(update={"min_coverage": share})})


def fitted(evidence: Evidence, config: Config) -> StructureFit:
    choice = choose(variants(config), [], "", config)
    configuration = choice.configuration.with_slope(RULES[0])
    asked = replace(choice, configuration=configuration, document=choice.document.model_copy(update={"patches": True}))
    return fit_structure(evidence, asked, signatures, config)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """A: all labelled. B: 5 % labelled."""
    return evidence_of(times=30, buckets=20)


def served(fit: StructureFit, group: str) -> list[float]:
    p = ServedMap(fit.parts).apply(np.array([0.3, 0.85, 0.95]), np.zeros(3, np.intp), [(group,)])
    return [float(x) for x in p]


def test_it_has_no_offset_slope_or_patch_and_is_named(evidence: Evidence) -> None:
    every, some = fitted(evidence, config_of()), fitted(evidence, asking(0.2))
    assert every.uncovered == ALL_COVERED
    assert [group.name for group in some.uncovered.groups] == ["group=B"]
    assert served(every, "B") != served(every, "never seen")
    assert served(some, "B") == served(some, "never seen")
    assert served(some, "A") != served(some, "never seen")
    ((about, text),) = coverage_rows((), some.uncovered.groups)
    assert about == "not fitted"
    assert text.startswith("group=B: 4.3% of ")


@pytest.mark.parametrize(("share", "left_out"), [(0.0, []), (0.04, []), (0.06, ["B"]), (1.0, ["B"])])
def test_the_share_is_of_scores_and_whole_coverage_is_enough(
    evidence: Evidence, share: float, left_out: list[str]
) -> None:
    found = uncovered_groups(evidence.counts.cells(), signatures, RULES, (), asking(share))
    assert [group.name for group in found.groups] == [f"group={name}" for name in left_out]
    keys = found.family(RULES[0], [("A",), ("B",)]).keys
    assert keys == tuple((name,) for name in ("A", "B") if name not in left_out)


def test_off_it_changes_no_byte_and_no_request(evidence: Evidence) -> None:
    """Neither does a share that every group has."""
    documents = [map_document(fitted(evidence, asking(share)).parts) for share in (0.0, 0.01)]
    assert documents[0] == documents[1] == map_document(fitted(evidence, config_of()).parts)
    assert config_hash(config_of()) == config_hash(asking(0.0)) != config_hash(asking(0.01))
    without = config_of().calibration.model_dump(mode="json")
    assert without.pop("min_coverage") == 0.0


def test_where_every_group_is_left_out_the_map_is_of_everything(evidence: Evidence) -> None:
    only_b = Evidence(FIRST_PANE, config_of())
    for pane in range(20):
        label = np.array([1, 0] * 30 + [-1] * 540, np.int8)
        cells = MaturedCells.count(
            (np.arange(600) % 20).astype(np.uint8),
            np.full(600, OF_B, np.uint64),
            locate(np.linspace(0.01, 0.99, 600))[0],
            label,
        )
        only_b.advance(FIRST_PANE + pane, cells.pack())
    fit = fitted(only_b, asking(0.2))
    assert served(fit, "B") == served(fit, "A")


def test_an_outage_does_not_count_against_a_group() -> None:
    def pane(label: int) -> MaturedCells:
        zeros = np.zeros(10, np.uint8)
        return MaturedCells.count(
            zeros, np.full(10, OF_A, np.uint64), zeros.astype(np.uint16), np.full(10, label, np.int8)
        )

    counts = DecayedCounts(10, 10)
    counts.advance(pane(1), complete=True)
    for _ in range(4):
        counts.advance(pane(-1), complete=False)
    cells = counts.cells()
    assert float(cells.labelled[0] / cells.winners[0]) < 0.2
    assert float(cells.labelled.sum()) == pytest.approx(float((cells.winners - cells.missing).sum()))
    assert uncovered_groups(cells, signatures, RULES, (), asking(0.99)) == ALL_COVERED
    assert counts.restored_from(counts.state()).cells().missing.tolist() == cells.missing.tolist()


def test_the_gate_does_not_call_it_harm_that_its_offset_is_gone(evidence: Evidence) -> None:
    config = asking(0.2)
    before, after = fitted(evidence, config_of()), fitted(evidence, config)
    maps = JudgedMap(ServedMap(before.parts)), JudgedMap(ServedMap(after.parts))
    judged = gate_cells(evidence, signatures, config, *maps, after.uncovered)
    assert [family.names for family in judged.families] == [["group=A"]]
    assert judged.labelled.sum() == gate_cells(evidence, signatures, config, *maps).labelled.sum()


def test_the_forward_evidence_judges_what_would_be_served(evidence: Evidence) -> None:
    """Of B alone, whose offset is what the families are worth: without it they are worth nothing."""
    pane = evidence.day_panes[-1]
    of_b = pane.cells.signature == OF_B
    cells = MaturedCells(*(getattr(pane.cells, name)[of_b] for name in MaturedCells.__slots__))
    worth = []
    for config in (config_of(), asking(0.2)):
        forward = ForwardEvidence(config, signatures)
        forward.end_day(0, (), evidence.counts.cells())
        forward.end_day(1, [PaneCells(pane.pane, True, 1, cells)], None)
        losses = dict(zip([v.name for v in forward.variants], forward.days[0].losses, strict=True))
        full, without = losses["full"], losses["family group"]
        assert full is not None
        assert without is not None
        worth.append(without - full)
    assert worth[0] > 1
    assert abs(worth[1]) < worth[0] / 4


def test_groups_that_are_left_out_are_in_none() -> None:
    family = make_family(family_rule(("x",), ("x",)), [("c",), ("a",), ("b",), ("__other__",), ("a",)])
    assert family.without([]) is family
    assert family.without([("z",)]) is family
    left = family.without([("b",), ("z",)])
    assert left.keys == (("a",), ("c",))
    assert left.group_of.tolist() == [1, 0, -1, -1, 0]
    assert family.without(family.keys).group_of.tolist() == [-1] * 5
