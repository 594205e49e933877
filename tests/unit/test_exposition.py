"""The response to a scrape, parsed by the client library's parsers, including the strict parser for OpenMetrics."""

import math
from collections.abc import Callable, Iterable

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from prometheus_client.samples import Exemplar, Sample

from rota.telemetry import metrics as m
from rota.telemetry.metrics import CounterDefinition, HistogramDefinition
from rota_supervisor.exporter.exposition import Origins, ScrapeOptions, exposition
from rota_supervisor.exporter.series import Samples

ACCEPT = "application/openmetrics-text;version=1.0.0"
PLAIN, OPENMETRICS = ScrapeOptions(), ScrapeOptions(ACCEPT)
NOWHERE = Origins(lambda *_: None, {})
PARSERS: dict[str, Callable[[str], Iterable[Metric]]] = {"": parse_plain, ACCEPT: parse_openmetrics}


def written(samples: Samples, wanted: ScrapeOptions = PLAIN, origins: Origins = NOWHERE, fleet: str = "shop") -> str:
    return exposition(samples, fleet, wanted, origins, 0.0).body.decode()


def read(samples: Samples, wanted: ScrapeOptions = PLAIN, origins: Origins = NOWHERE) -> dict[str, list[Sample]]:
    """Render these samples, parse the output, and return the parsed samples by name."""
    found: dict[str, list[Sample]] = {}
    for family in PARSERS[wanted.accept](written(samples, wanted, origins)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def every_metric() -> Samples:
    """Return samples of every metric, except for the collection time, which the exposition appends."""
    samples = Samples()
    for definition in (each for each in m.ALL if each is not m.COLLECT_SECONDS):
        samples.add(definition, tuple(definition.labels), tuple(map(float, range(definition.numbers))))
    return samples


@pytest.mark.parametrize("wanted", [PLAIN, OPENMETRICS, ScrapeOptions(ACCEPT, created=True)], ids=str)
def test_every_metric_is_read_back_as_it_is_declared(wanted: ScrapeOptions) -> None:
    text = written(every_metric(), wanted, Origins(lambda *_: 1.5, {}))
    families = {family.name: family for family in PARSERS[wanted.accept](text)}
    for definition in m.ALL:
        is_counter = isinstance(definition, CounterDefinition)
        family = families.pop(definition.name.removesuffix("_total") if is_counter else definition.name)
        is_histogram = isinstance(definition, HistogramDefinition)
        assert family.type == ("counter" if is_counter else "histogram" if is_histogram else "gauge")
        assert family.documentation == definition.help
        labels = {name: name for name in definition.labels} | {"fleet": "shop"}
        assert all(sample.labels.items() >= labels.items() for sample in family.samples)
        created = [sample.value for sample in family.samples if sample.name.endswith("_created")]
        assert created == ([1.5] if wanted.created and (is_counter or is_histogram) else [])
    assert families == {}


def test_both_metric_formats_contain_the_same_samples() -> None:
    plain, openmetrics = read(every_metric()), read(every_metric(), OPENMETRICS)
    for found in (plain, openmetrics):
        del found[m.COLLECT_SECONDS.name]
    assert plain == openmetrics


def test_a_histogram_is_cumulative_and_ends_with_its_count_and_sum() -> None:
    samples = Samples()
    samples.add(m.TASK_LAG, ("mail", "retry"), tuple(float(n) for n in range(22)))
    found = read(samples)
    buckets = {sample.labels["le"]: sample.value for sample in found["rota_task_lag_seconds_bucket"]}
    assert list(buckets) == [*map(str, m.TASK_LAG.buckets), "+Inf"]
    assert (buckets["0.0025"], buckets["1.0"], buckets["+Inf"]) == (1, sum(range(10)), sum(range(21)))
    (count,), (total,) = found["rota_task_lag_seconds_count"], found["rota_task_lag_seconds_sum"]
    assert (count.value, total.value) == (sum(range(21)), 21)


@pytest.mark.parametrize("wanted", [PLAIN, OPENMETRICS], ids=str)
@pytest.mark.parametrize("value", [0.0, 1.0, 1e-9, 123456789.5, 1e300, math.inf, -math.inf])
def test_a_scraped_number_is_parsed_as_it_was_written(value: float, wanted: ScrapeOptions) -> None:
    samples = Samples()
    samples.put(m.REDIS_CLOCK_OFFSET, (), value)
    (sample,) = read(samples, wanted)[m.REDIS_CLOCK_OFFSET.name]
    assert sample.value == value


def test_text_from_users_is_escaped_in_metric_labels() -> None:
    samples = Samples()
    samples.add(m.CLAIMS, ('a"b\\c\nd',), (3.0,))
    for wanted in (PLAIN, OPENMETRICS):
        (sample,) = read(samples, wanted)[m.CLAIMS.name]
        assert sample.labels == {
            "fleet": "shop",
            "queue": 'a"b\\c\\nd',
        }  # escaped twice: by `printable`, and then like any label value


def test_every_series_has_the_fleet_as_a_label() -> None:
    found = [sample for samples in read(every_metric()).values() for sample in samples]
    assert len(found) > 150
    assert {sample.labels["fleet"] for sample in found} == {"shop"}


def test_only_the_openmetrics_format_contains_exemplars() -> None:
    samples = Samples()
    samples.add(m.TASK_LAG, ("mail", "retry"), (1.0,) * 22)
    seen = Exemplar({"task_id": "id-1"}, 0.04, 1000.25)
    origins = Origins(lambda *_: None, {(m.TASK_LAG.name, ("mail", "retry")): {5: seen}})
    assert "task_id" not in written(samples, PLAIN, origins)
    buckets = read(samples, OPENMETRICS, origins)["rota_task_lag_seconds_bucket"]
    ((le, exemplar),) = [(sample.labels["le"], sample.exemplar) for sample in buckets if sample.exemplar]
    assert (le, exemplar.labels, exemplar.value) == ("0.05", {"task_id": "id-1"}, 0.04)
    assert str(exemplar.timestamp) == "1000.250000000"


def test_a_series_whose_start_is_unknown_has_no_created_sample() -> None:
    samples = Samples()
    samples.put(m.TASKS_ENQUEUED, ("mail",), 1)
    assert "_created" not in written(samples, ScrapeOptions(ACCEPT, created=True))


@pytest.mark.parametrize("name", ["rota_task_lag_seconds", "rota_task_lag_seconds_bucket", "rota_claims_total"])
def test_a_scrape_that_selects_metric_names_returns_only_those(name: str) -> None:
    found = read(every_metric(), ScrapeOptions(names=frozenset([name])))
    assert {sample.removesuffix("_total").partition("_seconds")[0] for sample in found} == {
        name.removesuffix("_total").partition("_seconds")[0]
    }


def test_without_samples_only_the_duration_of_the_scrape_is_returned() -> None:
    assert list(read(Samples())) == [m.COLLECT_SECONDS.name]
