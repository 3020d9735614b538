"""The processes of a run: each has a slot, is started again when it has died, and goes on when it has stood still."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stream_calib.fault_points import VARIABLE
from tests.crash.faults import SLOTS, Fault
from tests.integration.harness import Deployment, RoleProcess

SESSION_S = 4.0
STILL_FOR_S = SESSION_S + 1.5
_MODULE = "tests.crash.hasty_refit"
_END_WITHIN_S = 60.0
"""A process that cannot end in good order ends by itself after 20 s."""


@dataclass
class _Slot:
    roles: tuple[str, ...]
    process: RoleProcess
    met: Fault | None = None
    """The fault point that the process is to meet."""
    following: list[Fault] = field(default_factory=list)
    """Those of the processes after it."""
    leaving: bool = False
    told_to_end: bool = False
    goes_on_at_s: float | None = None
    """When a process that stands still is to go on, monotonic seconds."""


class Processes:
    """`look` is to be called again and again."""

    def __init__(self, deployed: Deployment, config_file: Path, armed: list[Fault]) -> None:
        """`config_file`: of the roles. `armed`: fault points of the first processes."""
        self._deployed, self._config_file = deployed, config_file
        self.happened: list[Fault] = []
        """Fault points that were met."""
        self._trace = deployed.folder / "reached.txt"
        self._slots = []
        for n, roles in enumerate(SLOTS):
            self._slots.append(self._filled(roles, [fault for fault in armed if fault.slot == n]))

    def _filled(self, roles: tuple[str, ...], faults: list[Fault]) -> _Slot:
        """The first of the faults is the new process's."""
        fault = faults[0] if faults else None
        environ = self._deployed.environ
        armed = None if fault is None else f"{fault.point}:{fault.count}:{fault.how}"
        environ[VARIABLE] = armed or f"trace:{self._trace}"
        process = self._deployed.start(*roles, module=_MODULE, config_file=self._config_file)
        process.expected = False  # its end is looked at here
        return _Slot(roles, process, fault, faults[1:])

    def kill(self, slot: int) -> None:
        self._slots[slot].process.kill()

    def pause(self, slot: int) -> None:
        """Beyond its session; `look` lets it go on."""
        one = self._slots[slot]
        if one.process.process.poll() is None and one.goes_on_at_s is None:
            one.process.pause()
            one.goes_on_at_s = time.monotonic() + STILL_FOR_S

    def leave(self, slot: int, following: Fault | None = None) -> None:
        """The process ends in good order, once it is at work; another one takes its place, with the fault point where
        one is given."""
        one = self._slots[slot]
        one.leaving = True
        if following is not None:
            one.following.append(following)

    def join(self, slot: int) -> None:
        """One more with the roles of the slot."""
        self._slots.append(self._filled(self._slots[slot].roles, []))

    def look(self) -> None:
        """Raises AssertionError where a process has ended that nobody has ended."""
        for n, one in enumerate(self._slots):
            code = one.process.process.poll()
            if code is None:
                self._let_go_on(one)
                if one.leaving and not one.told_to_end and _is_at_work(one.process.output):
                    one.process.process.send_signal(signal.SIGTERM)
                    one.told_to_end = True
            elif (
                code == -signal.SIGKILL
                or _in_vain(code, one.process.output)
                or (one.leaving and _left(code, one.process.output))
            ):
                if one.met is not None and one.met.how == "kill" and code == -signal.SIGKILL:
                    self.happened.append(one.met)
                self._slots[n] = self._filled(one.roles, one.following)
            else:
                raise AssertionError(f"{one.process.output.name} ended with {code}:\n{one.process.last_words()}")

    def _let_go_on(self, one: _Slot) -> None:
        if one.goes_on_at_s is None:
            if one.met is not None and one.met.how == "stop" and _stands_still(one.process.process.pid):
                self.happened.append(one.met)
                one.met = None
                one.goes_on_at_s = time.monotonic() + STILL_FOR_S
        elif time.monotonic() >= one.goes_on_at_s:
            one.goes_on_at_s = None
            one.process.resume()

    def tell_to_end(self) -> list[RoleProcess]:
        """Asks those that are at work, and are to meet nothing more, to end in good order, which is when leases are
        given up; `ended` waits for what this returns. `look` is not to be called any more."""
        told = []
        for one in self._slots:
            process = one.process
            if one.met is not None or one.told_to_end or process.process.poll() is not None:
                continue
            if not _is_at_work(process.output):
                continue  # before that a signal may end it at once
            if one.goes_on_at_s is not None:
                process.resume()
            process.process.send_signal(signal.SIGTERM)
            told.append(process)
        return told

    def ended(self, told: Iterable[RoleProcess]) -> None:
        """Waits for the end of them. Raises AssertionError where one ends in another way than it was asked to."""
        for one in told:
            code = one.process.wait(_END_WITHIN_S)
            assert _left(code, one.output), f"{one.output.name} ended with {code}:\n{one.last_words()}"

    def reached(self) -> set[str]:
        """Fault points that processes came to which were not to stop at one."""
        return set(self._trace.read_text(encoding="utf-8").split())

    def last_words(self) -> str:
        return "\n".join(f"--- {one.process.output.name}\n{one.process.last_words()}" for one in self._slots)


def _stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _is_at_work(output: Path) -> bool:
    return "workers.run: running " in output.read_text(errors="replace")


def _in_vain(code: int, output: Path) -> bool:
    """Whether it was started while the log was away: it says so and ends, for its supervisor to start it again."""
    return code == 1 and "waiting for the log" in output.read_text(errors="replace") and not _is_at_work(output)


def _left(code: int, output: Path) -> bool:
    """Whether it ended as asked: in good order, or at once where a server was away."""
    return code == 0 or "did not end within" in output.read_text(errors="replace")
