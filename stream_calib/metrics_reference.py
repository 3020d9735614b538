"""The reference page of the metrics, made from the catalogue in metrics.py.

``python -m stream_calib.metrics_reference`` prints the page that is kept as docs/metrics.md.
"""

from __future__ import annotations

from stream_calib.metrics import CATALOGUE, Described

_INTRODUCTION = """# Metrics

<!-- Made from stream_calib/metrics.py by `make docs`; change it there. -->

`stream-calib run --http 127.0.0.1:9400` (or `http.listen`) serves them at `/metrics`, beside `/healthz` and `/readyz`.

* Labels are bounded: topics, partitions, reason codes, kinds, roles, and `model`: the model key, as `churn/1`, at most
  `model.max_keys` of them. Never ids or group values.
* Times are Unix timestamps; `time() - <metric>` is the age. Of several processes, the largest timestamp counts.
* What only the holder of a lease knows ("by lease", "the closer") is absent in the other processes.
* A counter starts at 0 with its process; use `rate` or `increase`.
"""


def markdown() -> str:
    """The reference page."""
    header = "| metric | kind | labels | meaning | set by |\n|---|---|---|---|---|"
    return "\n".join([_INTRODUCTION, header, *map(_row, CATALOGUE), ""])


def _row(metric: Described) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} | {metric.set_by} |"


if __name__ == "__main__":
    print(markdown(), end="")
