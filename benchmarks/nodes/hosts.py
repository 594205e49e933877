"""The processes that run simulated nodes, and the real node that simulated ones are compared with."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from benchmarks.contender import ROOT
from benchmarks.testbed import Failed

HOSTS = 3  # the number of processes that share the nodes


def python_path() -> dict[str, str]:
    """Return the variable with which a process of the benchmark finds its modules."""
    return {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}


@contextmanager
def _host(url: str, first: int, count: int, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    numbers = [str(each) for each in (first, count, seconds)]
    argv = [sys.executable, "-m", "benchmarks.nodes.host", url, *numbers]
    process = subprocess.Popen(argv, env=os.environ | python_path(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def simulated_nodes(url: str, count: int, seconds: float) -> Iterator[None]:
    """Run simulated nodes, which start spread over this time. Raises Failed if a node fails."""
    with ExitStack() as stack:
        shares = [count * (number + 1) // HOSTS - count * number // HOSTS for number in range(HOSTS)]
        firsts = [sum(shares[:number]) for number in range(HOSTS)]
        hosts = [
            stack.enter_context(_host(url, first, share, seconds))
            for first, share in zip(firsts, shares, strict=True)
            if share
        ]
        for host in hosts:
            _check_line(host.stdout)
        yield
        for host in hosts:
            if host.poll() is not None:
                _check_line(host.stdout)


def _check_line(output: IO[bytes] | None) -> None:
    line = output.readline() if output is not None else b""
    if line != b"ready\n":
        raise Failed(line.decode(errors="replace") or "a process with simulated nodes ended")
