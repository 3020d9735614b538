"""State on servers that fail over in the middle of the work, and what is seen meanwhile.

Replication is asynchronous, so a failover may lose writes that were answered: the worker then reads again from where
the shards are, and the state must come out as on a server to which nothing happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis.crc import key_slot

from stream_calib.config_connections import RedisSection
from stream_calib.errors import ConfigurationError, StateUnavailableError
from stream_calib.redis_clients import ClusterClient, RedisClient
from stream_calib.redis_connection import LuaScript, answering, connect
from stream_calib.windows.memory_shards import MemoryShards
from stream_calib.windows.redis_shards import RedisShards
from stream_calib.windows.redis_state import RedisState
from stream_calib.windows.state_store import Commit
from tests.redis_servers import RedisClusterServers, WatchedPair, wait_until
from tests.tcp_proxy import TcpProxy
from tests.windows.backends import MODEL
from tests.windows.expectation import matured_of
from tests.windows.join import SETTINGS, Join, L, S, block, clock, label
from tests.windows.records import Item

SHARDS = 8
PANES = 12
DEADLINE_S = 30.0


class Worker:
    """Reads both inputs of a join from where the shards are, a few records at a time, and goes on when the state is
    away."""

    def __init__(self, join: Join) -> None:
        self.join = join
        self.away = 0
        """Steps that met a state that was away."""
        self._positions: dict[str, int] = {}
        scores: list[Item] = [block((f"id-{i % 67}", i / 2), (f"other-{i}", i / 2)) for i in range(240)]
        labels: list[Item] = [label(f"id-{i % 71}", i / 2 + 1 + i % 5, i % 2) for i in range(240)]
        join.append(S, *scores, clock(300))
        join.append(L, *labels, clock(300))

    def run(self, meanwhile: Callable[[int], None] = lambda step: None, records: int = 20) -> None:
        """To the end of both inputs, and until no shard is behind. `meanwhile` is called before each step, with its
        number."""
        give_up = time.monotonic() + DEADLINE_S
        step = 0
        while time.monotonic() < give_up:
            if step < 24:
                meanwhile(step)
            step += 1
            try:
                if self._step(records):
                    return
            except StateUnavailableError:
                self.away += 1
                self._positions.clear()
                time.sleep(0.02)
        raise AssertionError(f"not at the end after {DEADLINE_S:.0f} s, at {self._positions}; {self.away} times away")

    def _step(self, records: int) -> bool:
        """True when everything was applied."""
        ends = {key: len(items) for key, items in self.join.items.items()}
        for key, end in ends.items():
            if key not in self._positions:
                self._positions[key] = self.join.intake.restart(key).next
            start = self._positions[key]
            stop = min(start + records, end)
            rewound = self.join.deliver(key, start, stop) if stop > start else {}
            self._positions[key] = rewound[key].next if key in rewound else stop
        if self._positions != ends:
            return False
        for key, mark in self.join.intake.behind(self._positions).items():
            self._positions[key] = mark.next
        return self._positions == ends


def outcome(join: Join) -> list[object]:
    """Cells and counters of all panes."""
    found: list[object] = []
    for pane in range(PANES):
        matured = join.matured(pane)
        found.append((join.scored(pane), join.sums(pane), matured.counts, matured_of(matured.cells)))
    return found


@pytest.fixture(scope="module")
def undisturbed() -> list[object]:
    worker = Worker(Join(MemoryShards(SHARDS, SETTINGS)))
    worker.run()
    return outcome(worker.join)


@contextmanager
def cluster_join(servers: RedisClusterServers) -> Iterator[Join]:
    with connect(RedisSection(url=servers.url, cluster=True)) as client:
        yield Join(RedisShards(client, MODEL, SHARDS, SETTINGS))


def shard_key(join: Join, shard: int = 0) -> bytes:
    assert isinstance(join.store, RedisShards)
    return join.store._keys[shard].marks


# --- Redis Cluster


def test_a_clusters_primary_is_killed(own_cluster: RedisClusterServers, undisturbed: list[object]) -> None:
    with cluster_join(own_cluster) as join:
        worker = Worker(join)
        killed = own_cluster.primary_of(shard_key(join))

        def kill(step: int) -> None:
            if step == 5:
                killed.kill()

        worker.run(kill)
        assert worker.away > 0
        assert own_cluster.primary_of(shard_key(join)) is not killed
        assert outcome(join) == undisturbed


@pytest.mark.parametrize("how", ["", "FORCE", "TAKEOVER"])
def test_a_clusters_primary_is_demoted(own_cluster: RedisClusterServers, undisturbed: list[object], how: str) -> None:
    with cluster_join(own_cluster) as join:
        worker = Worker(join)

        def fail_over(step: int) -> None:
            if step in (4, 8):
                own_cluster.fail_over(own_cluster.primary_of(shard_key(join, step % SHARDS)), how)
                own_cluster.wait_until_whole()

        worker.run(fail_over)
        assert outcome(join) == undisturbed


def test_slots_move_between_the_calls_of_a_batch(own_cluster: RedisClusterServers, undisturbed: list[object]) -> None:
    """Half of a shard's keys are here and half there for a while: nothing of a call is done, and then all of it."""
    with cluster_join(own_cluster) as join:
        assert isinstance(join.store, RedisShards)
        worker = Worker(join)
        target = own_cluster.nodes[0]
        keys = [shard_key(join, shard) for shard in range(SHARDS)]
        moving = [key_slot(key) for key in keys if own_cluster.primary_of(key) is not target]
        assert 0 < len(moving) < SHARDS

        def migrate(step: int) -> None:
            for slot in moving:
                if step == 3:
                    own_cluster.begin_to_move(slot, target)
                    own_cluster.move_keys(slot, target, 15)
                if step == 6:
                    own_cluster.move_keys(slot, target)

        worker.run(migrate)
        assert worker.away > 0
        assert {own_cluster.primary_of(key).port for key in keys} == {target.port}
        assert outcome(join) == undisturbed


