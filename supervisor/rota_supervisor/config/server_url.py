"""Which server: `redis_url`, or the contents of `redis_url_file`, from the highest layer that gives one."""

from collections.abc import Sequence
from pathlib import Path

from rota.redaction import may_hold_credentials
from rota_supervisor.config.faults import Fault
from rota_supervisor.config.layers import Layer

URL = "redis_url"
FILE = "redis_url_file"
MAX_CHARACTERS = 4096


def choose_server_url(layers: Sequence[Layer], merged: Layer, folder: Path) -> list[Fault]:
    """Settle `redis_url` in the merged values; `folder` is where a relative path of the file begins."""
    layer = next((layer for layer in reversed(layers) if URL in layer.values or layer.values.get(FILE)), None)
    if layer is None:
        return []
    path = layer.values.get(FILE)
    if not path:
        merged.values.pop(FILE, None)
        return []
    if URL in layer.values:
        return [Fault(FILE, "give redis_url or redis_url_file, not both")]
    if not isinstance(path, str) or may_hold_credentials(path):  # a fault that is told with those of types
        return []
    return _read_secret(merged, folder / path)


def _read_secret(merged: Layer, path: Path) -> list[Fault]:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        return [Fault(FILE, f"{path} cannot be read: {reason}")]
    if "://" not in text or len(text) > MAX_CHARACTERS:  # a bare password, say: the fault must not quote it
        return [Fault(FILE, f"{path} holds no Redis URL")]
    merged.values[URL] = text
    merged.origins[(URL,)] = f"contents of {path}"
    return []
