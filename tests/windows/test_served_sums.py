"""What is noted of what was served: by class and keep rate, to the same bits in whatever parts the rows come."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.events.identity import signature_hash
from stream_calib.windows.closer import Closer
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.registration import register_inputs
from stream_calib.windows.served_sums import ServedSums
from stream_calib.windows.shard_store import Mark, ScoreRows
from stream_calib.windows.vocabulary import Vocabulary
from tests.oracle.offline import Score
from tests.windows.backends import MemoryBackend
from tests.windows.deciders import ChainDecider
from tests.windows.join import PANE_0, SETTINGS, Join, L, S, at, clock, label
from tests.windows.records import Block, score_rows

RATES = ("1.0", "0.1", "0.3", "1e-06", "0.7")
DICTIONARY = {signature_hash(("a", rate)): ("a", rate) for rate in RATES}
INVERSE_RATES = Vocabulary(("x",), 10, keep_rates=True).inverse_rates(lambda hashes: {h: DICTIONARY[h] for h in hashes})


def rows_of(rates: list[str], served: list[float]) -> ScoreRows:
    blocks = [
        Block((Score(f"id-{i}", at(1), 0.5, ("a", rate)),), f"v{i % 2}", p)
        for i, (rate, p) in enumerate(zip(rates, served, strict=True))
    ]
    return score_rows(blocks)


def test_rows_are_weighed_by_the_rate_of_their_event() -> None:
    sums = ServedSums(INVERSE_RATES)
    rows = score_rows([Block(tuple(Score(f"i{i}", at(1), 0.5, ("a", r)) for i, r in enumerate(RATES[:3])), "v", 0.25)])
    sums.add(rows, np.array([1, 0, 0], np.int8))
    served = sums.by_version()["v"]
    assert (served.winners, served.negatives.rows) == (3, 2)
    weight = 1 / 0.1 + 1 / 0.3
    assert served.negatives.weight == pytest.approx(weight)
    assert served.negatives.probability == pytest.approx(weight * 0.25)
    assert served.negatives.log_loss == pytest.approx(weight * 0.28768207)
    assert (served.positives.rows, served.positives.weight) == (1, 1.0)
    assert served.positives.log_loss == pytest.approx(1.38629436)


@given(
    st.lists(st.tuples(st.sampled_from(RATES), st.floats(0, 1), st.sampled_from([-1, 0, 1])), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
    st.lists(st.integers(0, 40), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_parts_and_order_change_no_bit(
    given_rows: list[tuple[str, float, int]], random: Random, cuts: list[int]
) -> None:
    rows = rows_of([r for r, _, _ in given_rows], [p for _, p, _ in given_rows])
    labels = np.array([of for _, _, of in given_rows], np.int8)
    whole, parts = ServedSums(INVERSE_RATES), ServedSums(INVERSE_RATES)
    whole.add(rows, labels)
    order = np.array(random.sample(range(len(rows)), len(rows)))
    for start, stop in pairwise(sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})):
        parts.add(rows.take(order[start:stop]), labels[order[start:stop]])
    assert parts.by_version() == whole.by_version()


def test_the_closer_weighs_what_records_said_before_rates_are_pooled() -> None:
    backend = MemoryBackend()
    store, state = backend.shards(2, SETTINGS), backend.state()
    join = Join(store)
    register_inputs(store, state, dict.fromkeys(join.items, Mark(0, None)))
    rates = [round(0.02 * (i + 1), 2) for i in range(40)]
    signatures = {signature_hash(("a", str(rate))): ("a", str(rate)) for rate in rates}
    state.put_signatures(signatures, PANE_0 * SETTINGS.pane_ms)
    vocabulary = Vocabulary(("x",), 10, keep_rates=True)
    closer = Closer(store, state, lambda first: ChainDecider(first, 1), vocabulary=vocabulary)
    scores = tuple(Score(f"i{i}", at(1), 0.5, ("a", str(rate))) for i, rate in enumerate(rates))
    join.write(S, Block(scores, "v", 0.5), clock(60))
    join.write(L, *(label(f"i{i}", 5, int(i == 0)) for i in range(39)), clock(60))
    for _ in range(20):
        closer.advance()
    (blob,) = state.blobs([PaneNames.of(PANE_0).record])
    assert blob is not None
    record = decode_record(blob)
    assert record.counts["capped"] == 40
    served = record.served["v"]
    assert (served.winners, served.positives.rows, served.negatives.rows) == (40, 1, 38)
    assert served.positives.weight == pytest.approx(50)
    assert served.negatives.weight == pytest.approx(sum(1 / rate for rate in rates[1:39]))
