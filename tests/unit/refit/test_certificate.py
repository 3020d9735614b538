from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import expit

from stream_calib.calibration.grid import CENTRE_LOG_ODDS
from stream_calib.calibration.groups import make_family
from stream_calib.calibration.labelled_cells import LabelledCells
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.multicalibration.audit import EVERYTHING, audit
from stream_calib.calibration.multicalibration.certificate import certify
from stream_calib.calibration.multicalibration.round_search import ServedCells
from stream_calib.config import Config
from stream_calib.refit.certificate import AuditedCells, audit_target, audited_cells, certify_parts, patch_parts
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import variants
from stream_calib.refit.configured_fit import fit_base
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import fit_structure
from stream_calib.refit.groups import family_rules
from stream_calib.refit.labelled import fit_data
from stream_calib.snapshot.fit_documents import PatchesDocument
from stream_calib.windows.cells import MaturedCells
from tests.unit.refit.world import FIRST_PANE, SIGNATURES, Rows, config


def evidence_of(made: Config, panes: int, rows: int) -> Evidence:
    rng = np.random.default_rng(8)
    evidence = Evidence(FIRST_PANE, made)
    for pane in range(panes):
        evidence.advance(FIRST_PANE + pane, Rows(rng, rows).cells()[1].pack())
    return evidence


def fitted(made: Config, evidence: Evidence) -> MapParts:
    return fit_structure(evidence, choose(variants(made), [], "", made), lambda _: SIGNATURES, made).parts


def test_roles_of_the_last_28_days_over_one_table() -> None:
    made = config()
    evidence = evidence_of(made, 24 * 30, 10)
    fit = fit_data(evidence.counts.cells(), lambda _: SIGNATURES).cells
    audited = audited_cells(fit, evidence, (), lambda _: SIGNATURES, made)
    assert audited.certificate.signatures is audited.fit.signatures
    assert len(audited.audits) == 2
    trailing = MaturedCells.merge([p.cells for p in evidence.audited_panes])
    assert len(evidence.audited_panes) == 24 * 28
    for bucket, cells in zip((12, 13), audited.audits, strict=True):
        assert cells.labelled.sum() == trailing.labelled[trailing.unit_bucket == bucket].sum()
    assert audited.certificate.labelled.sum() == trailing.labelled[trailing.unit_bucket >= 14].sum()


def test_patches_need_rows_enough_to_be_confirmed() -> None:
    made = config()
    evidence = evidence_of(made, 48, 100)
    parts = fitted(made, evidence)
    fit = fit_data(evidence.counts.cells(), lambda _: SIGNATURES).cells
    audited = audited_cells(fit, evidence, (), lambda _: SIGNATURES, made)
    families = [make_family(rule, audited.fit.signatures) for rule in family_rules(made)]
    certificate = certify_parts(parts, audited, families, made)
    patched, tried = patch_parts(parts, audited, families, made)
    assert patched is parts
    assert tried.outcome == "too_few_rows"
    assert tried.rows == min(cells.labelled.sum() for cells in audited.audits)
    assert tried.rows_needed is not None
    # 1.8 z^2 / gamma x the mean of f (1 - f) / alpha^2, which lies between these.
    assert 1.8 * 2.33**2 / 0.01 * 0.05 / 0.1**2 < tried.rows_needed < 1.8 * 2.33**2 / 0.01 * 0.25 / 0.02**2
    assert not certificate.certified
    assert certificate.alpha is not None
    assert certificate.smallest_detectable_alpha is not None
    assert certificate.alpha >= certificate.smallest_detectable_alpha > 0.05


def test_with_many_rows_a_right_map_is_claimed_to_be_nearly_right() -> None:
    made = config()
    evidence = evidence_of(made, 24, 20_000)
    few = fit_structure(evidence_of(made, 24, 500), choose(variants(made), [], "", made), lambda _: SIGNATURES, made)
    many = fit_structure(evidence, choose(variants(made), [], "", made), lambda _: SIGNATURES, made)
    assert few.certificate.alpha is not None
    assert many.certificate.alpha is not None
    assert many.certificate.alpha < 0.12
    assert many.certificate.alpha < few.certificate.alpha / 2
    worst = many.certificate.worst
    assert worst is not None
    assert abs(worst.residual) < worst.half_width


@dataclass(frozen=True, slots=True)
class Bent:
    """Labelled cells of one signature with exactly the expected positives, but for residuals in the places given."""

    places: tuple[int, ...]
    residuals: tuple[float, ...]

    def cells(self, rows: float) -> LabelledCells:
        grid_bin = np.arange(20, 380, 3)
        rate = expit(CENTRE_LOG_ODDS[grid_bin])
        for place, residual in zip(self.places, self.residuals, strict=True):
            rate[place] += residual
        labelled = np.full(len(grid_bin), rows)
        return LabelledCells((("north",),), np.zeros(len(grid_bin), np.intp), grid_bin, labelled, labelled * rate)


