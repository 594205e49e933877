"""The header of each script lists its arguments, keys and return values. These tests compare the headers with
the code.
"""

import re
from pathlib import Path
from typing import Final

import pytest

import rota
from rota.protocol.keys import COPIED
from rota.protocol.scripts import read_script, script_names
from support.lua_functions import functions_of

FOLDER: Final = Path(rota.__file__).parent / "lua"
FILES: Final = sorted(FOLDER.rglob("*.lua"))
MOST_COLUMNS: Final = 120
NO_WRITES: Final = "#!lua flags=no-writes"
KEY: Final = re.compile(r"PREFIX \.\. '([a-z-]+:?)'")
ANY_KEY: Final = re.compile(r"PREFIX \.\. (?!')([^\s,]+)")
LANE: Final = re.compile(r"\b(?:ready_lane|delayed_lane|lane_of)\(")
ARGUMENT: Final = re.compile(r"--   (\w+(?:, \w+)*)  ")
LISTS: Final = {"queue:*", "inflight:*"}
# Names of lists that the script `lists` has returned, and names of keys that an export has checked.
OWN_PARTS: Final = {
    "list_ids": {"lists[i]"},
    "export_list": {"list"},
    "import_tasks": {"ARGV[at]", "key]", "key"},
    "import_keys": {"key"},
}
MORE_KEYS: Final = {
    "list_ids": LISTS,
    "export_list": LISTS,
    "import_tasks": LISTS,
    "import_keys": {f"{key}*" if key.endswith(":") else key for key in COPIED},
}
# Arguments that are read by the included transition, not by the script itself.
HANDED_ON: Final = {"add_members": {"how", "body"}}


def code_of(text: str) -> str:
    """Return the script without its comments."""
    return "\n".join(re.sub(r"--.*", "", line) for line in text.splitlines())


def header_of(path: Path) -> list[str]:
    """Return the comment at the beginning of a file."""
    lines = path.read_text().splitlines()
    lines = lines[1:] if lines[0].startswith("#!") else lines
    return lines[: next(at for at, line in enumerate(lines) if not line.startswith("--"))]


def section(path: Path, begin: str) -> list[str]:
    """Return the lines of one part of the header: the line that begins with this word, and the indented lines
    after it.
    """
    header = header_of(path)
    at = next((at for at, line in enumerate(header) if line.startswith(f"-- {begin}")), None)
    if at is None:
        return []
    behind = [line.startswith("--   ") for line in header[at + 1 :]]
    return header[at : at + 1 + (behind.index(False) if False in behind else len(behind))]


def keys_of(path: Path) -> set[str]:
    """Return the kinds of keys, such as `inflight:*`, that a script or a shared file names, directly or in the files
    that it includes. A key in prefix.lua counts only if the file calls the key's function.
    """
    is_script = path.parent == FOLDER
    text = code_of(read_script(path.stem).text.decode() if is_script else path.read_text())
    helpers = (
        set() if path.stem == "prefix" else set(code_of((FOLDER / "shared" / "prefix.lua").read_text()).splitlines())
    )
    own = "\n".join(line for line in text.splitlines() if line not in helpers)
    found = {f"{key}*" if key.endswith(":") else key for key in KEY.findall(own)}
    lanes = {"queue:*"} if LANE.search(own) else set()
    return found | lanes | ({"tasks"} if is_script else set()) | MORE_KEYS.get(path.stem if is_script else "", set())


def path_of(name: str) -> Path:
    """Return the file of a script."""
    return FOLDER / f"{name}.lua"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_line_of_a_lua_script_is_too_long(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if len(line) > MOST_COLUMNS] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_each_lua_file_begins_with_a_comment_about_its_purpose(path: Path) -> None:
    lines = path.read_text().splitlines()
    first = lines[1] if path.parent == FOLDER else lines[0]
    assert re.match(r"-- [A-Z]", first)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_each_redis_key_is_spelled_out_where_a_lua_script_uses_it(path: Path) -> None:
    """If the name of a key were assembled elsewhere, the comparison of headers with the code would miss the key."""
    assert set(ANY_KEY.findall(code_of(path.read_text()))) <= OWN_PARTS.get(path.stem, set())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_lua_header_lists_exactly_the_keys_that_the_script_uses(path: Path) -> None:
    words = " ".join(line.removeprefix("--") for line in section(path, "keys")).split()
    keys = sorted(keys_of(path))
    assert words == (["keys", *keys] if keys else [])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_lua_header_lists_the_variables_of_other_files_that_it_sets(path: Path) -> None:
    words = [word for line in section(path, "sets:") for word in line.split()[2:]]
    assert words == sorted(set().union(*(each.assigned for each in functions_of(path.read_bytes()))))


@pytest.mark.parametrize("name", script_names())
def test_a_lua_header_gives_each_argument_the_name_of_its_local_variable(name: str) -> None:
    source = path_of(name).read_text()
    lines = [ARGUMENT.match(line) for line in section(path_of(name), "ARGV")[1:]]
    named = {word for line in lines if line for word in line[1].split(", ")}
    assert bool(named) == ("ARGV" in code_of(source))
    code = re.sub(r"'[^']*'", "''", code_of(source))
    settled = (
        {"entry", "verb", "first", "second"} if "settle(" in code else set()
    )  # shared/outcomes.lua reads these arguments
    missing = {word for word in named if not re.search(rf"\b{word}\b", code)}
    assert missing <= settled | HANDED_ON.get(name, set())


@pytest.mark.parametrize("name", script_names())
def test_each_lua_script_documents_its_result_and_its_invariant(name: str) -> None:
    text = path_of(name).read_text()
    assert section(path_of(name), "returns")
    assert text.startswith(NO_WRITES) or any(line.startswith("-- Invariant: ") for line in header_of(path_of(name)))
