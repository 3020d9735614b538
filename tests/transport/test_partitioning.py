"""Choosing partitions, and fair shares of a poll."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_calib.transport.partitioning import Partitioner, fair_counts, fair_cut
from stream_calib.transport.port import Outgoing, TopicPartition

PARTITIONS = [TopicPartition("t", p) for p in range(8)]


def test_keys_go_by_the_published_crc_32() -> None:
    """Check values of CRC-32/ISO-HDLC: crc("123456789") = cbf43926, crc("a") = e8b7be43, crc("") = 0."""
    partitioner = Partitioner()
    for key, crc in ((b"123456789", 0xCBF43926), (b"a", 0xE8B7BE43), (b"", 0)):
        assert [partitioner.choose(Outgoing("t", key, None), n) for n in (1, 7, 16)] == [crc % n for n in (1, 7, 16)]


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8), st.integers(1, 300), st.integers(0, 20))
def test_a_poll_is_full_when_there_is_enough_and_shuts_nobody_out(
    backlogs: list[int], max_records: int, turn: int
) -> None:
    backlog = dict(zip(PARTITIONS, backlogs, strict=False))
    counts = fair_counts(list(backlog), backlog, max_records, turn)
    found = {p: min(count, backlog[p]) for p, count in counts.items()}
    assert sum(found.values()) <= max_records
    asked = list(counts)
    share = max_records // len(asked)
    assert all(found[p] >= min(share, backlog[p]) for p in asked)
    assert sum(found.values()) == min(max_records, sum(backlog[p] for p in asked))


@given(st.lists(st.integers(0, 500), max_size=8), st.integers(0, 20), st.integers(1, 300))
def test_turns_reach_every_partition(backlogs: list[int], turn: int, max_records: int) -> None:
    partitions = PARTITIONS[: len(backlogs)]
    seen = {p for t in range(turn, turn + 8) for p in fair_counts(partitions, {}, max_records, t)}
    assert seen == set(partitions)


@given(st.lists(st.integers(0, 500), max_size=8), st.integers(8, 300))
def test_a_cut_keeps_as_many_as_fit_and_spares_the_small(lengths: list[int], max_records: int) -> None:
    found = dict(zip(PARTITIONS, lengths, strict=False))
    kept = fair_cut(found, max_records)
    assert sum(kept.values()) == min(max_records, sum(lengths))
    share = max_records // max(1, len(lengths))
    assert all(min(share, length) <= kept[p] <= length for p, length in found.items())
