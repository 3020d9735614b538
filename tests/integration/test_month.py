"""A month of flights through four partitions, each role its own process."""

from __future__ import annotations

import pytest
from msgspec import structs

from stream_calib.config import Config
from tests.integration.expectation import (
    cells_of,
    check_blocks_name_their_snapshot,
    check_cells_and_classes,
    check_one_output_each,
    check_one_version_a_batch,
    check_reproduced,
)
from tests.integration.findings import Findings
from tests.windows.expectation import UNMATCHED

pytestmark = pytest.mark.services
Run = tuple[Findings, Config]


def test_every_score_has_exactly_one_output(month_run: Run) -> None:
    found, _ = month_run
    check_one_output_each(found)
    assert found.dead_letters == []


def test_cells_and_classes_are_the_oracles(month_run: Run) -> None:
    found, config = month_run
    expected = check_cells_and_classes(found, config)
    # So that the comparison means something: the stream has all that a historical one can have.
    kinds = (
        "scores_duplicate",
        "scores_late",
        "labels_matched",
        "labels_unmatched",
        "labels_late",
        "positives",
        "unlabelled",
    )
    assert all(expected.totals[kind] > 100 for kind in kinds), expected.totals
    assert int(found.fields["decided"] or -1) == expected.last_matured


def test_the_named_snapshot_reproduces_every_output(month_run: Run) -> None:
    found, config = month_run
    by_version = check_reproduced(found, config)
    assert len(found.versions) >= 5
    # The first outputs are marked as identity, and no version that was ever current served nothing.
    assert by_version[""] > 0
    assert set(by_version) - {""} <= set(found.versions)
    first = min(o.record.append_time_ms for o in found.outputs if o.served["snapshot"])
    assert all(o.record.append_time_ms <= first for o in found.outputs if o.served["status"] == "identity")


def test_no_batch_holds_two_versions(month_run: Run) -> None:
    found, _ = month_run
    check_blocks_name_their_snapshot(found)
    check_one_version_a_batch(found)


def test_two_runs_give_the_same_bytes(month_run: Run, wide_run: Run) -> None:
    """Also where the processes of one run are others than those of the other."""
    (one, _), (other, _) = month_run, wide_run
    assert len(one.versions) >= 5
    assert one.snapshots == other.snapshots
    assert one.decisions == other.decisions
    assert one.matured_blobs == other.matured_blobs
    assert one.outbox == other.outbox
    assert _records(one) == _records(other)


def test_cells_with_several_processes_of_each_role(month_run: Run, wide_run: Run) -> None:
    found, config = wide_run
    check_one_output_each(found)
    check_cells_and_classes(found, config)
    check_reproduced(found, config)
    check_blocks_name_their_snapshot(found)
    assert cells_of(found) == cells_of(month_run[0])


def _records(found: Findings) -> dict[int, dict[str, object]]:
    """Pane records without the places to start again from: topics have ids, and batches sizes, of their own. Why labels
    are unmatched is told as far as a shard knew when they came; how many of them is exact."""
    found_records = {}
    for pane, record in found.pane_records.items():
        counts = {kind: n for kind, n in record.counts.items() if kind not in UNMATCHED}
        unmatched = sum(record.counts.get(kind, 0) for kind in UNMATCHED)
        found_records[pane] = structs.asdict(structs.replace(record, entries={}, counts=counts)) | {"u": unmatched}
    return found_records
