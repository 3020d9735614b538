"""A whole refit as the service makes it, from the cells of the synthetic world's rows: fit, audits, certificate, gate.

The rows lie in seven panes of a day, so that each of them is used by its role: fit, audit, certificate or gate. The
fit has offsets of all attributes and pairs, slopes of contents, and rounds of patches where audits confirm them. Timed
apart are taking the panes in, which the service does as they mature, and a day's forward evidence.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.calibration_quality import Trial
from benchmarks.synthetic_world import ATTRIBUTES, SIGNATURES, Sample
from stream_calib.calibration import ServedMap
from stream_calib.calibration.grid import locate
from stream_calib.config import Config
from stream_calib.events.identity import signature_hash
from stream_calib.refit.choice import Choice
from stream_calib.refit.configurations import full_configuration
from stream_calib.refit.evidence import Evidence
from stream_calib.refit.fit import StructureFit, fit_structure
from stream_calib.refit.forward_evidence import ForwardEvidence
from stream_calib.refit.gate import judge_candidate
from stream_calib.refit.gate_evidence import JudgedMap, gate_cells, gate_window
from stream_calib.snapshot.compiled import map_document, map_parts
from stream_calib.snapshot.fit_documents import ChoicesDocument
from stream_calib.snapshot.report import GateReport
from stream_calib.windows.cells import MaturedCells

PANES = 7
REPEATS = 3
FIRST_PANE = 20_000
UNIT_BUCKETS = 20
CONFIG = Config.model_validate(
    {
        "model": {"name": "benchmark"},
        "scores": {
            "attributes": {name: name for name in ATTRIBUTES},
            "intersections": [["country", "content"], ["country", "device"], ["content", "device"]],
        },
        "windows": {"pane": "24h", "horizon": "24h"},
    }
)
HASHES = np.array([signature_hash(signature) for signature in SIGNATURES], dtype=np.uint64)
_VALUES = dict(zip(HASHES.tolist(), SIGNATURES, strict=True))


def signatures(hashes: object) -> dict[int, tuple[str, ...]]:
    """The dictionary: here it has all of them."""
    return _VALUES


@dataclass(frozen=True, slots=True)
class Panes:
    """Matured panes of the rows, packed as the service keeps them."""

    blobs: tuple[bytes, ...]
    cells: int

    @classmethod
    def of(cls, sample: Sample, times: int) -> Panes:
        """Each row counts `times`."""
        random = np.random.default_rng(7)
        pane, bucket = random.integers(0, PANES, len(sample.score)), random.integers(0, UNIT_BUCKETS, len(sample.score))
        grid_bin, _ = locate(sample.score)
        blobs, cells = [], 0
        for number in range(PANES):
            own = pane == number
            made = MaturedCells.count(
                bucket[own].astype(np.uint8),
                HASHES[sample.signature[own]],
                grid_bin[own],
                sample.label[own].astype(np.int8),
            )
            cells += len(made.labelled)
            scaled = (column * times for column in (made.labelled, made.positives, made.unlabelled))
            blobs.append(MaturedCells(made.unit_bucket, made.signature, made.grid_bin, *scaled).pack())
        return cls(tuple(blobs), cells)

    def evidence(self) -> Evidence:
        """As a worker carries it."""
        evidence = Evidence(FIRST_PANE, CONFIG)
        for number, blob in enumerate(self.blobs):
            evidence.advance(FIRST_PANE + number, blob)
        return evidence


def chosen() -> Choice:
    """What forward evidence would choose on the world, were there days of it."""
    full = full_configuration(CONFIG)
    content = full.families[ATTRIBUTES.index("content")]
    configuration = full.with_slope(content)
    document = ChoicesDocument(
        rung=configuration.rung,
        families_off=(),
        slopes=(content.name,),
        patches=True,
        days=0,
        rows=0,
        figures=(),
        evidence_sha256="",
    )
    return Choice(configuration, (), document)


def refit(evidence: Evidence, choice: Choice, split: dict[str, float]) -> tuple[StructureFit, GateReport]:
    """From the evidence to the gate's report, as `Refitter` does it; seconds of both parts are put into `split`."""
    started = time.process_time()
    fit = fit_structure(evidence, choice, signatures, CONFIG)
    fitted = time.process_time()
    document = map_document(fit.parts)
    candidate = JudgedMap(ServedMap(map_parts(tuple(ATTRIBUTES), document, fit.parts.level)))
    cells = gate_cells(evidence, signatures, CONFIG, None, candidate)
    report = judge_candidate(cells, gate_window(evidence, "structure", None), CONFIG.refit)
    split["fit_audits_certificate"] = fitted - started
    split["gate"] = time.process_time() - fitted
    return fit, report


def measure_refit(trial: Trial, times: int, step: Callable[[str], None]) -> dict[str, float]:
    """Seconds of a refit and of its parts (medians), where each row of the trial counts `times`; RMSE of what it made.

    One refit goes before, which imports what is imported when it is needed.
    """
    step(f"world {trial.number}: refit from the cells of {times * len(trial.train.score):,} rows")
    panes = Panes.of(trial.train, times)
    started = time.process_time()
    evidence = panes.evidence()
    found = {"cells_taken_in": time.process_time() - started, "cells": float(panes.cells)}
    refit(evidence, chosen(), {})
    runs: list[dict[str, float]] = []
    for _ in range(REPEATS):
        split: dict[str, float] = {}
        fit, _ = refit(evidence, chosen(), split)
        runs.append({**split, "refit": sum(split.values())})
    found |= {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    served = ServedMap(fit.parts)
    found["rmse"] = trial.test.rmse(served.apply(trial.test.score, trial.test.signature, SIGNATURES))
    return found


def measure_forward(trial: Trial, step: Callable[[str], None]) -> float:
    """Seconds of one day of forward evidence: every configuration evaluated on the day and fitted anew."""
    step(f"world {trial.number}: a day of forward evidence")
    evidence, forward = Evidence(FIRST_PANE, CONFIG), ForwardEvidence(CONFIG, signatures)
    seconds = 0.0
    for number, blob in enumerate(Panes.of(trial.train, 1).blobs):
        evidence.advance(FIRST_PANE + number, blob)
        cells = evidence.counts.cells() if number >= PANES - 2 else None
        started = time.process_time()
        forward.end_day(evidence.last_day, evidence.day_panes, cells)
        seconds = time.process_time() - started
    return seconds
