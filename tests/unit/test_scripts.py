"""The assembly of Lua scripts from a transition and the shared functions that the transition names."""

import hashlib
import re
from pathlib import Path
from typing import NoReturn

import pytest

from rota.protocol import scripts
from rota.protocol.scripts import load_script, script_names
from rota.protocol.store import Blame
from rota.protocol.wire import NOTHING
from rota_supervisor.config.model import Config
from rota_supervisor.master.effects.master_redis import RedisWatch
from support.cores import Core


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace Rota's folder of scripts with an empty one, and return this folder."""
    (tmp_path / "shared").mkdir()
    monkeypatch.setattr(scripts, "_FOLDER", tmp_path)
    monkeypatch.setattr(scripts, "load_script", scripts.load_script.__wrapped__)
    return tmp_path


def test_a_script_has_its_shared_lua_functions_before_its_body_in_order(folder: Path) -> None:
    (folder / "shared" / "lane.lua").write_text("local function lane() end")
    (folder / "shared" / "bell.lua").write_text("local function bell() end")
    (folder / "shared" / "unused.lua").write_text("local function unused() end")
    (folder / "probe.lua").write_text("#!lua flags=allow-oom\n-- with: bell\n-- with: lane\nreturn 1\n")
    lines = scripts.load_script("probe").text.decode().splitlines()
    assert lines == [
        "#!lua flags=allow-oom",
        "local function bell() end",
        "local function lane() end",
        "-- with: bell",
        "-- with: lane",
        "return 1",
    ]


def test_only_common_shared_lua_code_is_outside_the_scripts_function(folder: Path) -> None:
    (folder / "shared" / "entry.lua").write_text("local function entry() end")
    (folder / "shared" / "bell.lua").write_text("local function bell() end")
    (folder / "probe.lua").write_text("#!lua\n-- with: bell entry\nreturn 1\n")
    lines = scripts.load_script("probe").text.decode().splitlines()
    assert [line for line in lines if line] == [
        "#!lua",
        "local function entry() end",
        "return (function()",
        "local function bell() end",
        "-- with: bell entry",
        "return 1",
        "end)()",
    ]


def test_an_indented_with_line_inserts_shared_code_and_its_dependencies(folder: Path) -> None:
    (folder / "shared" / "lane.lua").write_text("local function lane() end\n")
    (folder / "shared" / "ticket.lua").write_text("-- with: lane\nlocal function ticket() end\n")
    (folder / "shared" / "bell.lua").write_text("if any then\n  -- with: ticket\nend\n")
    (folder / "probe.lua").write_text("#!lua\n-- with: lane bell\nif rare then\n  -- with: bell\nend\n")
    lines = [line for line in scripts.load_script("probe").text.decode().splitlines() if line and "--" not in line]
    assert lines == [
        "#!lua",
        "local function lane() end",
        "if any then",
        "  local function ticket() end",
        "end",
        "if rare then",
        "end",
    ]


def test_two_branches_of_a_script_each_get_the_shared_function_they_name(folder: Path) -> None:
    (folder / "shared" / "bell.lua").write_text("local bell\n")
    (folder / "probe.lua").write_text("#!lua\nif a then\n  -- with: bell\nelse\n  -- with: bell\nend\n")
    assert scripts.load_script("probe").text.decode().splitlines().count("  local bell") == 2


def test_a_lua_script_without_shared_functions_is_unchanged(folder: Path) -> None:
    (folder / "probe.lua").write_text("#!lua\nreturn 1\n")
    assert scripts.load_script("probe").text == b"#!lua\nreturn 1\n"


