"""What the Helm chart makes, by helm itself and by Kubernetes' schemas."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from stream_calib.config_file import load_config
from stream_calib.errors import StreamCalibError
from tests.deploy.tools import helm, render

pytestmark = pytest.mark.deploy

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm/stream-calib"
ALL_ON = CHART / "ci/values.yaml"
ROLES = ("calibrate", "monitor", "refit", "alert")
_KUBERNETES = "1.30"
_OF_THE_OPERATOR = ("ServiceMonitor", "PrometheusRule")


def _objects(*arguments: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(render(CHART, "--values", str(ALL_ON), *arguments)) if found]


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return _objects()


def _one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


def _pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for found in objects:
        if found["kind"] in ("StatefulSet", "Deployment", "Job"):
            yield found["metadata"]["name"], found["spec"]["template"]


def test_helm_finds_no_fault() -> None:
    done = subprocess.run(
        [str(helm()), "lint", "--strict", "--values", str(ALL_ON), str(CHART)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_kubernetes_knows_every_field(objects: list[dict[str, Any]]) -> None:
    checked = 0
    for found in objects:
        if found["kind"] not in _OF_THE_OPERATOR:
            kubernetes_validate.validate(found, _KUBERNETES, strict=True)
            checked += 1
    assert checked >= 4 + 4 + 5


def test_each_role_is_a_workload_with_probes_and_a_disruption_budget(objects: list[dict[str, Any]]) -> None:
    for role in ROLES:
        name = f"release-stream-calib-{role}"
        kind = "StatefulSet" if role in ("calibrate", "monitor") else "Deployment"
        workload = _one(objects, kind, name)
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["run", "--role", role]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["resources"]["limits"]["memory"]
        # Longer than the 20 s in which a role ends by itself.
        assert workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 20
        labels = workload["spec"]["template"]["metadata"]["labels"]
        for selector in (workload["spec"]["selector"], _one(objects, "PodDisruptionBudget", name)["spec"]["selector"]):
            assert selector["matchLabels"].items() <= labels.items()
            assert selector["matchLabels"]["app.kubernetes.io/component"] == role
        names = {variable["name"] for variable in container["env"]}
        assert ("STREAM_CALIB_INSTANCE_ID" in names) == (kind == "StatefulSet")


def test_no_pod_can_do_more_than_it_needs(objects: list[dict[str, Any]]) -> None:
    pods = dict(_pods(objects))
    assert len(pods) == len(ROLES) + 1
    for name, pod in pods.items():
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        assert pod["spec"]["securityContext"]["runAsUser"] == 10001, name
        for container in pod["spec"]["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def test_the_configuration_arrives_whole(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    given = yaml.safe_load(ALL_ON.read_text(encoding="utf-8"))["config"]
    for name in ("release-stream-calib", "release-stream-calib-topics"):
        assert _one(objects, "ConfigMap", name)["data"]["stream-calib.toml"] == given
    (tmp_path / "stream-calib.toml").write_text(given)
    assert load_config(tmp_path / "stream-calib.toml", {}).log.kind == "kafka"


def test_a_change_of_the_configuration_restarts_the_pods(objects: list[dict[str, Any]]) -> None:
    changed = dict(_pods(_objects("--set", "config=other")))
    for name, pod in _pods(objects):
        if not name.endswith("-topics"):
            before, after = pod["metadata"]["annotations"], changed[name]["metadata"]["annotations"]
            assert before["checksum/config"] != after["checksum/config"]


def test_the_service_reaches_the_roles_and_not_the_job(objects: list[dict[str, Any]]) -> None:
    selector = _one(objects, "Service", "release-stream-calib")["spec"]["selector"]
    for name, pod in _pods(objects):
        assert (selector.items() <= pod["metadata"]["labels"].items()) == (not name.endswith("-topics")), name
    monitor = _one(objects, "ServiceMonitor", "release-stream-calib")
    assert (
        monitor["spec"]["selector"]["matchLabels"].items()
        <= _one(objects, "Service", "release-stream-calib")["metadata"]["labels"].items()
    )


def test_rules_and_board_are_those_of_deploy(objects: list[dict[str, Any]]) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text(encoding="utf-8"))
    assert _one(objects, "PrometheusRule", "release-stream-calib")["spec"] == rules
    board = (DEPLOY / "grafana/dashboards/stream-calib.json").read_text(encoding="utf-8")
    assert _one(objects, "ConfigMap", "release-stream-calib-dashboard")["data"]["stream-calib.json"] == board


def test_serve_is_a_workload_behind_a_service_of_its_own() -> None:
    objects = _objects("--set", "serve.enabled=true", "--set", "serve.replicas=3")
    name = "release-stream-calib-serve"
    workload = _one(objects, "Deployment", name)
    assert workload["spec"]["replicas"] == 3
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["serve"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    labels = dict(_pods(objects))[name]["metadata"]["labels"]
    service = _one(objects, "Service", name)
    assert service["spec"]["selector"].items() <= labels.items()
    assert not any(
        service["spec"]["selector"].items() <= p["metadata"]["labels"].items() for n, p in _pods(objects) if n != name
    )
    monitor = _one(objects, "ServiceMonitor", "release-stream-calib")
    assert not monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert _one(objects, "PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for found in objects:
        if found["kind"] not in _OF_THE_OPERATOR:
            kubernetes_validate.validate(found, _KUBERNETES, strict=True)


def test_what_is_optional_is_off_by_itself() -> None:
    objects = [o for o in yaml.safe_load_all(render(CHART, "--set", "config=x", "--set", "createTopics=false")) if o]
    assert {o["kind"] for o in objects} == {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "StatefulSet"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "config"),
        (("--set", "config=x", "--set", "replicas=2"), "replicas"),
        (("--set", "config=x", "--set", "roles.calibrate.replicas=many"), "replicas"),
        (("--set", "config=x", "--set", "roles.serve.replicas=1"), "serve"),
    ],
)
def test_values_that_mean_nothing_are_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(StreamCalibError, match=said):
        render(CHART, *arguments)


def test_tls_is_spoken_to_probes_and_prometheus() -> None:
    objects = _objects("--set", "httpTls=true")
    for name, pod in _pods(objects):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            for container in pod["spec"]["containers"]:
                assert name.endswith("-topics") or container[probe]["httpGet"]["scheme"] == "HTTPS"
    assert _one(objects, "ServiceMonitor", "release-stream-calib")["spec"]["endpoints"][0]["scheme"] == "https"
