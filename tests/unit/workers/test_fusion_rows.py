"""Outputs and labels as rows to fit fusion weights to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stream_calib.config import Config
from stream_calib.errors import ConfigurationError
from stream_calib.events.identity import fingerprints
from stream_calib.transport.port import Outgoing
from workers.fusion_rows import join, read_outcomes, read_served
from workers.replay_source import Item

T0 = 1_714_557_600_000
MEMBERS = ("a", "b")


def config(**sections: Any) -> Config:
    base: dict[str, Any] = {
        "models": [{"name": "a", "score": "a"}, {"name": "b", "score": "b"}],
        "scores": {"id": "deep.id"},
        "labels": {"id": "event_id", "time": {"path": "ts"}},
        "windows": {"horizon": "1d"},
    }
    return Config.model_validate({**base, **sections})


def items(*values: Any, time_ms: int | None = None) -> list[Item]:
    encoded = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return [Item(Outgoing("t", None, value), time_ms, 0, i + 1) for i, value in enumerate(encoded)]


def member(probability: Any, status: str = "calibrated", snapshot: Any = "s1") -> dict[str, Any]:
    return {"raw": 0.5, "calibrated": probability, "snapshot": snapshot, "status": status}


def output(event_id: Any, **members: Any) -> dict[str, Any]:
    return {"event_id": event_id, "stream_calib": members}


def label(event_id: Any, value: Any, later_ms: int = 0, **fields: Any) -> dict[str, Any]:
    return {"event_id": event_id, "label": value, "ts": T0 + later_ms, **fields}


def labels_of(*values: Any, **sections: Any) -> dict[int, int]:
    found = read_outcomes(items(*values), config(**sections), "fused")
    return dict(zip(found.fingerprint.tolist(), found.label.tolist(), strict=True))


def of(**labels: int) -> dict[int, int]:
    return dict(zip(fingerprints(labels).tolist(), labels.values(), strict=True))


# --- outputs ----------------------------------------------------------------------------------------------------


def test_a_member_counts_where_a_snapshot_of_its_own_made_it() -> None:
    served = read_served(
        items(
            output("1", a=member(0.25), b=member(0.5, snapshot="s2")),
            output("2", a=member(0.25, "identity", None), b=member(0.5, "previous_version")),
            output("3", b=member(1)),
            output("4", a=member(None, "rejected", None), b=member(0.0)),
            output("5", a=member(1.5), b=member(True)),
        ),
        config(),
        MEMBERS,
    )
    missing = np.nan
    expected = [[0.25, 0.5], [missing, missing], [missing, 1.0], [missing, 0.0], [missing, missing]]
    assert np.array_equal(served.probability, expected, equal_nan=True)
    assert served.fingerprint.tolist() == fingerprints("12345").tolist() == served.unit.tolist()
    assert served.snapshots == [{"s1"}, {"s1", "s2"}]
    assert served.unused == 0


def test_the_first_output_of_an_event_counts_and_what_is_none_is_left_out() -> None:
    served = read_served(
        items(
            output("2", a=member(0.2), b=member(0.2)),
            output("1", a=member(0.1), b=member(0.1)),
            output("2", a=member(0.9), b=member(0.9)),
            b"{nope",
            {"event_id": "3"},
            {"event_id": "4", "stream_calib": "text"},
            output(None, a=member(0.5)),
            output(5.5, a=member(0.5)),
        ),
        config(),
        MEMBERS,
    )
    assert served.probability.tolist() == [[0.2, 0.2], [0.1, 0.1]]
    assert served.unused == 6


def test_enriched_outputs_have_the_id_and_the_unit_where_the_users_have_them() -> None:
    settings = config(serving={"output": "enrich"}, scores={"id": "deep.id", "unit": "who"})
    enriched = [
        {"deep": {"id": i}, "who": who, "stream_calib": {"a": member(0.1)}}
        for i, who in ((7, "x"), (8, "x"), (9, None))
    ]
    served = read_served(items(*enriched), settings, MEMBERS)
    assert served.fingerprint.tolist() == fingerprints("789").tolist()
    assert served.unit.tolist() == fingerprints("xx9").tolist()


def test_records_of_another_form_are_refused() -> None:
    compact = items(output("1", a=member(0.5)))
    with pytest.raises(ConfigurationError, match=r'none of 1 records .* at deep.id \(serving.output = "enrich"\)'):
        read_served(compact, config(serving={"output": "enrich"}), MEMBERS)
    with pytest.raises(ConfigurationError, match="none of 0 records"):
        read_served([], config(), MEMBERS)


# --- labels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([label("e", 1)], {"e": 1}),
        ([label("e", 0, 5), label("e", 1)], {"e": 0}),
        ([label("e", 1), label("e", 0, 5)], {"e": 0}),
        ([label("e", 1), label("e", 0)], {"e": 0}),
        ([label("e", 0), label("e", 1)], {"e": 0}),
        ([label("e", None), label("e", 1)], {}),
        ([label("e", 1), label("e", None, 5)], {}),
        ([label("e", None), label("e", 1, 5)], {"e": 1}),
        ([label("f", 1), label("e", 0), label("g", None)], {"e": 0, "f": 1}),
        ([], {}),
    ],
)
def test_the_newest_label_counts_as_in_the_join(labels: list[dict[str, Any]], expected: dict[str, int]) -> None:
    assert labels_of(*labels) == of(**expected)


def test_a_tombstone_withdraws_what_came_before_it() -> None:
    tombstone = Item(Outgoing("t", b"e", None), T0 + 10, 0, 2)
    before, after = (Item(Outgoing("t", None, json.dumps(label("e", 1, ms)).encode()), None, 0, 1) for ms in (5, 15))
    assert len(read_outcomes([before, tombstone], config(), "fused").label) == 0
    assert read_outcomes([before, tombstone, after], config(), "fused").label.tolist() == [1]


def test_without_times_the_last_line_counts() -> None:
    found = read_outcomes(items(label("e", 1), label("e", 0), label("f", 0), label("f", 1)), config(labels={}), "f")
    assert dict(zip(found.fingerprint.tolist(), found.label.tolist(), strict=True)) == of(e=0, f=1)


def test_labels_of_other_models_are_left_out() -> None:
    named = [label("e", 1, m="a"), label("f", 1, m="fused"), label("g", 0), label("f", 0, 5, m="b")]
    sections = {"labels": {"time": {"path": "ts"}, "model": "m"}}
    assert labels_of(*named, **sections) == of(f=1, g=0)


def test_bad_labels_are_counted() -> None:
    found = read_outcomes(items(label("e", "yes"), b"{", label("f", 1)), config(), "fused")
    assert (found.rejected, len(found.label)) == (2, 1)


# --- both -------------------------------------------------------------------------------------------------------


def test_events_with_both_are_joined_in_the_order_of_their_outputs() -> None:
    served = read_served(items(*(output(i, a=member(0.1), b=member(0.2)) for i in "31524")), config(), MEMBERS)
    outcomes = read_outcomes(items(label("1", 1), label("9", 1), label("3", 0), label("4", 1)), config(), "fused")
    joined = join(served, outcomes)
    assert joined.label.tolist() == [0, 1, 1]
    assert joined.unit.tolist() == fingerprints("314").tolist()
    assert joined.probability.tolist() == [[0.1, 0.2]] * 3


def test_without_labels_nothing_is_joined() -> None:
    served = read_served(items(output("1", a=member(0.1), b=member(0.2))), config(), MEMBERS)
    joined = join(served, read_outcomes([], config(), "fused"))
    assert (joined.probability.shape, len(joined.label), len(joined.unit)) == ((0, 2), 0, 0)
