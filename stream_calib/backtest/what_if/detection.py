"""When an injected fault would have been noticed: one policy over the untouched history and over the injected one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stream_calib.backtest.document import Detection
from stream_calib.backtest.history import CellHistory
from stream_calib.backtest.outcome import AlarmFigures, PolicyOutcome
from stream_calib.backtest.policies.stepping import serves_from
from stream_calib.backtest.what_if.faults import Scenario
from stream_calib.config import Config
from stream_calib.windows.panes import PaneSettings

_DAY_MS = 86_400_000


def detect(
    untouched: PolicyOutcome,
    injected: PolicyOutcome,
    scenario: Scenario,
    history: CellHistory,
    config: Config,
    notes: Sequence[str] = (),
) -> Detection:
    """`injected`: the same policy over `history`, which has the scenario's faults; `notes`: what these came to.

    An alert has noticed it that is of a kind and a group which the untouched history tells of later, or never, from the
    fault on. A step looks at scores up to the horizon behind its pane, so panes as far before the fault count too. What
    is said of refits is no alert here.
    """
    first = scenario.from_ms // history.pane_ms - PaneSettings.of(config).horizon_panes

    def step_ms(pane: int) -> int:
        return (serves_from(pane, config) + history.label_delay(pane)) * history.pane_ms

    told: dict[tuple[str, str], int] = {}
    for alarm in _alarms(untouched, first):
        for subject in alarm.groups or [""]:
            told.setdefault((alarm.kind, subject), alarm.pane)
    noticed = next(
        (
            alarm
            for alarm in _alarms(injected, first)
            if any(told.get((alarm.kind, subject), alarm.pane + 1) > alarm.pane for subject in alarm.groups or [""])
        ),
        None,
    )
    known = {refit.version for refit in untouched.refits}
    refit = next(
        (
            one
            for one in injected.refits
            if one.pane >= first and one.outcome == "published" and one.version not in known
        ),
        None,
    )
    days = _labelled_days(untouched) & _labelled_days(injected) - set(range(-(-scenario.from_ms // _DAY_MS)))
    return Detection(
        injected=str(scenario),
        from_ms=scenario.from_ms,
        noticed_ms=None if noticed is None else step_ms(noticed.pane),
        noticed_by=None if noticed is None else f"{noticed.kind}: {noticed.what}",
        refit_ms=None if refit is None else step_ms(refit.pane),
        log_loss_untouched=_log_loss(untouched, days),
        log_loss=_log_loss(injected, days),
        notes=list(notes),
    )


def _alarms(outcome: PolicyOutcome, first: int) -> Iterator[AlarmFigures]:
    """What is told from a pane on, in order."""
    for alarm in outcome.alarms:
        if alarm.pane >= first and alarm.state != "close" and not alarm.kind.startswith("refit_"):
            yield alarm


def _labelled_days(outcome: PolicyOutcome) -> set[int]:
    return {day.day for day in outcome.days if day.served.labelled > 0}


def _log_loss(outcome: PolicyOutcome, days: set[int]) -> float | None:
    """Mean over these days."""
    sums = [day.served for day in outcome.days if day.day in days]
    return sum(day.log_loss for day in sums) / sum(day.labelled for day in sums) if sums else None
