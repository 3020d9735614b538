"""The board and the alert rules ask for metrics and labels that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from stream_calib.metrics import CATALOGUE
from tests.deploy.board import board, queries

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus/alerts.yml"
RUN_BOOK = Path(__file__).parents[2] / "docs/operations.md"

_EXPRESSIONS = {
    **{
        rule["alert"]: rule["expr"]
        for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    },
    **{f"board: {query.panel} {number}": query.expression for number, query in enumerate(queries("5m"))},
}
_LABELS = {name for metric in CATALOGUE for name in metric.labels} | {"instance", "le"}
_EXPORTED = {
    exported: set(metric.labels)
    for metric in CATALOGUE
    for exported in (
        [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind == "histogram"
        else [metric.name]
    )
}


@pytest.mark.parametrize("name", _EXPRESSIONS)
def test_metrics_and_labels_are_in_the_catalogue(name: str) -> None:
    expression = _EXPRESSIONS[name]
    used = re.findall(r"(stream_calib_\w+)(?:\{([^}]*)\})?", expression)
    assert used
    for metric, selector in used:
        assert metric in _EXPORTED, f"{metric} is exported by nobody"
        selected = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector))
        assert selected <= _EXPORTED[metric] | {"instance"}, f"{metric} has no such labels: {selected}"
    for labels in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in labels.split(",")} <= _LABELS, labels


def test_every_metric_of_trouble_is_watched() -> None:
    watched = " ".join(_EXPRESSIONS.values())
    unwatched = {name for name in _EXPORTED if re.search(rf"\b{name}\b", watched) is None}
    # What is there for a question that somebody has, not for a look every day.
    assert unwatched <= {
        "stream_calib_alerts_delivered_total",
        "stream_calib_http_request_seconds_count",
        "stream_calib_live_rejected_total",
        "stream_calib_live_rows_waiting",
        "stream_calib_live_rows_written_total",
        "stream_calib_http_request_seconds_sum",
        "stream_calib_records_written_total",
        "stream_calib_rows_applied_total",
        "stream_calib_score_oddities_total",
        "stream_calib_scores_not_counted_total",
        "stream_calib_score_tombstones_total",
        "stream_calib_snapshot_info",
        "stream_calib_state_call_seconds_count",
        "stream_calib_state_call_seconds_sum",
        "stream_calib_batch_records_bucket",
        "stream_calib_batch_stage_seconds_count",
        "stream_calib_batch_stage_seconds_sum",
        "stream_calib_refit_seconds_bucket",
    }


def test_each_alert_says_what_to_do() -> None:
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", RUN_BOOK.read_text(encoding="utf-8"), re.MULTILINE)
    }
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            page, _, anchor = rule["annotations"]["runbook"].partition("#")
            assert page == "docs/operations.md"
            assert anchor in anchors, f"{rule['alert']}: docs/operations.md has no section {anchor}"
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert {"summary", "description"} <= rule["annotations"].keys()


def test_the_board_is_laid_out() -> None:
    panels = board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"]), panel["title"]
    variables = {variable["name"] for variable in board()["templating"]["list"]}
    used = {
        name
        for panel in panels
        for target in panel.get("targets", [])
        for name in re.findall(r"\$(\w+)", target["expr"])
    }
    assert used - {"__rate_interval", "__range"} <= variables
