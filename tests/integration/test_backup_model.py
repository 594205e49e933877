"""Exports and imports of random situations from the model test. Every key is copied."""

import io
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from machine.faults import Faults
from machine.grouping import Grouping
from machine.schedules import Schedules
from machine.throttling import Throttling
from rota_supervisor.backup.export_file import export_namespace
from rota_supervisor.backup.file_check import check_file, records_after
from rota_supervisor.backup.import_file import Importer, batches_of, blame_of_import
from support.backups import content_of, counts_of
from support.protocol import Fleet
from support.servers import Server

EXAMPLES = 40
STEPS = 50


class Exported(Faults, Grouping, Schedules, Throttling):
    """The state machine of the model test. At the end of each example, its namespace is exported and imported."""

    def teardown(self) -> None:
        if self.is_full:
            self.fleet.redis.config_set("maxmemory", 0)
            self.is_full = False
        with closing(Fleet(self.server, f"{self.fleet.keys.namespace}-new")) as new:
            _move(self.fleet, new)
            new.redis.delete(*new.redis.scan_iter(match=f"{{{new.keys.namespace}}}:*", count=10_000))
        super().teardown()


def _move(old: Fleet, new: Fleet) -> None:
    """Export a namespace, import it into another one, and compare the two namespaces before the import ends."""
    file = io.BytesIO()
    end, left_out = export_namespace(old._connection, old.keys.namespace, "a server", file, lambda *_: None)
    assert left_out == []
    lines = file.getvalue().splitlines(keepends=True)
    assert check_file(lines, lambda _: None).end == end
    importer = Importer(new._connection, new.keys.namespace)
    importer.write(end.sha256, batches_of(records_after(lines, 0), importer.begin(end.sha256)), lambda _: None)
    with redis.Redis(unix_socket_path=old.redis.connection_pool.connection_kwargs["path"]) as client:
        here, there = (content_of(client, each.keys.namespace) for each in (old, new))
        assert {**here, "totals": b""} == {**there, "totals": b""}
        assert _inflight(old) == _inflight(new)
        assert counts_of(client, old.keys.namespace) == counts_of(client, new.keys.namespace)
    importer.finish(end, blame_of_import(3, 5))
    assert new.run(new.store.audit()).missing == 0


def _inflight(fleet: Fleet) -> dict[str, list[Any]]:
    prefix = fleet.keys.inflight("")
    lists: Iterator[Any] = fleet.redis.scan_iter(match=f"{prefix}*", count=10_000)
    return {key.removeprefix(prefix): fleet.redis.lrange(key, 0, -1) for key in lists}


@pytest.mark.timeout(120)
def test_random_namespaces_are_unchanged_after_an_export_and_import(server: Server) -> None:
    machine: Any = type("Exported", (Exported,), {"server": server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
