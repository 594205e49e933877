"""The typed arguments of a task: those that its annotations give a type that JSON does not have, and its result.

JSON has None, bool, int, float, str, list, and dict with str keys: an annotation made of those asks for nothing. Any
other asks for a conversion, if it names types for which there is one: the argument is dumped at the call, and loaded
again before the function is called. This module is loaded when a task is first used.
"""

import collections.abc
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from rota.errors import InvalidArguments
from rota.protocol.outcome import error_line
from rota.tasks.arguments import Misfit, is_model, require_collections, step

if TYPE_CHECKING:
    from rota.tasks.conversion import Converter, PydanticConverter

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


_NO_MSGSPEC = "converting it takes msgspec, which is not installed: pip install msgspec"


@dataclass(frozen=True)
class TypedArguments:
    """Converts the arguments of one task, and its result; those without a converter are left as they are."""

    name: str
    parameters: Parameters
    converters: "Mapping[str, Converter | PydanticConverter]"
    shown: Mapping[str, str]  # each annotation as it was written

    def dump(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as JSON has them. Raises InvalidArguments for one that would not arrive as it is given."""
        require_collections(self.name, args, kwargs)
        return self._each(args, kwargs, dumps=True)

    def load(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments as the function takes them, of what came as JSON. Raises InvalidArguments."""
        loaded, named = self._each(args, kwargs, dumps=False)
        return tuple(loaded), named

    def ordered(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """JSON that is the same for equal arguments, of those that the function takes."""
        from rota.tasks.conversion import ordered  # noqa: PLC0415 - loaded already, with the converters

        return ordered([args, kwargs])

    def dump_result(self, value: Any) -> Any:
        """The result as JSON has it. Raises Misfit."""
        return self.converters[RESULT].dump(value) if RESULT in self.converters else value

    def load_result(self, wire: Any) -> Any:
        """The result as the function returned it. Raises Misfit."""
        return self.converters[RESULT].load(wire) if RESULT in self.converters else wire

    def _each(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, dumps: bool) -> tuple[list[Any], dict[str, Any]]:
        listed = [self._convert(place, value, dumps=dumps) for place, value in enumerate(args)]
        return listed, {place: self._convert(place, value, dumps=dumps) for place, value in kwargs.items()}

    def _convert(self, place: int | str, value: Any, *, dumps: bool) -> Any:
        parameter, path = self.parameters.of(place)
        converter = self.converters.get(parameter)
        if converter is None:
            return value
        try:
            return converter.dump(value) if dumps else converter.load(value)
        except Misfit as misfit:
            wanted = f"{parameter} is annotated as {self.shown[parameter]}, got {type(value).__name__}"
            raise InvalidArguments(f"{self.name}: {path}{misfit.path} {misfit.fault} ({wanted})") from misfit


def typed_arguments(
    name: str, function: Callable[..., Any], signature: inspect.Signature | None, *, with_pydantic: bool
) -> TypedArguments | None:
    """What a task's annotations ask for; None when that is nothing, as with most tasks.

    Raises TypeError with pydantic for an annotation that it cannot work with, ModuleNotFoundError without it.
    """
    written = annotations_of(signature)
    made: dict[str, Converter | PydanticConverter] = {}
    for parameter, annotation in written.items():
        if with_pydantic:
            made[parameter] = _with_pydantic(name, function, parameter, annotation)
        elif not isinstance(found := _converter_or_why(function, annotation), str | None):
            made[parameter] = found
    if not made:
        return None
    return TypedArguments(name, parameters_of(signature), made, {each: written[each].shown for each in made})


def described(function: Callable[..., Any], signature: inspect.Signature | None, place: int | str) -> tuple[str, str]:
    """What an argument that is no JSON is called, and what it may be, or why its annotation is not followed."""
    parameter, path = parameters_of(signature).of(place)
    annotation = annotations_of(signature).get(parameter)
    found = None if annotation is None else _converter_or_why(function, annotation)
    if annotation is None or not isinstance(found, str):
        return path, "arguments must be JSON, or their parameter annotated with their type"
    return path, f"{parameter} is annotated as {annotation.shown}, but {found}"


def _converter_or_why(function: Callable[..., Any], annotation: Annotation) -> "Converter | str | None":
    """What converts by an annotation, None where nothing is asked for, or why none of it is done."""
    try:
        found = annotation.resolved(function)
        if is_plain(found):
            return None
        unknown = unknown_in(found)
    except Exception as error:  # noqa: BLE001 - any expression may stand there, and be meant for others than us
        return f"that cannot be read here: {error_line(error)}"
    if unknown:
        return f"there is no conversion for {unknown}"
    try:
        from rota.tasks.conversion import Converter  # noqa: PLC0415 - brings msgspec, which most tasks do without

        return Converter(found)
    except ModuleNotFoundError as error:
        return _NO_MSGSPEC if error.name == "msgspec" else str(error)
    except (TypeError, ValueError, NameError, AttributeError, RecursionError) as error:  # by classes that it names, too
        return f"nothing can be converted by that: {str(error).partition(' - type ')[0]}"


def _with_pydantic(
    name: str, function: Callable[..., Any], parameter: str, annotation: Annotation
) -> "PydanticConverter":
    try:
        from rota.tasks.conversion import PydanticConverter  # noqa: PLC0415 - as above

        return PydanticConverter(annotation.resolved(function))
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{name}: pydantic=True takes pydantic and msgspec: pip install 'rota[pydantic]' ({error})", name=error.name
        ) from None
    except Exception as error:
        text = f"{name}: pydantic=True, and pydantic cannot work with {parameter}, annotated as {annotation.shown}"
        raise TypeError(f"{text}: {error_line(error)}") from error
