"""The metrics: described, bounded, and in the reference page."""

from __future__ import annotations

from pathlib import Path

from stream_calib import metrics
from stream_calib.metrics_reference import markdown

ROOT = Path(__file__).parents[2]
BOUNDED = {
    "version",
    "role",
    "server",
    "stage",
    "topic",
    "partition",
    "outcome",
    "hook",
    "reason",
    "record",
    "model",
    "status",
    "side",
    "state",
    "kind",
    "code",
    "script",
    "route",
}


def test_the_page_in_the_repository_is_up_to_date() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert page == markdown(), "run `make docs` and commit docs/metrics.md"


def test_every_metric_is_named_as_prometheus_wants_it_and_its_labels_are_bounded() -> None:
    for metric in metrics.CATALOGUE:
        assert metric.name.startswith("stream_calib_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert set(metric.labels) <= BOUNDED, f"{metric.name}: is a new label bounded? Then add it here"
        assert metric.meaning
        assert metric.set_by


def test_every_metric_is_set_somewhere() -> None:
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("stream_calib", "workers")
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    names = [name for name in vars(metrics) if name.isupper() and name != "CATALOGUE" and not name.startswith("_")]
    assert len(names) == len(metrics.CATALOGUE)
    assert [name for name in names if f"metrics.{name}" not in sources] == []
