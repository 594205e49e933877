"""Several fleets with one trouble each, and a Prometheus server with the project's rules that scrapes all of them. Each
scene is a separate Prometheus job, named after the scene.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml

from support.prometheus import Prometheus, scrape_jobs
from troubles.catalogue import TROUBLES
from troubles.scene import SHORTENED, Scene
from troubles.shortening import shortened

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
SCRAPE_INTERVAL: Final = "2s"
_STARTED_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that is firing or has fired. `began_at` is the Unix time of the first evaluation at which it fired."""

    alert: str
    severity: str
    began_at: float
    labels: Mapping[str, str]


class Bench:
    """The scenes of the given troubles, and any number of scenes without a trouble."""

    def __init__(self, folder: Path, names: Iterable[str], *, well: Iterable[str] = ()) -> None:
        self.folder = folder
        self.closing = ExitStack()
        self.scenes = {name: self._made(TROUBLES[name].scene(folder / name)) for name in names}
        for name in well:
            self.scenes[name] = self._made(Scene(name, folder / name))
            self.scenes[name].add_node()

    def _made(self, scene: Scene) -> Scene:
        self.closing.push(scene.closing)
        return scene

    def __enter__(self) -> Self:
        """Start everything, and wait until Prometheus has scraped each node."""
        with ExitStack() as when_it_fails:
            when_it_fails.push(self.closing)
            with ThreadPoolExecutor(_STARTED_AT_ONCE) as pool:
                list(pool.map(Scene.start, self.scenes.values()))
            self.prometheus = self._watching()
            when_it_fails.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.close()

    def _watching(self) -> Prometheus:
        jobs = {name: scene.targets() for name, scene in self.scenes.items()}
        config = scrape_jobs(jobs, interval=SCRAPE_INTERVAL, rule_files=shortened_rules(self.folder))
        prometheus = Prometheus(self.folder, config)
        self.closing.callback(prometheus.stop)
        prometheus.start()
        prometheus.wait_for(f"count(up == 1) == {sum(map(len, jobs.values()))}")
        return prometheus

    def begin(self, name: str) -> None:
        """Begin the trouble of this scene. It lasts until the bench ends."""
        scene = self.scenes[name]
        scene.closing.enter_context(TROUBLES[name].happens(scene))

    def firing(self, name: str) -> list[Firing]:
        """Return the alerts that have fired in a scene within the last quarter of an hour, in the order in which they
        fired.
        """
        ever = self.prometheus.query_range(f'ALERTS{{alertstate="firing", job="{name}"}}', seconds=900)
        return sorted(map(_firing, ever.result), key=lambda each: each.began_at)


def _firing(series: dict[str, Any]) -> Firing:
    labels = series["metric"]
    return Firing(labels["alertname"], labels["severity"], float(series["values"][0][0]), labels)


def rule_files() -> list[str]:
    """Return the names of the rule files in deploy/prometheus."""
    names: list[str] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["rule_files"]
    return names


def shortened_rules(folder: Path) -> list[str]:
    """Write the shortened rules to the folder, and return the paths of the files."""
    for name in rule_files():
        (folder / name).write_text(shortened((DEPLOY / name).read_text(), SHORTENED))
    return [str(folder / name) for name in rule_files()]
