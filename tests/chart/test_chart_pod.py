"""The rendered pod, compared with numbers and names in the product's code."""

import re
from math import ceil
from typing import Any

import pytest

from chart import values_tree
from chart.kube import TOP, Object, default_values, only, render
from chart.situations import EVERYTHING, SITUATIONS
from rota_supervisor.cli.node_verbs import LIVE, READY
from rota_supervisor.code_probe import PROVIDER_SECONDS
from rota_supervisor.config.model import Config, Limits
from rota_supervisor.exporter.access import METRICS
from rota_supervisor.fleet_snapshot import LIVE_TICKS
from rota_supervisor.layout import TICK_SECONDS
from rota_supervisor.master.core.targets import LEAVE_SECONDS, REAP_SECONDS

IMAGE = (TOP / "deploy/docker/Dockerfile").read_text()
# The longest time between the end of the drain and the exit of the master.
LEAVING_SECONDS = REAP_SECONDS + 2 * LEAVE_SECONDS


def pod(values: Object) -> Object:
    """Return the spec of the fleet's pods."""
    found: Object = only(render(values), "Deployment")["spec"]["template"]["spec"]
    return found


def container(values: Object) -> Object:
    """Return the container of the fleet."""
    (found,) = pod(values)["containers"]
    assert isinstance(found, dict)
    return found


@pytest.fixture(params=SITUATIONS)
def values(request: pytest.FixtureRequest) -> Object:
    return SITUATIONS[request.param]


# Stopping


@pytest.mark.parametrize("seconds", [0, 0.5, 25, 90.5, 86_400, 3_000_000])
def test_a_pod_may_drain_and_then_end_before_it_is_killed(seconds: float) -> None:
    values = {"config": {"limits": {"drain_seconds": seconds}}}
    grace = pod(values)["terminationGracePeriodSeconds"]
    assert isinstance(grace, int)
    assert seconds + LEAVING_SECONDS <= grace <= ceil(seconds) + 15
    (drain,) = (each["value"] for each in container(values)["env"] if each["name"] == "ROTA_LIMITS__DRAIN_SECONDS")
    assert float(drain) == seconds


def test_defaults_of_the_chart_match_the_product() -> None:
    limits = default_values()["config"]["limits"]
    assert limits == {key: getattr(Limits(), key) for key in limits}


def test_the_stop_signal_of_the_pod_reaches_the_master_without_delay() -> None:
    found = container({})
    assert "lifecycle" not in found
    assert "command" not in found, "the entry point of the image is the master itself"
    assert found["args"] == ["run"]
    assert "shareProcessNamespace" not in pod({}), "the master is process 1"
    assert re.search(r"^ENTRYPOINT \[\"rota\"\]$", IMAGE, re.MULTILINE)


# Probes and ports


def test_probes_request_paths_that_the_product_serves(values: Object) -> None:
    found = container(values)
    assert found["livenessProbe"]["httpGet"]["path"] == LIVE
    assert found["startupProbe"]["httpGet"]["path"] == LIVE, "an outage of Redis must not end a pod that starts"
    assert found["readinessProbe"]["httpGet"]["path"] == READY


def test_probes_and_scrapes_use_the_port_that_the_product_listens_on(values: Object) -> None:
    found = container(values)
    (port,) = found["ports"]
    listen = next(each["value"] for each in found["env"] if each["name"] == "ROTA_HTTP__LISTEN")
    assert listen.rpartition(":")[2] == str(port["containerPort"])
    assert Config().http.listen.endswith(f":{port['containerPort']}")
    for name in ("livenessProbe", "startupProbe", "readinessProbe"):
        assert found[name]["httpGet"]["port"] == port["name"]
    policy = only(render(values), "NetworkPolicy")
    assert [each["port"] for rule in policy["spec"]["ingress"] for each in rule["ports"]] == [port["name"]]


