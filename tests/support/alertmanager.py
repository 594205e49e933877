"""A private Alertmanager for tests: the real program on a free port, with the project's configuration."""

import json
import subprocess
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from support.prometheus import binary
from support.servers import free_port
from support.waiting import until

DEADLINE_SECONDS = 30.0


class Alertmanager:
    """An Alertmanager with its own folder and without peers."""

    def __init__(self, folder: Path, config: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        address = self._url.removeprefix("http://")
        command = [
            binary("prometheus-alertmanager"),
            f"--config.file={config}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ]
        with (folder / "alertmanager.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until(self._is_ready, (folder / "alertmanager.log").read_text, DEADLINE_SECONDS)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def fire(self, alerts: Iterable[Mapping[str, str]]) -> None:
        """Send firing alerts to Alertmanager. Each alert is given by its labels."""
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        request = urllib.request.Request(
            f"{self._url}/api/v2/alerts", body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS):
            pass

    def notified(self, **labels: str) -> set[str]:
        """Return the names of the alerts with these labels about which Alertmanager notifies people."""
        query = "&".join(f"filter={label}%3D%22{value}%22" for label, value in labels.items())
        found: list[dict[str, Any]] = self._get(f"/api/v2/alerts?{query}")
        return {alert["labels"]["alertname"] for alert in found if not alert["status"]["inhibitedBy"]}

    def _is_ready(self) -> bool:
        try:
            self._get("/api/v2/status")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self._url + path, timeout=DEADLINE_SECONDS) as response:
            return json.load(response)
