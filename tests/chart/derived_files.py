"""Files that are derived from the chart and the product. `make chart-files` writes them, and a test checks that they
are up to date.

* `definitions` of values.schema.json: the keys of `config` come from the product's own model, and the parts of a pod,
  such as `tolerations`, from the schemas of Kubernetes. The part above `definitions` is handwritten.
* deploy/kustomize/base: the chart rendered with its default values, without the labels of Helm.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from chart.kube import BASE, CHART, FOLDER, Object, rendered_text
from rota.protocol.keys import NAME
from rota.telemetry.recorder import MAX_LABEL
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import MAX_WORKERS

SCHEMA: Final = CHART / "values.schema.json"
KUBERNETES: Final = "1.35"  # the version of Kubernetes whose pod schema the values follow
BY_HAND: Final = ("name", "trigger")  # definitions that are written by hand

# Keys of rota.toml that the chart sets itself, because their values depend on the pod.
OF_THE_POD: Final = {
    "Config": (
        "redis_url",
        "redis_url_file",
        "redis_tls_ca",
        "redis_tls_cert",
        "redis_tls_key",
        "signing",  # the signing keys are secrets, and the chart has no values for these yet
        "control",
    ),
    "Http": ("listen", "token_file", "read_token_file", "tls_cert", "tls_key"),
}
# These words can be removed everywhere, because no key of a configuration is required and no key has one of these
# names.
_WORDS: Final = ("title", "description", "default", "required")
_NAME: Final = f"^{NAME.pattern}$"
_QUEUE: Final = rf"^{NAME.pattern}\*?$"
_NAMES: Final = {
    "queues": _QUEUE,
    "adopt": f"^.{{1,{MAX_LABEL}}}$",
    **dict.fromkeys(("tasks", "pools", "conditions", "schedules"), _NAME),
}
_ARGUMENT: Final = {"$ref": "#/definitions/Argument"}
_ARGUMENTS: Final = {  # any JSON value except null, which TOML does not have
    "type": ["string", "number", "boolean", "array", "object"],
    "items": _ARGUMENT,
    "additionalProperties": _ARGUMENT,
}
_SCALARS: Final = {  # the schemas of Kubernetes allow any text or any number here
    "Quantity": {
        "type": ["string", "number", "null"],
        "pattern": r"^[0-9]+(\.[0-9]+)?([eE][0-9]+|m|k|Ki|[MGTPE]i?)?$",
    },
    "IntOrString": {"type": ["string", "integer", "null"], "pattern": "^([0-9]+%|[a-z0-9-]+)$"},
}


# The schema


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return the text of a schema file. The handwritten part is indented, and each derived definition is on one
    line.
    """
    by_hand = {key: value for key, value in schema.items() if key != "definitions"}
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(each)}" for name, each in schema["definitions"].items())
    opened = json.dumps(by_hand, indent=2).removesuffix("\n}")
    return f'{opened},\n  "definitions": {{\n{lines}\n  }}\n}}\n'


def derived_schema(current: Mapping[str, Any]) -> Object:
    """Return this schema of the values with its definitions brought up to date."""
    by_hand = {name: current["definitions"][name] for name in BY_HAND}
    above = {key: value for key, value in current.items() if key != "definitions"}
    used = {*_references(above), *_references(by_hand)}
    return {**above, "definitions": {**by_hand, **config_definitions(), **kubernetes_definitions(used)}}


