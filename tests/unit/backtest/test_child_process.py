"""Processes of a command: an interruption is the command's, and how one has ended is said."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection

import pytest

from stream_calib.backtest.child_process import ChildProcess
from stream_calib.errors import BacktestError


def interrupted(pipe: Connection) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    pipe.send("it goes on")
    os.kill(os.getpid(), pipe.recv())


def test_ctrl_c_is_not_for_it_and_its_end_is_said() -> None:
    child = ChildProcess(interrupted)
    child.start()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert child.pipe.recv() == "it goes on"
    child.pipe.send(signal.SIGKILL)
    with pytest.raises(EOFError):
        child.pipe.recv()
    assert child.end_text() == "was ended by SIGKILL"
    child.end()
    assert not child.is_alive


def test_where_there_can_be_no_more_processes_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", refused)
    child = ChildProcess(interrupted)
    with pytest.raises(BacktestError, match=r"no process can be started \(Resource temporarily"):
        child.start()
    child.terminate()
    child.end()
    with pytest.raises(EOFError):
        child.pipe.recv()
