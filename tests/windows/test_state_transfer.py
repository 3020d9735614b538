"""State written to a file and read back: what comes out is what went in, and nothing is written where a check fails."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_calib.errors import ConfigurationError, GenerationMismatchError, StateError, StateFormatError
from stream_calib.events.contracts import ModelKey
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.generations import directory_of
from stream_calib.windows.redis_dump import dumped, restore
from stream_calib.windows.redis_names import names_of
from stream_calib.windows.redis_removal import delete_state
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.shard_store import Mark
from stream_calib.windows.state_dump import Content, Frame, ListFrame, ModelFrame, StringFrame, read_dump, write_dump
from stream_calib.windows.state_store import Commit
from tests.windows.join import SETTINGS, Join, L, S, block, label
from tests.windows.monitors import A, B, Monitored, monitored
from workers import cli_state, state_transfer
from workers.cli import app
from workers.deployment import open_registry, state_of
from workers.role import wall_clock_ms
from workers.state_transfer import export_states, import_states
from workers.status_board import MemberStatus

pytestmark = pytest.mark.services

KEY = ModelKey("m", "1")


def much_later() -> int:
    """When statuses of the roles are old."""
    return wall_clock_ms() + 3_600_000


def stored(client: RedisClient, key: ModelKey, number: int) -> set[Any]:
    """All of a generation, comparable."""
    parts: dict[tuple[int | None, bytes], list[Any]] = {}
    for frame in dumped(client, key, number, lambda: None):
        content = [getattr(frame, name) for name in frame.__struct_fields__ if name not in ("shard", "name", "start")]
        parts.setdefault((frame.shard, frame.name), []).extend(content[0])
    return {
        (*place, *map(str, content if place[1].startswith(b"l:") else sorted(content)))
        for place, content in parts.items()
    }


def filled(client: RedisClient, part: str = "") -> None:
    """A generation with every type of key, some larger than what is read or written at once."""
    state = RedisState(client, KEY, part)
    state.commit(Commit(fields={"a": "1", "ü": "ö"}, appends={"decisions": [b"%d" % i for i in range(150)]}))
    state.commit(Commit(blobs={f"matured:{pane}": bytes(range(256)) for pane in range(300)}))
    state.put_signatures({i: (f"value {i}",) for i in range(500)}, 1_700_000_000_000)
    state.acquire_lease("closer", "me", 60_000)
    join = Join(RedisShards(client, KEY, 2, SETTINGS, part))
    for first in range(0, 280, 4):
        join.write(S, block(*((f"id-{i}", i % 9) for i in range(first, first + 4))))
    join.write(L, *(label(f"id-{i}", 10, 1) for i in range(280)))


@pytest.mark.parametrize("kind", ["one server", "cluster"])
def test_what_is_restored_is_what_was_dumped(request: pytest.FixtureRequest, kind: str) -> None:
    client: RedisClient = request.getfixturevalue("cluster_client" if kind == "cluster" else "redis_client")
    filled(client)
    whole = list(dumped(client, KEY, 0, lambda: None))
    # By its name, and the lease by none.
    assert {name.rest for some in names_of(client, KEY) for name in some} - {frame.name for frame in whole} == {
        b"lease:closer"
    }
    restore(client, KEY, 7, whole, lambda: None)
    assert stored(client, KEY, 7) == stored(client, KEY, 0)
    assert RedisState(client, KEY, "7:").entries("decisions", 0) == [b"%d" % i for i in range(150)]
    assert RedisState(client, KEY, "7:").signatures([3]) == {3: ("value 3",)}


def test_a_repeat_appends_nothing_twice(redis_client: RedisClient) -> None:
    frames: list[Content] = [ListFrame(None, b"l:x", 0, [b"a", b"b"]), ListFrame(None, b"l:x", 2, [b"c"])]
    restore(redis_client, KEY, 1, frames, lambda: None)
    restore(redis_client, KEY, 1, frames[:1], lambda: None)
    restore(redis_client, KEY, 1, frames[1:], lambda: None)
    restore(redis_client, KEY, 1, frames[1:], lambda: None)
    assert RedisState(redis_client, KEY, "1:").entries("x", 0) == [b"a", b"b", b"c"]
    with pytest.raises(StateError, match=r"l:x has 4 entries, not 10: somebody else writes there"):
        restore(redis_client, KEY, 1, [ListFrame(None, b"l:x", 9, [b"d"])], lambda: None)


def test_what_this_program_does_not_write_is_not_dumped(redis_client: RedisClient) -> None:
    redis_client.zadd("sc:{m/1}:other", {"a": 1})
    with pytest.raises(StateError, match=r"sc:\{m/1\}:other is a zset, which this program does not write"):
        list(dumped(redis_client, KEY, 0, lambda: None))


# --- the file

FRAMES: list[Frame] = [
    ModelFrame("m", "1", "f" * 16, 1),
    StringFrame(None, b"b:x", b"\xff" * 3_000),
    ListFrame(3, b"p7", 0, [b"row"]),
]


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.scs"
    digest = write_dump(path, FRAMES)
    assert list(read_dump(path)) == FRAMES
    assert len(digest) == 64
    assert [p.name for p in tmp_path.iterdir()] == ["a.scs"]


def test_a_file_that_fails_half_way_is_not_there(tmp_path: Path) -> None:
    def frames() -> Iterator[Any]:
        yield FRAMES[0]
        raise StateError("it moved")

    path = tmp_path / "a.scs"
    with pytest.raises(StateError, match="it moved"):
        write_dump(path, frames())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StateError, match="cannot be written: No such file or directory"):
        write_dump(tmp_path / "none" / "a.scs", FRAMES)


def packed(content: bytes) -> bytes:
    return b"stream-calib state 1\n" + gzip.compress(content)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def plain(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes().partition(b"\n")[2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data, content: b"stream-calib state 2\n" + data[21:], r"is of format 2, this version reads format 1"),
        (lambda data, content: b"PK\x03\x04" + data, "not written by `stream-calib state export`"),
        (lambda data, content: b"", "not written by `stream-calib state export`"),
        (lambda data, content: data[:-30], "cannot be read to its end"),
        (lambda data, content: data[:60] + bytes([data[60] ^ 1]) + data[61:], "nothing (was|is) made of it"),
        (lambda data, content: packed(content[:-90]), "has no length|is cut off"),
        (lambda data, content: packed(content.replace(b"row", b"wor")), "does not match its SHA-256"),
        (lambda data, content: packed(content + b"x"), "there is something behind the end"),
        (lambda data, content: packed(b"\xff\xff\xff\xff"), "frame 0 has no length"),
        (lambda data, content: packed(frame(b"\x93\xa5other\x01\x02")), "frame 0 cannot be read"),
        (
            lambda data, content: packed(frame(b"\x94\xa6string\xc0\xc4\x01x\xc4\x01y")),
            "content comes before the model key",
        ),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Any, message: str) -> None:
    path = tmp_path / "a.scs"
    write_dump(path, FRAMES)
    path.write_bytes(damage(path.read_bytes(), plain(path)))
    with pytest.raises(StateError, match=message):
        list(read_dump(path))


def test_its_hash_is_that_of_its_content(tmp_path: Path) -> None:
    digest = write_dump(tmp_path / "a.scs", FRAMES)
    content = plain(tmp_path / "a.scs")
    end = content.rindex(b"\xa3end") - 5
    assert hashlib.sha256(content[:end]).hexdigest() == digest


# --- of a deployment


@pytest.fixture
def m(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    with monitored(redis_url, monkeypatch, partitions=2) as made:
        made.clocks(0)
        made.traffic([A, B], 0, 50)
        made.clocks(52)
        made.start()
        made.until_applied(A, B)
        made.until_matured(20, A, B)
        yield made


def stopped(m: Monitored) -> Monitored:
    for monitor in list(m.monitors):
        m.stop(monitor)
    return m


def test_after_an_import_the_monitor_goes_on_and_all_panes_are_the_oracles(m: Monitored, tmp_path: Path) -> None:
    stopped(m)
    before = {key: stored(m.client, key, 0) for key in (A, B)}
    written, digest = export_states(m.client, m.config, [A, B], tmp_path / "a.scs")
    assert [one.key for one in written] == [A, B]
    assert all(one.frames > 10 for one in written)
    m.client.flushdb()
    found = import_states(m.client, m.config, tmp_path / "a.scs")
    assert [(one.key, one.generation, one.frames) for one in found] == [tuple(one) for one in written]
    for key in (A, B):
        live = directory_of(m.client, key).look()
        assert (live.live, live.kept) == (1, (1,))
        assert tokens_apart(stored(m.client, key, 1)) == tokens_apart(before[key])
    assert m.known() == [A, B]
    m.start()
    m.traffic([A, B], 52, 90, seed=2)
    m.clocks(None)
    m.until_applied(A, B)
    m.until_matured(80, A, B)
    assert m.check(A) + m.check(B) >= 12
    assert len(digest) == 64


def test_a_retired_key_reads_on_from_where_the_file_stands(m: Monitored, tmp_path: Path) -> None:
    stopped(m)
    export_states(m.client, m.config, [A], tmp_path / "a.scs")
    m.traffic([A, B], 52, 90, seed=2)
    m.start()
    m.until_applied(A, B)
    stopped(m)
    ends = {
        f"{side}:{m.log.topic_id(topic)}:{p}": Mark(m.end(topic, p), None)
        for topic, side in (("blocks", "s"), ("labels", "l"))
        for p in range(m.log.partitions(topic))
    }
    open_registry(m.client, m.config).retire(A, ends, wall_clock_ms())
    assert delete_state(m.client, A, lambda: None)
    import_states(m.client, m.config, tmp_path / "a.scs")
    assert m.known() == [B, A]
    m.start()
    m.clocks(None)
    m.until_applied(A, B)
    m.until_matured(80, A)
    assert m.check(A) >= 6


def tokens_apart(content: set[Any]) -> set[Any]:
    """Without the fields, among which are the tokens of leases that an export takes."""
    return {part for part in content if part[1] != b"f"}


def test_while_a_role_is_at_work_nothing_is_exported(m: Monitored, tmp_path: Path) -> None:
    with pytest.raises(
        StateError,
        match=r"m/1: (monitor .* is at work|the lease `closer` is held); stop the roles monitor, refit, alert",
    ):
        export_states(m.client, m.config, [A], tmp_path / "a.scs")
    with pytest.raises(StateError, match=r"m/1: the lease `closer` is held"):
        export_states(m.client, m.config, [A], tmp_path / "a.scs", much_later)
    assert list(tmp_path.iterdir()) == []


def test_what_moves_meanwhile_is_found(m: Monitored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(m)

    def moved(*arguments: Any) -> Iterator[Content]:
        yield from dumped(*arguments)
        m.client.hset(f"sc:{{{A}/1}}:m", "n:s:x:0", 7)

    monkeypatch.setattr(state_transfer, "dumped", moved)
    with pytest.raises(StateError, match=r"the state of m/1 changed while it was exported"):
        export_states(m.client, m.config, [A], tmp_path / "a.scs")
    assert list(tmp_path.iterdir()) == []
    assert m.state(A).store.acquire_lease("closer", "another", 100) is not None


def test_what_is_there_is_not_written_over(m: Monitored, tmp_path: Path) -> None:
    stopped(m)
    path = tmp_path / "a.scs"
    export_states(m.client, m.config, [A], path)
    held = {name.full for some in names_of(m.client, A) for name in some}
    with pytest.raises(StateError, match=r"m/1 has a state here \(generation 0\), and nothing is written over it"):
        import_states(m.client, m.config, path)
    assert {name.full for some in names_of(m.client, A) for name in some} == held
    m.client.flushdb()
    state_of(m.client, m.config, A).board.put(MemberStatus("monitor", "x", wall_clock_ms(), {}))
    with pytest.raises(StateError, match="monitor x is at work"):
        import_states(m.client, m.config, path)


def test_nothing_is_written_of_a_file_that_cannot_be_used(m: Monitored, tmp_path: Path) -> None:
    stopped(m)
    path = tmp_path / "a.scs"
    export_states(m.client, m.config, [A, B], path)
    m.client.flushdb()
    other = m.config.model_copy(update={"windows": m.config.windows.model_copy(update={"horizon_ms": 20_000})})
    with pytest.raises(GenerationMismatchError, match="the state was made under"):
        import_states(m.client, other, path)
    few = m.config.model_copy(update={"model": m.config.model.model_copy(update={"max_keys": 1})})
    with pytest.raises(ConfigurationError, match=r"more than model.max_keys = 1; raise it"):
        import_states(m.client, few, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateError, match="cannot be read to its end"):
        import_states(m.client, m.config, path)
    model = ModelFrame("m", "1", state_of(m.client, m.config, A).generation, 1)
    write_dump(path, [model, *FRAMES[1:], model])
    with pytest.raises(StateError, match="m/1 is there twice"):
        import_states(m.client, m.config, path)
    write_dump(path, [ModelFrame("m", "1", "f" * 16, 9)])
    with pytest.raises(StateFormatError, match=r"the state is of format 9, this version reads and writes format 1"):
        import_states(m.client, m.config, path)
    assert m.client.dbsize() == 0


def test_an_import_that_was_interrupted_is_never_worked_on(
    m: Monitored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(m)
    path = tmp_path / "a.scs"
    export_states(m.client, m.config, [A], path)
    m.client.flushdb()

    def ended(client: RedisClient, key: ModelKey, number: int, content: Iterator[Content], step: Any) -> int:
        restore(client, key, number, [next(content) for _ in range(5)], step)
        raise KeyboardInterrupt

    monkeypatch.setattr(state_transfer, "restore", ended)
    with pytest.raises(KeyboardInterrupt):
        import_states(m.client, m.config, path)
    assert directory_of(m.client, A).look().live == 0
    assert m.state(A).store.read(("generation",)) == {"generation": None}
    monkeypatch.setattr(state_transfer, "restore", restore)
    import_states(m.client, m.config, path)
    assert directory_of(m.client, A).look().live == 2


def test_the_commands(m: Monitored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(m)
    monkeypatch.setattr(cli_state, "load", lambda path: m.config)
    path = str(tmp_path / "a.scs")
    done = CliRunner().invoke(app, ["state", "export", path])
    assert done.exit_code == 0, done.output
    assert "SHA-256 of the content" in done.stdout
    done = CliRunner().invoke(app, ["state", "import", path])
    assert done.exit_code == 1
    m.client.flushdb()
    done = CliRunner().invoke(app, ["state", "import", path])
    assert done.exit_code == 0, done.output
    assert "m/2: made under" in done.stdout
    with pytest.raises(StateError, match="x/1 has no state yet"):
        export_states(m.client, m.config, [ModelKey("x", "1")], tmp_path / "b.scs")
