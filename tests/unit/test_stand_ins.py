"""Modules that stand for others while a library is imported."""

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

from rota.telemetry.stand_ins import LoadedWhenTouched, Unused, importing_with

NAME = "this"  # a module of the standard library that nothing else imports


@pytest.fixture(autouse=True)
def _unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.print", lambda *_: None)  # it prints a poem
    monkeypatch.delitem(sys.modules, NAME, raising=False)


def test_a_stand_in_loads_the_real_module_when_something_of_it_is_needed() -> None:
    with importing_with([LoadedWhenTouched(NAME)]):
        this = import_module(NAME)
    assert NAME not in sys.modules
    assert this.d["a"] == "n"
    assert type(sys.modules[NAME]) is ModuleType


def test_a_stand_in_touched_while_it_stands_there_gives_way_to_the_real_module() -> None:
    with importing_with([LoadedWhenTouched(NAME)]):
        assert import_module(NAME).d["a"] == "n"
        assert type(sys.modules[NAME]) is ModuleType
    assert type(sys.modules[NAME]) is ModuleType


def test_what_is_unused_can_be_inherited_from_and_called_and_is_gone_afterwards() -> None:
    with importing_with([Unused(NAME)]):
        bases = import_module(NAME).Whatever, import_module(NAME).Other
    assert type("Child", bases, {}).__mro__[1:] == (*bases, object)
    assert isinstance(bases[0](1, named=2), bases[0])
    assert NAME not in sys.modules


def test_an_absent_module_cannot_be_imported_until_the_end() -> None:
    with importing_with(absent=[NAME]), pytest.raises(ImportError):
        import_module(NAME)
    import_module(NAME)


def test_what_is_loaded_already_stays_as_it_is() -> None:
    loaded = sys.modules["json"]
    with importing_with([Unused("json")], absent=["subprocess"]):
        assert sys.modules["json"] is loaded
        assert sys.modules["subprocess"] is subprocess
    assert sys.modules["json"] is loaded