def test_a_cluster_that_is_down_is_unavailable_and_then_goes_on(own_cluster: RedisClusterServers) -> None:
    section = RedisSection(url=own_cluster.url, cluster=True, retries=1)
    with connect(section) as client:
        state = RedisState(client, MODEL)
        assert state.commit(Commit({}, {"a": "1"}))
        primary = own_cluster.primary_of(state._fields_key)
        replica = own_cluster.replica_of(primary)
        replica.kill()
        primary.kill()
        with pytest.raises(StateUnavailableError, match="while"):
            state.read(("a",))
        with pytest.raises(StateUnavailableError, match=r"running commit\.lua"):
            state.commit(Commit({}, {"a": "2"}))
        # The cluster notices by itself that slots are not served; then every node refuses.
        others = [node for node in own_cluster.nodes if node not in (primary, replica)]
        with others[0].client() as other:
            wait_until(lambda: b"cluster_state:fail" in other.execute_command("CLUSTER", "INFO"), "the cluster is down")
        with pytest.raises(StateUnavailableError), answering(StateUnavailableError, "connecting"):
            connect(section)
        primary.start()
        wait_until(lambda: reads(state) == "1", "the state is back")


def reads(state: RedisState) -> str | None:
    try:
        return state.read(("a",))["a"]
    except StateUnavailableError:
        return None


def test_scripts_are_sent_again_to_each_node_that_lost_them(cluster_client: ClusterClient) -> None:
    join = Join(RedisShards(cluster_client, MODEL, SHARDS, SETTINGS))
    worker = Worker(join)

    def flush(step: int) -> None:
        if step % 3 == 0:
            cluster_client.script_flush()
        elif step % 3 == 1:
            cluster_client.primaries()[step % 2][1].script_flush()

    worker.run(flush)
    assert worker.away == 0
    expected = Worker(Join(MemoryShards(SHARDS, SETTINGS)))
    expected.run()
    assert outcome(join) == outcome(expected.join)


