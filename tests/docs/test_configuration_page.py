"""docs/configuration.md matches config/model.py."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import NODEFAULT, inspect

from rota_supervisor.config.model import Config
from rota_supervisor.config.typed_config import schema, without_none
from rota_supervisor.master.core.generations import change_between, faults_of_change
from support.prose import ROOT

PAGE = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
_SECTION = re.compile(
    r"^## (?:Top level|`\[(?P<name>[a-z]+)(?:\.NAME)?\]`)$(?P<text>.*?)(?=^## )", re.MULTILINE | re.DOTALL
)
_ROW = re.compile(r"^\| `(?P<key>\w+)` \| (?:`(?P<default>[^`]*)` )?\| (?P<meaning>.+) \|$", re.MULTILINE)


def documented() -> dict[str, dict[str, str]]:
    """Return the keys and defaults on the page, by section. The section "" is the top level."""
    return {
        section["name"] or "": {row["key"]: row["default"] or "" for row in _ROW.finditer(section["text"])}
        for section in _SECTION.finditer(PAGE)
    }


def in_the_code() -> dict[str, dict[str, str]]:
    """Return the keys and defaults that the configuration classes declare, by section."""
    sections: dict[str, dict[str, str]] = {"": {}}
    for field in schema().fields:
        kind = without_none(field.type)
        table = kind.value_type if isinstance(kind, inspect.DictType) else kind
        if isinstance(table, inspect.StructType):
            sections[field.name] = {each.name: shown(each) for each in table.fields}
        else:
            sections[""][field.name] = shown(field)
    return sections


def shown(field: inspect.Field) -> str:
    """Return a default as TOML, or "" if there is none."""
    default = field.default_factory() if field.default is NODEFAULT else field.default
    return "" if default is None else json.dumps(default)


def test_the_configuration_page_lists_every_key_with_its_default() -> None:
    assert documented() == in_the_code()


# The effect of a reload on each key

REFUSED, EXPORTER = "refused", "exporter"
_ROLES = ("workers", "pollers", EXPORTER)
_EFFECT = re.compile(r"^\| (?P<keys>`[^|]*`) \| (?P<who>[^|]+) \|$", re.MULTILINE)
_TABLES = {"queues": "default", "tasks": "note", "adopt": "jobs", "schedules": "hourly", "conditions": "open"}
_SIGNING = {"keys": {"first": "env:FIRST", "another": "env:OTHER"}, "sign_with": "first"}
_PLAIN = {"tiers": [["default"]], "signing": _SIGNING, **{table: {name: {}} for table, name in _TABLES.items()}}
_POOLED = {**_PLAIN, "pools": {"all": {"queues": ["default"]}}}


def effects_documented() -> dict[str, set[str]]:
    """Return the effect of a reload that the page gives for each key: the roles whose processes are replaced, or a
    refusal.
    """
    text = PAGE.partition("## Changing it while the fleet runs")[2].partition("**Code is loaded")[0]
    found: dict[str, set[str]] = {}
    for row in _EFFECT.finditer(text):
        who = row["who"].partition(":")[0].partition(";")[0]
        for key in re.findall(r"`([^`]+)`", row["keys"]):
            assert key not in found, f"{key} is in two rows"
            found[key] = {role for role in (*_ROLES, REFUSED) if role in who}
    return found


def effects_in_the_code() -> dict[str, set[str]]:
    """Return the effect of a reload for each key. To find the effect, change the key and compare the two
    configurations.
    """
    return {key: _effect(old, new) for key, old, new in _changes()}


def _effect(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    before, after = msgspec.convert(old, Config), msgspec.convert(new, Config)
    assert before != after
    if faults_of_change(before, after):
        return {REFUSED}
    said = {EXPORTER if word == "listen" else word for word in change_between(before, after).changed_parts}
    return said.intersection(_ROLES)


def _changes() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for field in schema().fields:
        kind = without_none(field.type)
        name = {**_TABLES, "pools": "all"}.get(field.name)
        table = kind.value_type if isinstance(kind, inspect.DictType) else kind
        if not isinstance(table, inspect.StructType):
            yield field.name, _PLAIN, {**_PLAIN, field.name: _another(field)}
            continue
        for each in table.fields:
            old: dict[str, Any] = copy.deepcopy(_POOLED if field.name == "pools" else _PLAIN)
            old.setdefault(field.name, {})
            new = copy.deepcopy(old)
            values = new[field.name][name] if name else new[field.name]
            another = _another(each)
            before = values.get(each.name)  # a field that is a table of `_PLAIN` gets an additional key
            values[each.name] = {**before, **another} if isinstance(before, dict) else another
            yield f"{field.name}.{'NAME.' if name else ''}{each.name}", old, new


_OTHERS: Mapping[type[inspect.Type], Any] = {
    inspect.DictType: {"more": "1"},
    inspect.DateTimeType: "2027-01-31T08:00:00Z",
    inspect.UnionType: 3,  # the only such field is `workers`, which is a number or a range
}


def _another(field: inspect.Field) -> Any:
    """Return a value for this field that differs from the default."""
    match without_none(field.type):
        case inspect.BoolType():
            return not field.default
        case inspect.LiteralType(values=values):
            return next(each for each in reversed(values) if each != field.default)
        case inspect.FloatType(ge=least):
            return (field.default or 2 * (least or 0.5)) * 0.9
        case inspect.IntType():
            return (field.default or 0) + 1
        case inspect.VarTupleType():
            return [["default"], ["more"]] if field.name == "tiers" else ["more"]
        case other:
            return _OTHERS.get(type(other), "5/s" if field.name == "rate" else "another")


def test_the_configuration_page_says_what_a_reload_of_each_key_does() -> None:
    in_code = effects_in_the_code()
    del in_code["redis_url_file"]  # this key only sets redis_url, which the test compares anyway
    assert effects_documented() == in_code
