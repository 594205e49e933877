"""The alert rules with shortened times. Every time in the rules is shortened, and nothing else is changed."""

import re
from pathlib import Path

import pytest

from support.prometheus import promtool
from troubles.bench import DEPLOY
from troubles.shortening import shortened


@pytest.mark.parametrize(
    ("rule", "by_30"),
    [
        ("increase(rota_claims_total[2m])", "increase(rota_claims_total[4000ms])"),
        (
            "max_over_time(lag:rate5m[1h30m:10s] offset 3d)",
            "max_over_time(lag:rate5m[180000ms:333ms] offset 8640000ms)",
        ),
        ("        for: 5m", "        for: 10000ms"),
        ("    interval: 1m", "    interval: 2000ms"),
        ("max(rota_queue_oldest_ready_age_seconds) > 60", "max(rota_queue_oldest_ready_age_seconds) > 2"),
        ('(time() - rota_start_time_seconds{job="a"} < 300)', '(time() - rota_start_time_seconds{job="a"} < 10)'),
        (
            "max by (job) (abs(rota_redis_clock_offset_seconds)) > 1",
            "max by (job) (abs(rota_redis_clock_offset_seconds)) > 0.0333333",
        ),
    ],
)
def test_shortening_an_alert_rule_divides_its_times_and_ages(rule: str, by_30: str) -> None:
    assert shortened(rule, 30) == by_30


@pytest.mark.parametrize(
    "rule",
    [
        "- alert: RotaLagBurn1h",
        "- record: job_queue:rota_lag_burn:rate5m",
        "job_queue:rota_lag_burn:rate1h > 14.4",
        "increase(rota_process_restarts_total) > 5",
        "max(rota_queue_oldest_running_age_seconds)\n > 2 * max(highest5m)",
        "max(rota_queue_oldest_running_age_seconds) > 2.5 * max(highest5m)",
        "has claimed none for 2m",
        "window: 1h",
    ],
)
def test_shortening_an_alert_rule_keeps_its_names_counts_and_words(rule: str) -> None:
    assert shortened(rule, 30) == rule


@pytest.mark.parametrize("name", ["recording.yml", "alerts.yml"])
def test_shortened_alert_rules_are_valid_and_have_no_long_times(name: str, tmp_path: Path) -> None:
    text = shortened((DEPLOY / name).read_text(), 30)
    (tmp_path / name).write_text(text)
    assert not re.search(r"[\[:]\d+[smhdw]\]|^ *for: \d+[smhdw]\b", text, re.MULTILINE)
    checked = promtool("check", "rules", str(tmp_path / name))
    assert checked.returncode == 0, checked.stdout + checked.stderr