def test_a_batch_is_one_round_trip_to_each_node_and_sent_once(cluster_client: ClusterClient) -> None:
    join = Join(RedisShards(cluster_client, MODEL, SHARDS, SETTINGS))
    join.write(S, block(("a", 1)))
    for _, node in cluster_client.primaries():
        node.config_resetstat()
    join.write(S, *(block((f"id-{i}", 2)) for i in range(200)))
    calls: dict[str, int] = {}
    for _, node in cluster_client.primaries():
        for name, stat in node.info("commandstats").items():
            calls[name] = calls.get(name, 0) + stat["calls"]
    assert calls["cmdstat_evalsha"] == SHARDS
    assert not [name for name in calls if name.startswith(("cmdstat_command", "cmdstat_eval_", "cmdstat_cluster"))]


# --- Sentinel


@contextmanager
def watched_client(pair: WatchedPair) -> Iterator[RedisClient]:
    with connect(RedisSection(sentinels=pair.addresses, sentinel_service=pair.service)) as client:
        yield client


def test_a_watched_primary_is_killed(redis_sentinels: WatchedPair, undisturbed: list[object]) -> None:
    with watched_client(redis_sentinels) as client:
        join = Join(RedisShards(client, MODEL, SHARDS, SETTINGS))
        worker = Worker(join)
        killed = redis_sentinels.primary()

        def kill(step: int) -> None:
            if step == 5:
                killed.kill()

        worker.run(kill)
        assert worker.away > 0
        assert redis_sentinels.primary() is not killed
        assert outcome(join) == undisturbed


def test_a_watched_primary_is_demoted(redis_sentinels: WatchedPair, undisturbed: list[object]) -> None:
    with watched_client(redis_sentinels) as client:
        join = Join(RedisShards(client, MODEL, SHARDS, SETTINGS))
        join.store.attach()
        worker = Worker(join)
        before = redis_sentinels.primary()

        def fail_over(step: int) -> None:
            if step == 5:
                redis_sentinels.fail_over()
            elif step > 5:
                # What the log lost with its server is another matter: monitors attach anew (workers/monitor.py).
                with answering_or_not():
                    join.store.attach()

        worker.run(fail_over)
        assert redis_sentinels.primary() is not before
        assert outcome(join) == undisturbed


@contextmanager
def answering_or_not() -> Iterator[None]:
    try:
        yield
    except StateUnavailableError:
        return


def test_a_paused_primary_is_left_and_not_returned_to(redis_sentinels: WatchedPair) -> None:
    """A split brain's other half: it comes back as one that thinks it is the primary, until the Sentinels tell it."""
    section = RedisSection.model_validate({"sentinels": redis_sentinels.addresses, "socket_timeout": "500ms"})
    with connect(section) as client:
        state = RedisState(client, MODEL)
        assert state.commit(Commit({}, {"a": "1"}))
        wait_until(lambda: client.wait(1, 100) == 1, "the replica has it")
        before = redis_sentinels.primary()
        before.pause()
        with pytest.raises(StateUnavailableError):
            state.commit(Commit({}, {"a": "2"}))
        redis_sentinels.wait_for_another_primary(before)
        wait_until(lambda: commits(state, "3"), "the new primary takes writes")
        before.resume()
        with before.client() as old:
            assert old.info("replication")["role"] == "master"
            for n in range(4, 20):
                assert state.commit(Commit({"a": str(n - 1)}, {"a": str(n)}))
            assert old.hget(state._fields_key, "a") in (b"1", b"2")  # what it was sent before it stood still


def commits(state: RedisState, value: str) -> bool:
    try:
        return state.commit(Commit({}, {"a": value}))
    except StateUnavailableError:
        return False


def test_sentinels_that_know_no_such_service_are_named(redis_sentinels: WatchedPair) -> None:
    section = RedisSection(sentinels=redis_sentinels.addresses, sentinel_service="other", retries=0)
    refused = pytest.raises(StateUnavailableError, match="No master found for 'other'")
    with refused, answering(StateUnavailableError, "connecting"):
        connect(section)


