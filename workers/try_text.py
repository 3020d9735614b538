"""What a trial found, as text for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stream_calib.backtest.trial.columns import DAY_MS
from stream_calib.backtest.trial.trial import Trial, TrialGroup, TrialQuality
from stream_calib.pages.texts import count_text, date_text, in_words, percent_text, shortened

_MOST_GROUPS = 10
_MOST_ALARMS = 5
_NAME_WIDTH = 28
_ALARM_WIDTH = 300
"""Four lines."""
_REJECTED = "_rejected_"


def trial_text(trial: Trial) -> RenderableType:
    """Fits 80 columns."""
    return Group(
        *_heading(trial),
        Text(""),
        Text(f"What is wrong now ({_span(trial)}, {count_text(trial.recent_labelled)} outcomes)", style="bold"),
        *_now(trial),
        Text(""),
        Text("What stream-calib would have done, as it comes", style="bold"),
        *_then(trial),
    )


def _heading(trial: Trial) -> list[RenderableType]:
    counts = trial.counts
    lines = [
        f"{trial.source}: {count_text(counts.get('rows', 0))} rows, {date_text(trial.first_ms)} to"
        f" {date_text(trial.last_ms)}, {count_text(counts.get('labels', 0))} with an outcome."
    ]
    rejected = {name: n for name, n in counts.items() if _REJECTED in name}
    if rejected:
        listed = ", ".join(f"{in_words(name.replace(_REJECTED, ': '))} {count_text(n)}" for name, n in rejected.items())
        lines.append(f"Not counted: {listed}.")
        if counts.get("scores_rejected_score_out_of_range"):
            lines.append("Where scores are not between 0 and 1, say what they are with --scale.")
    if counts.get("duplicates"):
        lines.append(f"There twice, and counted once: {count_text(counts['duplicates'])}.")
    if counts.get("unmatched"):
        lines.append(
            f"Outcomes that were not later than their score and within {_days(trial)} of it, and so"
            f" do not count: {count_text(counts['unmatched'])}. --horizon says how late they may be."
        )
    if not trial.label_times:
        lines.append(
            f"No --label-time: an outcome counts as known {_days(trial)} (--horizon) after its"
            " score, and nothing is learned of it before."
        )
    return [Text(line) for line in lines]


def _days(trial: Trial) -> str:
    days = trial.horizon_ms / DAY_MS
    return "1 day" if days == 1 else f"{days:g} days"


def _now(trial: Trial) -> list[RenderableType]:
    raw = trial.raw
    lines: list[RenderableType] = [
        Text(
            f"on average the scores say {percent_text(trial.said)}, and {percent_text(trial.observed)} is observed;"
            f" log-loss {raw.log_loss:.4f}; calibration error {percent_text(raw.ece, 2)}, where true probabilities"
            f" would show {percent_text(raw.ece_of_perfect, 2)} by chance"
        )
    ]
    if not trial.groups_looked_at:
        return [*lines, Text("no groups were looked at: name columns with --group")]
    if not trial.groups:
        return [*lines, Text(f"none of {trial.groups_looked_at} groups is wrong beyond doubt")]
    lines.append(
        Text(
            f"{trial.groups_wrong} of {trial.groups_looked_at} groups are wrong beyond doubt; the scores say one thing,"
            " and another is observed:"
        )
    )
    table = Table(box=None, pad_edge=False)
    for name in ("group", "outcomes", "said", "observed", "since", "calibrated"):
        table.add_column(name, justify="left" if name in ("group", "since") else "right", no_wrap=True)
    for group in trial.groups[:_MOST_GROUPS]:
        table.add_row(*_group_row(group))
    return [*lines, table]


def _group_row(group: TrialGroup) -> list[str]:
    wrong = group.wrong
    since = "not clear" if wrong.since is None else "the start" if wrong.from_start else wrong.since
    return [
        shortened(wrong.group, _NAME_WIDTH),
        count_text(wrong.labelled),
        percent_text(wrong.said),
        percent_text(wrong.observed),
        since,
        "" if group.calibrated is None else percent_text(group.calibrated),
    ]


def _then(trial: Trial) -> list[RenderableType]:
    refits = trial.refits
    if refits.first_served_ms is None:
        return [Text(f"no calibrator was published, so the scores were left alone; {_refits(trial)}")]
    table = Table(box=None, pad_edge=False)
    for name in ("", "scores", "calibrated", "scores", "calibrated"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("", "now", "now", "all days", "all days")
    now, counted = (trial.raw, trial.calibrated), (trial.counted_raw, trial.counted_calibrated)
    for recent, whole in zip(_figures(*now), _figures(*counted), strict=True):
        table.add_row(*recent, *whole[1:])
    lines: list[RenderableType] = [
        table,
        Text(f"(all days: {date_text(trial.counted_from_ms)} to {date_text(trial.recent_until_ms - 1)})"),
        Text(
            f"{_refits(trial)}, the first serving from {date_text(refits.first_served_ms)};"
            f" {len(trial.alarms)} {'alarm' if len(trial.alarms) == 1 else 'alarms'}"
        ),
    ]
    lines.insert(2, Text(_saved(trial)))
    lines += [
        Text(f"  {date_text(alarm.at_ms)}: {in_words(alarm.kind)}: {shortened(alarm.what, _ALARM_WIDTH)}")
        for alarm in trial.alarms[:_MOST_ALARMS]
    ]
    if len(trial.alarms) > _MOST_ALARMS:
        lines.append(Text(f"  and {len(trial.alarms) - _MOST_ALARMS} more"))
    return lines


def _saved(trial: Trial) -> str:
    """The verdict over all days."""
    saved = trial.counted_raw.log_loss - trial.counted_calibrated.log_loss
    verb = "less" if saved >= 0 else "more"
    text = f"over all days a prediction's log-loss would have been {abs(saved):.4f} {verb}"
    interval = trial.saved
    if interval is None or interval.low is None or interval.high is None:
        text += "; these are too few days to say whether that is chance"
    else:
        text += f" (saved, with 95 %: {interval.low:+.4f} to {interval.high:+.4f}"
        text += ", which may be chance)" if interval.low <= 0 <= interval.high else ")"
    if saved < 0:
        text += (
            ". That is so where the scores are right already and nothing can be gained, or where outcomes come too late"
            " to follow what changes (--horizon)"
        )
    return text


def _refits(trial: Trial) -> str:
    refits = trial.refits
    if not refits.asked:
        return "none was asked for: there was too little to learn from"
    refused = ", ".join(f"{in_words(code)} {n}" for code, n in sorted(refits.refused.items()))
    return f"{refits.published} calibrators published of {refits.asked} fitted ({_cadence(refits.max_age_ms)})" + (
        f", others refused by the gate ({refused})" if refused else ""
    )


def _cadence(max_age_ms: int) -> str:
    days = max_age_ms // DAY_MS
    return "at least one a day" if days == 1 else f"at least one in {days} days here, live one a day"


def _figures(raw: TrialQuality, calibrated: TrialQuality) -> list[tuple[str, str, str]]:
    return [
        ("log-loss", f"{raw.log_loss:.4f}", f"{calibrated.log_loss:.4f}"),
        ("Brier score", f"{raw.brier:.4f}", f"{calibrated.brier:.4f}"),
        ("calibration error", percent_text(raw.ece, 2), percent_text(calibrated.ece, 2)),
        ("  by chance alone", percent_text(raw.ece_of_perfect, 2), percent_text(calibrated.ece_of_perfect, 2)),
    ]


def _span(trial: Trial) -> str:
    return f"{date_text(trial.recent_from_ms)} to {date_text(trial.recent_until_ms - 1)}"
