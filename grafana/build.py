"""Build the dashboards: `make dashboards` writes grafana/dashboards/*.json with this."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana import fleet, lag, queues, tasks

DASHBOARDS: Final[dict[str, Callable[[], Dashboard]]] = {
    "lag.json": lag.dashboard,
    "queues.json": queues.dashboard,
    "tasks.json": tasks.dashboard,
    "fleet.json": fleet.dashboard,
}


def write(folder: Path) -> None:
    """Write every dashboard into `folder`, numbered panels and all, the same bytes each time."""
    for name, make in DASHBOARDS.items():
        model = make().build()
        for number, panel in enumerate(model.panels or (), start=1):
            panel.id_val = number
        text = json.dumps(model, cls=JSONEncoder, indent=2, sort_keys=True)
        (folder / name).write_text(text + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "dashboards")
