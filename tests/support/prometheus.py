"""A private Prometheus for tests: the real server on a free port, with its query interface."""

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.servers import free_port

START_DEADLINE_SECONDS = 30.0


def binary(name: str) -> str:
    """Return the path of a program, for example `promtool`. If the program is not installed, skip the test, or fail the
    test in CI.
    """
    found = shutil.which(name)
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"no {name} on the PATH: CI must run it")
    pytest.skip(f"no {name} on the PATH")


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool without checking its exit code. `text` is its standard input."""
    return subprocess.run(
        [binary("promtool"), *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query: the series in the format of the HTTP API, and the warnings."""

    result: list[dict[str, Any]]
    warnings: list[str]

    def value(self) -> float:
        """Return the last value of the only series. Raises AssertionError unless there is exactly one."""
        assert len(self.result) == 1, self.result
        return self.values()[0]

    def values(self) -> list[float]:
        """Return the last value of each series."""
        return [float((series.get("value") or series["values"][-1])[1]) for series in self.result]


class QueryError(Exception):
    """Raised if Prometheus refuses a query. The text is the reason."""


class Prometheus:
    """A Prometheus with its own folder. `config` is the text of its configuration file."""

    def __init__(self, folder: Path, config: str) -> None:
        self.folder = folder
        self.config = config
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Prometheus":
        """Start Prometheus and wait until it is ready. Raises RuntimeError with the log if it fails."""
        config_file = self.folder / "prometheus.yml"
        config_file.write_text(self.config)
        command = [
            binary("prometheus"),
            f"--config.file={config_file}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with (self.folder / "prometheus.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_DEADLINE_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2):
                    return self
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise RuntimeError((self.folder / "prometheus.log").read_text())

    def stop(self) -> None:
        """Kill Prometheus, whatever its state."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def query(self, expression: str) -> Answer:
        """Return the current result of a query. Raises QueryError."""
        return self._get("query", query=expression)

    def query_range(self, expression: str, *, seconds: float, step_seconds: float = 1.0) -> Answer:
        """Return the values over the last `seconds`. Their times are multiples of the step, so that results can be
        compared. Raises QueryError.
        """
        now = time.time() // step_seconds * step_seconds
        return self._get(
            "query_range", query=expression, start=str(now - seconds), end=str(now), step=str(step_seconds)
        )

    def rules(self) -> list[dict[str, Any]]:
        """Return every loaded rule, with its health and last error."""
        with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=30) as response:
            groups = json.load(response)["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for(self, expression: str, *, deadline_seconds: float = 60.0) -> Answer:
        """Repeat a query until its result has a series, and return the result. Raises TimeoutError if the result stays
        empty.
        """
        deadline = time.monotonic() + deadline_seconds
        while time.monotonic() < deadline:
            answer = self.query(expression)
            if answer.result:
                return answer
            time.sleep(0.1)
        raise TimeoutError(f"no series after {deadline_seconds} s: {expression}")

    def _get(self, verb: str, **parameters: str) -> Answer:
        url = f"{self.url}/api/v1/{verb}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                body = json.load(response)
        except urllib.error.HTTPError as error:
            raise QueryError(error.read().decode(errors="replace")) from error
        return Answer(body["data"]["result"], body.get("warnings", []))


def scrape_config(*targets: str, job: str = "rota", interval: str = "1s", rule_files: Sequence[str] = ()) -> str:
    """Return a configuration that scrapes `targets` (host:port) as `job`."""
    return scrape_jobs({job: targets}, interval=interval, rule_files=rule_files)


def scrape_jobs(jobs: Mapping[str, Sequence[str]], *, interval: str, rule_files: Sequence[str]) -> str:
    """Return a configuration that scrapes the targets (host:port) of each job, as JSON, which is also YAML."""
    return json.dumps(
        {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": list(rule_files),
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(targets)}]} for job, targets in jobs.items()
            ],
        }
    )
