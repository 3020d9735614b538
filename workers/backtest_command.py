"""What `stream-calib backtest` does, once its options are read."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from stream_calib.backtest.comparison.assemble_table import table_of
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.history_file import save_history
from stream_calib.backtest.policies.policy_file import policies_of
from stream_calib.backtest.what_if.faults import parse_scenario
from stream_calib.config import Config
from stream_calib.errors import BacktestError
from workers.backtest_outputs import Outputs
from workers.backtest_places import Place, make_folder
from workers.backtest_progress import StoppedError, shown_steps
from workers.backtest_sources import SourceOptions, history_of
from workers.backtest_texts import detection_text, history_text, verification_text
from workers.backtest_verify import verify_live
from workers.backtest_work import Effort, Worked, work
from workers.cli_common import console
from workers.cli_models import known_keys, selected_key
from workers.deployment import connect_state, open_log, state_of

DIFFERENCES = 3
"""Exit code."""
HIDDEN_FOLDER = ".stream-calib-backtest"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options say."""

    config_file: Path
    source: SourceOptions
    policies: Sequence[Path]
    grid: Sequence[str]
    inject: Sequence[str]
    outputs: Outputs
    save_cells: Path | None
    processes: int | None
    resume_folder: Path | None
    warm_up_days: int
    seed: int


def run_backtest(config: Config, asked: Asked) -> int:
    """Does and prints it; the exit code: 1 where a policy was not run, or somebody stopped it. Raises
    StreamCalibError."""
    asked.source.check()
    cells = [] if asked.save_cells is None else [Place("--save-cells", asked.save_cells, is_replaced=True)]
    folder = asked.resume_folder or hidden_folder([*asked.outputs.places(), *cells])
    inputs = [*asked.source.files(), *asked.policies, asked.config_file]
    asked.outputs.check(*cells, Place("--resume-folder", folder, is_folder=True), inputs=inputs)
    tried = policies_of(config, asked.policies, asked.grid)
    scenarios = [parse_scenario(text, config) for text in asked.inject]
    effort = Effort(asked.processes or os.cpu_count() or 1, folder, asked.warm_up_days, asked.seed)
    errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    for same in tried.same:
        errors.print(f"warning: {same}", style="yellow")
    try:
        with shown_steps() as steps:
            history = history_of(asked.source, config, steps)
            if asked.save_cells is not None:
                save_history(history, asked.save_cells)
            make_folder(folder)
            worked = work(history, tried.tried, scenarios, effort, steps)
            steps.begin("writing")
            asked.outputs.write(worked.document)
    except StoppedError as stopped:
        errors.print(f"{stopped}; what is done is kept in {folder}. The same command goes on from there:")
        errors.print(f"  {shlex.join(['stream-calib', *sys.argv[1:]])}")
        return 1
    _print(worked, history, asked.outputs)
    return int(bool(worked.failed))


def run_verify(config: Config, asked: Asked) -> int:
    """Compares the replay of the topics with the live state, and prints that; the exit code: DIFFERENCES where there
    are some. Raises StreamCalibError."""
    source, outputs = asked.source, asked.outputs
    source.check()
    if not source.topics or source.since or source.until or source.allow_gaps:
        raise BacktestError("--verify compares all that the live state was made of: give it --topics, and no range")
    if asked.policies or asked.grid or asked.inject or outputs.html or outputs.parquet or asked.save_cells:
        raise BacktestError("--verify only compares; leave out policies, faults and outputs but --json")
    outputs.check()
    with shown_steps() as steps, open_log(config) as log, closing(connect_state(config)) as client:
        key = selected_key(known_keys(client, config), source.model, source.version)
        live = state_of(client, config, key).store
        on_records, on_panes = steps.begin("reading topics"), steps.later("deciding panes")
        found = verify_live(
            log,
            config,
            key,
            live,
            on_records=lambda done, of: on_records(done, of, f"{done:,} records"),
            on_panes=lambda done, of: on_panes(done, of, f"{done:,} panes"),
        )
    outputs.write_json(found.encode())
    console.print(verification_text(found, key, config.windows.pane_ms), soft_wrap=True)
    return DIFFERENCES if found.differences else 0


def hidden_folder(outputs: Sequence[Place]) -> Path:
    """Beside the first output, and called after it."""
    if not outputs:
        return Path(HIDDEN_FOLDER)
    first = outputs[0].path
    return first.parent / f".{first.name}.backtest"


def _print(worked: Worked, history: CellHistory, outputs: Outputs) -> None:
    document = worked.document
    console.print(history_text(history), soft_wrap=True)
    console.print(table_of(document))
    for warning in document.warnings:
        console.print(f"note: {warning}", style="yellow")
    for detection in document.detections:
        console.print(detection_text(detection), soft_wrap=True)
    for failed in worked.failed:
        console.print(f"failed: {failed}", style="red")
    for written in outputs.written():
        console.print(written, soft_wrap=True)
