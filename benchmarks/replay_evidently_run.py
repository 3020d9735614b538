"""Evidently's daily figures of a prediction log, in an environment of its own.

    python replay_evidently_run.py TABLE.parquet REFERENCE_DAYS

Nothing of this project is imported here. Each day after the reference is compared with it: PSI of the score and of both
attributes, and the log-loss. Prints JSON: days, cpu_s and wall_s from opening the file on.
"""

from __future__ import annotations

import json
import sys
import time

import pandas as pd
from evidently import BinaryClassification, DataDefinition, Dataset, Report
from evidently.metrics import LogLoss, ValueDrift

DAY_MS = 86_400_000
COLUMNS = ["score", "carrier", "origin"]


def run(path: str, reference_days: int) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    table = pd.read_parquet(path).dropna(subset=["label"])
    table["label"] = table["label"].astype(int)
    day = (table["ts"] - table["ts"].min()) // DAY_MS
    definition = DataDefinition(
        numerical_columns=["score"],
        categorical_columns=["carrier", "origin"],
        classification=[BinaryClassification(target="label", prediction_probas="score")],
    )

    def rows(chosen: pd.Series) -> Dataset:
        return Dataset.from_pandas(table.loc[chosen, [*COLUMNS, "label"]], definition)

    reference, days = rows(day < reference_days), 0
    for number in range(reference_days, int(day.max()) + 1):
        report = Report([*(ValueDrift(column=column, method="psi") for column in COLUMNS), LogLoss()])
        found = report.run(rows(day == number), reference).dict()
        assert len(found["metrics"]) == len(COLUMNS) + 1
        days += 1
    return {"days": days, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
