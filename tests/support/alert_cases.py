"""The cases of `tests/alerts/`: series, and the alerts that fire at given times. promtool runs them.

A case is shorter than a test file of promtool:

* every series has the labels `job`, `fleet` and `instance` of one node, unless the case sets other labels. All scrapes
of this node succeed;
* `at` names all alerts that fire at a given time, including those that the case was not written for. If no alert fires,
`at` contains the word `nothing`;
* `says` is the text of an alert at the last time at which the alert fires. The links of the alert are taken from its
rule.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from support.dashboards import TOP

RULES: Final = TOP / "deploy" / "prometheus"
RECORDING: Final = RULES / "recording.yml"
ALERTING: Final = RULES / "alerts.yml"
CASES: Final = Path(__file__).parents[1] / "alerts"
_LINKS: Final = {"rota_grafana_url": "http://grafana.example", "rota_docs_url": "https://docs.example"}
_NODE: Final = {"job": "rota", "fleet": "shop", "instance": "a:9477"}
_NOTHING: Final = "nothing"
_SERIES: Final = re.compile(r"([\w:]+)(?:\{(.*)\})?")


def groups(file: Path) -> list[dict[str, Any]]:
    """Return the rule groups of a rule file."""
    found: list[dict[str, Any]] = yaml.safe_load(file.read_text())["groups"]
    return found


ALERTS: Final = {rule["alert"]: rule for group in groups(ALERTING) for rule in group["rules"]}


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: series, and the alerts that must fire at given times. `alert` is the alert under test."""

    what: str
    alert: str
    series: Mapping[str, str]
    at: Mapping[str, str]
    says: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def fires(self) -> set[str]:
        """Return the names of the alerts that the case expects to fire at some time."""
        return {_name(alert) for fires in self.at.values() for alert in _alerts(fires)}

    def keeps_still(self) -> bool:
        """Whether the case has a time at which the alert under test does not fire."""
        return any(self.alert not in map(_name, _alerts(fires)) for fires in self.at.values())

    def for_promtool(self) -> dict[str, Any]:
        """Return the case as a test in the format of promtool."""
        series = {"rota_build_info": "1x10000"} | dict(self.series)
        return {
            "name": self.what,
            "interval": "1m",
            "external_labels": _LINKS,
            "input_series": [{"series": _with_node(name), "values": values} for name, values in series.items()],
            "promql_expr_test": [_all_that_fires(time, _alerts(fires)) for time, fires in self.at.items()],
            "alert_rule_test": [self._wording(name, said) for name, said in self.says.items()],
        }

    def _wording(self, name: str, said: Mapping[str, str]) -> dict[str, Any]:
        *_, (time, labels) = (
            (time, _labels(alert))
            for time, fires in self.at.items()
            for alert in _alerts(fires)
            if _name(alert) == name
        )
        notes = ALERTS[name]["annotations"]
        links = {link: _filled_in(notes[link], labels) for link in ("runbook_url", "dashboard_url")}
        expected = {"exp_labels": labels | ALERTS[name]["labels"], "exp_annotations": {**said, **links}}
        return {"eval_time": time, "alertname": name, "exp_alerts": [expected]}


def cases(file: Path) -> list[Case]:
    """Return the cases in a file of `tests/alerts/`. All values are read as text, because promtool reads `0x10` as a
    series of zeros, and YAML would read it as a number.
    """
    return [Case(**known) for known in yaml.load(file.read_text(), yaml.BaseLoader)]


def for_promtool(file: Path, rule_files: Iterable[Path], evaluation: str = "1m") -> dict[str, Any]:
    """Return the input of promtool for the cases of a file. Groups are evaluated in the order of the rule files."""
    known = list(rule_files)
    return {
        "rule_files": [str(name) for name in known],
        "evaluation_interval": evaluation,
        "group_eval_order": [group["name"] for name in known for group in groups(name)],
        "tests": [case.for_promtool() for case in cases(file)],
    }


def _alerts(fires: str) -> list[str]:
    return [] if fires == _NOTHING else fires.split(" and ")


def _all_that_fires(time: str, alerts: list[str]) -> dict[str, Any]:
    samples = [
        {"labels": _text("ALERTS", {"alertname": _name(alert), "alertstate": "firing"} | _fixed(alert)), "value": 1}
        for alert in alerts
    ]
    return {"expr": 'ALERTS{alertstate="firing"}', "eval_time": time, "exp_samples": samples}


def _fixed(alert: str) -> dict[str, str]:
    """Return the labels with which an alert fires, including the labels that its rule adds."""
    return {**_labels(alert), **ALERTS[_name(alert)]["labels"]}


def _name(alert: str) -> str:
    return _parts(alert)[0]


def _labels(alert: str) -> dict[str, str]:
    """Return the labels that an alert gets from its series. Labels with an empty value are left out."""
    named = {"job": _NODE["job"], "fleet": _NODE["fleet"]} | _parts(alert)[1]
    return {label: value for label, value in named.items() if value}


def _with_node(series: str) -> str:
    name, labels = _parts(series)
    absent = {"up": "fleet"}.get(name, "instance" if ":" in name else "")
    return _text(name, {label: value for label, value in _NODE.items() if label != absent} | labels)


def _parts(series: str) -> tuple[str, dict[str, str]]:
    found = _SERIES.fullmatch(series)
    assert found is not None, series
    return found[1], dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))


def _text(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ", ".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def _filled_in(link: str, labels: Mapping[str, str]) -> str:
    known = {f"$labels.{label}": value for label, value in labels.items()}
    known |= {f"$externalLabels.{label}": value for label, value in _LINKS.items()}
    return re.sub(r"\{\{ (\S+) \}\}", lambda found: known.get(found[1], ""), link)
