"""POST /v1/calibrate: a request's events in, their calibrated probabilities out, all by one snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stream_calib.config import Config
from stream_calib.errors import RequestError, SnapshotError, StateUnavailableError
from stream_calib.events.columns import ABSENT
from stream_calib.events.json_decoding import BadJson, JsonDecoder
from stream_calib.events.messages import shown
from stream_calib.live import Calibrated, LiveCalibrator
from workers.bearer_token import bearer_token
from workers.serve_openapi import EVENT_FIELDS, PATH, openapi

_MAX_DEPTH = 16
_SMALL_BYTES = 65_536
"""A larger request is worked off beside the server's loop, which has health checks to answer."""

_encode = msgspec.json.Encoder().encode
T = TypeVar("T")


class AskedFor(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request. What is wrong with one event is said of that event alone."""

    events: list[dict[str, Any]]
    model: str | None = None
    version: str | None = None


class _TooLargeError(Exception):
    """Answered with 413."""


class CalibrateRoutes:
    """/v1/calibrate and /openapi.json."""

    def __init__(self, config: Config, calibrator: Callable[[], LiveCalibrator | None]) -> None:
        """`calibrator`: what answers now, None while the process starts or ends. Raises ConfigurationError where the
        token cannot be read."""
        self._http, self._calibrator = config.http, calibrator
        self._has_units = config.scores.unit is not None
        self._decoder = JsonDecoder(config.http.max_request_bytes, _MAX_DEPTH)
        self._last_s = float("-inf")
        document = openapi(config)
        self.routes = [
            Route(PATH, self._calibrate, methods=["POST"], middleware=bearer_token(config.http)),
            Route("/openapi.json", lambda request: JSONResponse(document)),
        ]

    def since_last_s(self) -> float:
        """Seconds since a request came, or was still at work."""
        return time.monotonic() - self._last_s

    async def _calibrate(self, request: Request) -> Response:
        self._last_s = time.monotonic()
        try:
            body = await self._body(request)
            calibrator = self._calibrator()
            if calibrator is None:
                raise StateUnavailableError("this process starts or ends: ask another one, or again in a moment")
            if len(body) > _SMALL_BYTES:
                return await run_in_threadpool(self._answer, calibrator, self._read, body)
            asked = self._read(body)
            if calibrator.answers_at_once(asked.model, asked.version):
                return self._answer(calibrator, _same, asked)
            return await run_in_threadpool(self._answer, calibrator, _same, asked)
        except _TooLargeError as error:
            return _refusal(413, str(error))
        except RequestError as error:
            return _refusal(422, str(error))
        except (StateUnavailableError, SnapshotError) as error:
            return _refusal(503, str(error), {"Retry-After": "1"})
        finally:
            self._last_s = time.monotonic()

    async def _body(self, request: Request) -> bytes:
        most = self._http.max_request_bytes
        chunks, size = [], 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise _TooLargeError(
                    f"the request has more than http.max_request_bytes = {most} bytes; send less at once"
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _read(self, body: bytes) -> AskedFor:
        content = self._decoder.decode(body)
        if isinstance(content, BadJson):
            raise RequestError(f"the body cannot be read: {content.message}")
        try:
            asked = msgspec.convert(content, AskedFor)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter: an unknown name that is no UTF-8
            raise RequestError(f"the body is none that {PATH} takes: {error}") from error
        if len(asked.events) > self._http.max_request_events:
            most = self._http.max_request_events
            raise _TooLargeError(f"{len(asked.events)} events; a request may have http.max_request_events = {most}")
        if set().union(*asked.events) - EVENT_FIELDS:
            raise RequestError(_unknown_field(asked.events))
        return asked

    def _answer(self, calibrator: LiveCalibrator, read: Callable[[T], AskedFor], given: T) -> Response:
        asked = read(given)
        events = asked.events
        answer = calibrator.calibrate(
            [event.get("score", ABSENT) for event in events],
            [_attributes(event, i) for i, event in enumerate(events)],
            model=asked.model,
            version=asked.version,
            event_ids=[event.get("event_id", ABSENT) for event in events],
            event_times_ms=[event.get("event_time_ms") for event in events],
            units=_column(events, "unit"),
            keep_rates=_column(events, "keep_rate"),
        )
        return Response(_encode(_content(answer)), media_type="application/json")


def _column(events: list[dict[str, Any]], name: str) -> list[Any] | None:
    """None where no event has the field."""
    return [event.get(name) for event in events] if any(name in event for event in events) else None


def _same(asked: AskedFor) -> AskedFor:
    return asked


def _attributes(event: dict[str, Any], i: int) -> dict[str, Any]:
    attributes = event.get("attributes")
    if attributes is None:
        return {}
    if type(attributes) is not dict:
        raise RequestError(f"events[{i}].attributes is {shown(attributes)}; an object of names and values is needed")
    return attributes


def _unknown_field(events: list[dict[str, Any]]) -> str:
    place, name = next((i, name) for i, event in enumerate(events) for name in event if name not in EVENT_FIELDS)
    known = ", ".join(sorted(EVENT_FIELDS))
    return f"events[{place}] has a field {shown(name)}; an event has {known}, and groups are in its attributes"


def _content(answer: Calibrated) -> dict[str, Any]:
    assert answer.event_id is not None
    columns = zip(answer.event_id, answer.raw.tolist(), answer.probability.tolist(), strict=True)
    status = answer.status
    results: list[dict[str, Any]] = [
        {"event_id": i, "raw": r, "calibrated": p, "status": status} for i, r, p in columns
    ]
    for place, (reason, message) in answer.refused.items():
        event_id = answer.event_id[place] or None
        results[place] = {"event_id": event_id, "error": {"code": reason.value, "message": message}}
    return {
        "model": answer.key.model,
        "version": answer.key.version,
        "snapshot": answer.snapshot or None,
        "staleness_ms": answer.staleness_ms,
        "results": results,
    }


def _refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    # A name in the request may be an unpaired surrogate, which is JSON and no UTF-8.
    shown_message = message.encode("utf-8", "backslashreplace").decode("utf-8")
    return JSONResponse({"error": shown_message}, status_code=status, headers=headers)
