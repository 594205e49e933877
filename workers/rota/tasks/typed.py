"""The typed arguments of a task: those that its annotations give a type that JSON has not, and its result.

They are dumped at the call, and loaded again before the function is called. Made once for each task, when it is first
needed; nearly all that is here is loaded only by applications that have such a task.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.errors import InvalidArguments
from rota.protocol.ends import error_line
from rota.tasks.annotations import RESULT, Annotation, Parameters, annotations_of, is_plain, parameters_of, unknown_in
from rota.tasks.arguments import Misfit, require_collections

if TYPE_CHECKING:
    from rota.tasks.conversion import Converter, PydanticConverter

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