def config_definitions() -> Object:
    """Return the definitions of the tables of rota.toml, without the keys that the chart sets itself."""
    definitions: Object = _plainer(msgspec.json.schema(Config)["$defs"])
    for name, keys in OF_THE_POD.items():
        for key in keys:
            del definitions[name]["properties"][key]
    del definitions["Control"]
    del definitions["SigningConfig"]
    config = definitions["Config"]["properties"]
    for key, pattern in _NAMES.items():
        # `propertyNames` is not used for this, because helm would report no path for the error.
        config[key] |= {"patternProperties": {pattern: config[key]["additionalProperties"]}}
        config[key]["additionalProperties"] = False
    config["namespace"]["pattern"] = _NAME
    config["workers"]["maximum"] = MAX_WORKERS
    config["imports"]["items"]["minLength"] = 1
    config["tiers"] |= {"minItems": 1}
    config["tiers"]["items"] |= {"minItems": 1}
    config["tiers"]["items"]["items"]["pattern"] = _QUEUE
    schedule = definitions["ScheduleConfig"]["properties"]
    schedule["args"]["items"] = schedule["kwargs"]["additionalProperties"] = _ARGUMENT
    return {**definitions, "Argument": _ARGUMENTS}


def _plainer(schema: Any) -> Any:
    """Convert a schema of msgspec into a form that Helm's older validators accept. Leave out descriptions and
    defaults.
    """
    if isinstance(schema, list):
        return [_plainer(each) for each in schema]
    if not isinstance(schema, dict):
        return schema.replace("#/$defs/", "#/definitions/") if isinstance(schema, str) else schema
    kept = {key: _plainer(value) for key, value in schema.items() if key not in _WORDS}
    if "anyOf" in kept:  # bounds and patterns affect only the type to which they belong
        variants = kept.pop("anyOf")
        kept |= {key: value for each in variants for key, value in each.items()}
        kept["type"] = [each["type"] for each in variants]
    return kept


def kubernetes_definitions(used: Iterable[str]) -> Object:
    """Return those definitions of Kubernetes that are used directly or indirectly."""
    folder = FOLDER / f"lib/kubernetes_validate/kubernetes-json-schema/v{KUBERNETES}.0-local-strict"
    known = json.loads((folder / "_definitions.json").read_text())["$defs"]
    found: Object = {}
    waiting = [name for name in used if name in known]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _without_descriptions(known[name])
            waiting += _references(found[name])
    for full in found:
        if scalar := _SCALARS.get(full.rpartition(".")[2]):
            found[full] = scalar
    return dict(sorted(found.items()))


def _without_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_descriptions(each) for each in schema]
    if not isinstance(schema, dict):
        return schema.replace("#/$defs/", "#/definitions/") if isinstance(schema, str) else schema
    return {
        key: _without_descriptions(value)
        for key, value in schema.items()
        if not (key == "description" and isinstance(value, str)) and not key.startswith("x-kubernetes")
    }


def _references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions to which a schema refers."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


# The base for Kustomize

_MARKS: Final = re.compile(r"^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)
_SOURCE: Final = re.compile(r"^# Source: rota/templates/([\w-]+\.yaml)\n", re.MULTILINE)
_ABOUT: Final = "# Rendered from deploy/helm/rota with its default values by `make chart-files`.\n"


def kustomize_base() -> dict[str, str]:
    """Return the files of the Kustomize base, by name."""
    text = _MARKS.sub("", rendered_text(None, "--skip-tests"))
    files = {}
    for document in filter(str.strip, re.split(r"^---\n", text, flags=re.MULTILINE)):
        source = _SOURCE.search(document)
        assert source is not None, document
        files[source[1]] = _ABOUT + _SOURCE.sub("", document).strip() + "\n"
    listed = yaml.safe_dump({"resources": sorted(files)}, sort_keys=False)
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    return {**files, "kustomization.yaml": f"{_ABOUT}{head}{listed}"}


def derived_files() -> dict[Path, str]:
    """Return the content of each derived file, by path."""
    schema = schema_text(derived_schema(json.loads(SCHEMA.read_text())))
    return {SCHEMA: schema, **{BASE / name: text for name, text in kustomize_base().items()}}


def main() -> None:
    """Write the derived files. The schema comes first, because helm reads the schema to render the base."""
    SCHEMA.write_text(schema_text(derived_schema(json.loads(SCHEMA.read_text()))))
    BASE.mkdir(parents=True, exist_ok=True)
    for old in BASE.glob("*.yaml"):
        old.unlink()
    for path, text in derived_files().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
