"""What /v1/calibrate answers to requests that name something which is JSON and no UTF-8."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from stream_calib.config import Config
from stream_calib.config_connections import HttpSection
from stream_calib.live import LiveCalibrator
from workers.http_server import HttpServer
from workers.serve_requests import CalibrateRoutes


@pytest.mark.parametrize(
    "body",
    [
        rb'{"events": [], "model": "\ud800"}',
        rb'{"events": [], "version": "\ud800"}',
        rb'{"events": [], "\ud800": 1}',
        rb'{"events": [{"\ud800": 1}]}',
    ],
)
def test_an_unpaired_surrogate_is_refused_and_shown(redis_url: str, body: bytes) -> None:
    content = {"model": {"name": "m"}, "redis": {"url": redis_url}, "windows": {"horizon": "1d"}}
    config = Config.model_validate(content)
    with LiveCalibrator(config) as calibrator:
        routes = CalibrateRoutes(config, lambda: calibrator).routes
        with HttpServer(HttpSection(listen="127.0.0.1:0"), routes) as server:
            request = urllib.request.Request(f"http://{server.address}/v1/calibrate", data=body)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with pytest.raises(urllib.error.HTTPError) as caught:
                opener.open(request, timeout=10)
    assert caught.value.code == 422
    assert "ud800" in json.loads(caught.value.read())["error"]
