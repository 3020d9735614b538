"""NannyML's daily figures of a prediction log, in an environment of its own.

    python replay_nannyml_run.py TABLE.parquet REFERENCE_DAYS

Nothing of this project is imported here. Days after the reference are chunks: drift of the score and of both attributes
(Jensen-Shannon, its default for either), and CBPE, which calibrates on the reference and estimates accuracy. Prints
JSON: days, cpu_s and wall_s from opening the file on.
"""

from __future__ import annotations

import json
import sys
import time

import nannyml
import pandas as pd

DAY_MS = 86_400_000
COLUMNS = ["score", "carrier", "origin"]


def run(path: str, reference_days: int) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    table = pd.read_parquet(path).dropna(subset=["label"])
    table["label"] = table["label"].astype(int)
    table["predicted"] = (table["score"] >= 0.5).astype(int)
    day = (table["ts"] - table["ts"].min()) // DAY_MS
    table["time"] = pd.to_datetime(table["ts"], unit="ms")
    reference, later = table[day < reference_days], table[day >= reference_days]
    drift = nannyml.UnivariateDriftCalculator(column_names=COLUMNS, timestamp_column_name="time", chunk_period="D")
    found = drift.fit(reference).calculate(later).to_df()
    performance = nannyml.CBPE(
        y_pred_proba="score",
        y_pred="predicted",
        y_true="label",
        timestamp_column_name="time",
        chunk_period="D",
        metrics=["accuracy"],
        problem_type="classification_binary",
    )
    estimated = performance.fit(reference).estimate(later).to_df()
    assert len(found) == len(estimated)
    days = int((found["chunk", "chunk", "period"] == "analysis").sum())
    return {"days": days, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
