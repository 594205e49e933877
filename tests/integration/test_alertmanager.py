"""The inhibit rules in deploy/prometheus, tested with a real Alertmanager, which must send the alert about a cause but
not the alerts about its consequences.
"""

import re
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from support.alert_cases import ALERTS, RULES
from support.alertmanager import Alertmanager
from support.prometheus import binary
from support.waiting import until

CONFIG = RULES / "alertmanager.yml"
DEADLINE_SECONDS = 30.0
ALERT = re.compile(r"(?P<name>\w+)(?: of (?P<role>\w+))?")
RESULTS = ["RotaLagBurn1h", "RotaQueueStarved", "RotaPollerBehind", "RotaWorkersMissing"]
# For each cause, the alerts that are sent in addition to its own when all alerts in RESULTS fire.
TOLD = {
    "RotaRedisDown": set(),
    "RotaWorkerCrashLoop of worker": {"RotaPollerBehind"},
    "RotaStartsHeld of zygote": {"RotaPollerBehind"},
    "RotaStartsHeld of poller": {"RotaQueueStarved", "RotaWorkersMissing"},
    "RotaDeadLetters": set(RESULTS),
}


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    made = Alertmanager(tmp_path_factory.mktemp("alertmanager"), CONFIG)
    yield made
    made.stop()


def test_amtool_accepts_the_configuration() -> None:
    checked = subprocess.run(
        [binary("amtool"), "check-config", str(CONFIG)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("cause", TOLD)
def test_the_alert_of_a_cause_silences_only_the_results_in_its_own_fleet(
    alertmanager: Alertmanager, cause: str
) -> None:
    found = ALERT.fullmatch(cause)
    assert found is not None
    labels = {label: value for label, value in {"alertname": found["name"], "role": found["role"]}.items() if value}
    fleet, other = cause.replace(" ", "-"), f"beside-{cause}".replace(" ", "-")
    alertmanager.fire(
        [
            {"job": "rota", "fleet": fleet, **labels},
            *({"job": "rota", "fleet": name, "alertname": result} for name in (fleet, other) for result in RESULTS),
        ]
    )
    expected = TOLD[cause] | {found["name"]}
    until(
        lambda: alertmanager.notified(fleet=fleet) == expected,
        lambda: alertmanager.notified(fleet=fleet),
        DEADLINE_SECONDS,
    )
    assert alertmanager.notified(fleet=other) == set(RESULTS)


def test_the_inhibit_rules_name_alerts_that_exist() -> None:
    rules = yaml.safe_load(CONFIG.read_text())["inhibit_rules"]
    matchers = [matcher for rule in rules for matcher in (*rule["source_matchers"], *rule["target_matchers"])]
    patterns = set(re.findall(r"Rota[\w.*]+", " ".join(matchers)))
    assert all(any(re.fullmatch(pattern, name) for name in ALERTS) for pattern in patterns)
