"""examples/mail, run as its README says."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prose import ROOT
from servers import Server, free_port

DEADLINE_SECONDS = 60.0
_ROTA = str(Path(sys.executable).parent / "rota")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example."""
    ignored = shutil.ignore_patterns("*.jsonl", ".rota", "__pycache__")
    return Path(shutil.copytree(ROOT / "examples/mail", tmp_path / "mail", ignore=ignored))


def _environment(folder: Path, redis_url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    return kept | {
        "ROTA_REDIS_URL": redis_url,
        "ROTA_HTTP__LISTEN": "127.0.0.1:0",
        "XDG_RUNTIME_DIR": str(folder),
    }


def _mails(folder: Path) -> list[dict[str, Any]]:
    outbox = folder / "outbox.jsonl"
    return [json.loads(line) for line in outbox.read_text().splitlines()] if outbox.exists() else []


def _produce(folder: Path, env: dict[str, str], sold: int) -> None:
    argv = [sys.executable, "produce.py", "--sold", str(sold)]
    subprocess.run(argv, cwd=folder, env=env, check=True, timeout=DEADLINE_SECONDS)


@pytest.fixture
def fleet(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """`rota run --embedded` in the folder of the example."""
    env = _environment(folder, f"redis://127.0.0.1:{free_port()}/0")
    with (folder / "fleet.log").open("wb") as log:
        process = subprocess.Popen([_ROTA, "run", "--embedded"], cwd=folder, env=env, stdout=log, stderr=log)
    yield process, env
    if process.poll() is None:
        process.send_signal(signal.SIGQUIT)
        process.wait(DEADLINE_SECONDS)


def _wait_until_ready(folder: Path, process: subprocess.Popen[bytes], env: dict[str, str]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    asking = [_ROTA, "health", "--ready"]
    while subprocess.run(asking, cwd=folder, env=env, capture_output=True, check=False).returncode:
        assert process.poll() is None, (folder / "fleet.log").read_text()
        assert time.monotonic() < deadline, (folder / "fleet.log").read_text()
        time.sleep(0.1)


def _wait_for_mails(folder: Path, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(mails := _mails(folder)) < count:
        assert time.monotonic() < deadline, f"{len(mails)} of {count}\n{(folder / 'fleet.log').read_text()}"
        time.sleep(0.05)
    return mails


def test_every_mail_is_sent_once_whoever_produced_it(
    folder: Path, fleet: tuple[subprocess.Popen[bytes], dict[str, str]]
) -> None:
    process, env = fleet
    _wait_until_ready(folder, process, env)
    _produce(folder, env, sold=10)
    subjects = [mail["subject"] for mail in _wait_for_mails(folder, 24)]
    expected = [f"Sold: item {item} to user 3 for {(900 + item) / 100:.2f}" for item in range(10)]
    expected += [f"How was item {item}?" for item in range(10)]
    expected += ["Expired: item 1001", "Reset your password: correct-horse"]
    expected += ["Sold: item 2001 to user 8 for 42.00", "Expired: item 2002"]
    assert sorted(subjects) == sorted(expected)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_SECONDS) == 0
    assert len(_mails(folder)) == 24


def test_no_mail_is_sent_before_its_time(folder: Path, fleet: tuple[subprocess.Popen[bytes], dict[str, str]]) -> None:
    process, env = fleet
    _wait_until_ready(folder, process, env)
    _produce(folder, env, sold=3)
    assert min(mail["lag_seconds"] for mail in _wait_for_mails(folder, 10)) >= 0


def test_resets_go_ahead_and_a_flood_of_sold_mails_does_not_hold_back_the_expired(
    folder: Path, server: Server, namespace: str
) -> None:
    env = _environment(folder, server.url) | {"ROTA_NAMESPACE": namespace}
    _produce(folder, env, sold=200)
    burst = [_ROTA, "run", "--burst", "--workers", "1"]
    ended = subprocess.run(
        burst, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr
    subjects = [mail["subject"] for mail in _mails(folder)]
    assert subjects[0] == "Reset your password: correct-horse"
    assert sum(subject.startswith("Sold") for subject in subjects) == 201
    assert subjects.index("Expired: item 1001") < 100
