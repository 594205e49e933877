"""Stand-ins for modules that a library imports at its top, for features of it that are not used here.

A module stands in `sys.modules` as its stand-in only while the library is imported; who imports it later gets the real
one. What is loaded already is left as it is.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast


class LoadedWhenTouched(ModuleType):
    """Stands for a module until somebody needs something of it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)

    def __bool__(self) -> bool:
        """It is not loaded, for who looks: from Python 3.12 on each `logging.LogRecord` does for asyncio."""
        return False


class Unused(ModuleType):
    """Has every name, each a class of its own that does nothing: enough to inherit from, to write in a signature and to
    call where what it returns is for people to read, and no more."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_args, **_named: None})


@contextmanager
def importing_with(stand_ins: Iterable[ModuleType] = (), absent: Iterable[str] = ()) -> Iterator[None]:
    """While this lasts, these stand for the modules of their names, and those `absent` cannot be imported."""
    all_of_them = {module.__name__: module for module in stand_ins} | dict.fromkeys(absent, cast(ModuleType, None))
    put = {name: module for name, module in all_of_them.items() if name not in sys.modules}
    sys.modules.update(put)
    try:
        yield
    finally:
        for name, module in put.items():
            if sys.modules.get(name, put) is module:
                del sys.modules[name]