def test_a_script_included_in_another_becomes_a_function_after_shared_code(folder: Path) -> None:
    for name in ("copy", "bell", "entry"):
        (folder / "shared" / f"{name}.lua").write_text(f"local {name}")
    (folder / "turn.lua").write_text("#!lua flags=allow-oom\n-- with: bell entry\nreturn bell\n")
    probe = "#!lua flags=no-writes\n-- with: copy bell\n-- taking along: turn\nreturn turn()\n"
    (folder / "probe.lua").write_text(probe)
    lines = [
        line for line in scripts.load_script("probe").text.decode().splitlines() if line and not line.startswith("--")
    ]
    assert lines == [
        "#!lua flags=no-writes",
        "local copy",
        "local entry",
        "return (function()",
        "local bell",
        "local function turn()",
        "return bell",
        "end",
        "return turn()",
        "end)()",
    ]


def test_a_missing_shared_lua_function_raises_file_not_found_error(folder: Path) -> None:
    (folder / "probe.lua").write_text("#!lua\n-- with: nowhere\nreturn 1\n")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        scripts.load_script("probe")


@pytest.mark.parametrize("name", script_names())
def test_every_script_declares_its_flags_and_has_its_sha1_digest(name: str) -> None:
    script = load_script(name)
    assert script.text.startswith(b"#!lua")
    assert script.sha == hashlib.sha1(script.text, usedforsecurity=False).hexdigest().encode()


SHARED = Path(scripts.__file__).parent.parent / "lua/shared"
_DEFINED = re.compile(r"^ *local (?:function )?(\w+(?:, \w+)*)")


def defined_by(line: str) -> list[str]:
    """Return the names that a line of a script defines."""
    found = _DEFINED.match(line)
    return found[1].split(", ") if found else []


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


@pytest.mark.parametrize("name", script_names())
def test_every_script_defines_shared_names_before_their_use(name: str) -> None:
    """Lua reports a missing name only when the line runs, which may be long after a release. A name that is defined in
    a function or a branch is known only inside it. The test uses the indentation to determine where a name is known.
    """
    sources = [path.read_text(encoding="utf-8").splitlines() for path in SHARED.glob("*.lua")]
    shared = {thing for lines in sources for line in lines if indent_of(line) == 0 for thing in defined_by(line)}
    text = re.sub(r"--.*", "", load_script(name).text.decode())
    known: list[tuple[int, str]] = []  # the names in scope, each with its indentation
    for line in filter(str.strip, text.splitlines()):
        known = [(indent, thing) for indent, thing in known if indent <= indent_of(line)]
        known += [(indent_of(line), thing) for thing in defined_by(line)]
        used = set(re.findall(r"(?<![\w.:'])(\w+)(?=[ (.\[])(?! =)", line)) & (shared - {"redis", "ARGV"})
        missing = used - {thing for _, thing in known}
        assert not [thing for thing in missing if not is_own_name(text, thing)], line


def is_own_name(text: str, thing: str) -> bool:
    """Whether a script uses this name for its own parameter or loop variable."""
    return bool(re.search(rf"(function ?\w*\([^)]*\b{thing}\b|for [\w, ]*\b{thing}\b)", text))


def test_a_server_out_of_memory_refuses_only_scripts_that_add_data() -> None:
    flags = {name: load_script(name).text.partition(b"\n")[0] for name in script_names()}
    refused = {name for name, line in flags.items() if b"allow-oom" not in line and b"no-writes" not in line}
    schedules, imports = {"advance", "put_schedule", "run_schedule"}, {"import_tasks", "import_keys"}
    assert refused == {"enqueue", "add_members", "revive", *schedules, *imports}


def test_loading_an_unknown_script_raises_file_not_found_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_script("nowhere")


def test_the_master_reads_its_scripts_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    load_script.cache_clear()
    store = RedisWatch(Core(Config()).state, lambda _: None).store

    def gone(name: str) -> NoReturn:
        raise OSError(name)

    monkeypatch.setattr(scripts, "read_script", gone)
    owner = "node:8:1"
    for called in (
        store.announce("node", b"", 1000, []),
        store.register(1000, []),
        store.renew(1000, [owner]),
        store.return_prefetched(owner, b"entry", NOTHING),
        store.reap_exited(owner, Blame()),
        store.overview([]),
    ):
        assert called.by_sha()
