"""Conversion of those arguments and results of tasks whose annotations contain types that JSON does not have.

JSON has None, bool, int, float, str, list, and dict with str keys. An annotation made of those types needs no
conversion. If an annotation contains other types and they can be converted, the argument is converted to JSON when the
call is enqueued, and converted back before the worker calls the function. This module is loaded when a task is first
used.
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
_OF_LIBRARIES: Final = {  # listed by name, so that these modules need not be imported
    *(("datetime", name) for name in ("datetime", "date", "time", "timedelta")),
    ("uuid", "UUID"),
    ("decimal", "Decimal"),
}
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Parameters(NamedTuple):
    """The names of a function's parameters. From them, `of` determines which parameter receives an argument of a
    call."""

    positional: tuple[str, ...] = ()
    keywords: frozenset[str] = frozenset()
    rest: str = ""  # name of the parameter `*rest`; "" if the function has none
    others: str = ""  # name of the parameter `**others`; "" if the function has none

    def of(self, argument: int | str) -> tuple[str, str]:
        """Return the parameter that receives an argument, and the name of the argument for messages. `argument` is the
        number of a positional argument, or a keyword."""
        if isinstance(argument, str):
            return (
                (argument, argument)
                if argument in self.keywords
                else (self.others, f"{self.others or 'kwargs'}{step(argument)}")
            )
        if argument < len(self.positional):
            return self.positional[argument], self.positional[argument]
        return self.rest, f"{self.rest or 'args'}[{argument - len(self.positional)}]"


def parameters_of(signature: inspect.Signature | None) -> Parameters:
    """Return the parameters of a function, or empty parameters if it has no signature."""
    every = () if signature is None else tuple(signature.parameters.values())
    return Parameters(
        tuple(each.name for each in every if each.kind in _POSITIONAL),
        frozenset(each.name for each in every if each.kind in (_POSITIONAL[1], each.KEYWORD_ONLY)),
        "".join(each.name for each in every if each.kind is each.VAR_POSITIONAL),
        "".join(each.name for each in every if each.kind is each.VAR_KEYWORD),
    )


class Annotation(NamedTuple):
    """An annotation as it was written, which may be a string. `may_be_none` is true if the parameter's default is
    None."""

    written: Any
    may_be_none: bool = False

    @property
    def shown(self) -> str:
        """The text of the annotation for messages."""
        return self.written if isinstance(self.written, str) else inspect.formatannotation(self.written)

    def resolved(self, function: Callable[..., Any]) -> Any:
        """Return the type of the annotation, with names looked up in the function's module. Raises any exception that
        the lookup raises."""
        written_in = getattr(inspect.unwrap(function), "__globals__", {})
        holder = SimpleNamespace(__annotations__={"it": self.written})
        found = get_type_hints(holder, globalns=written_in, include_extras=True)["it"]
        return Union[found, None] if self.may_be_none else found  # noqa: UP007 - `found` may be a value without `|`


def annotations_of(signature: inspect.Signature | None) -> dict[str, Annotation]:
    """Return the annotation of each annotated parameter, by name. The key `return` has the annotation of the result."""
    if signature is None:
        return {}
    found = {each.name: Annotation(each.annotation, each.default is None) for each in signature.parameters.values()}
    found[RESULT] = Annotation(signature.return_annotation)
    return {name: each for name, each in found.items() if each.written is not inspect.Parameter.empty}


def is_plain(annotation: Any) -> bool:
    """Whether the annotation is made only of types that JSON has, so that no conversion is needed."""
    origin = get_origin(annotation)
    args = get_args(annotation)
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
    """Return the name of the first type in the annotation that cannot be converted, or "" if all types can be
    converted."""
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
    """Return the type that a NewType or a `type` statement gives a name to, or the annotation itself if it is
    neither."""
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


_NO_MSGSPEC = "its conversion requires msgspec, which is not installed: pip install msgspec"


@dataclass(frozen=True)
class TypedArguments:
    """Converts the arguments and the result of one task. Arguments without a converter are not changed."""

    name: str
    parameters: Parameters
    converters: "Mapping[str, Converter | PydanticConverter]"
    shown: Mapping[str, str]  # the text of each annotation for messages, by parameter

    def dump(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Convert the arguments to JSON values. Raises InvalidArguments if an argument would arrive changed."""
        require_collections(self.name, args, kwargs)
        return self._each(args, kwargs, dumps=True)

    def load(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert arguments that are JSON values to the types that the function takes. Raises InvalidArguments if an
        argument does not fit its annotation."""
        loaded, named = self._each(args, kwargs, dumps=False)
        return tuple(loaded), named

    def ordered(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Convert the function's arguments to JSON values that are the same for equal arguments. For example, sets are
        sorted."""
        from rota.tasks.conversion import ordered  # noqa: PLC0415 - loaded already, with the converters

        return ordered([args, kwargs])

    def dump_result(self, value: Any) -> Any:
        """Convert the result to JSON values. Raises Misfit if the client would get a different value."""
        return self.converters[RESULT].dump(value) if RESULT in self.converters else value

    def load_result(self, wire: Any) -> Any:
        """Convert a result from JSON values to the type that the function returned. Raises Misfit if the result does
        not fit the annotation."""
        return self.converters[RESULT].load(wire) if RESULT in self.converters else wire

    def _each(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, dumps: bool) -> tuple[list[Any], dict[str, Any]]:
        listed = [self._convert(argument, value, dumps=dumps) for argument, value in enumerate(args)]
        return listed, {argument: self._convert(argument, value, dumps=dumps) for argument, value in kwargs.items()}

    def _convert(self, argument: int | str, value: Any, *, dumps: bool) -> Any:
        parameter, path = self.parameters.of(argument)
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
    """Return the converter that a task's annotations need, or None if they need none, as in most tasks.

    With pydantic, raises TypeError if pydantic does not support an annotation, and ModuleNotFoundError if pydantic is
    not installed.
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


def described(
    function: Callable[..., Any], signature: inspect.Signature | None, argument: int | str
) -> tuple[str, str]:
    """Return two texts for the error message about an argument that is not JSON. The first is the argument's name. The
    second states which values are valid, or why the annotation of its parameter cannot be used to convert it."""
    parameter, path = parameters_of(signature).of(argument)
    annotation = annotations_of(signature).get(parameter)
    found = None if annotation is None else _converter_or_why(function, annotation)
    if annotation is None or not isinstance(found, str):
        return path, "arguments must be JSON, unless the parameter is annotated with a type that can be converted"
    return path, f"{parameter} is annotated as {annotation.shown}, but {found}"


def _converter_or_why(function: Callable[..., Any], annotation: Annotation) -> "Converter | str | None":
    """Return the converter for an annotation, None if the annotation needs none, or a text that explains why it cannot
    have one."""
    try:
        found = annotation.resolved(function)
        if is_plain(found):
            return None
        unknown = unknown_in(found)
    except Exception as error:  # noqa: BLE001 - an annotation is any expression, perhaps meant for another library
        return f"that annotation cannot be evaluated: {error_line(error)}"
    if unknown:
        return f"there is no conversion for {unknown}"
    try:
        from rota.tasks.conversion import Converter  # noqa: PLC0415 - it loads msgspec, which most tasks do not need

        return Converter(found)
    except ModuleNotFoundError as error:
        return _NO_MSGSPEC if error.name == "msgspec" else str(error)
    # Classes of the application may raise these exceptions as well.
    except (TypeError, ValueError, NameError, AttributeError, RecursionError) as error:
        return f"that type cannot be used for conversion: {str(error).partition(' - type ')[0]}"


def _with_pydantic(
    name: str, function: Callable[..., Any], parameter: str, annotation: Annotation
) -> "PydanticConverter":
    try:
        from rota.tasks.conversion import PydanticConverter  # noqa: PLC0415 - it loads msgspec and pydantic

        return PydanticConverter(annotation.resolved(function))
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{name}: pydantic=True requires pydantic and msgspec: pip install 'rota[pydantic]' ({error})",
            name=error.name,
        ) from None
    except Exception as error:
        text = f"{name}: pydantic=True, but pydantic cannot work with {parameter}, annotated as {annotation.shown}"
        raise TypeError(f"{text}: {error_line(error)}") from error
