"""The memory of children, as `rota status` measures it from outside."""

import os
import subprocess
import sys

import pytest

from rota_supervisor.cli.status_verb import MEGABYTE, in_megabytes, with_memory

UNKNOWN = {"rss_bytes": None, "pss_bytes": None, "shared_bytes": None, "private_bytes": None}


def test_a_childs_memory_is_divided_into_shared_and_private() -> None:
    script = f"mine = bytearray(b'x' * {32 * MEGABYTE}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()

        (row,) = with_memory([{"slot": 8, "pid": child.pid}], os.getpid())

        child.communicate(b"\n")
    assert row["slot"] == 8
    assert row["private_bytes"] > 32 * MEGABYTE
    assert row["rss_bytes"] == row["private_bytes"] + row["shared_bytes"]
    assert row["private_bytes"] <= row["pss_bytes"] <= row["rss_bytes"]


@pytest.mark.parametrize("pid", [0, 1, 4_194_305], ids=["not born yet", "a child of somebody else", "gone"])
def test_memory_is_unknown_for_a_pid_that_is_not_a_child_of_the_master(pid: int) -> None:
    """The status may come from a master in another PID namespace, whose pids belong to other processes in this
    namespace.
    """
    assert with_memory([{"pid": pid}], os.getpid()) == [{"pid": pid, **UNKNOWN}]


def test_rota_status_shows_memory_in_megabytes() -> None:
    row = {"rss_bytes": 3 * MEGABYTE, "pss_bytes": 2 * MEGABYTE, "shared_bytes": 0, "private_bytes": None}

    (shown,) = in_megabytes([row])

    assert (shown["rss_mb"], shown["pss_mb"], shown["shared_mb"], shown["private_mb"]) == (3.0, 2.0, 0.0, None)
