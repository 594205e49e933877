"""The alerts about troubles in real fleets. A real Prometheus with the project's rules shows which alerts fire for each
trouble, and in which order. All intervals of the fleets and of the rules are shortened to a twentieth. All troubles
occur at the same time, beside a healthy fleet.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.dashboards import run_query
from support.trouble_panels import SHOWN
from support.waiting import until
from troubles.answers import ANSWERS
from troubles.bench import Bench
from troubles.catalogue import TROUBLES

DEADLINE_SECONDS = 150.0
WELL = "well"
# This alert may fire for any fleet, because fifteen fleets and their servers share a few processors.
TRUE_ON_A_BUSY_MACHINE = ("RotaRedisSlow",)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Yield the fleets and their Prometheus after all troubles have begun. Prometheus has already scraped the fleets
    before the troubles.
    """
    with Bench(tmp_path_factory.mktemp("troubles"), TROUBLES, well=[WELL]) as made:
        made.prometheus.wait_for("count(count_over_time(rota_build_info[1m]) >= 5) >= 15")
        with ThreadPoolExecutor(len(TROUBLES)) as pool:
            list(pool.map(made.begin, TROUBLES))
        yield made


@pytest.mark.parametrize("name", TROUBLES)
def test_each_trouble_fires_the_right_alert_first_and_no_wrong_one(bench: Bench, name: str) -> None:
    expected = ANSWERS[name]
    first, *others = until(
        lambda: alerts(bench, name), bench.scenes[name].fleet.status, DEADLINE_SECONDS, pause_seconds=1
    )
    assert first in expected.right, bench.firing(name)
    assert set(others) <= {*expected.right, *expected.also}, bench.firing(name)


@pytest.mark.parametrize("name", TROUBLES)
def test_each_trouble_is_visible_in_its_dashboard_panel(bench: Bench, name: str) -> None:
    shown = SHOWN[name]
    until(
        lambda: any(shown.is_in(run_query(bench.prometheus, query, name)) for query in shown.queries()),
        lambda: [run_query(bench.prometheus, query, name) for query in shown.queries()],
        DEADLINE_SECONDS,
        pause_seconds=1,
    )


@pytest.mark.parametrize("name", [name for name in TROUBLES if ANSWERS[name].headline])
def test_the_status_page_and_rota_top_begin_with_the_cause_of_a_trouble(bench: Bench, name: str) -> None:
    lines: list[str] = []

    def is_shown() -> bool:
        lines.append(first_line(bench, name))
        return re.match(ANSWERS[name].headline, lines[-1]) is not None

    until(is_shown, lambda: set(lines), DEADLINE_SECONDS, pause_seconds=1)


def test_a_healthy_fleet_has_no_problem_headline(bench: Bench) -> None:
    until(lambda: first_line(bench, WELL).startswith("all is well: "), lambda: first_line(bench, WELL))


def test_no_unexpected_alert_has_fired_in_any_fleet(bench: Bench) -> None:
    fired = {name: set(alerts(bench, name)) for name in bench.scenes}
    assert fired.pop(WELL) == set()
    assert {name: found - {*ANSWERS[name].right, *ANSWERS[name].also} for name, found in fired.items()} == {
        name: set() for name in TROUBLES
    }


def first_line(bench: Bench, name: str) -> str:
    """Return this fleet's first headline, which is the first line of the status page and of `rota top`."""
    _, body = bench.scenes[name].fleet.get("/status.json")
    line: str = json.loads(body)["headlines"][0]["text"]
    return line


def alerts(bench: Bench, name: str) -> list[str]:
    """Return the names of the alerts that fired for this fleet, in the order in which they fired."""
    return [each.alert for each in bench.firing(name) if each.alert not in TRUE_ON_A_BUSY_MACHINE]
