"""`stream-calib backtest`: from files to the report, what is kept, what is refused, how it is stopped."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.progress import Progress

from stream_calib.backtest.document import decode_document
from stream_calib.backtest.dumped_state import keys_of_dump, state_of_dump
from stream_calib.backtest.exact.verify import Difference, Verification
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.history_file import save_history
from stream_calib.errors import BacktestError, HistoryError
from stream_calib.events.contracts import ModelKey
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.state_dump import Frame, HashFrame, ModelFrame, StringFrame, write_dump
from stream_calib.windows.state_store import Commit
from tests.command_line import command_line
from tests.unit.backtest.made_histories import FIRST_PANE, HOUR_MS, drawn_history
from tests.unit.backtest.table_worlds import as_in_the_state
from workers import backtest_command, backtest_sources
from workers.backtest_command import hidden_folder
from workers.backtest_outputs import Outputs
from workers.backtest_progress import Steps, StoppedError
from workers.backtest_sources import SourceOptions

CONFIG = """
[model]
name = "flights"

[scores]
intersections = [["carrier", "origin"]]

[scores.time]
path = "ts"

[scores.attributes]
carrier = "carrier"
origin = "origin"

[labels.time]
path = "ts"

[windows]
horizon = "24h"
shards = 1
idle_timeout = "off"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stream-calib.toml").write_text(CONFIG)
    return tmp_path


def write_events(folder: Path, days: int, a_day: int) -> None:
    """Scores and labels of whole days; the labels come an hour later."""
    drawn = np.random.default_rng(1)
    n = days * a_day
    ts = FIRST_PANE * HOUR_MS + np.sort(drawn.integers(0, days * 24 * HOUR_MS, n))
    score = drawn.beta(2, 5, n)
    label = drawn.random(n) < np.clip(1.4 * score, 0, 1)
    carrier, origin = drawn.choice(["UA", "B6", "DL"], n), drawn.choice(["EWR", "JFK"], n)
    columns = (ts.tolist(), score.tolist(), label.tolist(), carrier.tolist(), origin.tolist())
    with (folder / "scores.ndjson").open("w") as scores, (folder / "labels.ndjson").open("w") as labels:
        for i, (at, s, y, c, o) in enumerate(zip(*columns, strict=True)):
            print(json.dumps({"event_id": str(i), "ts": at, "score": s, "carrier": c, "origin": o}), file=scores)
            print(json.dumps({"event_id": str(i), "ts": at + HOUR_MS, "label": int(y)}), file=labels)


def test_from_files_to_the_report_and_on_from_what_is_kept(folder: Path) -> None:
    write_events(folder, 8, 1_500)
    source = ("--scores", "scores.ndjson", "--labels", "labels.ndjson", "--save-cells", "days.cells")
    outputs = ("--html", "report.html", "--json", "result.json", "--parquet", "tables")
    tried = ("--warm-up-days", "3", "--processes", "1", "--inject", "shift size=1.5 from=2013-06-06")
    done = command_line("backtest", *source, *outputs, *tried)
    assert done.returncode == 0, done.stderr
    document = decode_document(Path("result.json").read_bytes())
    assert [outcome.policy for outcome in document.outcomes] == ["current"]
    assert document.counts["accepted"] == document.counts["labels"] == 12_000
    (detection,) = document.detections
    assert detection.injected == "outcomes of all events moved by +1.5 in log-odds, from 2013-06-06 00:00"
    assert detection.log_loss is not None
    assert detection.log_loss_untouched is not None
    assert detection.log_loss > detection.log_loss_untouched
    for said in (
        "flights/1: scores of scores.ndjson, labels of labels.ndjson",
        "217 panes from 2013-05-31 23:00 to 2013-06-10 00:00 UTC, started cold",
        "raw score",
        "current",
        "what if: outcomes of all events moved by +1.5",
        "report: report.html",
        "result: result.json",
        "tables: tables",
    ):
        assert said in done.stdout
    assert "trying policies" in done.stderr
    assert "</html>" in Path("report.html").read_text()
    assert Path("tables/policies.parquet").exists()

    kept = {path.name: path.stat().st_mtime_ns for path in Path(".report.html.backtest").iterdir()}
    assert len(kept) == 2  # the untouched history, and that with the fault
    before = Path("result.json").read_bytes()
    again = command_line("backtest", "--cells", "days.cells", *outputs, *tried)
    assert again.returncode == 0, again.stderr
    assert Path("result.json").read_bytes() == before
    assert {path.name: path.stat().st_mtime_ns for path in Path(".report.html.backtest").iterdir()} == kept


