"""What all loops of `serve.py` read: JSON scores of about 137 bytes, and a snapshot to calibrate them with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit, logit

from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.snapshot.map_documents import BaseMapDocument, FamilyDocument, OffsetDocument
from stream_calib.snapshot.model import ReferenceDocument, StructureSnapshot, version_of
from stream_calib.snapshot.report import GateReport
from stream_calib.windows.state_store import Commit, StateStore

MODEL = ModelKey("benchmark", "1")
ATTRIBUTES = ("carrier", "origin", "dest")
CARRIERS = tuple(f"C{i:02d}" for i in range(16))
ORIGINS = ("EWR", "JFK", "LGA")
DESTINATIONS = tuple(f"D{i:02d}" for i in range(100))

_KINDS = 10_000
"""Different records; ids differ in all."""


def score_records(first: int, count: int, start_ms: int) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of `count` scores from number `first` on; event times a millisecond apart from `start_ms`."""
    random = np.random.default_rng(first)
    score = np.round(random.beta(2, 5, _KINDS), 6).tolist()
    carrier = random.integers(0, len(CARRIERS), _KINDS).tolist()
    origin = random.integers(0, len(ORIGINS), _KINDS).tolist()
    destination = random.integers(0, len(DESTINATIONS), _KINDS).tolist()
    tails = [
        f'"score":{s},"carrier":"{CARRIERS[c]}","origin":"{ORIGINS[o]}","dest":"{DESTINATIONS[d]}","run":"nightly"}}'
        for s, c, o, d in zip(score, carrier, origin, destination, strict=True)
    ]
    for i in range(first, first + count):
        yield b"%d" % i, b'{"event_id":"event-%012d","ts":%d,%s' % (i, start_ms + i, tails[i % _KINDS].encode())


def configuration(bootstrap: str, redis_url: str, kind: str, prefix: str, **serving: Any) -> dict[str, Any]:
    """The raw configuration of a deployment that serves the scores: topics `<prefix>-scores` and so on."""
    names = ("scores", "labels", "calibrated", "blocks", "dead_letters", "alerts")
    return {
        "model": {"name": MODEL.model, "version": MODEL.version},
        "topics": {name: f"{prefix}-{name}" for name in names},
        "log": {"kind": kind, "bootstrap_servers": bootstrap, "group_prefix": prefix},
        "redis": {"url": redis_url},
        "scores": {
            "time": {"path": "ts"},
            "attributes": {name: name for name in ATTRIBUTES},
            "intersections": [["carrier", "origin"]],
        },
        "serving": {"clock_records": "off", **serving},
        "windows": {"horizon": "1h", "max_clock_skew": "off"},
    }


def publish_snapshot(state: StateStore) -> str:
    """Makes a snapshot current: a base map of 41 knots, offsets of all carriers, origins and pairs of them.

    It is written as a publication leaves it, without the refit that would come before it.
    """
    edges = np.linspace(-10, 10, 41)
    random = np.random.default_rng(7)

    def family(*attributes: str) -> FamilyDocument:
        values = {"carrier": CARRIERS, "origin": ORIGINS}
        groups: list[tuple[str, ...]] = [()]
        for attribute in attributes:
            groups = [(*group, value) for group in groups for value in values[attribute]]
        offsets = tuple(OffsetDocument(values=group, offset=float(random.normal(0, 0.2))) for group in groups)
        return FamilyDocument(attributes=attributes, offsets=offsets)

    snapshot = StructureSnapshot(
        model=MODEL.model,
        model_version=MODEL.version,
        sequence=1,
        parent=None,
        request_id="benchmark",
        first_pane=1,
        last_pane=2,
        cells_sha256="0" * 64,
        config_hash="0" * 16,
        pane_ms=3_600_000,
        attributes=ATTRIBUTES,
        base=BaseMapDocument(
            log_odds=tuple(edges.tolist()),
            value=tuple(expit(0.8 * edges - 0.3).tolist()),
            p_min=1e-6,
            strict_slope=1e-6,
        ),
        families=(family("carrier"), family("origin"), family("carrier", "origin")),
        level=0.1,
        p_min=1e-6,
        reference=ReferenceDocument(scored_per_pane=1.0, labelled_per_pane=1.0, psi_groups=()),
        roles={"fit": [0]},
        rows=1,
        positives=1,
        gate=GateReport(
            kind="structure",
            baseline=None,
            first_pane=1,
            last_pane=2,
            incomplete_panes=0,
            days=1,
            rows=1,
            positives=1,
            margin=0.02,
            role_overlap=0,
            passed=True,
        ),
    )
    encoded = canonical_json(snapshot.model_dump(mode="json"))
    version = version_of(snapshot.sequence, encoded)
    state.commit(Commit(blobs={f"snapshot:{version}": encoded}, fields={"current": version}))
    return version


def plain_map() -> tuple[list[float], list[float]]:
    """Scores and probabilities of a map without groups, for loops that interpolate."""
    score = np.linspace(0.001, 0.999, 200)
    return score.tolist(), expit(0.8 * logit(score) - 0.3).tolist()


def plain_map_json() -> str:
    return json.dumps(plain_map())
