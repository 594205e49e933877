"""docs/configuration.md and config/model.py say the same."""

import json
import re

from msgspec import NODEFAULT, inspect

from prose import ROOT
from rota_supervisor.config.convert import schema, without_none
from rota_supervisor.config.idle import IDLE_KEYS

PAGE = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
_SECTION = re.compile(
    r"^## (?:Top level|`\[(?P<name>[a-z]+)(?:\.NAME)?\]`)$(?P<text>.*?)(?=^## )", re.MULTILINE | re.DOTALL
)
_ROW = re.compile(r"^\| `(?P<key>\w+)` \| (?:`(?P<default>[^`]*)` )?\| (?P<meaning>.+) \|$", re.MULTILINE)


def documented() -> dict[str, dict[str, str]]:
    """Keys and their defaults by section, "" being the top level."""
    return {
        section["name"] or "": {row["key"]: row["default"] or "" for row in _ROW.finditer(section["text"])}
        for section in _SECTION.finditer(PAGE)
    }


def in_the_code() -> dict[str, dict[str, str]]:
    """The same, from the classes."""
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
    """A default as TOML; "" for none."""
    assert field.default is not NODEFAULT
    return "" if field.default is None else json.dumps(field.default)


def test_the_page_lists_every_key_with_its_default() -> None:
    assert documented() == in_the_code()


def test_the_page_marks_every_key_without_effect() -> None:
    marked = {
        f"{section['name']}." * bool(section["name"]) + "NAME." * ("NAME" in section[0].partition("\n")[0]) + row["key"]
        for section in _SECTION.finditer(PAGE)
        for row in _ROW.finditer(section["text"])
        if "*No effect yet.*" in row["meaning"]
    }

    assert marked == IDLE_KEYS
