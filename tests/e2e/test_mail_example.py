"""The example in examples/mail, run as its README describes."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fleet_process import DEADLINE_SECONDS, FleetProcess, environment
from support.growing_files import whole_lines
from support.prose import ROOT
from support.servers import Server, free_port
from support.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a copy of the example."""
    ignored = shutil.ignore_patterns("*.jsonl", ".rota", "__pycache__")
    return Path(shutil.copytree(ROOT / "examples/mail", tmp_path / "mail", ignore=ignored))


class Example(FleetProcess):
    """A copy of the example in a folder, with the environment variables for the fleet and for the producer."""

    def __init__(self, folder: Path, redis_url: str, **variables: str) -> None:
        super().__init__(folder)
        self.environment = {"ROTA_REDIS_URL": redis_url, "ROTA_HTTP__LISTEN": "127.0.0.1:0", **variables}

    def produce(self, sold: int) -> None:
        argv = [sys.executable, "produce.py", "--sold", str(sold)]
        env = environment(self.folder, **self.environment)
        subprocess.run(argv, cwd=self.folder, env=env, check=True, timeout=DEADLINE_SECONDS)

    def mails(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in whole_lines(self.folder / "outbox.jsonl")]

    def wait_for_mails(self, count: int) -> list[dict[str, Any]]:
        until(lambda: len(self.mails()) >= count, f"{count} mails", DEADLINE_SECONDS)
        return self.mails()


@pytest.fixture
def example(folder: Path) -> Iterator[Example]:
    """Yield the example after `rota run --embedded` has started in its folder."""
    made = Example(folder, f"redis://127.0.0.1:{free_port()}/0").launch("--embedded")
    try:
        until(
            lambda: made.has_ended() or not made.rota("health", "--ready", **made.environment).returncode,
            "the fleet is ready",
            DEADLINE_SECONDS,
        )
        assert not made.has_ended(), made.log_text()
        yield made
    finally:
        if not made.has_ended():
            made.signal(signal.SIGQUIT)
            made.exit_code()


def test_every_mail_of_every_producer_is_sent_once(example: Example) -> None:
    example.produce(sold=10)
    subjects = [mail["subject"] for mail in example.wait_for_mails(24)]
    expected = [f"Sold: item {item} to user 3 for {(900 + item) / 100:.2f}" for item in range(10)]
    expected += [f"How was item {item}?" for item in range(10)]
    expected += ["Expired: item 1001", "Reset your password: correct-horse"]
    expected += ["Sold: item 2001 to user 8 for 42.00", "Expired: item 2002"]
    assert sorted(subjects) == sorted(expected)
    example.term()
    assert example.exit_code() == 0
    assert len(example.mails()) == 24


def test_no_mail_is_sent_before_its_time(example: Example) -> None:
    example.produce(sold=3)
    assert min(mail["lag_seconds"] for mail in example.wait_for_mails(10)) >= 0


def test_a_flood_of_sold_mails_delays_neither_resets_nor_expired_mails(
    folder: Path, server: Server, namespace: str
) -> None:
    example = Example(folder, server.url, ROTA_NAMESPACE=namespace)
    example.produce(sold=200)
    ended = example.rota("run", "--burst", "--workers", "1", **example.environment)
    assert ended.returncode == 0, ended.stderr
    subjects = [mail["subject"] for mail in example.mails()]
    assert subjects[0] == "Reset your password: correct-horse"
    assert sum(subject.startswith("Sold") for subject in subjects) == 201
    assert subjects.index("Expired: item 1001") < 100
