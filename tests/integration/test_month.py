"""A month of flights through four partitions, each role its own process."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from msgspec import structs

from stream_calib.backtest.exact.verify import Verification
from stream_calib.config import Config
from stream_calib.config_file import load_config
from tests.integration.expectation import (
    cells_of,
    check_blocks_name_their_snapshot,
    check_cells_and_classes,
    check_one_output_each,
    check_one_version_a_batch,
    check_reproduced,
)
from tests.integration.findings import Findings
from tests.integration.harness import Deployment, config_text
from tests.windows.expectation import UNMATCHED
from workers.backtest_verify import verify_live

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


# --- a backtest of the topics


@pytest.fixture(scope="module")
def month_verified(month_deployed: Deployment, month_run: Run) -> Verification:
    return verify_live(
        month_deployed.log, month_deployed.config, month_deployed.state.model_key, month_deployed.state.store
    )


def test_a_backtest_of_the_topics_is_the_live_run(month_verified: Verification, month_run: Run) -> None:
    """Cells, pane records, decisions, snapshots and alerts, byte for byte."""
    found, _ = month_run
    assert month_verified.differences == []
    assert month_verified.first_pane == min(found.matured)
    assert month_verified.matured == max(found.matured)
    assert month_verified.decided == int(found.fields["decided"] or -1)
    assert month_verified.entries == len(found.decisions)
    assert month_verified.snapshots == len(found.versions)
    assert month_verified.alerts == len(found.outbox)


def test_a_backtest_leaves_no_trace(month_deployed: Deployment, month_verified: Verification, tmp_path: Path) -> None:
    """Field case: a replay called hooks, and moved offsets and the state of the live service. And two backtests give
    the same bytes."""
    called = tmp_path / "called"
    hook = f'[[alerts.hooks]]\nname = "ops"\nkind = "command"\ncommand = ["touch", "{called}"]\n'
    path = month_deployed.write_config("hooks.toml", {}, config_text({}) + hook)
    config = load_config(path, month_deployed.environ)
    before = _everything(month_deployed)

    found = verify_live(month_deployed.log, config, month_deployed.state.model_key, month_deployed.state.store)

    assert _everything(month_deployed) == before
    assert found.encode() == month_verified.encode()
    assert found.alerts > 30
    assert not called.exists()


def test_a_backtest_of_several_processes_of_each_role(wide_deployed: Deployment, wide_run: Run) -> None:
    found = verify_live(
        wide_deployed.log, wide_deployed.config, wide_deployed.state.model_key, wide_deployed.state.store
    )
    assert found.differences == []


def _everything(deployed: Deployment) -> dict[bytes, bytes]:
    """Every key of the server: topics and committed positions, state and shards."""
    with redis.Redis.from_url(deployed.server.url) as client:
        names = sorted(client.scan_iter(count=1_000))
        pipeline = client.pipeline(transaction=False)
        for name in names:
            pipeline.dump(name)
        return dict(zip(names, pipeline.execute(), strict=True))


def _records(found: Findings) -> dict[int, dict[str, object]]:
    """Pane records without the places to start again from: topics have ids, and batches sizes, of their own. Why labels
    are unmatched is told as far as a shard knew when they came; how many of them is exact."""
    found_records = {}
    for pane, record in found.pane_records.items():
        counts = {kind: n for kind, n in record.counts.items() if kind not in UNMATCHED}
        unmatched = sum(record.counts.get(kind, 0) for kind in UNMATCHED)
        found_records[pane] = structs.asdict(structs.replace(record, entries={}, counts=counts)) | {"u": unmatched}
    return found_records
