"""The validation of Kubernetes objects and of custom resources against their schemas."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Protocol

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from chart.kube import FOLDER, Object

# The oldest version of Kubernetes that the chart supports, and the newest known version.
VERSIONS: Final = ("1.27", "1.37")
_SCHEMAS: Final = FOLDER / "lib/kubernetes_validate/kubernetes-json-schema"
_CUSTOM: Final = ("monitoring.coreos.com/", "keda.sh/")
# KEDA 2.17 added the field `behavior` of `fallback`, but the schemas used here are those of 2.16.
_BEHAVIOR: Final = {"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]}


class Validator(Protocol):
    """The part of a validator that this module uses."""

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Yield the ways in which an instance violates the schema."""


def faults(found: Object) -> list[str]:
    """Return the faults of an object under the schemas of all versions. Each fault names the version and the path."""
    text = json.dumps(found, sort_keys=True)
    return list(_faults(text))


@cache
def _faults(text: str) -> tuple[str, ...]:
    found = json.loads(text)
    if found["apiVersion"].startswith(_CUSTOM):
        validators = {"crd": _custom(found["kind"])}
    else:
        validators = {version: _builtin(version, found["apiVersion"], found["kind"]) for version in VERSIONS}
    return tuple(
        f"{version} {found['kind']}{error.json_path.removeprefix('$')}: {error.message}"
        for version, validator in validators.items()
        for error in validator.iter_errors(found)
    )


@cache
def _builtin(version: str, api_version: str, kind: str) -> Validator:
    group, _, number = api_version.rpartition("/")
    name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], number)))
    folder = _SCHEMAS / f"v{version}.0-local-strict"
    schema = json.loads((folder / f"{name}.json").read_text())
    return Draft202012Validator(schema, registry=_definitions(version))


@cache
def _definitions(version: str) -> Registry[Any]:
    contents = json.loads((_SCHEMAS / f"v{version}.0-local-strict" / "_definitions.json").read_text())
    definitions: Resource[Any] = Resource.from_contents(contents)
    registry: Registry[Any] = Registry()
    return registry.with_resources([(contents["$id"], definitions), ("_definitions.json", definitions)])


@cache
def _custom(kind: str) -> Validator:
    schema = json.loads((FOLDER / "crds" / f"{kind}.json").read_text())
    if kind == "ScaledObject":
        schema["$defs"]["Fallback"]["properties"]["behavior"] = _BEHAVIOR
    return Draft202012Validator(schema)
