"""The systems whose workers and producers run on Node.js."""

import dataclasses
import json
import shutil
import subprocess
from dataclasses import dataclass

from benchmarks.contender import AT_ONCE, EVERYTHING, ROOT, Contender, Plain

MODULES = ROOT / ".venv-bench" / "node" / "node_modules"
SCRIPTS = ROOT / "benchmarks" / "peers" / "node"
NODE = shutil.which("node")


@dataclass(frozen=True)
class OnNode(Plain):
    """A contender whose `app` is a Node.js script. If the script is run as a program, it is a worker. The producer
    loads the script as a module, and enqueues with it.
    """

    copies: bool = True
    measures: frozenset[str] = EVERYTHING - {"load"}  # only the Python producer can enqueue at random times

    def producer(self) -> list[str]:
        """Return the command of a producer that reads the same requests as `benchmarks.drive`."""
        return ["node", str(SCRIPTS / "drive.js"), self.app]

    def versions(self) -> dict[str, str]:
        """Return the version that the package reports, if Node.js is installed."""
        manifest = MODULES / self.package / "package.json"
        if NODE is None or not manifest.exists():
            return {}
        node = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        return {self.package: json.loads(manifest.read_text())["version"], "node": node}


def _worker(script: str) -> list[list[str]]:
    return [["node", str(SCRIPTS / script)]]


def _extra(at_once: int) -> dict[str, str]:
    return {"NODE_PATH": str(MODULES), "BENCH_AT_ONCE": str(at_once)}


BEE_QUEUE = OnNode(
    name="bee-queue",
    app=str(SCRIPTS / "bee_queue_app.js"),
    argv=_worker("bee_queue_app.js"),
    settings=(
        "on Node.js, one process for each worker, one job at a time, 2 retries, `removeOnSuccess`, no events, a "
        "`delayedDebounce` of 1 ms instead of 1 s"
    ),
    extra=_extra(1),
)
BEE_QUEUE_AT_ONCE = dataclasses.replace(
    BEE_QUEUE,
    name="bee-queue-c100",
    settings="as bee-queue, concurrency 100 (10 and 32 are slower, 200 and 400 are no faster)",
    measures=AT_ONCE | {"drain", "burst"},
    extra=_extra(100),
)
BULLMQ = OnNode(
    name="bullmq",
    app=str(SCRIPTS / "bullmq_app.js"),
    argv=_worker("bullmq_app.js"),
    settings=(
        "on Node.js, one process for each worker, one job at a time, 3 attempts, `removeOnComplete`, `lockDuration` "
        "and `stalledInterval` of 5 s, as in bee-queue, instead of 30 s"
    ),
    extra=_extra(1),
)
BULLMQ_WIDE = dataclasses.replace(
    BULLMQ,
    name="bullmq-c50",
    settings="as bullmq, concurrency 50 (10, 32 and 100 are slower)",
    measures=frozenset({"drain", "burst"}),
    extra=_extra(50),
)
BULLMQ_AT_ONCE = dataclasses.replace(
    BULLMQ, name="bullmq-c100", settings="as bullmq, concurrency 100", measures=AT_ONCE, extra=_extra(100)
)
NODE_PEERS: tuple[Contender, ...] = (BEE_QUEUE, BEE_QUEUE_AT_ONCE, BULLMQ, BULLMQ_WIDE, BULLMQ_AT_ONCE)