def test_the_deciding_cell_is_the_one_whose_bound_is_alpha() -> None:
    """Tolerances differ by interval: what is furthest beyond its own is not what alpha is claimed for."""
    made = configured(alpha_abs=0.001, alpha_rel=0.2)
    # One bin near p = .01, whose tolerance is small, and one near .65.
    cells = Bent((22, 66), (0.02, -0.1)).cells(20_000)
    parts = MapParts(fit_base("identity", cells, made), ())
    audited = AuditedCells(cells, (cells, cells), cells, 1.0)
    found = certify_parts(parts, audited, [], made)
    raw = certify(
        audit(cells, ServedCells(parts).on(cells), [make_family(EVERYTHING, cells.signatures)], audit_target(made)),
        float(cells.labelled.sum()),
        audit(cells, ServedCells(parts).on(cells), [make_family(EVERYTHING, cells.signatures)], audit_target(made)),
        float(cells.labelled.sum()),
        audit_target(made),
        0.05,
    )
    first, bound = raw.interval[0], np.abs(raw.residual) + raw.half_width
    assert found.worst is not None
    assert found.worst.group == "all"
    assert found.worst.lower != raw.target.edges[first]
    assert abs(found.worst.residual) + found.worst.half_width == pytest.approx(bound.max())
    assert found.alpha == pytest.approx(bound.max())
    assert bound[0] < bound.max()


def configured(**calibration: float) -> Config:
    plain = config()
    return plain.model_copy(update={"calibration": plain.calibration.model_copy(update=calibration)})


def test_the_settings_of_the_audits_reach_certificate_and_patches() -> None:
    made = configured(gamma=0.2, alpha_abs=0.3, alpha_rel=0.0, delta=0.01)
    evidence = evidence_of(made, 48, 100)
    parts = fitted(made, evidence)
    fit = fit_data(evidence.counts.cells(), lambda _: SIGNATURES).cells
    audited = audited_cells(fit, evidence, (), lambda _: SIGNATURES, made)
    families = [make_family(rule, audited.fit.signatures) for rule in family_rules(made)]
    _, tried = patch_parts(parts, audited, families, made)
    certificate = certify_parts(parts, audited, families, made)
    # So coarse a target can be looked at with few rows, and no residual is beyond it.
    assert (tried.outcome, certificate.gamma, certificate.delta) == ("none_due", 0.2, 0.01)
    strict = certify_parts(parts, audited, families, config())
    assert certificate.cells < strict.cells


def test_confirmed_and_unconfirmed_patches_are_told_apart() -> None:
    """A map that is right is offered no patches; a base map that knows nothing of groups is."""
    made = configured(gamma=0.02, alpha_abs=0.07, alpha_rel=0.0)
    evidence = evidence_of(made, 24, 20_000)
    fit = fit_data(evidence.counts.cells(), lambda _: SIGNATURES).cells
    audited = audited_cells(fit, evidence, (), lambda _: SIGNATURES, made)
    families = [make_family(rule, audited.fit.signatures) for rule in family_rules(made)]
    parts = fitted(made, evidence)
    without_groups = replace(parts, families=())
    patched, tried = patch_parts(without_groups, audited, families, made)
    assert (tried.outcome, len(patched.rounds) > 0) == ("confirmed", True)
    assert tried.rows is not None
    assert tried.rows_needed is not None
    assert tried.rows >= tried.rows_needed
    # The days of the audits follow the map without patches: what the fit's days suggest is not confirmed.
    served = ServedCells(without_groups)
    as_served = replace(
        audited, audits=tuple(replace(own, positives=own.labelled * served.on(own)) for own in audited.audits)
    )
    same, tried = patch_parts(without_groups, as_served, families, made)
    assert (tried.outcome, same.rounds) == ("not_confirmed", ())


def test_patches_do_not_undo_the_level() -> None:
    """In all groups alike the rate falls on the last day: the level sees it, the structure hardly, and the audits are
    of all days."""
    made = configured(gamma=0.02, alpha_abs=0.07, alpha_rel=0.0, level_half_life_ms=6 * 3_600_000)
    rng, evidence = np.random.default_rng(5), Evidence(FIRST_PANE, made)
    for pane in range(24 * 6):
        rows = Rows(rng, 5_000)
        if pane >= 24 * 5:
            rows.label[rng.random(5_000) < 0.4] = 0
        evidence.advance(FIRST_PANE + pane, rows.cells()[1].pack())
    choice = choose(variants(made), [], "", made)
    asked = replace(choice, document=choice.document.model_copy(update={"patches": True}))
    plain, patched = (fit_structure(evidence, each, lambda _: SIGNATURES, made) for each in (choice, asked))
    assert patched.choices.patches_tried is not None
    assert patched.choices.patches_tried.outcome == "none_due"
    assert plain.parts.level < -0.3
    assert patched.parts.level == plain.parts.level


def with_units() -> Config:
    plain = config()
    return plain.model_copy(update={"scores": plain.scores.model_copy(update={"unit": "customer"})})


def test_units_of_several_rows_claim_nothing() -> None:
    made = with_units()
    evidence = evidence_of(made, 48, 100)
    certificate = fit_structure(evidence, choose(variants(made), [], "", made), lambda _: SIGNATURES, made).certificate
    assert (certificate.status, certificate.alpha, certificate.smallest_detectable_alpha) == ("uncertified", None, None)


def test_units_of_several_rows_get_no_patches_and_the_snapshot_says_why() -> None:
    made = with_units()
    assert "patches" in {variant.name for variant in variants(config())}
    assert "patches" not in {variant.name for variant in variants(made)}
    evidence = evidence_of(made, 24, 100)
    choice = choose(variants(made), [], "", made)
    fit = fit_structure(evidence, choice, lambda _: SIGNATURES, made)
    assert fit.parts.rounds == ()
    assert not fit.choices.patches
    assert fit.choices.patches_tried == PatchesDocument(outcome="unit_sizes_unknown")
    plain = choose(variants(config()), [], "", config())
    assert plain.document.patches_tried is None
