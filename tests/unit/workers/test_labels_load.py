"""Files of labels: how they are read, the order in which they are written, what is refused."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from stream_calib.config import Config
from stream_calib.config_records import RecordsSection
from stream_calib.errors import ConfigurationError, TransportError
from stream_calib.events.control import is_control, read_clock
from stream_calib.transport.memory import MemoryLog
from stream_calib.transport.port import Outgoing, Record, TopicPartition
from workers import cli_labels, labels_load
from workers.cli import app
from workers.label_files import LabelFiles
from workers.labels_load import LabelsLoad

MAY_MS, NOW_MS, HOUR_MS = 1_714_521_600_000, 1_717_200_000_000, 3_600_000
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
ZSTANDARD = PACKERS[".zst"](b'{"event_id": "a", "label": 1, "at": 1714521600000}\n' * 9)


def config(**labels: Any) -> Config:
    return Config.model_validate(
        {"model": {"name": "m"}, "windows": {"horizon": "24h"}, "labels": {"time": {"path": "at"}} | labels}
    )


class Loading:
    """A labels topic of three partitions."""

    def __init__(self, configured: Config | None = None) -> None:
        self.config = configured or config()
        self.log = MemoryLog(now_ms=lambda: NOW_MS)
        self.log.create_topic("labels", 3)
        self.stop = threading.Event()

    def load(self, *paths: Path, dry_run: bool = False) -> LabelsLoad:
        work = LabelsLoad(self.config, LabelFiles(paths, self.config.labels), io.BytesIO(), lambda: NOW_MS, self.stop)
        assert work.read(lambda: None)
        if not dry_run:
            work.write(self.log, lambda: None)
        return work

    def partitions(self) -> list[list[Record]]:
        return [self.log.read(TopicPartition("labels", p), 0, 100_000) for p in range(3)]

    def labels(self) -> list[Record]:
        return [record for records in self.partitions() for record in records if not is_control(record)]


def lines(*rows: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


def row(number: int, at_ms: int) -> dict[str, Any]:
    return {"event_id": f"id-{number}", "label": number % 2, "at": at_ms}


@given(times=st.lists(st.integers(MAY_MS, NOW_MS), min_size=1, max_size=60), cut=st.integers(0, 60))
def test_each_partition_has_its_labels_in_the_order_of_their_times_whatever_the_files(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    rows = [row(i, at_ms) for i, at_ms in enumerate(times)]
    (folder / "a.ndjson").write_bytes(lines(*rows[:cut]))
    (folder / "b.jsonl").write_bytes(lines(*rows[cut:]))
    loading = Loading()
    loading.load(folder / "a.ndjson", folder / "b.jsonl")
    found = []
    for records in loading.partitions():
        *labels, last = records
        written = [json.loads(record.value or b"") for record in labels]
        assert [w["at"] for w in written] == sorted(w["at"] for w in written)
        assert [record.key for record in labels] == [w["event_id"].encode() for w in written]
        clock = read_clock(last, 0)
        assert (getattr(clock, "clock_ms", None), getattr(clock, "end", None)) == (max(times), False)
        found += written
    assert sorted(found, key=lambda w: w["event_id"]) == sorted(rows, key=lambda w: str(w["event_id"]))


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("kind", ["ndjson", "csv"])
def test_files_are_read_packed_or_not(tmp_path: Path, suffix: str, kind: str) -> None:
    rows = [row(i, MAY_MS + i) for i in range(2_000)]
    if kind == "csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, ["at", "event_id", "label", "note"])
        writer.writeheader()
        writer.writerows(r | {"note": 'two\nlines, "quoted"'} for r in rows)
        content = text.getvalue().encode()
    else:
        content = lines(*rows)
    path = tmp_path / f"labels.{kind}{suffix}"
    path.write_bytes(PACKERS[suffix](content))
    loading = Loading()
    state = loading.load(path).state
    assert (state.read, state.accepted, state.written, state.rejected) == (2_000, 2_000, 2_000, {})
    assert (state.first_ms, state.last_ms, state.clock_ms) == (MAY_MS, MAY_MS + 1_999, MAY_MS + 1_999)
    written = [json.loads(record.value or b"") for record in loading.labels()]
    assert {(w["event_id"], w["label"], w["at"]) for w in written} == {
        (r["event_id"], r["label"], r["at"]) for r in rows
    }


def test_cells_of_csv_have_the_type_that_their_column_needs(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(
        "\ufeffapp.id,outcome,at\n007,1,1714521600\n8,1.0,1714521601.5\n9,null,1714521602\nA,true,1714521603\n"
        "B,,1714521604\nC,yes,1714521605\n,1,1714521606\nD,0,soon\nE,01,1714521608\n",
        encoding="utf-8",
    )
    loading = Loading(config(id="app.id", label="outcome", time={"path": "at", "unit": "s"}))
    state = loading.load(path).state
    written = {record.key: json.loads(record.value or b"") for record in loading.labels()}
    assert written == {
        b"007": {"app.id": "007", "outcome": 1, "at": 1714521600},
        b"8": {"app.id": "8", "outcome": 1.0, "at": 1714521601.5},
        b"9": {"app.id": "9", "outcome": None, "at": 1714521602},
        b"A": {"app.id": "A", "outcome": True, "at": 1714521603},
    }
    assert state.rejected == {"label_missing": 1, "label_invalid": 2, "id_missing": 1, "time_invalid": 1}
    assert state.examples[1].startswith(f"{path}, line 7: outcome is ")


def test_what_is_no_label_is_counted_shown_with_its_line_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(lines(row(1, MAY_MS)) + b"\n\n{broken\n" + lines({"event_id": 7.0, "label": 1, "at": MAY_MS}))
    loading = Loading()
    state = loading.load(path).state
    assert (state.read, state.accepted, state.rejected) == (3, 1, {"not_json": 1, "id_invalid": 1})
    assert [example.split(": ")[0] for example in state.examples] == [f"{path}, line 3", f"{path}, line 4"]
    assert len(loading.labels()) == 1


def test_one_label_of_the_future_does_not_move_the_clocks(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(lines(row(1, MAY_MS), row(2, NOW_MS + HOUR_MS)))
    loading = Loading()
    state = loading.load(path).state
    assert (state.skewed, state.written, state.clock_ms) == (1, 2, MAY_MS)


@pytest.mark.parametrize("labels", [{"clock": "broker"}, {"time": {}}])
def test_where_the_log_dates_labels_the_clock_records_say_now(tmp_path: Path, labels: dict[str, Any]) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(lines(row(1, MAY_MS)))
    assert Loading(config(**labels)).load(path).state.clock_ms == NOW_MS


def test_dates_stand_for_the_end_of_their_day(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(lines({"event_id": "a", "label": 1, "at": "2024-05-01"}))
    loading = Loading(config(time={"path": "at", "unit": "iso8601"}, time_granularity="1d"))
    assert loading.load(path).state.clock_ms == MAY_MS + 24 * HOUR_MS - 1


def test_a_dry_run_and_a_file_without_labels_write_nothing(tmp_path: Path) -> None:
    good, empty = tmp_path / "good.json", tmp_path / "empty.csv"
    good.write_bytes(lines(row(1, MAY_MS)))
    empty.write_text("event_id,label,at\n")
    loading = Loading()
    assert loading.load(good, dry_run=True).state.accepted == 1
    assert loading.load(empty).state.clock_ms is None
    assert loading.partitions() == [[], [], []]


def test_a_byte_order_mark_is_no_part_of_the_first_label(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(b"\xef\xbb\xbf" + lines(row(1, MAY_MS)))
    assert Loading().load(path).state.rejected == {}


def test_frames_of_zstandard_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "labels.json.zst"
    path.write_bytes(ZSTANDARD * 3)
    assert Loading().load(path).state.accepted == 27


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_that_is_too_long_is_refused_and_the_next_one_read(tmp_path: Path, end: bytes) -> None:
    """What is held of it is no longer than what is refused."""
    most = 200
    labels = config().model_copy(update={"records": RecordsSection(max_record_bytes=most)})
    path = tmp_path / "labels.json"
    good = [lines(row(i, MAY_MS)).strip() for i in range(2)]
    padded = [good[0].ljust(most, b" ")[:-1] + b"}", b"x" * (most + 1), b"y" * (7 * most + 4), b" " * most + good[1]]
    path.write_bytes(end.join([good[0], *padded, good[1]]) if end else padded[2])
    files = LabelFiles([path], labels.labels)
    assert max(len(found.value) for found in files.rows(most)) == most + 1
    state = Loading(labels).load(path).state
    refused = 3 if end else 1
    assert state.rejected["too_large"] == refused
    assert [found.line for found in files.rows(most)] == list(range(1, 7 if end else 2))


def test_large_lines_are_taken_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels_load, "_CHUNK_BYTES", 150)
    path = tmp_path / "labels.json"
    path.write_bytes(lines(*(row(i, MAY_MS) for i in range(20))))
    seen: list[int] = []
    loading = Loading()
    work = LabelsLoad(
        loading.config, LabelFiles([path], loading.config.labels), io.BytesIO(), lambda: NOW_MS, loading.stop
    )
    assert work.read(lambda: seen.append(work.state.read))
    assert len(seen) > 4
    assert seen[-1] == 20


@pytest.mark.parametrize("place", ["label", "at"])
def test_a_cell_of_more_digits_than_python_reads_is_refused(tmp_path: Path, place: str) -> None:
    path = tmp_path / "labels.csv"
    cells = {"event_id": "a", "label": "1", "at": str(MAY_MS)} | {place: "9" * 5_000}
    path.write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    assert sum(Loading().load(path).state.rejected.values()) == 1


def test_a_large_integer_id_is_the_same_key_as_its_text(tmp_path: Path) -> None:
    number = 10**30 + 7
    path = tmp_path / "labels.json"
    path.write_bytes(b'{"event_id": %d, "label": 1, "at": %d}' % (number, MAY_MS))
    loading = Loading()
    loading.load(path)
    assert [record.key for record in loading.labels()] == [str(number).encode()]


def test_it_stops_where_it_is_told_to_and_writes_no_clock_then(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(lines(row(1, MAY_MS)))
    loading = Loading()
    work = loading.load(path, dry_run=True)
    loading.stop.set()
    assert not work.write(loading.log, lambda: None)
    assert loading.partitions() == [[], [], []]


def test_a_log_that_goes_away_is_an_error_without_clock_records(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(lines(row(1, MAY_MS)))
    loading = Loading()
    work = loading.load(path, dry_run=True)

    class Away(MemoryLog):
        def produce(self, outputs: Sequence[Outgoing]) -> None:
            raise TransportError("no log")

    with pytest.raises(TransportError, match="no log"):
        work.write(Away(), lambda: None)
    assert work.state.clock_ms is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("labels.orc", b"ORC", r"labels\.orc: of no kind that is read here; name it \.ndjson"),
        ("labels.parquet.gz", b"", r"labels\.parquet\.gz: of no kind .* or \.parquet, not packed"),
        ("labels.parquet", b"PAR1", r"labels\.parquet: cannot be read on after row 0: Parquet file size is 4 bytes"),
        ("labels.gz", b"", r"labels\.gz: of no kind that is read here"),
        ("labels.csv", b"event_id,at\n", r"its header line has no column 'label'; the columns are named as the paths"),
        ("labels.csv", b"label,at,event_id,at\n", r"its header line has several columns 'at'"),
        ("labels.csv", b"", r"its header line has no column 'event_id'"),
        ("labels.csv", b"event_id,label,at\na,1\n", r"labels\.csv, line 2: 2 cells under 3 columns; quote cells"),
        ("labels.csv", b'event_id,label,at\n"a,1,2\n', r"labels\.csv: cannot be read on after line 0: unexpected end"),
        ("labels.csv", b"event_id,label,at\n\xff,1,2\n", r"labels\.csv: cannot be read on after line 0: 'utf-8'"),
        (
            "labels.csv.gz",
            gzip.compress(b"event_id,label,at\n", mtime=0)[:-9],
            r"labels\.csv\.gz: cannot be read on after line",
        ),
        ("labels.json.zst", ZSTANDARD[:-1], r"labels\.json\.zst: cannot be read on after line .*ends within a frame"),
        ("labels.json.zst", b"no frame", r"labels\.json\.zst: cannot be read on after line 0"),
        ("labels.json.xz", b"no stream", r"labels\.json\.xz: cannot be read on after line 0"),
        ("labels.json.bz2", b"no stream", r"labels\.json\.bz2: cannot be read on after line 0"),
    ],
)
def test_files_that_cannot_be_read_say_so(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        Loading().load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.csv: cannot be read: No such file"):
        Loading().load(tmp_path / "gone.csv")


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_command_tells_what_it_did_and_ends_with_1_where_rows_were_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    loading = Loading()
    monkeypatch.setattr(cli_labels, "open_log", lambda config: loading.log)
    settings, path = tmp_path / "calib.toml", tmp_path / "labels.json"
    settings.write_text('[model]\nname = "m"\n[windows]\nhorizon = "24h"\n[labels.time]\npath = "at"\n')
    path.write_bytes(lines(row(1, MAY_MS), row(3, MAY_MS + 60_000)))
    command = ["labels", "load", "--config", str(settings), *(["--dry-run"] if dry_run else []), str(path)]
    good = CliRunner().invoke(app, command)
    assert good.exit_code == 0, good.output
    assert "2 rows, 2 labels, 2024-05-01 00:00 to 2024-05-01 00:01 UTC" in good.output
    assert ("nothing was written into labels" if dry_run else "clock of every partition is at") in good.output
    path.write_bytes(lines(row(1, MAY_MS), {"event_id": "a", "label": "yes", "at": MAY_MS}))
    bad = CliRunner().invoke(app, [*command, "--json"])
    assert bad.exit_code == 1
    outcome = json.loads(bad.output[bad.output.index("{") :])
    assert (outcome["rejected"], outcome["written"], outcome["dry_run"]) == (
        {"label_invalid": 1},
        0 if dry_run else 1,
        dry_run,
    )
    assert len(loading.labels()) == (0 if dry_run else 3)