def test_a_sentinels_address_is_not_a_servers(redis_sentinels: WatchedPair) -> None:
    with pytest.raises(ConfigurationError, match=r"is a Sentinel: name it in redis\.sentinels"):
        connect(f"redis://{redis_sentinels.addresses[0]}")


def test_sentinels_that_do_not_answer_are_named(redis_sentinels: WatchedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, locked, _ = redis_sentinels.sentinels
    dead.kill()
    with locked.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "resetpass", ">hunter2")
    section = RedisSection(sentinels=[dead.address, locked.address], retries=0)
    said = f"No master found for 'mymaster' \\({dead.address}: [a-z]*:ConnectionError, {locked.address}: .*Auth.*\\)"
    with pytest.raises(StateUnavailableError, match=said), answering(StateUnavailableError, "connecting"):
        connect(section)


def test_one_sentinel_is_enough_to_find_the_primary(redis_sentinels: WatchedPair) -> None:
    for sentinel in redis_sentinels.sentinels[:2]:
        sentinel.kill()
    with watched_client(redis_sentinels) as client:
        assert client.set("a", b"1")


# --- a single server that becomes a replica


def test_a_demoted_server_is_waited_for(redis_sentinels: WatchedPair) -> None:
    """Without Sentinels in the address: as behind a name or a proxy that somebody points elsewhere."""
    first, second = redis_sentinels.servers
    for sentinel in redis_sentinels.sentinels:
        sentinel.kill()  # they would put the roles back
    with connect(RedisSection(url=first.url, retries=1)) as client:
        state = RedisState(client, MODEL)
        assert state.commit(Commit({}, {"a": "1"}))
        with first.client() as demoted, second.client() as promoted:
            promoted.replicaof("NO", "ONE")
            demoted.replicaof("127.0.0.1", str(second.port))
            with pytest.raises(StateUnavailableError, match=r"refused while running commit\.lua: .*read only replica"):
                state.commit(Commit({}, {"a": "2"}))
            shards = RedisShards(client, MODEL, 3, SETTINGS)
            with pytest.raises(StateUnavailableError, match="read only replica"):
                Join(shards)
            refused = pytest.raises(StateUnavailableError, match="is a replica, which refuses writes")
            with refused, answering(StateUnavailableError, "connecting"):
                connect(RedisSection(url=first.url, retries=0))
            demoted.replicaof("NO", "ONE")
            assert state.commit(Commit({}, {"a": "3"}))


def test_a_replica_before_redis_7_is_left_too(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a script's first write ends it with the replica's answer inside a longer one, which is played here."""
    (tmp_path / "old.lua").write_text(
        "return redis.error_reply('ERR Error running script (call to f_1): @user_script:8: -READONLY You can\\'t write"
        " against a read only replica.')"
    )
    monkeypatch.syspath_prepend(tmp_path.parent)
    script = LuaScript(tmp_path.name, "old.lua", error_class=StateUnavailableError)
    with connect(redis_url) as client:
        before = client.client_id()
        with pytest.raises(StateUnavailableError, match=r"refused while running old\.lua: .*-READONLY"):
            script(client, ["a"])
        assert client.client_id() != before


def test_an_address_that_is_pointed_elsewhere_is_connected_to_again(redis_sentinels: WatchedPair) -> None:
    """A managed service moves its name to the new primary; the connection with the old one would stay open."""
    first, second = redis_sentinels.servers
    for sentinel in redis_sentinels.sentinels:
        sentinel.kill()
    with TcpProxy(first.port) as proxy, connect(f"redis://127.0.0.1:{proxy.port}") as client:
        state = RedisState(client, MODEL)
        assert state.commit(Commit({}, {"a": "1"}))
        proxy.to_port = second.port
        with second.client() as promoted, first.client() as demoted:
            promoted.replicaof("NO", "ONE")
            demoted.replicaof("127.0.0.1", str(second.port))
        assert state.commit(Commit({}, {"a": "2"}))
        assert client.info("server")["tcp_port"] == second.port
