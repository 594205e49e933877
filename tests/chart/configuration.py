"""The fleet's configuration, as Rota reads it from the objects that the chart renders."""

import json
from pathlib import Path
from typing import Final

from msgspec import to_builtins

from chart.kube import Object, only
from rota_supervisor.config.loader import Loaded, Sources, load_config

_FOLDER, _SECRETS = "/etc/rota", "/run/secrets/rota"
_SECRET_FILES: Final = {
    "redis-url": "rediss://redis.example:6379/0",
    **dict.fromkeys(("http-token", "http-read-token"), "0123456789abcdef0123"),
    **dict.fromkeys(("redis-ca.crt", "redis.crt", "redis.key", "http.crt", "http.key"), "pem"),
}


def loaded(objects: list[Object], folder: Path) -> Loaded:
    """Return the configuration as a pod of these objects would load it. The pod's files are written below `folder`."""
    for name, text in only(objects, "ConfigMap", "rota")["data"].items():
        _write(folder / _FOLDER.lstrip("/") / name, text)
    for name, text in _SECRET_FILES.items():
        _write(folder / _SECRETS.lstrip("/") / name, text)
    environment = environment_of(objects)
    placed = {
        name: f"{folder}{value}" if value.startswith((_FOLDER, _SECRETS)) else value
        for name, value in environment.items()
    }
    return load_config(Sources(Path(placed["ROTA_CONFIG"]), required=True, environment=placed))


def as_json(read: Loaded) -> Object:
    """Convert a configuration to JSON values."""
    values: Object = json.loads(json.dumps(to_builtins(read.config)))
    return values


def environment_of(objects: list[Object]) -> dict[str, str]:
    """Return the environment of the fleet's container."""
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
