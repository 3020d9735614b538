from __future__ import annotations

import numpy as np

from stream_calib.calibration.groups import make_family
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.config import Config
from stream_calib.refit.certificate import audited_cells, certify_parts, patch_parts
from stream_calib.refit.choice import choose
from stream_calib.refit.configurations import variants
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import fit_structure
from stream_calib.refit.groups import family_rules
from stream_calib.refit.labelled import fit_data
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
    patched, certificate = patch_parts(parts, audited, families, made)
    assert patched is parts
    assert certificate == certify_parts(parts, audited, families, made)
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


def test_units_of_several_rows_claim_nothing() -> None:
    plain = config()
    made = plain.model_copy(update={"scores": plain.scores.model_copy(update={"unit": "customer"})})
    evidence = evidence_of(made, 48, 100)
    certificate = fit_structure(evidence, choose(variants(made), [], "", made), lambda _: SIGNATURES, made).certificate
    assert (certificate.certified, certificate.alpha, certificate.smallest_detectable_alpha) == (False, None, None)
