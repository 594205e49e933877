"""What the annotations of a task's function say of its arguments. Nothing here converts; pure.

JSON has None, bool, int, float, str, list, and dict with str keys: an annotation made of those asks for nothing. Any
other asks for a conversion, if it names types for which there is one.
"""

import collections.abc
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import PurePath
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from rota.tasks.arguments import step

RESULT: Final = "return"
_JSON: Final = {None, NoneType, Any, object, bool, int, float, str, list, dict, Literal}
_LISTS: Final = {list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection}
_OBJECTS: Final = {dict, collections.abc.Mapping, collections.abc.MutableMapping}
_SETS: Final = {set, frozenset, collections.abc.Set, collections.abc.MutableSet}
_UNIONS: Final = {Union, UnionType}
_CONVERTED: Final = {*_JSON, *_LISTS, *_OBJECTS, *_SETS, *_UNIONS, tuple, bytes, bytearray}
_OF_LIBRARIES: Final = {  # by name, so that nobody who has none of them imports their modules
    *(("datetime", name) for name in ("datetime", "date", "time", "timedelta")),
    ("uuid", "UUID"),
    ("decimal", "Decimal"),
}
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Parameters(NamedTuple):
    """Which parameter an argument goes to. `rest` takes further positional arguments, `others` further keyword
    arguments; "" when the function has none."""

    positional: tuple[str, ...] = ()
    keywords: frozenset[str] = frozenset()
    rest: str = ""
    others: str = ""

    def of(self, place: int | str) -> tuple[str, str]:
        """The parameter of an argument, by its number or keyword, and what the argument is called in a message."""
        if isinstance(place, str):
            return (
                (place, place) if place in self.keywords else (self.others, f"{self.others or 'kwargs'}{step(place)}")
            )
        if place < len(self.positional):
            return self.positional[place], self.positional[place]
        return self.rest, f"{self.rest or 'args'}[{place - len(self.positional)}]"


def parameters_of(signature: inspect.Signature | None) -> Parameters:
    """The parameters of a function; none of one that tells no signature."""
    every = () if signature is None else tuple(signature.parameters.values())
    return Parameters(
        tuple(each.name for each in every if each.kind in _POSITIONAL),
        frozenset(each.name for each in every if each.kind in (_POSITIONAL[1], each.KEYWORD_ONLY)),
        "".join(each.name for each in every if each.kind is each.VAR_POSITIONAL),
        "".join(each.name for each in every if each.kind is each.VAR_KEYWORD),
    )


class Annotation(NamedTuple):
    """An annotation as it was written, a text perhaps. `may_be_none`: None is the parameter's default."""

    written: Any
    may_be_none: bool = False

    @property
    def shown(self) -> str:
        """As a message shows it."""
        return self.written if isinstance(self.written, str) else inspect.formatannotation(self.written)

    def resolved(self, function: Callable[..., Any]) -> Any:
        """What it stands for where the function was written. Raises what looking it up raises."""
        written_in = getattr(inspect.unwrap(function), "__globals__", {})
        holder = SimpleNamespace(__annotations__={"it": self.written})
        found = get_type_hints(holder, globalns=written_in, include_extras=True)["it"]
        return Union[found, None] if self.may_be_none else found  # noqa: UP007 - of values, which may have no `|`


def annotations_of(signature: inspect.Signature | None) -> dict[str, Annotation]:
    """The annotations by parameter, that of the result as `return`."""
    if signature is None:
        return {}
    found = {each.name: Annotation(each.annotation, each.default is None) for each in signature.parameters.values()}
    found[RESULT] = Annotation(signature.return_annotation)
    return {name: each for name, each in found.items() if each.written is not inspect.Parameter.empty}


def is_plain(annotation: Any) -> bool:
    """Whether it is made of what JSON has, and asks for nothing."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_plain(args[0]) and not any(type(each).__module__ == "msgspec" for each in args[1:])
    if origin in _OBJECTS:
        return all(map(is_plain, args)) and args[0] in (str, Any)
    if origin in _UNIONS or origin in _LISTS:
        return all(map(is_plain, args))
    if origin is None and isinstance(annotation, TypeVar):
        return True
    named = _named(annotation)
    if named is not annotation:
        return is_plain(named)
    return origin is Literal or annotation in _JSON or annotation in _LISTS or annotation in _OBJECTS


def unknown_in(annotation: Any) -> str:
    """The first type in it for which there is no conversion, "" when there is none."""
    return next((getattr(each, "__qualname__", repr(each)) for each in _leaves(annotation) if not _is_known(each)), "")


def is_model(kind: object) -> bool:
    """Whether it is a class of pydantic's models; who has none has not imported pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _leaves(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _leaves(get_args(annotation)[0])
    elif origin is Literal or isinstance(annotation, TypeVar) or annotation is ...:
        return
    elif (named := _named(annotation)) is not annotation:
        yield from _leaves(named)
    else:
        yield annotation if origin is None else origin
        for inner in get_args(annotation):
            yield from _leaves(inner)


def _named(annotation: Any) -> Any:
    """What a NewType, or a `type` statement, is a name for."""
    return getattr(annotation, "__supertype__", getattr(annotation, "__value__", annotation))


def _is_known(kind: Any) -> bool:
    if not isinstance(kind, type):
        return kind in _CONVERTED
    return (
        kind in _CONVERTED
        or (kind.__module__, kind.__qualname__) in _OF_LIBRARIES
        or issubclass(kind, Enum | PurePath)
        or dataclasses.is_dataclass(kind)
        or any(hasattr(kind, mark) for mark in ("__struct_fields__", "__attrs_attrs__", "__total__"))
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or is_model(kind)
    )