# --- what is refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "there is nothing to replay; give one of --scores with --labels, --table, --topics, --state, or --cells"),
        ("--cells a --topics", "--topics and --cells are several sources"),
        ("--scores a.csv", "--labels is missing: both the scores and their labels are needed"),
        ("--labels a.csv", "--scores is missing"),
        ("--cells a --from 2013-06-01", "--from says nothing of --cells; leave it out"),
        ("--topics --as-written", "--as-written says nothing of --topics"),
        ("--scores a.csv --labels b.csv --engine --as-written", "--as-written says nothing of --scores and --labels"),
        ("--scores a.csv --labels b.csv --label-time t", "--label-time says nothing of --scores and --labels"),
        ("--scores a.csv --labels b.csv --live-buckets", "--live-buckets says nothing of --scores and --labels"),
        ("--state live --duckdb a.db", "--duckdb says nothing of --state"),
        ("--table t --ibis duckdb://a --live-buckets", "--live-buckets says nothing of --table"),
        ("--table t --ibis nowhere://u:secret@a/b", "--ibis nowhere://***@a/b: cannot be connected to: "),
        ("--cells none.cells", "none.cells: cannot be read: No such file or directory"),
        (
            "--cells a --html stream-calib.toml/r.html",
            "stream-calib.toml is a file; name a folder, which is made where",
        ),
        ("--cells a --json .", "--json .: is a folder; name a file"),
        ("--cells a --json a", "--json a: is read, and would be overwritten; give it another name"),
        ("--cells a --html stream-calib.toml", "--html stream-calib.toml: is read, and would be overwritten"),
        ("--scores a*.csv --labels b.csv --html b.csv", "--html b.csv: is read, and would be overwritten"),
        ("--cells a --policy p.toml --save-cells p.toml", "--save-cells p.toml: is read, and would be overwritten"),
        ("--cells a --json o --parquet ./o", "--json o and --parquet o are the same; give each a name of its own"),
        ("--cells a --save-cells /dev/null", "--save-cells /dev/null: is a device or a pipe"),
        ("--cells a --html o --save-cells o", "--html o and --save-cells o are the same"),
        ("--cells a --html o/r.html --json o", "--html o/r.html is to lie in --json o, which is to be a file"),
        ("--cells a --parquet stream-calib.toml", "--parquet stream-calib.toml: "),
        ("--cells a --resume-folder stream-calib.toml/x", "--resume-folder stream-calib.toml/x: "),
        ("--cells a --html /proc/none/r.html", "--html /proc/none/r.html: cannot be written: "),
        ("--cells a --inject x", "--inject 'x': 'x' is no fault"),
        ("--cells a --grid refit.max_agee=1d", "did you mean refit.max_age?"),
        ("--cells a --policy none.toml", "none.toml"),
        ("--cells a --config none.toml", "none.toml"),
        ("--cells a --verify", "--verify compares all that the live state was made of: give it --topics, and no range"),
        ("--topics --verify --until 2013-06-01", "give it --topics, and no range"),
        ("--topics --verify --grid refit.max_age=1d", "--verify only compares; leave out policies, faults and outputs"),
        ("--scores none.csv --labels none.csv", "none.csv"),
        ("--scores none.csv --labels none.csv --engine", "none.csv"),
        ("--table none.parquet", "none.parquet"),
        ("--state none.scs", "none.scs: cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(folder: Path, arguments: str, said: str) -> None:
    done = command_line("backtest", *arguments.split(), environ={"PATH": ""})
    assert done.returncode == 1
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said in error
    assert [path.name for path in folder.iterdir()] == ["stream-calib.toml"]


def test_cells_of_another_configuration_are_refused(folder: Path) -> None:
    save_history(drawn_history(3, 10, 1), folder / "days.cells")
    path = folder / "stream-calib.toml"
    path.write_text(path.read_text().replace('horizon = "24h"', 'horizon = "48h"'))
    done = command_line("backtest", "--cells", "days.cells")
    assert done.returncode == 1
    assert "its cells were counted under another configuration" in done.stderr
    done = command_line("backtest", "--cells", "days.cells", "--model", "other")
    assert "no model key is other/(any); there are flights/1" in done.stderr


# --- states in files


def dumped(history: CellHistory, path: Path, key: ModelKey | None = None) -> None:
    """The history as `state export` would have it, beside another model key and a shard."""
    epoch = FIRST_PANE * HOUR_MS // (30 * 86_400_000)
    fields = {"first_pane": history.first_pane, "closed": history.last_pane, "matured": history.last_matured}

    def frames() -> Iterator[Frame]:
        yield ModelFrame("other", "1", "0000", 1)
        yield HashFrame(None, b"f", [(b"closed", b"7")])
        yield ModelFrame(*(key or history.key), history.generation, 1)
        yield HashFrame(0, b"m", [(b"closed", b"9")])
        yield HashFrame(None, b"f", [(name.encode(), str(value).encode()) for name, value in fields.items()])
        yield HashFrame(None, b"f", [(b"tip", b"abc")])
        for signature, values in history.signatures.items():
            named = (str(signature).encode(), msgspec.json.encode(list(values)))
            yield HashFrame(None, b"d%d:%d" % (epoch, signature & 0xFF), [named])
        for pane, blobs in enumerate(history.panes, history.first_pane):
            yield StringFrame(None, b"b:scored:%d" % pane, blobs.scored)
            if blobs.matured is not None:
                yield StringFrame(None, b"b:matured:%d" % pane, blobs.matured)
            yield StringFrame(None, b"b:pane:%d" % pane, b"{}")

    write_dump(path, frames())


def test_a_state_export_is_a_history(tmp_path: Path) -> None:
    history = drawn_history(30, 20, 1, open_panes=4)
    path = tmp_path / "backup.scs"
    dumped(history, path)
    assert keys_of_dump(path) == [ModelKey("other", "1"), history.key]
    state, generation = state_of_dump(path, history.key)
    found = CellHistory.of_state(state, history.key, generation, HOUR_MS, "export", {})
    assert found.content_sha256() == history.content_sha256()
    assert found.start == "exact"
    with pytest.raises(HistoryError, match="flights/2 is not in the file; there are: other/1, flights/1"):
        state_of_dump(path, ModelKey("flights", "2"))


def test_a_state_export_is_replayed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = kept_history(monkeypatch)
    dumped(drawn_history(30, 20, 1), folder / "backup.scs")
    done = command_line("backtest", "--state", "backup.scs", "--model", "flights")
    assert isinstance(seen.history, CellHistory), done.stderr
    assert seen.history.source == "state export backup.scs"
    assert len(seen.history.panes) == 30


def kept_history(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ends the command where policies would be run, with the history as `history`."""
    seen = SimpleNamespace(history=None)

    def work(history: CellHistory, *_: object) -> None:
        seen.history = history
        raise BacktestError("enough")

    monkeypatch.setattr(backtest_command, "work", work)
    return seen


# --- rows counted in DuckDB


def test_files_and_tables_of_a_database_are_counted_inside_duckdb(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    write_events(folder, 2, 200)
    seen = kept_history(monkeypatch)
    files = ("--scores", "scores.ndjson", "--labels", "labels.ndjson")
    command_line("backtest", *files)
    exact = seen.history
    done = command_line("backtest", *files, "--engine", "--live-buckets")
    assert seen.history is not exact, done.stderr
    # An exact replay closes what clocks have passed; here panes end with the last score.
    both = min(len(exact.panes), len(seen.history.panes))
    shift = seen.history.first_pane - exact.first_pane
    compared = both - shift - 30
    assert as_in_the_state(seen.history.panes[:compared]) == list(exact.panes[shift : shift + compared])
    with duckdb.connect("flights.db") as connection:
        connection.execute("CREATE TABLE s AS SELECT * FROM 'scores.ndjson'")
        connection.execute("CREATE TABLE l AS SELECT * FROM 'labels.ndjson'")
        connection.execute(
            "CREATE TABLE one AS SELECT s.*, l.label, l.ts AS known FROM s JOIN l ON s.event_id = l.event_id"
        )
    counted = seen.history
    tables = ("--scores", "SELECT * FROM s WHERE true", "--labels", "l")
    done = command_line("backtest", "--duckdb", "flights.db", "--live-buckets", *tables)
    assert seen.history is not counted, done.stderr
    assert seen.history.panes == counted.panes
    one = ("--table", "one", "--label-time", "known", "--live-buckets")
    done = command_line("backtest", "--duckdb", "flights.db", *one)
    assert seen.history.panes == counted.panes, done.stderr
    command_line("backtest", *files, "--engine")
    counted = seen.history
    done = command_line("backtest", "--ibis", "duckdb://flights.db", "--scores", "s", "--labels", "l")
    assert seen.history is not counted, done.stderr
    assert seen.history.panes == counted.panes
    done = command_line("backtest", "--duckdb", "flights.db", "--table", "s", "--table", "l")
    assert "s, l: of a database, give one table or query of each kind" in done.stderr


# --- live topics and state


@contextmanager
def connected(*_: object) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace()


@pytest.mark.parametrize("differences", [[], [Difference("scored", 5, "bucket 3", "1", "2", 4)]])
def test_verify_says_what_was_compared_and_what_differs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, differences: list[Difference]
) -> None:
    found = Verification(FIRST_PANE, FIRST_PANE + 9, FIRST_PANE + 4, FIRST_PANE + 4, 3, 2, 1, differences, ["lag"])

    def verify_live(*_: object, on_records: Callable[..., None], on_panes: Callable[..., None]) -> Verification:
        on_records(1, 2)
        on_panes(1, 2)
        return found

    monkeypatch.setattr(backtest_command, "open_log", connected)
    monkeypatch.setattr(backtest_command, "connect_state", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(backtest_command, "known_keys", lambda *_: [ModelKey("flights", "1")])
    monkeypatch.setattr(backtest_command, "state_of", lambda *_: SimpleNamespace(store=None))
    monkeypatch.setattr(backtest_command, "verify_live", verify_live)
    done = command_line("backtest", "--topics", "--verify", "--json", "found.json")
    assert done.returncode == (3 if differences else 0), done.stderr
    assert (
        "flights/1: panes from 2013-06-01 00:00 to 2013-06-01 05:00 UTC: cells of 10 closed and 5 matured"
        in done.stdout
    )
    assert "not compared: lag" in done.stdout
    assert ("the replay is the live run, to the byte" in done.stdout) == (not differences)
    assert ("differs: scored of pane 5: bucket 3: live 1, replayed 2 (and 4 more)" in done.stdout) == bool(differences)
    assert msgspec.json.decode(Path("found.json").read_bytes(), type=Verification) == found
    assert "deciding panes" in done.stderr


class ReadOnly(MemoryState):
    """Refuses what would write, once it is shut."""

    shut = False

    def commit(self, change: Commit) -> bool:
        assert not self.shut, change
        return super().commit(change)

    def put_signatures(self, signatures: Mapping[int, Sequence[str]], until_ms: int) -> None:
        assert not self.shut, signatures
        super().put_signatures(signatures, until_ms)

    def acquire_lease(self, name: str, owner: str, ttl_ms: int) -> str | None:
        raise AssertionError(name)


def test_the_live_state_is_only_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, history = kept_history(monkeypatch), drawn_history(30, 20, 1)
    store = ReadOnly()
    store.put_signatures(history.signatures, history.last_pane * HOUR_MS)
    fields = {"first_pane": history.first_pane, "closed": history.last_pane, "matured": history.last_matured}
    blobs = {f"scored:{pane}": one.scored for pane, one in enumerate(history.panes, history.first_pane)}
    blobs |= {f"matured:{p}": one.matured or b"" for p, one in enumerate(history.panes, history.first_pane)}
    store.commit(Commit(fields={name: str(value) for name, value in fields.items()}, blobs=blobs))
    store.shut = True
    live = SimpleNamespace(store=store, generation=history.generation, check=lambda: None)
    monkeypatch.setattr(backtest_sources, "connect_state", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(backtest_sources, "known_keys", lambda *_: [history.key])
    monkeypatch.setattr(backtest_sources, "state_of", lambda *_: live)
    done = command_line("backtest", "--state", "live")
    assert seen.history is not None, done.stderr
    assert seen.history.content_sha256() == history.content_sha256()
    assert seen.history.source == "the live state of flights/1"


def test_files_and_cells_connect_to_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("connected")

    for module in (backtest_sources, backtest_command):
        for name in ("connect_state", "open_log"):
            monkeypatch.setattr(module, name, refused)
    seen = kept_history(monkeypatch)
    write_events(folder, 2, 50)
    save_history(drawn_history(30, 20, 1), folder / "days.cells")
    for source in ("--cells days.cells", "--scores scores.ndjson --labels labels.ndjson"):
        seen.history = None
        done = command_line("backtest", *source.split())
        assert seen.history is not None, done.stderr
    done = command_line("backtest", "--topics")
    assert "AssertionError: connected" in done.stderr


# --- stopping


def test_stopped_it_says_how_to_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> CellHistory:
        raise StoppedError("stopped while reading files")

    monkeypatch.setattr(backtest_command, "history_of", stopped)
    monkeypatch.setattr("sys.argv", ["stream-calib", "backtest", "--cells", "a b"])
    done = command_line("backtest", "--cells", "a b", "--json", "result.json")
    assert done.returncode == 1
    assert "stopped while reading files; what is done is kept in .result.json.backtest. The same" in done.stderr
    assert "  stream-calib backtest --cells 'a b'" in done.stderr


def test_every_word_of_progress_ends_the_work_once_it_was_asked_for() -> None:
    stop = threading.Event()
    steps = Steps(Progress(disable=True), stop)
    tell, later = steps.begin("counting"), steps.later("deciding")
    tell(1, 2, "one")
    stop.set()
    with pytest.raises(StoppedError, match="stopped while counting"):
        tell(2, 2, "two")
    with pytest.raises(StoppedError, match="stopped while deciding"):
        later(2, 2, "two")


def test_outcomes_are_kept_beside_the_first_output() -> None:
    outputs = Outputs(None, Path("out/r.json"), Path("t"))
    assert hidden_folder(outputs.places()) == Path("out/.r.json.backtest")
    assert hidden_folder([]) == Path(".stream-calib-backtest")


def test_outputs_are_checked_without_a_trace_and_folders_are_made_for_them(folder: Path) -> None:
    outputs = Outputs(folder / "new" / "r.html", folder / "r.json", folder / "tables" / "all")
    outputs.check()
    assert [path.name for path in folder.iterdir()] == ["stream-calib.toml"]
    (folder / "r.json").write_text("kept")
    outputs.check()
    assert (folder / "r.json").read_text() == "kept"
    Outputs(None, folder / "below" / "r.json", None).write_json(b"{}")
    assert (folder / "below" / "r.json").read_text() == "{}\n"
    save_history(drawn_history(3, 10, 1), folder / "cells" / "days.cells")
    assert (folder / "cells" / "days.cells").exists()
    with pytest.raises(BacktestError, match=r"the folder cannot be made: "):
        Outputs(None, folder / "r.json" / "r.json", None).write_json(b"{}")
    Outputs(None, Path("/dev/null"), None).check()


def test_one_source_is_one_source() -> None:
    SourceOptions(table=["a.csv"], label_time="t", live_buckets=True).check()
    SourceOptions(topics=True, since=["2013-06-01"]).check()
