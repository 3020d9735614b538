"""The feed of files: what it gives an exact replay, and what it says of bad files."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from benchmarks import refits
from stream_calib.backtest.exact.replay import ExactReplay
from stream_calib.backtest.feed import FeedBatch
from stream_calib.backtest.files import reading
from stream_calib.backtest.files.feed import FileFeed
from stream_calib.config import Config
from stream_calib.config_file import tomllib
from stream_calib.demo.flights import load_flights
from stream_calib.errors import HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.served_models import Serving
from stream_calib.transport.port import OffsetRange, Record, TopicPartition
from stream_calib.windows.column_shards import ColumnShards
from stream_calib.windows.input_batch import judge_records
from stream_calib.windows.intake import concatenate_labels, concatenate_scores
from stream_calib.windows.panes import ENDED_CLOCK_MS, PaneSettings
from stream_calib.windows.read_inputs import ReadBlocks
from stream_calib.windows.shard_store import NEGATIVE_CODE, POSITIVE_CODE, WITHDRAWN_CODE, LabelRows, ScoreRows
from tests.unit.events.events_for_tests import T0, config, record
from workers.calibrate_transform import Transform

KEY = ModelKey("m", "1")
MINUTE, DAY = 60_000, 86_400_000


class Given(NamedTuple):
    """What a feed gave."""

    batches: list[FeedBatch]
    scores: ScoreRows
    labels: LabelRows
    signatures: dict[int, tuple[str, ...]]

    def of(self, side: str) -> list[FeedBatch]:
        return [batch for batch in self.batches if batch.input_key.startswith(side)]


def read(feed: FileFeed) -> Given:
    with feed:
        batches = list(feed.batches())
    rows = [batch.records.rows for batch in batches]
    signatures = {hashed: values for batch in batches for hashed, values in batch.signatures.items()}
    scores = concatenate_scores([one for one in rows if isinstance(one, ScoreRows)])
    return Given(batches, scores, concatenate_labels([one for one in rows if isinstance(one, LabelRows)]), signatures)


def scores_of(n: int = 6, **columns: Any) -> dict[str, Any]:
    times = [T0 + i * MINUTE for i in range(n)]
    return {"event_id": [f"e{i}" for i in range(n)], "ts": times, "score": [0.5] * n, **columns}


def labels_of(n: int = 6, **columns: Any) -> dict[str, Any]:
    times = [T0 + i * MINUTE + 1 for i in range(n)]
    return {"event_id": [f"e{i}" for i in range(n)], "ts": times, "label": [i % 2 for i in range(n)], **columns}


def as_parquet(path: Path, columns: dict[str, Any]) -> Path:
    parquet.write_table(pyarrow.table(columns), path)
    return path


def as_csv(columns: dict[str, Any], delimiter: str = ",") -> str:
    rows = [delimiter.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join([delimiter.join(columns), *rows]) + "\n"


def as_lines(columns: dict[str, Any]) -> str:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return as_parquet(tmp_path / "labels.parquet", labels_of())


def feed(scores: Path | Sequence[Path], labels: Path, settings: Config | None = None, **options: Any) -> FileFeed:
    paths = [scores] if isinstance(scores, Path) else scores
    return FileFeed(paths, [labels], config() if settings is None else settings, KEY, threads=1, **options)


# --- rows


def test_rows_are_those_that_calibrate_packs(tmp_path: Path, labels: Path) -> None:
    settings = config(
        scores={"attributes": {"a": "a", "b": "b"}, "unit": "who", "sample_rate": 0.7, "keep_rate": "rate"}
    )
    rng = np.random.default_rng(1)
    n = 500
    columns = scores_of(
        n,
        score=rng.random(n).tolist(),
        a=[["x", "y", "", None][i] for i in rng.integers(0, 4, n).tolist()],
        b=rng.integers(0, 3, n).tolist(),
        who=[f"w{i}" if i else None for i in rng.integers(0, 40, n).tolist()],
        rate=[[1.0, 0.5, None][i] for i in rng.integers(0, 3, n).tolist()],
    )
    path = as_parquet(tmp_path / "scores.parquet", columns)
    records = [record(value, i) for i, value in enumerate(map(json.loads, as_lines(columns).splitlines()))]
    transform = Transform(settings)
    decoded, batch = transform.decode(records)
    calibrated = transform.calibrate(batch, lambda key: Serving(None, "identity"))
    outputs = [out for out in transform.encode(records, decoded, calibrated) if out.topic == "blocks"]
    blocks = [Record(TopicPartition("blocks", 0), i, None, out.value, (), T0) for i, out in enumerate(outputs)]
    packed = ReadBlocks(blocks, OffsetRange(0, len(blocks)), None)

    found = read(feed(path, labels, settings))

    expected = packed.of(KEY).rows
    assert isinstance(expected, ScoreRows)
    assert 300 < len(expected) < 400
    for name in ("fingerprint", "event_time_ms", "score", "signature", "unit_bucket", "served"):
        assert getattr(found.scores, name).tolist() == getattr(expected, name).tolist(), name
        assert getattr(found.scores, name).dtype == getattr(expected, name).dtype, name
    assert found.scores.snapshots == expected.snapshots == ("",)
    assert found.signatures == packed.signatures(KEY)


def test_labels_have_codes_and_the_end_of_what_their_time_stands_for(tmp_path: Path) -> None:
    columns = labels_of(3, label=[None, False, True], ts=[date(2024, 5, 2), date(2024, 5, 3), date(2024, 5, 4)])
    labels = as_parquet(tmp_path / "labels.parquet", columns)
    scores = as_parquet(tmp_path / "scores.parquet", scores_of())

    found = read(feed(scores, labels, config(labels={"time_granularity": "1d"}))).labels

    assert found.code.tolist() == [WITHDRAWN_CODE, NEGATIVE_CODE, POSITIVE_CODE]
    midnight = int(datetime(2024, 5, 3, tzinfo=timezone.utc).timestamp() * 1_000)
    assert found.event_time_ms.tolist() == [midnight - 1, midnight + DAY - 1, midnight + 2 * DAY - 1]


@pytest.mark.parametrize("type_", ["s", "ms", "us", "ns", "zoned"])
def test_timestamps_are_times_whatever_the_unit(type_: str, tmp_path: Path, labels: Path) -> None:
    times = pyarrow.array([T0 + 123], type=pyarrow.timestamp("ms"))
    unit = "us" if type_ == "zoned" else type_
    times = times.cast(pyarrow.timestamp(unit, tz="America/New_York" if type_ == "zoned" else None), safe=False)
    path = as_parquet(tmp_path / "scores.parquet", {"event_id": ["a"], "ts": times, "score": [0.5]})

    found = read(feed(path, labels, config(scores={"time": {"path": "ts", "unit": "s"}})))

    assert found.scores.event_time_ms.tolist() == [T0 if type_ == "s" else T0 + 123]


# --- order, clocks, ends


def test_rows_of_all_files_come_in_the_order_of_their_times(tmp_path: Path, labels: Path) -> None:
    columns = scores_of(6)
    first = as_parquet(tmp_path / "s1.parquet", {k: [v[i] for i in (5, 0, 3)] for k, v in columns.items()})
    second = tmp_path / "s2.csv"
    second.write_text(as_csv({k: [v[i] for i in (4, 1)] for k, v in columns.items()}))
    third = tmp_path / "s3.jsonl"
    third.write_text(as_lines({k: v[2:3] for k, v in columns.items()}))

    found = read(feed([first, second, third], labels))

    assert found.scores.event_time_ms.tolist() == columns["ts"]
    assert read(feed([tmp_path / "s*.*"], labels)).scores.fingerprint.tolist() == found.scores.fingerprint.tolist()


def test_nothing_is_late_but_as_written_what_is_behind_its_file_is(tmp_path: Path, labels: Path) -> None:
    path = as_parquet(tmp_path / "scores.parquet", scores_of(3, ts=[T0, T0 + DAY, T0 + MINUTE]))

    def dropped(*, as_written: bool) -> int:
        given = read(feed(path, labels, as_written=as_written))
        (batch,) = given.of("s")
        judged = judge_records(batch.input_key, batch.records, None, 1, PaneSettings.of(config()))
        return len(judged.drop_kind)

    assert dropped(as_written=False) == 0
    assert dropped(as_written=True) == 1


def test_every_input_starts_without_a_clock_and_ends(tmp_path: Path, labels: Path) -> None:
    path = as_parquet(tmp_path / "scores.parquet", scores_of(2_500))
    with feed(path, labels) as opened:
        starts, start = opened.starts, opened.start

    given = read(feed(path, labels))

    assert start == "cold"
    assert sorted(key[0] for key in starts) == ["l", "s"]
    for key, mark in starts.items():
        of_input = [batch for batch in given.batches if batch.input_key == key]
        position, clock_ms = mark.next, mark.clock_ms
        assert (position, clock_ms) == (0, None)
        for batch in of_input:
            assert batch.records.start == position
            judged = judge_records(key, batch.records, clock_ms, 1, PaneSettings.of(config()))
            assert len(judged.drop_kind) == 0
            position, clock_ms = judged.mark.next, judged.mark.clock_ms
        assert clock_ms == ENDED_CLOCK_MS
        assert [(batch.records.clock_time_ms == ENDED_CLOCK_MS).any() for batch in of_input[:-1]] == [False] * (
            len(of_input) - 1
        )


def test_the_side_that_is_behind_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_calib.backtest.files.feed_order._PIECE_ROWS", 10)
    monkeypatch.setattr("stream_calib.backtest.files.feed_order._LEAST_PIECE_ROWS", 10)
    scores, labels = (as_parquet(tmp_path / f"{i}.parquet", made(100)) for i, made in enumerate((scores_of, labels_of)))

    given = read(feed(scores, labels))

    clocks, ahead = {"s": 0, "l": 0}, []
    for batch in given.batches:
        times = batch.records.rows.event_time_ms
        clocks[batch.input_key[0]] = int(times.max())
        ahead.append(abs(clocks["s"] - clocks["l"]))
    assert len(given.batches) == 20
    assert max(ahead[1:]) <= 10 * MINUTE


def test_scores_of_other_models_move_the_clock_and_nothing_else(tmp_path: Path, labels: Path) -> None:
    settings = config(model={"name_path": "of"})
    columns = scores_of(4, ts=[T0, T0 + DAY, T0 + 1, T0 + DAY], of=["m", "other", "m", "m"])
    path = as_parquet(tmp_path / "scores.parquet", columns)

    opened = feed(path, labels, settings, as_written=True)
    given = read(opened)

    (batch,) = given.of("s")
    judged = judge_records(batch.input_key, batch.records, None, 1, PaneSettings.of(settings))
    assert given.scores.event_time_ms.tolist() == [T0, T0 + 1, T0 + DAY]
    assert judged.scores.event_time_ms.tolist() == [T0, T0 + DAY]
    assert (opened.scores_report.accepted, opened.scores_report.other_models) == (3, 1)


def test_under_the_broker_clock_a_label_was_taken_at_its_own_time(tmp_path: Path) -> None:
    settings = config(labels={"clock": "broker"})
    scores = as_parquet(tmp_path / "scores.parquet", scores_of())
    times = [T0 + i * DAY for i in range(200)]
    labels = as_parquet(tmp_path / "labels.parquet", labels_of(200, ts=times))

    given = read(feed(scores, labels, settings))

    (batch,) = given.of("l")
    judged = judge_records(batch.input_key, batch.records, None, 1, PaneSettings.of(settings))
    assert judged.labels.event_time_ms.tolist() == times
    assert batch.records.append_time_ms[:-1].tolist() == times


def test_the_same_files_give_the_same_bytes(tmp_path: Path, labels: Path) -> None:
    path = as_parquet(
        tmp_path / "scores.parquet", scores_of(300, ts=np.random.default_rng(0).integers(T0, T0 + 99, 300))
    )
    first, second = read(feed(path, labels)), read(feed(path, labels))

    assert [batch.input_key for batch in first.batches] == [batch.input_key for batch in second.batches]
    assert first.scores.fingerprint.tobytes() == second.scores.fingerprint.tobytes()


def test_the_same_events_give_the_same_cells_whatever_the_kind_of_file(tmp_path: Path) -> None:
    settings = config(
        scores={"attributes": {"a": "a"}},
        windows={"shards": 2, "idle_timeout": "off", "max_clock_skew": "off", "pane": "1h"},
    )
    rng = np.random.default_rng(5)
    n = 600
    scores = scores_of(n, ts=(T0 + rng.integers(0, 3 * DAY, n)).tolist(), score=rng.random(n).tolist())
    scores |= {"a": [["x", "y"][i] for i in rng.integers(0, 2, n).tolist()]}
    scores["event_id"][100:150] = scores["event_id"][:50]
    labels = labels_of(n, ts=[time + 1 + DAY // 2 for time in scores["ts"]])

    def cells(scores_path: Path, labels_path: Path) -> tuple[list[Any], dict[str, int]]:
        with feed(scores_path, labels_path, settings) as opened:
            history = ExactReplay(opened, settings, KEY, ColumnShards(2, PaneSettings.of(settings))).run()
        assert history.start == "cold"
        return list(history.panes), dict(history.counts)

    found = [cells(as_parquet(tmp_path / "s.parquet", scores), as_parquet(tmp_path / "l.parquet", labels))]
    for kind, as_text in ((".csv", as_csv), (".ndjson", as_lines)):
        shuffled = rng.permutation(n).tolist()
        paths = tmp_path / f"s{kind}", tmp_path / f"l{kind}"
        for path, columns in zip(paths, (scores, labels), strict=True):
            path.write_text(as_text({name: [values[i] for i in shuffled] for name, values in columns.items()}))
        found.append(cells(*paths))

    panes, counts = found[0]
    assert found[1:] == [(panes, counts)] * 2
    assert len(panes) > 70
    assert counts["winners"] == counts["accepted"] == n
    assert counts["labelled"] > 500


# --- what becomes of rows


def test_what_is_refused_is_counted_with_some_examples(tmp_path: Path, labels: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(as_csv(scores_of(9, score=[0.5, "x", "NaN", 1e300, 0.5, "", 7, 8, 9])))

    opened = feed(path, labels)
    read(opened)

    assert opened.rejects == {"score_invalid": 2, "score_missing": 1, "score_out_of_range": 4}
    report = opened.scores_report
    assert (report.read, report.accepted, len(report.examples)) == (9, 2, 5)
    assert report.examples[0] == f"{path}, row 2: score_invalid: score is 'x'; a score is a JSON number"
    warning, *_ = opened.warnings()
    assert warning.startswith(
        "scores: 7 of 9 rows are left out: 4 score_out_of_range, 2 score_invalid, 1 score_missing"
    )


def test_days_without_a_row_are_named(tmp_path: Path, labels: Path) -> None:
    times = [T0 + day * DAY for day in (0, 1, 3, 7)]
    opened = feed(as_parquet(tmp_path / "scores.parquet", scores_of(4, ts=times)), labels)
    read(opened)

    assert opened.warnings() == ["scores: no row on 2024-05-03", "scores: no row on 2024-05-05 to 2024-05-07"]


def test_odd_values_are_counted(tmp_path: Path, labels: Path) -> None:
    settings = config(scores={"attributes": {"a": "a"}, "unit": "who", "max_value_bytes": 3})
    columns = scores_of(3, score=[1 + 1e-7, 0.5, 0.5], a=["long value", "ok", "ok"], who=["w", "", "w"])
    text = as_lines(columns)
    for path in (as_parquet(tmp_path / "s.parquet", columns), tmp_path / "s.ndjson"):
        if path.suffix == ".ndjson":
            path.write_text(text)
        opened = feed(path, labels, settings)
        read(opened)

        assert opened.scores_report.odd == {"score_clamped": 1, "attribute_dropped": 1, "unit_replaced": 1}


def test_not_a_number_is_a_missing_attribute_and_no_label(tmp_path: Path) -> None:
    scores = as_parquet(tmp_path / "s.parquet", scores_of(2, a=[float("nan"), 2.5]))
    labels = as_parquet(tmp_path / "l.parquet", labels_of(2, label=[float("nan"), 1.0]))
    opened = feed(scores, labels, config(scores={"attributes": {"a": "a"}}))

    given = read(opened)

    assert set(given.signatures.values()) == {("__missing__",), ("2.5",)}
    assert opened.rejects == {"label_invalid": 1}


def test_progress_reaches_all_rows(tmp_path: Path, labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BATCH_ROWS", 2_048)
    path = as_parquet(tmp_path / "scores.parquet", scores_of(9_000))
    heard: list[tuple[int, int]] = []
    with feed(path, labels, on_read=lambda done, total: heard.append((done, total))) as opened:
        seen = [opened.progress() for _ in opened.batches()]

    assert len(heard) == 6
    seen = [*heard, *seen]
    assert {total for _, total in seen} == {9_006}
    assert [read for read, _ in seen] == sorted(read for read, _ in seen)
    assert seen[-1] == (9_006, 9_006)


# --- kinds of files

PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("packing", ["", *PACKED])
@pytest.mark.parametrize("kind", [".csv", ".ndjson"])
def test_packed_files_are_read_and_cut_off_ones_refused(kind: str, packing: str, tmp_path: Path, labels: Path) -> None:
    columns = scores_of(3_000, score=np.random.default_rng(0).random(3_000).tolist())
    content = (as_csv(columns) if kind == ".csv" else as_lines(columns)).encode()
    packed = PACKED.get(packing, bytes)(content)
    path = tmp_path / f"scores{kind}{packing}"
    path.write_bytes(packed)

    assert read(feed(path, labels)).scores.score.tolist() == columns["score"]
    if packing:
        path.write_bytes(packed[: len(packed) - 6])
        with pytest.raises(HistoryError, match=str(path)):
            read(feed(path, labels))


@pytest.mark.parametrize("text", [as_csv(scores_of()), as_lines(scores_of())], ids=["csv", "ndjson"])
def test_standard_input_is_csv_or_ndjson(text: str, labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + text.encode())))

    opened = feed(Path("-"), labels)

    assert opened.source.startswith("scores of standard input, labels of ")
    assert len(read(opened).scores) == 6


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_delimiter_and_byte_order_mark_are_found(delimiter: str, tmp_path: Path, labels: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("\ufeff" + as_csv(scores_of(a=["x, y"] * 6), delimiter), encoding="utf-8")

    given = read(feed(path, labels, config(scores={"attributes": {"a": "a"}})))

    assert list(given.signatures.values()) == [("x, y",)]


CSV = as_csv(scores_of(40))
BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "empty": ("s.csv", b"", "is empty"),
    "empty Parquet": ("s.parquet", b"", "is empty"),
    "no rows": ("s.csv", CSV.splitlines()[0].encode(), "no row; scores are needed"),
    "missing column": ("s.csv", CSV.replace("score", "Score").encode(), "no column 'score'. Is 'Score' meant"),
    "a column twice": (
        "s.csv",
        as_csv(scores_of(a=[1] * 6)).replace("a\n", "score\n").encode(),
        "several columns 'score'",
    ),
    "short line": ("s.csv", (CSV + "e,1\n").encode(), "cannot be cut into the columns of its header"),
    "another encoding": ("s.csv", CSV.replace("e7", "é").encode("latin-1"), "not utf-8"),
    "half-written Parquet": ("s.parquet", b"PAR1" + bytes(500), "its writing was not finished"),
    "CSV named Parquet": ("s.parquet", CSV.encode(), "It is not Parquet"),
    "an array of objects": ("s.json", b"[" + as_lines(scores_of(1)).strip().encode() + b"]", "1 not_an_object"),
    "CSV named JSON": ("s.json", CSV.encode(), "41 not_json"),
    "of no kind": ("s.xlsx", b"PK", "of no kind that is read here"),
    "seconds": ("s.csv", as_csv(scores_of(ts=[T0 // 1_000] * 6)).encode(), "6 time_out_of_range"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused_in_words(case: str, tmp_path: Path, labels: Path) -> None:
    name, content, message = BAD_FILES[case]
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(HistoryError) as caught:
        read(feed(path, labels))

    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_damaged_parquet_is_refused_where_it_is_read(tmp_path: Path, labels: Path) -> None:
    path = as_parquet(tmp_path / "s.parquet", scores_of(50_000, score=np.random.default_rng(0).random(50_000)))
    content = bytearray(path.read_bytes())
    middle = slice(len(content) // 3, len(content) // 3 + 20_000)
    content[middle] = bytes(byte ^ 0x5A for byte in content[middle])
    path.write_bytes(content)

    with pytest.raises(HistoryError, match=r"s\.parquet"):
        read(feed(path, labels))


def test_a_line_with_other_cells_far_down_is_named(tmp_path: Path, labels: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(as_csv(scores_of(30_000)) + f"e,{T0}\n")

    with pytest.raises(HistoryError, match="Line: 30002 Original Line: e,1714557600000 Expected Number of Columns: 3"):
        read(feed(path, labels))


def test_labels_without_any_label_are_refused(tmp_path: Path) -> None:
    scores = as_parquet(tmp_path / "s.parquet", scores_of())
    labels = as_parquet(tmp_path / "l.parquet", labels_of(label=["yes"] * 6))

    with pytest.raises(HistoryError, match=r"of 6 rows none is a label: 6 label_invalid"):
        read(feed(scores, labels))


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing.parquet", "nothing.parquet: cannot be read"), ("*.parquet", "no file matches"), ("", "is a folder")],
)
def test_files_must_be_there(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=message):
        FileFeed([tmp_path / name], [tmp_path / name], config(), KEY)


def test_files_of_both_sides_are_needed(labels: Path) -> None:
    with pytest.raises(HistoryError, match="at least one of each"):
        FileFeed([labels], [], config(), KEY)


def test_times_of_the_log_and_fused_scores_are_not_in_files(labels: Path) -> None:
    with pytest.raises(HistoryError, match=r"scores\.time\.path is not set"):
        feed(labels, labels, config(scores={"time": {}}))
    with pytest.raises(HistoryError, match=r"the configuration has no score of m/1"):
        feed(labels, labels, config(model={"name": "other"}))
    members = [{"name": name, "score": name} for name in ("m", "n")]
    fused = config(models=members, fusion={"name": "both", "members": {"m": 0.5, "n": 0.5}})
    with pytest.raises(HistoryError, match="both/1 is fused of calibrated scores"):
        FileFeed([labels], [labels], fused, ModelKey("both", "1"))


@pytest.mark.parametrize("package", ["duckdb", "pyarrow"])
def test_lines_need_no_extra_and_columns_name_it(
    package: str, tmp_path: Path, labels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, made in (("s", scores_of), ("l", labels_of)):
        (tmp_path / f"{name}.jsonl").write_text(as_lines(made()))
    monkeypatch.setitem(sys.modules, package, None)

    assert len(read(feed(tmp_path / "s.jsonl", tmp_path / "l.jsonl")).scores) == 6
    with pytest.raises(HistoryError, match=r"pip install stream-calib\[files\]"):
        read(feed(tmp_path / "s.jsonl", labels))


def test_no_room_for_the_temporary_file_is_said(tmp_path: Path, labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = as_parquet(tmp_path / "s.parquet", scores_of())
    monkeypatch.setattr("stream_calib.backtest.files.feed_order.TimeOrder.add", full)

    with pytest.raises(HistoryError, match="No space left on device; give TMPDIR a folder with room"):
        read(feed(path, labels))


# --- flights


def test_flights_from_a_file_are_the_cells_that_the_live_run_is_compared_with(tmp_path: Path) -> None:
    """tests/integration/test_flights_month.py runs the same days through Kafka."""
    flights, settings = load_flights(), Config.model_validate(tomllib.loads(refits.CONFIG.read_text(encoding="utf-8")))
    days = flights.days()[:20]
    n, m = days[-1].scores.stop, days[-1].labels.stop
    names = {"carrier": flights.carriers, "origin": flights.origins, "dest": flights.dests}
    scores = {"event_id": flights.event_id[:n], "ts": flights.score_time_ms[:n], "score": flights.score[:n]}
    scores |= {name: np.array(texts)[getattr(flights, name)[:n]] for name, texts in names.items()}
    ids = [flights.event_id[row] for row in flights.label_row[:m].tolist()]
    labels = {"event_id": ids, "ts": flights.label_time_ms[:m], "label": flights.label[:m]}
    key = ModelKey("flights", "1")

    paths = [as_parquet(tmp_path / "s.parquet", scores)], [as_parquet(tmp_path / "l.parquet", labels)]
    with FileFeed(*paths, settings, key, threads=1) as opened:
        shards = ColumnShards(settings.windows.shards, PaneSettings.of(settings))
        found = ExactReplay(opened, settings, key, shards).run()

    expected = refits.history_of(settings, refits.Rows(flights, settings), found.last_pane)
    assert opened.warnings() == []
    panes = int(flights.score_time_ms[n]) // settings.windows.pane_ms - found.first_pane
    matured = panes - settings.windows.horizon_ms // settings.windows.pane_ms
    assert matured > 440
    assert found.first_pane == expected.first_pane
    assert list(found.panes)[:matured] == list(expected.panes)[:matured]
    assert [pane.scored for pane in found.panes[:panes]] == [pane.scored for pane in expected.panes[:panes]]
    assert found.signatures.items() <= expected.signatures.items()
