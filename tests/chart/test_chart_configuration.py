"""The rota.toml and the environment of the pod, as the chart renders them and as Rota reads them."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import to_builtins

from chart.configuration import as_json, environment_of, loaded
from chart.derived_files import OF_THE_POD
from chart.kube import Object, at_path, default_values, only, render, with_changes
from chart.situations import EVERYTHING, SITUATIONS
from chart.values_tree import SAMPLE, Value, values
from rota_supervisor.config.model import Config
from rota_supervisor.master.core.generations import _NEEDS_RESTART as NEEDS_RESTART

# A configuration in which each key can be changed alone, and other valid values for the keys that have texts.
BASIS: Object = {
    "namespace": "shop",
    "tiers": [["default", "mail"], [SAMPLE]],
    "queues": {SAMPLE: {"weight": 2}},
    "tasks": {SAMPLE: {"retries": 1}},
    "schedules": {SAMPLE: {"task": "report", "cron": "0 3 * * *", "queue": "default"}},
    "conditions": {"night": {"hours": "Mon-Fri 20:00-24:00 UTC"}},
    "adopt": {SAMPLE: {"queue": "default"}},
}
OTHERS: Object = {
    "namespace": "mail",
    "redis_credentials": "shop.auth:login",
    "imports": ["shop.tasks", "shop.reports"],
    "tiers": [["default", "mail"], [SAMPLE, "tenant-*"]],
    "queues": {SAMPLE: {"rate": "100/m", "condition": "night"}},
    "conditions": {
        SAMPLE: {"hours": "Sat-Sun 00:00-24:00 UTC", "lua": '-- "small" & \'quiet\'\nreturn queue == "a" or ready < 4'}
    },
    "tasks": {SAMPLE: {"rate": "5/s"}},
    "adopt": {SAMPLE: {"queue": "mail", "task": "send"}},
    "schedules": {
        SAMPLE: {
            "task": "mail",
            "cron": "*/5 * * * *",
            "timezone": "Europe/Zurich",
            "args": [1, 2.5, "three <&>", True, {"four": [5, {"six seven": "\t"}]}],
            "kwargs": {"when": "now", "sizes": {"small": 1}},
            "queue": "mail",
            "start": "2027-01-31T08:00:00+01:00",
            "end": "2028-01-31T08:00:00+01:00",
        }
    },
    "pools": {SAMPLE: {"workers": 7, "queues": ["*", "default"]}},
    "lease": {"seconds": 60},
    "http": {"allowed_hosts": ["rota.example"]},
}
# For each key, a key that must be removed because the two exclude each other.
EXCLUDED = {"schedules.sample.every": ("schedules", SAMPLE, "cron")}
CONFIG = [value for value in values() if value.path[0] == "config"]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_rota_accepts_the_configuration_of_the_chart_without_a_warning(situation: str, tmp_path: Path) -> None:
    objects = render(SITUATIONS[situation])
    warnings = [each for each in loaded(objects, tmp_path).warnings if "without http.token_file" not in each]
    assert warnings == []


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_configuration_value_of_the_chart_reaches_rota(situation: str, tmp_path: Path) -> None:
    given = with_changes(default_values(), SITUATIONS[situation])["config"]
    if given.get("pools"):
        del given["workers"]
    config = as_json(loaded(render(SITUATIONS[situation]), tmp_path))
    assert differences(given, config) == []


def differences(given: Any, found: Any, path: str = "") -> list[str]:
    """Return the paths of those given values that are missing from the found ones or differ from them."""
    if isinstance(given, Mapping) and isinstance(found, Mapping):
        return [each for key in given for each in differences(given[key], found.get(key), f"{path}.{key}")]
    return [] if found == given else [f"{path}: {given!r} became {found!r}"]


@pytest.mark.parametrize("value", CONFIG, ids=str)
def test_each_configuration_key_that_is_changed_alone_reaches_rota(value: Value, tmp_path: Path) -> None:
    path = value.path[1:]
    new = _another(value)
    basis = deepcopy(BASIS)
    if (excluded := EXCLUDED.get(".".join(path))) is not None:
        del basis[excluded[0]][excluded[1]][excluded[2]]
    given = with_changes(basis, at_path(path, new))
    if path[0] == "pools":
        given = with_changes(given, {"pools": {"all": {"workers": 1}}})
    chart_values: Object = {"config": given}
    if path == ("http", "actions"):
        chart_values |= {"http": {"token": {"secret": "rota-token"}}}
    config = as_json(loaded(render(chart_values), tmp_path))
    for key in path:
        config = config[key]
    assert differences(new, config) == []
    assert config is not None


def _another(value: Value) -> Any:
    """Return a different valid value for a key of the configuration."""
    other: Any = OTHERS
    for key in value.path[1:]:
        other = other.get(key) if isinstance(other, dict) else None
    if other is not None:
        return other
    schema, kinds = value.schema, value.types()
    if "enum" in schema or "boolean" in kinds:
        return (schema.get("enum") or [not value.default])[-1]
    assert kinds & {"integer", "number"}, f"{value}: add a value to OTHERS"
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if most is not None and most <= 1:
        return (least + most) / 2
    offset = 100_000_000 if most is None and "integer" in kinds else 1
    return least + offset


def test_the_chart_leaves_out_only_keys_that_it_sets_itself() -> None:
    known = {".".join(value.path[1:]) for value in CONFIG}
    of_product = {".".join(path) for path in _keys(to_builtins(Config()))}
    left_out = {key for key in of_product if key not in known and not any(each.startswith(f"{key}.") for each in known)}
    names = {"Config": "", "Http": "http."}
    expected = {f"{names[table]}{key}" for table, keys in OF_THE_POD.items() for key in keys}
    signing = {"signing.keys", "signing.sign_with", "signing.required"}
    assert left_out == (expected - {"control", "signing"}) | {"control.socket", "control.pid_file"} | signing


def _keys(table: Object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, inner in table.items():
        found += _keys(inner, (*path, key)) if isinstance(inner, dict) and inner else [(*path, key)]
    return found


def test_the_redis_url_is_in_the_secret_and_in_no_other_object() -> None:
    objects = render(EVERYTHING)
    url = EVERYTHING["redis"]["url"]
    assert only(objects, "Secret")["stringData"] == {"url": url}
    assert [each["kind"] for each in objects if url in yaml.safe_dump(each)] == ["Secret"]
    assert "ROTA_REDIS_URL" not in environment_of(objects)


# Changes that replace the pods of the fleet


def template(changes: Object) -> Object:
    """Return the pod template with these values."""
    found: Object = only(render(changes), "Deployment")["spec"]["template"]
    return found


@pytest.mark.parametrize("key", sorted({*NEEDS_RESTART, "redis_credentials"} - {*OF_THE_POD["Config"], "redis_url"}))
def test_a_key_that_a_reload_refuses_replaces_the_pods(key: str) -> None:
    new = {"namespace": "mail", "durability": "wait", "redis_credentials": "shop.auth:login"}[key]
    assert template({"config": {key: new}}) != template({})


def test_any_other_change_of_a_watched_file_keeps_the_pods() -> None:
    changes = {"workers": 9, "tiers": [["high"], ["default"]], "imports": ["tasks"], "lease": {"seconds": 30}}
    for key, value in changes.items():
        assert template({"config": {key: value}}) == template({}), key


def test_a_change_of_an_unwatched_file_replaces_the_pods() -> None:
    unwatched = {"watch_config": False}
    assert template({"config": {**unwatched, "workers": 9}}) != template({"config": unwatched})


def test_a_changed_url_replaces_the_pods() -> None:
    one, other = (template({"redis": {"url": f"redis://{host}"}}) for host in ("a", "b"))
    assert one != other


def test_a_reload_cannot_change_the_drain_time_without_the_grace_period() -> None:
    """A running pod keeps its terminationGracePeriodSeconds. Therefore a reload must not change the drain time of the
    fleet in that pod.
    """
    one, other = (render({"config": {"limits": {"drain_seconds": seconds}}}) for seconds in (25, 300))
    assert only(one, "ConfigMap") == only(other, "ConfigMap")
    assert environment_of(one)["ROTA_LIMITS__DRAIN_SECONDS"] != environment_of(other)["ROTA_LIMITS__DRAIN_SECONDS"]
