"""Which values a matured pane counts apart: by its rows alone, the same for every closer, and said by an alert."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_calib.calibration.groups import OTHER, family_rule, make_family
from stream_calib.events.identity import signature_hash
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.closer import Closer
from stream_calib.windows.pane_record import PaneNames, decode_record
from stream_calib.windows.registration import register_inputs
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.vocabulary import MOST_KEEP_RATES, CappedWinners, Vocabulary
from tests.windows.backends import MemoryBackend
from tests.windows.deciders import ChainDecider
from tests.windows.join import PANE_0, SETTINGS, Join, L, S, block, clock, label

Row = tuple[tuple[str, ...], int, int, int]
"""Values, unit bucket, grid bin, label."""


def cells_of(rows: list[Row]) -> tuple[MaturedCells, dict[int, tuple[str, ...]]]:
    dictionary = {signature_hash(values): values for values, *_ in rows}
    bucket, number, grid_bin, label = zip(*((b, signature_hash(v), g, label) for v, b, g, label in rows), strict=True)
    cells = MaturedCells.count(
        np.array(bucket, np.uint8), np.array(number, np.uint64), np.array(grid_bin, np.uint16), np.array(label, np.int8)
    )
    return cells, dictionary


def by_values(cells: MaturedCells, dictionary: Any) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for b, s, g, n, k, u in zip(*(getattr(cells, name).tolist() for name in MaturedCells.__slots__), strict=True):
        found[dictionary[s], b, g, 1] += k
        found[dictionary[s], b, g, 0] += n - k
        found[dictionary[s], b, g, -1] += u
    return +found


def expected(rows: list[Row], most: int) -> Counter[tuple[Any, ...]]:
    """Said once more, row by row."""
    kept = []
    for place in range(2):
        seen = Counter(values[place] for values, *_ in rows if values[place] != OTHER)
        kept.append({v for v, _ in sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:most]})
    return Counter(
        (tuple(v if v in kept[i] else OTHER for i, v in enumerate(values)), bucket, grid_bin, label)
        for values, bucket, grid_bin, label in rows
    )


value = st.sampled_from(["a", "b", "c", "d", "é", "__missing__", OTHER])
rows_of = st.lists(
    st.tuples(st.tuples(value, value), st.integers(0, 2), st.integers(0, 3), st.integers(-1, 1)),
    min_size=1,
    max_size=60,
)


@settings(max_examples=80, deadline=None)
@given(rows_of, st.integers(1, 6), st.randoms(use_true_random=False))
def test_the_most_frequent_values_stay_whatever_the_order(rows: list[Row], most: int, random: Any) -> None:
    vocabulary = Vocabulary(("x", "y"), most, keep_rates=False)
    cells, dictionary = cells_of(rows)
    capped = vocabulary.cap(cells, lambda hashes: {h: dictionary[h] for h in hashes})
    assert by_values(capped.cells, dictionary | capped.signatures) == expected(rows, most)
    assert all(signature_hash(values) == number for number, values in capped.signatures.items())
    one_by_one = [(values, 0, i, 0) for i, (values, *_) in enumerate(rows)]
    after = {i: values for values, _, i, _ in expected(one_by_one, most)}
    assert capped.winners == sum(values != after[i] for i, (values, *_) in enumerate(rows))
    # What was capped once stays, and the order of the rows is none of its business.
    again = vocabulary.cap(capped.cells, lambda hashes: {h: (dictionary | capped.signatures)[h] for h in hashes})
    assert again.cells is capped.cells
    random.shuffle(rows)
    assert vocabulary.cap(*_looked_up(rows)).cells.pack() == capped.cells.pack()
    # The decider, which sees the cells alone, counts the same winners.
    counted = CappedWinners(vocabulary, lambda hashes: {h: (dictionary | capped.signatures)[h] for h in hashes})
    others = {
        name: sum(n for (values, *_), n in expected(rows, most).items() if values[i] == OTHER)
        for i, name in enumerate(("x", "y"))
    }
    if capped.winners:
        assert counted.of(capped.cells) == {name: n for name, n in others.items() if n}


def _looked_up(rows: list[Row]) -> Any:
    cells, dictionary = cells_of(rows)
    return cells, lambda hashes: {h: dictionary[h] for h in hashes}


def test_nothing_is_asked_for_where_nothing_can_be_too_many() -> None:
    cells, _ = cells_of([(("a", "b"), 0, 1, 1), (("c", "b"), 0, 1, 0)])

    def never(hashes: Any) -> dict[int, tuple[str, ...]]:
        raise AssertionError(f"asked for {hashes}")

    for vocabulary in (Vocabulary(("x", "y"), 2, keep_rates=False), Vocabulary(("x",), 2, keep_rates=True)):
        assert vocabulary.cap(cells, never).cells is cells
    assert CappedWinners(Vocabulary(("x", "y"), 2, keep_rates=False), never).of(cells) == {}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0.001, 1.0), st.integers(1, 20)), min_size=1, max_size=60))
def test_no_more_than_sixteen_keep_rates_and_the_weight_of_all_stays(rates: list[tuple[float, int]]) -> None:
    rows: list[Row] = [(("a", repr(rate)), 0, 1, 0) for rate, n in rates for _ in range(n)]
    cells, dictionary = cells_of(rows)
    vocabulary = Vocabulary(("x",), 1_000, keep_rates=True)
    capped = vocabulary.cap(cells, lambda hashes: {h: dictionary[h] for h in hashes})
    found = by_values(capped.cells, dictionary | capped.signatures)
    texts = {values[1] for values, *_ in found}
    before = len({rate for rate, _ in rates})
    assert len(texts) <= MOST_KEEP_RATES
    weight = sum(n / float(values[1].lstrip("~")) for (values, *_), n in found.items())
    assert weight == pytest.approx(sum(n / rate for rate, n in rates), rel=6e-3 if before > MOST_KEEP_RATES else 1e-12)
    assert all(text.startswith("~") for text in texts) == (before > MOST_KEEP_RATES)
    counted = CappedWinners(vocabulary, lambda hashes: {h: (dictionary | capped.signatures)[h] for h in hashes})
    assert counted.of(capped.cells) == ({"keep_rate": len(rows)} if before > MOST_KEEP_RATES else {})


def test_other_is_in_no_group() -> None:
    family = make_family(family_rule(("x",), ["x", "y"]), [("a", "b"), (OTHER, "b")])
    assert family.keys == (("a",),)
    assert family.group_of.tolist() == [0, -1]


def test_a_pane_is_committed_with_capped_cells_whose_signatures_can_be_read() -> None:
    backend = MemoryBackend()
    store, state = backend.shards(2, SETTINGS), backend.state()
    join = Join(store)
    register_inputs(store, state, dict.fromkeys(join.items, Mark(0, None)))
    raw = {signature_hash((name,)): (name,) for name in ("a", "b", "c")}
    state.put_signatures(raw, PANE_0 * SETTINGS.pane_ms)
    closers = [
        Closer(store, state, lambda first: ChainDecider(first, 1), vocabulary=Vocabulary(("x",), 1, keep_rates=False))
        for _ in range(2)
    ]
    join.write(S, block(("p", 1), ("q", 2), attribute="b"), block(("r", 3), attribute="c"), block(("s", 4)), clock(60))
    join.write(L, label("p", 5), label("r", 6), clock(60))
    for _ in range(20):
        for closer in closers:
            closer.advance()
    names = PaneNames.of(PANE_0)
    scored, matured, record = state.blobs([names.scored, names.matured, names.record])
    assert scored is not None
    assert matured is not None
    assert record is not None
    cells = MaturedCells.unpack(matured)
    values = state.signatures(cells.signature.tolist())
    winners = Counter[tuple[str, ...]]()
    for number, n in zip(cells.signature.tolist(), (cells.labelled + cells.unlabelled).tolist(), strict=True):
        winners[values[number]] += n
    assert winners == {("b",): 2, (OTHER,): 2}
    assert decode_record(record).counts["capped"] == 2
    assert set(ScoredCells.unpack(scored).signature.tolist()) == set(raw)
