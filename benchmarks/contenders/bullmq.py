"""BullMQ, whose workers and producer run on Node.js."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import AT_ONCE, ROOT, Contender, Plain

MODULES = ROOT / ".venv-bench" / "node" / "node_modules"
SCRIPTS = ROOT / "benchmarks" / "peers" / "bullmq"
NODE = shutil.which("node") or "node"


@dataclass(frozen=True)
class OnNode(Plain):
    """A contender whose producer is a script of Node.js. Its `app` is where the scripts are."""

    def producer(self) -> list[str]:
        """Speaks what `benchmarks.drive` does."""
        return [NODE, str(Path(self.app) / "drive.js")]

    def versions(self) -> dict[str, str]:
        """What the packages say of themselves."""
        manifests = [MODULES / name / "package.json" for name in ("bullmq", "ioredis")]
        return {path.parent.name: json.loads(path.read_text())["version"] for path in manifests if path.exists()}


BULLMQ: Contender = OnNode(
    name="bullmq-c100",
    app=str(SCRIPTS),
    argv=[[NODE, str(SCRIPTS / "worker.js")]],
    settings="a process a worker, concurrency 100, 3 attempts, removeOnComplete",
    measures=AT_ONCE,
    copies=True,
    extra={"NODE_PATH": str(MODULES), "BENCH_AT_ONCE": "100"},
)