def test_a_certificate_makes_probes_and_scrapes_use_tls() -> None:
    probes = [container(EVERYTHING)[f"{name}Probe"] for name in ("liveness", "startup", "readiness")]
    assert {probe["httpGet"]["scheme"] for probe in probes} == {"HTTPS"}
    (endpoint,) = only(render(EVERYTHING), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert (endpoint["scheme"], endpoint["path"], endpoint["port"]) == ("https", METRICS, "http")


def test_a_slow_fleet_is_not_killed() -> None:
    """After some missed heartbeats, the master counts as dead. The kubelet waits several times as long before it
    restarts the container.
    """
    live = container({})["livenessProbe"]
    assert live["periodSeconds"] * (live["failureThreshold"] - 1) > 2 * LIVE_TICKS * TICK_SECONDS
    assert live["timeoutSeconds"] > TICK_SECONDS, "health is served within a second"


def test_the_schema_refuses_probes_that_would_kill_a_live_fleet() -> None:
    least = {str(value): value.schema["minimum"] for value in values_tree.values() if "minimum" in value.schema}
    probe = {key.rpartition(".")[2]: number for key, number in least.items() if key.startswith("probes.liveness.")}
    assert probe["periodSeconds"] * (probe["failureThreshold"] - 1) > LIVE_TICKS * TICK_SECONDS
    assert probe["timeoutSeconds"] > TICK_SECONDS
    assert least["probes.startup.extraSeconds"] > PROVIDER_SECONDS
    assert least["terminationMarginSeconds"] > LEAVING_SECONDS


@pytest.mark.parametrize("boot_seconds", [0.5, 60, 600])
@pytest.mark.parametrize("period", [1, 2, 7])
def test_a_starting_pod_has_the_time_that_the_product_needs(boot_seconds: float, period: int) -> None:
    values = {
        "config": {"limits": {"boot_seconds": boot_seconds}},
        "probes": {"startup": {"periodSeconds": period}},
    }
    start = container(values)["startupProbe"]
    patience = start["periodSeconds"] * start["failureThreshold"]
    assert boot_seconds + PROVIDER_SECONDS < patience < boot_seconds + 60 + period + 1


def test_every_probe_is_an_http_request_to_the_fleet() -> None:
    for name in ("livenessProbe", "startupProbe", "readinessProbe"):
        assert set(container({})[name]) == {"httpGet", "periodSeconds", "timeoutSeconds", "failureThreshold"}


# Security


def test_the_pod_meets_the_restricted_security_standard(values: Object) -> None:
    spec, found = pod(values), container(values)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    kinds = {key for volume in spec["volumes"] for key in volume} - {"name"}
    assert kinds <= {"configMap", "projected", "emptyDir"}


def test_the_user_of_the_pod_matches_the_image() -> None:
    """The pod gives its user as a number, because the kubelet cannot tell whether a named user is root."""
    (user,) = re.findall(r"useradd .*--uid (\d+)", IMAGE)
    context = default_values()["podSecurityContext"]
    assert {context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user)}


def test_a_platform_may_choose_the_user() -> None:
    chosen = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))
    assert not chosen.keys() & pod({"podSecurityContext": chosen})["securityContext"].keys()


def test_the_pod_has_no_api_token_and_no_service_variables(values: Object) -> None:
    assert pod(values)["automountServiceAccountToken"] is False
    assert pod(values)["enableServiceLinks"] is False
    assert only(render(values), "ServiceAccount")["automountServiceAccountToken"] is False


def test_only_the_fleets_user_can_read_the_secret_files(values: Object) -> None:
    (secrets,) = (each["projected"] for each in pod(values)["volumes"] if each["name"] == "secrets")
    assert secrets["defaultMode"] == 0o440
    assert not any("secretKeyRef" in str(each) for each in container(values)["env"])


def test_the_pod_can_write_only_to_tmp_and_shared_memory(values: Object) -> None:
    writable = [each["mountPath"] for each in container(values)["volumeMounts"] if not each.get("readOnly")]
    assert writable == ["/tmp", *(["/dev/shm"] if values else [])]


# Availability


def test_a_redis_outage_does_not_block_a_node_drain() -> None:
    budget = only(render(), "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_a_rollout_does_not_reduce_the_capacity() -> None:
    spec = only(render(), "Deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_selectors_select_the_pods(values: Object) -> None:
    objects = render(values)
    labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()

    def selectors(node: Any) -> list[dict[str, str]]:
        if isinstance(node, list):
            return [found for each in node for found in selectors(each)]
        if not isinstance(node, dict):
            return []
        own = [node["matchLabels"]] if "matchLabels" in node else []
        return own + [found for each in node.values() for found in selectors(each)]

    kinds = ("Deployment", "PodDisruptionBudget", "PodMonitor")
    found = [each for kind in kinds for each in selectors([o["spec"] for o in objects if o["kind"] == kind])]
    assert len(found) >= 4
    assert all(each.items() <= labels for each in found)
    other = only(render(values), "Pod")["metadata"]["labels"]
    assert not any(each.items() <= other.items() for each in found), "the pod of `helm test` is none of the fleet"


def test_with_keda_the_deployment_sets_no_number_of_pods() -> None:
    assert "replicas" not in only(render({"keda": {"enabled": True}}), "Deployment")["spec"]
    assert only(render({"replicas": 7}), "Deployment")["spec"]["replicas"] == 7


def test_the_helm_test_pod_runs_rota_check_in_the_environment_of_the_fleet(values: Object) -> None:
    check = only(render(values), "Pod")["spec"]
    (checking,) = check["containers"]
    fleet = container(values)
    assert checking["args"] == ["check"]
    assert {key: checking[key] for key in ("image", "env", "volumeMounts")} == {
        key: fleet[key] for key in ("image", "env", "volumeMounts")
    }
    assert check["volumes"] == pod(values)["volumes"]
