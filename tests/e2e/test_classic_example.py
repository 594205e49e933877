"""The example in examples/classic, run as its README describes. A shop with handwritten queues pushes items, which a
fleet runs as tasks.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from support.fleet_process import DEADLINE_SECONDS, FleetProcess, environment
from support.growing_files import whole_lines
from support.prose import ROOT
from support.servers import Server, running_server
from support.waiting import until

ORDERS = 20


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a running server. The lists of the shop have no hash tag, so they cannot be adopted in a cluster."""
    yield from running_server(request.param, tmp_path_factory)


def test_the_fleet_runs_every_task_of_the_shop_once(
    server: Server, namespace: str, tmp_path: Path, redis_client: "redis.Redis"
) -> None:
    ignored = shutil.ignore_patterns("*.jsonl", ".rota", "__pycache__")
    folder = Path(shutil.copytree(ROOT / "examples/classic", tmp_path / "classic", ignore=ignored))
    variables = {"ROTA_REDIS_URL": server.url, "ROTA_HTTP__LISTEN": "127.0.0.1:0", "ROTA_NAMESPACE": namespace}
    fleet = FleetProcess(folder)
    fleet.environment = variables
    redis_client.delete("queue:email", "queue:low", "delayed:")
    shop = [sys.executable, "shop.py", "--orders", str(ORDERS)]
    subprocess.run(shop, cwd=folder, env=environment(folder, **variables), check=True, timeout=DEADLINE_SECONDS)
    fleet.launch()
    try:
        expected = [("mail", [17, order]) for order in range(ORDERS)]
        expected += [("feedback", [3, order]) for order in range(ORDERS)]
        expected += [("count", [order]) for order in range(ORDERS + 1)]
        until(lambda: len(whole_lines(folder / "done.jsonl")) >= len(expected), "all is done", DEADLINE_SECONDS)
        done = [json.loads(line) for line in whole_lines(folder / "done.jsonl")]
        assert sorted((line["what"], line["about"]) for line in done) == sorted(expected)
        assert all(line["lag_seconds"] >= 0 for line in done)
    finally:
        fleet.term()
        fleet.exit_code()
    assert not redis_client.exists("queue:email", "queue:low", "delayed:")
