from __future__ import annotations

import pytest

from stream_calib.errors import DamagedSnapshotError
from stream_calib.refit.gate_evidence import judged
from stream_calib.snapshot.fit_documents import DerivedDocument
from stream_calib.snapshot.model import ResolvedSnapshot
from tests.unit.snapshot.documents import structure


def test_a_served_snapshot_with_derived_attributes_that_are_not_known_is_damage() -> None:
    document = structure(derived=DerivedDocument(names=("hour_of_day",), zone="Mars"))
    with pytest.raises(DamagedSnapshotError, match="derived attributes of snapshot 000001"):
        judged(ResolvedSnapshot("000001-0123456789ab", 1, "000001-0123456789ab", document, 0.0))
