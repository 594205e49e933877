"""The sources of a configuration as layers: the file and the environment. Each layer overrides the layers before it.

A variable's name is `ROTA_` followed by the path, joined by `__` and with `_` instead of hyphens. Lists are written as
JSON. The server is given by `redis_url`, or by the contents of the file that `redis_url_file` names. The highest layer
that sets one of the two is used.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec import inspect

from rota.display_text import may_hold_credentials
from rota.durations import positive_seconds
from rota.tasks.fleet_settings import read_settings_file
from rota.tasks.keyring import in_folder
from rota_supervisor.config.errors import Fault, shown, suggestion
from rota_supervisor.config.typed_config import SECRET_PATHS, example_of, expectation, fields_of, schema, without_none

CONFIG_VARIABLE: Final = "ROTA_CONFIG"
TIMEOUT_VARIABLE: Final = "ROTA_TIMEOUT_SECONDS"
FALLBACK_URL_VARIABLE: Final = "REDIS_URL"  # set by hosting platforms; the configuration file overrides it
# The least similarity at which a setting is suggested for an unknown variable. It is high, because Kubernetes sets
# variables such as ROTA_SERVICE_HOST for a Service named `rota`.
LIKENESS: Final = 0.8
MAX_URL_CHARACTERS: Final = 4096
MAX_CHUNK_CHARACTERS: Final = 16_384  # including comments
CHUNK_SUFFIX: Final = ".lua"
MOST_LEVELS: Final = 8  # how deep tables and lists may be nested; no setting needs more than three levels
_PREFIX: Final = "ROTA_"
# Variables that other code reads, so they are not settings of the fleet. They contain the path of the configuration
# file, the owner of a running task (set for its subprocesses), and the timeout of clients.
_OTHER_VARIABLES: Final = frozenset({CONFIG_VARIABLE, "ROTA_OWNER", TIMEOUT_VARIABLE})
_TOO_DEEP: Final = f"has tables and lists nested more than {MOST_LEVELS} levels deep: no setting needs that"
_TRUTHS: Final = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
_URL = "redis_url"
_URL_FILE = "redis_url_file"
_UNCLOSED: Final = "a quote is opened but not closed"
# The most common cause of each tomllib error, by the beginning of the error message.
_CAUSES: Final = {
    **dict.fromkeys(("Expected '='", "Invalid statement"), "each line must be KEY = VALUE, [TABLE] or # COMMENT"),
    "Expected ']' at the end of a table": (
        'close the bracket; put a name with special characters into quotes, as in [queues."tenant-*"]'
    ),
    "Unclosed array": "a [ is opened but not closed",
    "Unescaped '\\'": "write a backslash twice between double quotes, and once between single quotes",
    "Expected newline": "only a comment may follow a value on the same line",
    "Illegal character '\\n'": _UNCLOSED,
    "Unterminated string": _UNCLOSED,
    "Expected \"'": _UNCLOSED,
}
_VALUE_CAUSES: Final = (
    (re.compile(r"\s*(?:#.*)?$"), "a value is missing"),
    (re.compile(r"(?i)(?:true|false)\b"), "write true and false in lower case"),
    (re.compile(r"(?i)(?:null|none|nil)\b"), "TOML has no value for this: leave the key out"),
    (re.compile(""), 'put text into quotes, as in namespace = "shop"'),
)
_TWICE: Final = ("Cannot overwrite a value", "Cannot declare")  # how tomllib's messages about a repeated key begin
_LINE: Final = re.compile(r"at line (\d+)")
_PLACE: Final = re.compile(r"at line (\d+), column (\d+)")
_STATEMENT: Final = re.compile(r"""\[(?P<table>[\w."'-]+)\]\s*(?:#.*)?$|\s*(?P<key>[\w."'-]+)\s*=""")
LEAST_TOKEN_BYTES: Final = 16
_OF_SERVER: Final = ("redis_tls_ca", "redis_tls_cert", "redis_tls_key")
_TOKENS: Final = ("token_file", "read_token_file")
_OF_HTTP: Final = (*_TOKENS, "tls_cert", "tls_key")


@dataclass(frozen=True, slots=True)
class Layer:
    """The raw values of one source, and its faults."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)  # the source of each value, by its dotted path
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def layer_of(values: dict[str, Any], origin: str) -> Layer:
    """Return a layer in which all values have the same origin."""
    return Layer(values, {path: origin for path, _ in leaves(values)})


def leaves(values: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value that is not a table, after its dotted path."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def merge(layers: Iterable[Layer]) -> Layer:
    """Return one layer with the values of all layers. Each layer overrides the layers before it: tables are merged, and
    all other values are replaced."""
    merged = Layer()
    for layer in layers:
        _overlay(merged.values, layer.values)
        merged.origins.update(layer.origins)
    return merged


def _overlay(lower: dict[str, Any], upper: Mapping[str, Any]) -> None:
    for key, value in upper.items():
        if isinstance(value, Mapping):
            below = lower.get(key)
            lower[key] = below if isinstance(below, dict) else {}
            _overlay(lower[key], value)
        else:
            lower[key] = value


def _is_too_deep(value: Any) -> bool:
    """Whether tables and lists are nested so deeply that recursion could exhaust the stack. No setting needs such
    nesting."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for each in level for inner in _inside(each)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


# The file


def read_file(file: Path, *, required: bool) -> tuple[bytes | None, Layer]:
    """Return the contents of the file, and the layer of its values. The layer has no values if the file cannot be read
    or parsed.
    """
    if may_hold_credentials(str(file)):
        return None, Layer(faults=[Fault("-c, ROTA_CONFIG", "expected the path of a file, got a URL")])
    content = None
    try:
        content = read_settings_file(file)
        values = tomllib.loads(content.decode())
        if not _is_too_deep(values):
            return content, layer_of(values, origin_of_file(file))
        message = _TOO_DEEP
    except FileNotFoundError:
        message = "there is no such file; `rota init` writes one" if required else ""
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        message = "is not UTF-8 text"
    except RecursionError:
        message = _TOO_DEEP
    except ValueError as error:  # a TOMLDecodeError, or a number with thousands of digits
        message = f"is not valid TOML: {_set_twice(content, str(error)) or _with_cause(content, str(error))}"
    return content, Layer(faults=[Fault(str(file), message)] if message else [])


def _with_cause(content: bytes | None, error: str) -> str:
    """Return the parser's error, followed by the most common cause of this error in plain words, if the cause is
    known.
    """
    if error.startswith("Invalid value"):
        rest = _rest_of_line(content or b"", error)
        cause = next(cause for pattern, cause in _VALUE_CAUSES if pattern.match(rest))
    else:
        cause = next((cause for start, cause in _CAUSES.items() if error.startswith(start)), "")
    return f"{error}: {cause}" if cause else error


def _rest_of_line(content: bytes, error: str) -> str:
    """Return the text of the file from the position of an error to the end of the line."""
    place = _PLACE.search(error)
    if place is None:  # The message has no position, because the error is at the end of the file.
        return ""
    # Split only at the line ends that tomllib recognizes, because its errors contain line numbers.
    return content.decode().replace("\r\n", "\n").split("\n")[int(place[1]) - 1][int(place[2]) - 1 :]


def _set_twice(content: bytes | None, error: str) -> str:
    """Return a text that names the key or table that the file sets twice, and the lines, or "" if the error has another
    cause.
    """
    if content is None or not error.startswith(_TWICE):
        return ""
    at = _LINE.search(error)
    table = ""
    name = ""
    numbers = dict[str, list[int]]()
    for number, line in enumerate(content.decode().splitlines()[: int(at[1]) if at else None], 1):
        if (found := _STATEMENT.match(line)) is not None:
            table = found["table"] or table
            name = f"[{table}]" if found["table"] else ".".join(filter(None, (table, found["key"])))
            numbers.setdefault(name, []).append(number)
    lines = numbers.get(name, [])
    return f"{name} is set on line {lines[0]} and again on line {lines[-1]}: keep one of them" if len(lines) > 1 else ""


def origin_of_file(file: Path) -> str:
    """Return the text that describes a file as the origin of a value."""
    return f"file {file}"


# The environment


def fallback_layer(environment: Mapping[str, str]) -> Layer:
    """Return the lowest layer. It contains the server's address if the hosting platform has set REDIS_URL, and nothing
    else.
    """
    url = environment.get(FALLBACK_URL_VARIABLE)
    return layer_of({_URL: url}, f"environment {FALLBACK_URL_VARIABLE}") if url else Layer()


def read_environment(environment: Mapping[str, str], names: Mapping[str, Iterable[str]]) -> Layer:
    """Read every `ROTA_` variable. An unknown variable causes a warning. `names`: by table, the names that entries can
    have, for example the names of pools.
    """
    layer = Layer()
    for variable in sorted(environment):
        if variable.startswith(_PREFIX) and variable not in _OTHER_VARIABLES:
            _read_variable(layer, variable, environment[variable], names)
    timeout = environment.get(TIMEOUT_VARIABLE)
    if timeout and not _is_timeout(timeout):
        layer.faults.append(Fault(TIMEOUT_VARIABLE, f"expected seconds, more than 0, got {shown(timeout)}"))
    return layer


def _is_timeout(text: str) -> bool:
    """Whether clients would accept this text as the value of ROTA_TIMEOUT_SECONDS."""
    try:
        return positive_seconds(float(text), TIMEOUT_VARIABLE) > 0
    except ValueError:
        return False


def _read_variable(layer: Layer, variable: str, text: str, names: Mapping[str, Iterable[str]]) -> None:
    found = _find(variable.removeprefix(_PREFIX).split("__"), names)
    if found is None:
        hint = suggestion(variable, _variables(), LIKENESS)
        layer.warnings.append(f"{variable} in the environment is not a setting of Rota and is ignored{hint}")
        return
    keys, kind = found
    path = ".".join(keys)
    if not text and not isinstance(kind, inspect.StrType):
        return
    try:
        value = _value(text, kind)
    except (KeyError, ValueError, RecursionError):
        as_json = " as JSON" * isinstance(kind, inspect.VarTupleType | inspect.StructType | inspect.DictType)
        as_json += example_of(path, kind) if isinstance(kind, inspect.VarTupleType | inspect.UnionType) else ""
        got = "a value that is not" if path in SECRET_PATHS else shown(text)
        layer.faults.append(Fault(variable, f"expected {expectation(kind)}{as_json}, got {got}"))
        return
    _put(layer.values, keys, value)
    layer.origins[path] = f"environment {variable}"


def _variables() -> Iterator[str]:
    """Yield the name of the variable for each setting. Settings whose path contains a name that users choose, such as
    the name of a queue, are omitted.
    """
    for key, kind in fields_of(schema()).items():
        table = without_none(kind)
        inner = [f"__{each}" for each in fields_of(table)] if isinstance(table, inspect.StructType) else [""]
        yield from (f"{_PREFIX}{key}{each}".upper() for each in inner)


def _find(parts: Sequence[str], names: Mapping[str, Iterable[str]]) -> tuple[list[str], inspect.Type] | None:
    """Return the path of the setting that a variable sets, and its type, or None if there is no such setting. `parts`:
    the parts of the variable's name, without the prefix."""
    kind: inspect.Type = schema()
    path: list[str] = []
    for part in map(str.lower, parts):
        key = part
        inner = None
        if isinstance(kind, inspect.StructType):
            inner = fields_of(kind).get(part)
        elif isinstance(kind, inspect.DictType) and part:
            key = next((name for name in names.get(path[0], ()) if _folded(name) == part), part)
            inner = kind.value_type
        if inner is None:
            return None
        path.append(key)
        kind = without_none(inner)
    return path, kind


def _folded(name: str) -> str:
    # `*` and the hyphen before it are dropped from the end of a pattern. They would become two underscores, which
    # separate the parts of a path.
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower()).rstrip("_")


def _value(text: str, kind: inspect.Type) -> Any:
    """Return the value that a text represents. Raises KeyError, ValueError or RecursionError if the text is not
    valid."""
    match kind:
        case inspect.UnionType(types=(number, _)):
            return text if ".." in text else _value(text, number)
        case inspect.StrType() | inspect.LiteralType() | inspect.DateTimeType():
            return text
        case inspect.IntType():
            return int(text)
        case inspect.FloatType():
            return float(text)
        case inspect.BoolType():
            return _TRUTHS[text.lower()]
    value = json.loads(text)
    if _is_too_deep(value):
        raise ValueError(text)
    return value


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value at a path. Tables that are missing on the way are created, and other values on the way are replaced
    with tables.
    """
    *tables, key = path
    for table in tables:
        if not isinstance(values.get(table), dict):
            values[table] = {}
        values = values[table]
    values[key] = value


# The server's address


def choose_server_url(layers: Sequence[Layer], merged: Layer, folder: Path) -> list[Fault]:
    """Set `redis_url` in the merged values, and return the faults found. `folder`: the folder to which relative paths
    in the file refer.
    """
    highest = (layer.values for layer in reversed(layers) if _URL in layer.values or layer.values.get(_URL_FILE))
    values = next(highest, None)
    if values is None:
        return []
    path = values.get(_URL_FILE)
    if not path:
        merged.values.pop(_URL_FILE, None)
        return []
    if _URL in values:
        return [Fault(_URL_FILE, "set either redis_url or redis_url_file, not both")]
    if not isinstance(path, str) or may_hold_credentials(path):  # The type check reports this fault later.
        return []
    return _read_url(merged, folder / path)


def _read_url(merged: Layer, file: Path) -> list[Fault]:
    text, fault = _text_of(file)
    text = text.strip()
    if fault:
        return [Fault(_URL_FILE, fault)]
    if "://" not in text or len(text) > MAX_URL_CHARACTERS:  # The text may be a password, so it must not be shown.
        return [Fault(_URL_FILE, f"{file} contains no Redis URL")]
    merged.values[_URL] = text
    merged.origins[_URL] = f"contents of {file}"
    return []


def _text_of(file: Path) -> tuple[str, str]:
    """Return the text of a file, and the reason why the file cannot be read. One of the two is ""."""
    try:
        return read_settings_file(file).decode(), ""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        return "", f"{file} cannot be read: {reason}"


# The Lua chunks of conditions


def read_chunks(merged: Layer, folder: Path) -> list[Fault]:
    """Replace each file path in `conditions.NAME.lua` with the contents of the file. A value is a path if it is a
    single line that ends in `.lua`.
    """
    conditions = merged.values.get("conditions")
    faults: list[Fault] = []
    for name, table in conditions.items() if isinstance(conditions, Mapping) else ():
        path = table.get("lua") if isinstance(table, dict) else None
        if isinstance(path, str) and path.endswith(CHUNK_SUFFIX) and "\n" not in path:
            faults += _read_chunk(merged, table, f"conditions.{name}.lua", folder / path)
    return faults


def _read_chunk(merged: Layer, table: dict[str, Any], at: str, file: Path) -> list[Fault]:
    text, fault = _text_of(file)
    if len(text) > MAX_CHUNK_CHARACTERS:
        fault = f"{file} has more than {MAX_CHUNK_CHARACTERS} characters"
    if fault:
        return [Fault(at, fault)]
    table["lua"] = text
    merged.origins[at] = f"contents of {file}"
    return []


# The TLS files and the token files. They are read, and read again after changes, by the processes that use them.


def resolve_files(merged: Layer, folder: Path) -> list[Fault]:
    """Make the paths in the merged values absolute, and return a fault for each file that cannot be used. Relative
    paths refer to `folder`. The files with signing keys are not checked here, but by the rule of `[signing]`.
    """
    signing = merged.values.get("signing")
    keys = signing.get("keys") if isinstance(signing, dict) else None
    if isinstance(keys, dict):
        for name, source in keys.items():
            keys[name] = in_folder(source, folder) if isinstance(source, str) and "\0" not in source else source
    http = merged.values.get("http")
    of_http = _resolve(http, _OF_HTTP, "http.", folder) if isinstance(http, dict) else []
    return _resolve(merged.values, _OF_SERVER, "", folder) + of_http


def _resolve(table: dict[str, Any], keys: Iterable[str], at: str, folder: Path) -> list[Fault]:
    faults: list[Fault] = []
    for key in keys:
        path = table.get(key)
        # A path with credentials is not shown. The type check reports it later.
        if path and isinstance(path, str) and "\0" not in path and not may_hold_credentials(path):
            file = (folder / path).absolute()
            table[key] = str(file)
            faults += [Fault(f"{at}{key}", fault) for fault in _faults_of(file, key)]
    return faults


def _faults_of(file: Path, key: str) -> list[str]:
    try:
        content = read_settings_file(file)
    except OSError as error:
        return [f"{file} cannot be read: {error.strerror}"]
    if key in _TOKENS and not (len(content.split()) == 1 and len(content.strip()) >= LEAST_TOKEN_BYTES):
        expected = f"expected one word of at least {LEAST_TOKEN_BYTES} characters, as from `openssl rand -hex 32`"
        return [f"{file} contains no token: {expected}"]
    return []
