"""MCGrad fitted and applied the way its own documentation does it, in an environment of its own.

    python mcgrad_fit.py holdout|default JOB.npz...

Nothing of this project is imported here. A job holds `score`, `label`, `weight` (optional) and `test_score`, and for
each attribute A a column of codes `train.A` and `test.A`. Written beside each job, as JOB.npz.result.npz: `probability`
of the test rows, and CPU seconds of the fit, table building and prediction left out. The `default` of MCGrad is k-fold
early stopping below 2.5 million rows.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from mcgrad import methods

_TRAIN, _TEST = "train.", "test."


def table(job: Any, prefix: str, score: str, names: list[str]) -> pd.DataFrame:
    columns = {name: job[prefix + name] for name in names}
    return pd.DataFrame({**columns, "score": job[score]})


def fit(how: str, path: str) -> None:
    with np.load(path) as job:
        names = [name.removeprefix(_TRAIN) for name in job.files if name.startswith(_TRAIN)]
        train, test = table(job, _TRAIN, "score", names), table(job, _TEST, "test_score", names)
        train["label"] = job["label"]
        weighted = "weight" in job.files
        if weighted:
            train["weight"] = job["weight"]
    model = methods.MCGrad(early_stopping_use_crossvalidation=False if how == "holdout" else None)
    started = time.process_time()
    model.fit(
        df_train=train,
        prediction_column_name="score",
        label_column_name="label",
        weight_column_name="weight" if weighted else None,
        categorical_feature_column_names=names,
    )
    seconds = time.process_time() - started
    probability = model.predict(df=test, prediction_column_name="score", categorical_feature_column_names=names)
    np.savez(f"{path}.result.npz", probability=probability, seconds=seconds)


if __name__ == "__main__":
    for job_path in sys.argv[2:]:
        fit(sys.argv[1], job_path)
