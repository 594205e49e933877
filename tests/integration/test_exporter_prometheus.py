"""The exporter's metrics. Prometheus's own tools check them, and a real Prometheus server scrapes them."""

from pathlib import Path

from rota.child.slots import boottime_ns
from rota.telemetry import metrics as m
from rota.telemetry.metrics import CounterDefinition, GaugeDefinition, HistogramDefinition, PeakDefinition, Writer
from support.exporting import POLLER_SLOT, WORKER_SLOT, Exporter, small_fleet
from support.masters import ON_ONE_SERVER
from support.prometheus import Prometheus, promtool, scrape_config
from support.servers import Server


def test_promtool_accepts_the_metrics_of_the_exporter(server: Server, namespace: str) -> None:
    exporter = small_fleet(server.url, namespace, "tenant-*")
    fill_every_metric(exporter)
    try:
        text = exporter.start().get("/metrics").body
    finally:
        exporter.close()
    checked = promtool("check", "metrics", text=text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def fill_every_metric(exporter: Exporter) -> None:
    """Record a value for every metric of the master, the poller and the worker, in the slot of that process."""
    slots = {Writer.MASTER: 0, Writer.POLLER: POLLER_SLOT, Writer.WORKER: WORKER_SLOT}
    recorders = {writer: exporter.recorder(slot) for writer, slot in slots.items()}
    for definition in m.ALL:
        labels = tuple({"queue": "mail", "kind": "retry"}.get(label, "x") for label in definition.labels)
        for writer in recorders.keys() & set(definition.writers):
            match definition:
                case CounterDefinition():
                    recorders[writer].counter(definition, *labels).add()
                case GaugeDefinition():
                    recorders[writer].gauge(definition, *labels).set(1)
                case HistogramDefinition():
                    recorders[writer].histogram(definition, *labels).observe(0.1)
                case PeakDefinition():
                    recorders[writer].peak(definition, *labels).observe(0.1, boottime_ns())
                case _:
                    raise AssertionError(definition)


@ON_ONE_SERVER
def test_a_real_prometheus_scrapes_every_metric(server: Server, namespace: str, tmp_path: Path) -> None:
    exporter = small_fleet(server.url, namespace, "tenant-*")
    fill_every_metric(exporter)
    prometheus = Prometheus(tmp_path, scrape_config(exporter.target))
    try:
        exporter.start()
        prometheus.start()
        prometheus.wait_for('rota_redis_up{job="rota"}')
        for definition in m.ALL:
            suffix = "_bucket" if isinstance(definition, HistogramDefinition) else ""
            answer = prometheus.query(f"{definition.name}{suffix}")
            assert answer.result, f"Prometheus knows nothing of {definition.name}"
            assert not answer.warnings
        assert (
            prometheus.query('histogram_quantile(0.5, rota_task_lag_seconds_bucket{queue="mail",kind="retry"})').value()
            > 0
        )
    finally:
        prometheus.stop()
        exporter.close()
