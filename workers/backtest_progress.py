"""The progress bar of a backtest, on stderr, and its orderly end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from stream_calib.errors import BacktestError
from workers.stopping import stopped_by_signals


class StoppedError(BacktestError):
    """Somebody asked for the end."""


class Steps:
    """What is being done, one step after the other. Every word of progress ends the work where that was asked for."""

    def __init__(self, progress: Progress, stop: threading.Event) -> None:
        self._progress, self._stop = progress, stop
        self._task: TaskID | None = None

    def begin(self, what: str) -> Callable[[float, float, str], None]:
        """Begins a step, which ends the one before; tell the result how much is done, and of how much, and what of.

        The result raises StoppedError after the first signal.
        """
        if self._task is not None:
            self._progress.update(self._task, total=1, completed=1)
        task = self._task = self._progress.add_task(what, total=None, what="")
        return self._teller(what, task)

    def later(self, what: str) -> Callable[[float, float, str], None]:
        """A step that the first word of it begins."""
        begun: list[Callable[[float, float, str], None]] = []

        def tell(done: float, total: float, said: str = "") -> None:
            if not begun:
                begun.append(self.begin(what))
            begun[0](done, total, said)

        return tell

    def _teller(self, what: str, task: TaskID) -> Callable[[float, float, str], None]:
        def tell(done: float, total: float, said: str = "") -> None:
            if self._stop.is_set():
                raise StoppedError(f"stopped while {what}")
            self._progress.update(task, completed=done, total=total or None, what=said)

        return tell

    def warn(self, what: str) -> None:
        """Above the bars."""
        self._progress.console.print(f"warning: {what}", style="yellow", markup=False, highlight=False)


@contextmanager
def shown_steps() -> Iterator[Steps]:
    """Shows steps while the block runs. Only in the main thread."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    stop = threading.Event()
    with stopped_by_signals(stop), Progress(*columns, console=Console(stderr=True)) as progress:
        yield Steps(progress, stop)
