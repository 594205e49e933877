"""Every value of the chart has an effect when it alone is changed. Every wrong value is refused with its path."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chart.kube import HELMS, HelmError, Object, at_path, default_values, parsed, render, rendered_text, with_changes
from chart.situations import SITUATIONS
from chart.validation import faults
from chart.values_tree import SAMPLE, WRONG_TEXT, Path, Value, change, tables, values

VALUES = values()
OF_CHART = [value for value in VALUES if value.path[0] != "config"]
_PATHS = {"helm": "/{}'", "helm3": "- {}:"}  # the form of a path in each version of helm
_NEXT = "\n---\n"
_JOINED = {"helm": "/", "helm3": "."}


@pytest.mark.parametrize("value", OF_CHART, ids=str)
def test_each_chart_value_has_an_effect_if_it_alone_is_changed(value: Value) -> None:
    for new in value.another():
        changed = [base for base in SITUATIONS.values() if _is_changed(base, change(value, new))]
        assert changed, f"{value} = {new!r} changes nothing"


def _is_changed(base: Object, changes: Object) -> bool:
    """Whether these changes to the values change the rendered objects. The rendered objects must be valid."""
    try:
        changed = rendered_text(with_changes(base, changes)).split(_NEXT)
    except HelmError as refusal:  # the change requires another value, which is not set in this base
        if "execution error" not in str(refusal):
            raise
        return False
    before = rendered_text(base).split(_NEXT)
    new = [each for document in set(changed) - set(before) for each in parsed(document)]
    assert [fault for each in new for fault in faults(each)] == []
    return changed != before


def test_every_default_is_described_by_the_schema() -> None:
    described = {value.path for value in VALUES}

    def leaves(table: Object, path: Path) -> Iterator[Path]:
        for key, inner in table.items():
            at = (*path, key)
            if isinstance(inner, dict) and inner and at not in described:
                yield from leaves(inner, at)
            else:
                yield at

    missing = [at for at in leaves(default_values(), ()) if at not in described]
    assert missing == []
    undocumented = [value.path for value in OF_CHART if not _has(default_values(), value.path)]
    assert undocumented == []


def _has(table: Any, path: Path) -> bool:
    return not path or (isinstance(table, dict) and path[0] in table and _has(table[path[0]], path[1:]))


def _refusal(given: Object, helm: str) -> str:
    with pytest.raises(HelmError) as refused:
        render(given, helm=helm)
    return str(refused.value)


def _in_words(path: Path, helm: str) -> str:
    return _PATHS[helm].format(_JOINED[helm].join(path))


def _together(given: dict[Path, Any]) -> Object:
    merged: Object = {}
    for path, wrong in given.items():
        merged = with_changes(merged, at_path(path, wrong))
    return merged


Wrong = Callable[[Value], list[Any]]
WRONG: dict[str, Wrong] = {
    "type": lambda value: [value.of_wrong_type()],
    "least": lambda value: list(value.out_of_bounds())[:1],
    "most": lambda value: list(value.out_of_bounds())[1:2],
}


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_value_is_refused_with_its_path(helm: str, kind: str) -> None:
    """All wrong values are passed at once, because helm reports each of them."""
    wrong = {value.path: given[0] for value in VALUES if (given := WRONG[kind](value))}
    refusal = _refusal(_together(wrong), helm)
    assert [path for path in wrong if _in_words(path, helm) not in refusal] == []


@pytest.mark.parametrize("helm", HELMS)
def test_an_unknown_key_is_refused_with_its_table(helm: str) -> None:
    refusal = _refusal(_together({(*path, "unknwn"): 1 for path in tables()}), helm)
    for path in tables():
        where = _in_words(path, helm) if path else {"helm": "at ''", "helm3": "(root)"}[helm]
        assert any(where in line and "unknwn" in line for line in refusal.splitlines()), path


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"tolerations": [{"efect": "NoSchedule"}]}, "/tolerations/0"),
        ({"affinity": {"nodeAffinity": {"required": {}}}}, "/affinity/nodeAffinity"),
        ({"resources": {"limits": {"memory": "1 GB"}}}, "/resources/limits/memory"),
        ({"env": [{"value": "x"}]}, "/env/0"),
        ({"securityContext": {"runAsUser": "rota"}}, "/securityContext/runAsUser"),
        ({"strategy": {"rollingUpdate": {"maxSurge": "25 percent"}}}, "/strategy/rollingUpdate/maxSurge"),
        ({"networkPolicy": {"metricsFrom": [{"podselector": {}}]}}, "/networkPolicy/metricsFrom/0"),
        ({"volumes": [{"name": "x", "emptydir": {}}]}, "/volumes/0"),
    ],
)
def test_the_values_schema_also_checks_parts_of_a_pod(given: Object, path: str) -> None:
    assert f"{path}'" in _refusal(given, "helm")


@pytest.mark.parametrize("table", ["queues", "tasks", "pools", "conditions", "schedules"])
def test_the_chart_refuses_names_that_rota_refuses(table: str) -> None:
    refusal = _refusal({"config": {table: {"two words": {}}}}, "helm")
    assert f"at '/config/{table}': additional properties 'two words' not allowed" in refusal


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"redis": {"url": "redis://r", "secret": {"name": "s"}}}, "redis.secret.name: redis.url is also set"),
        ({"redis": {"tls": {"secret": "s", "cert": "c"}}}, "redis.tls.key: set both redis.tls.cert and redis.tls.key"),
        ({"config": {"http": {"actions": True}}}, "config.http.actions: requires a token"),
        ({"pools": ["mail"]}, "pools[0]: there is no config.pools.mail"),
        ({"keda": {"minReplicas": 20}}, "keda.maxReplicas: expected at least keda.minReplicas (20), got 10"),
    ],
)
def test_the_chart_refuses_values_that_contradict_each_other(given: Object, message: str) -> None:
    assert message in _refusal(given, "helm")


def test_global_values_of_other_charts_are_allowed() -> None:
    assert render({"global": {"imageRegistry": "registry.example"}}) == render()


def test_default_values_contain_no_sample_entries() -> None:
    assert any(SAMPLE in value.path for value in VALUES)
    assert WRONG_TEXT not in str(default_values())
