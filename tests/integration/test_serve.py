"""POST /v1/calibrate over real sockets and a real Redis: answers, refusals, limits, its OpenAPI document."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import trustme
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from prometheus_client import REGISTRY
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from stream_calib.errors import ConfigurationError, StateUnavailableError
from stream_calib.transport.embedded_server import EmbeddedServer
from tests.integration.http_client import Answer, send
from tests.integration.live_state import config_of, map_of, publish
from workers.http_server import HttpServer
from workers.serve import Serve

pytestmark = pytest.mark.services

PATH = "/v1/calibrate"
EVENT = {"event_id": "a", "score": 0.5, "attributes": {"region": "eu", "device": "phone"}}
HTTP = {"listen": "127.0.0.1:0"}


@contextmanager
def serving(redis_url: str, *, scheme: str = "http", **sections: Any) -> Iterator[tuple[str, Serve]]:
    """Address and role; open, unless the state is away."""
    config = config_of(redis_url, **{"http": HTTP, **sections})
    role = Serve(config)
    with HttpServer(config.http, role.routes()) as server:
        with suppress(StateUnavailableError):  # a role's loop tries again; until then requests are refused
            role.open()
        try:
            yield f"{scheme}://{server.address}", role
        finally:
            role.close()


@pytest.fixture
def url(redis_url: str) -> Iterator[str]:
    with serving(redis_url) as (address, _):
        yield address


def until(condition: Callable[[], Any], what: str, within_s: float = 60.0) -> Any:
    give_up = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < give_up, f"waited for {what}"
        time.sleep(0.01)
    return found


def ask(url: str, *events: Any, **more: Any) -> Answer:
    return send(url + PATH, {"events": list(events), **more})


# --- answers


def test_events_are_answered_in_order_each_by_itself(redis_client: redis.Redis, url: str) -> None:
    version = publish(redis_client)
    until(lambda: ask(url, EVENT).content["snapshot"] == version, "the snapshot")
    answer = ask(
        url,
        EVENT,
        {"event_id": 7, "score": 1, "attributes": None},
        {"event_id": "b", "score": 1.5},
        {"score": 0.5},
        {"event_id": "c", "score": None},
        {"event_id": "d", "score": 0.25, "event_time_ms": 12},
        {"event_id": "e", "score": 0.25, "event_time_ms": 1_700_000_000_000, "attributes": {"region": 3, "other": []}},
    )
    assert answer.status == 200
    content = answer.content
    assert (content["model"], content["version"], content["snapshot"]) == ("m", "1", version)
    assert 0 <= content["staleness_ms"] < 60_000
    signatures = [("eu", "phone"), ("__missing__", "__missing__"), ("3", "__missing__")]
    expected = map_of(redis_client, version).apply(np.array([0.5, 1.0, 0.25]), np.arange(3), signatures).tolist()
    results = content["results"]
    assert [r["event_id"] for r in results] == ["a", "7", "b", None, "c", "d", "e"]
    for place, raw, calibrated in zip((0, 1, 6), (0.5, 1.0, 0.25), expected, strict=True):
        event_id = results[place]["event_id"]
        assert results[place] == {"event_id": event_id, "raw": raw, "calibrated": calibrated, "status": "calibrated"}
    codes = [r["error"]["code"] for r in results if "error" in r]
    assert codes == ["score_out_of_range", "id_missing", "score_invalid", "time_out_of_range"]
    assert results[2]["error"]["message"] == "score is 1.5, outside the range of scores.scale = probability"


def test_before_the_first_snapshot(url: str) -> None:
    content = ask(url, EVENT).content
    assert content["snapshot"] is None
    assert content["results"] == [{"event_id": "a", "raw": 0.5, "calibrated": 0.5, "status": "identity"}]
    assert ask(url).content["results"] == []


def test_large_requests_are_answered_like_small_ones(redis_client: redis.Redis, url: str) -> None:
    version = publish(redis_client)
    until(lambda: ask(url, EVENT).content["snapshot"] == version, "the snapshot")
    events = [{**EVENT, "event_id": f"e{i}", "score": i / 2_999} for i in range(3_000)]
    large = ask(url, *events).content["results"]
    assert large[:50] == ask(url, *events[:50]).content["results"]
    assert [r["event_id"] for r in large] == [f"e{i}" for i in range(3_000)]


def test_of_several_models_one_is_named(redis_client: redis.Redis, redis_url: str) -> None:
    models = [{"name": "a", "score": "a", "scale": "percent"}, {"name": "b", "score": "b", "version_path": "v"}]
    with serving(redis_url, model={}, models=models) as (url, _):
        content = ask(url, EVENT, model="a").content
        assert (content["model"], content["version"]) == ("a", "1")
        assert content["results"][0]["raw"] == 0.005
        assert ask(url, EVENT, model="b", version="9").content["version"] == "9"
        for asked, message in (({}, "name the model"), ({"model": "b"}, "version"), ({"model": "c"}, "no model c")):
            answer = ask(url, EVENT, **asked)
            assert answer.status == 422
            assert message in answer.content["error"]


def test_units_where_they_are_configured(redis_url: str, url: str) -> None:
    unit = {**EVENT, "unit": "customer-1"}
    with serving(redis_url, scores={"unit": "customer", "attributes": {}}) as (with_units, _):
        assert ask(with_units, unit, EVENT).status == 200
    refused = ask(url, unit)
    assert refused.status == 422
    assert "scores.unit is not configured" in refused.content["error"]


def test_requests_are_counted(url: str) -> None:
    def served() -> tuple[float, float]:
        names = ("stream_calib_scores_served_total", "stream_calib_live_rejected_total")
        labels = ({"model": "m/1", "status": "identity"}, {"model": "m/1", "reason": "score_invalid"})
        found = [REGISTRY.get_sample_value(n, label) or 0.0 for n, label in zip(names, labels, strict=True)]
        return found[0], found[1]

    before = served()
    ask(url, EVENT, EVENT, {"event_id": "b", "score": "x"})
    assert served() == (before[0] + 2, before[1] + 1)


# --- refusals


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the value is empty"),
        (b"{", "not JSON"),
        (b"[]", "a JSON object is needed"),
        (b"\xff{}", "not UTF-8"),
        (b'{"events": [{"event_id": "a", "score": NaN}]}', "NaN is not JSON"),
        (b'{"events": [{"event_id": "a", "score": Infinity}]}', "Infinity is not JSON"),
        (b'{"events": [{"event_id": "a", "score": 1e999}]}', "beyond the range of float64"),
        (b'{"events": [{"event_id": "a", "score": 0.1, "score": 0.2}]}', "key 'score' is there twice"),
        (b'{"events": ' + b"[" * 50 + b"]" * 50 + b"}", "nested deeper"),
        (b"{}", "missing required field `events`"),
        (b'{"events": {}}', "Expected `array`"),
        (b'{"events": [1]}', "Expected `object`"),
        (b'{"events": [], "model": 1}', "Expected `str"),
        (b'{"events": [], "modell": "m"}', "unknown field `modell`"),
        (b'{"events": [{}, {"event_id": "a", "ts": 1}]}', r"events[1] has a field 'ts'"),
        (b'{"events": [{"event_id": "a", "score": 0.1, "attributes": "eu"}]}', "events[0].attributes is 'eu'"),
        (b'{"events": [], "version": "2"}', "no model"),
    ],
)
def test_a_body_that_cannot_be_answered_as_a_whole(url: str, body: bytes, message: str) -> None:
    answer = send(url + PATH, body)
    assert answer.status == 422
    assert message in answer.content["error"]


def test_limits(redis_url: str) -> None:
    http = {**HTTP, "max_request_events": 3, "max_request_bytes": 1_000}
    with serving(redis_url, http=http) as (url, _):
        assert ask(url, EVENT, EVENT, EVENT).status == 200
        many = ask(url, *[EVENT] * 4)
        assert many.status == 413
        assert many.content["error"] == "4 events; a request may have http.max_request_events = 3"
        large = send(url + PATH, b" " * 1_001)
        assert large.status == 413
        assert "http.max_request_bytes = 1000" in large.content["error"]
        assert ask(url, EVENT).status == 200


def test_only_posts(url: str) -> None:
    assert send(url + PATH).status == 405


def test_a_token_where_one_is_configured(redis_url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with serving(redis_url, http={**HTTP, "token_file": str(token)}) as (url, _):
        body = {"events": [EVENT]}
        assert send(url + PATH, body, headers={"Authorization": "Bearer s3cret"}).status == 200
        for headers in ({}, {"Authorization": "Bearer other"}):
            refused = send(url + PATH, body, headers=headers)
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == "Bearer"
        document = send(url + "/openapi.json").content
        assert document["paths"][PATH]["post"]["security"] == [{"bearer": []}]
        assert "401" in document["paths"][PATH]["post"]["responses"]
        validate(document)


def test_a_token_that_cannot_be_read_or_no_address_is_refused_at_the_start(redis_url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"http\.token_file"):
        Serve(config_of(redis_url, http={**HTTP, "token_file": str(tmp_path / "none")}))
    with pytest.raises(ConfigurationError, match=r"http\.listen is off"):
        Serve(config_of(redis_url))


def test_over_tls(redis_url: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    http = {**HTTP, "tls_certificate": str(cert), "tls_key": str(key)}
    with serving(redis_url, scheme="https", http=http) as (url, _):
        assert send(url + PATH, {"events": [EVENT]}, context=context).status == 200
        with pytest.raises(OSError, match="certificate"):
            send(url + PATH, {"events": [EVENT]}, context=ssl.create_default_context())


# --- not able to serve


def test_while_it_waits_for_a_first_snapshot(redis_client: redis.Redis, redis_url: str) -> None:
    with serving(redis_url, serving={"bootstrap": "wait", "snapshot_poll": "50ms"}) as (url, role):
        refused = ask(url, EVENT)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.content["error"] == "m/1 has no snapshot yet (serving.bootstrap = wait)"
        assert "first snapshot" in (role.ready() or "")
        publish(redis_client)
        until(lambda: ask(url, EVENT).status == 200, "the snapshot")
        assert role.ready() is None


def test_redis_away_before_the_start_and_later(own_redis: EmbeddedServer) -> None:
    own_redis.kill()
    with serving(own_redis.url) as (url, role):
        assert ask(url, EVENT).status == 503
        assert role.ready() == "starts"
        own_redis.start()
        role.open()
        until(lambda: ask(url, EVENT).status == 200, "the state")
        until(lambda: role.ready() is None, "readiness")
        own_redis.kill()
        until(lambda: ask(url, EVENT).content["staleness_ms"] > 500, "staleness")
        assert role.ready() is None
        own_redis.start()


def test_what_is_at_work_is_answered_when_it_ends_and_then_nothing(redis_url: str) -> None:
    with serving(redis_url) as (url, role):
        assert ask(url, EVENT).status == 200
        role.close()
        refused = ask(url, EVENT)
        assert refused.status == 503
        assert "starts or ends" in refused.content["error"]


# --- the document


def test_the_document_is_openapi_and_what_is_sent_conforms_to_it(redis_client: redis.Redis, url: str) -> None:
    document = send(url + "/openapi.json").content
    validate(document)
    assert document["openapi"].startswith("3.1")
    assert set(document["components"]["schemas"]["Event"]["properties"]["attributes"]["properties"]) == {
        "region",
        "device",
    }
    assert "unit" not in document["components"]["schemas"]["Event"]["properties"]
    resource = Resource.from_contents(document, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource("urn:api", resource)

    def conforms(content: Any, name: str) -> bool:
        schema = {"$ref": f"urn:api#/components/schemas/{name}"}
        return bool(Draft202012Validator(schema, registry=registry).is_valid(content))

    asked: dict[str, Any] = {"events": [EVENT, {"event_id": 7, "score": 0}], "model": "m"}
    assert conforms(asked, "Request")
    assert conforms(send(url + PATH, asked).content, "Answer")
    publish(redis_client)
    until(lambda: ask(url, EVENT).content["snapshot"], "the snapshot")
    bad = [{}, {"event_id": "b", "score": 2}, {"event_id": 1.5, "score": 0.1}, {"event_id": "c", "score": "x"}]
    timed = [{"event_id": "d", "score": 0.1, "event_time_ms": t} for t in ("x", 1)]
    answer = ask(url, EVENT, *bad, *timed).content
    assert conforms(answer, "Answer")
    codes = {r["error"]["code"] for r in answer["results"] if "error" in r}
    listed = set(document["components"]["schemas"]["Refused"]["properties"]["error"]["properties"]["code"]["enum"])
    assert codes == listed - {"score_missing"}
    assert not conforms({**answer, "results": [{"event_id": "a"}]}, "Answer")
    for body in ({"events": [{**EVENT, "ts": 1}]}, {"events": 1}, {"x": 1}):
        assert not conforms(body, "Request")
        refused = send(url + PATH, json.dumps(body).encode())
        assert refused.status == 422
        assert conforms(refused.content, "Error")
