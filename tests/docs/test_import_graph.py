"""No module of the product imports itself through other modules. Imports inside functions and imports for type checking
count too.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.prose import ROOT

Graph = Mapping[str, set[str]]


def _modules() -> dict[str, Path]:
    found = {}
    for root in ("workers", "supervisor"):
        for path in (ROOT / root).rglob("*.py"):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Return all imports of a module. Each import is a pair of the imported module and the name that is imported from
    it.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def _graph() -> dict[str, set[str]]:
    modules = _modules()
    graph = {}
    for name, path in modules.items():
        imports = set()
        for module, inner in _imported(ast.parse(path.read_text(encoding="utf-8"))):
            imports.add(f"{module}.{inner}" if f"{module}.{inner}" in modules else module)
        graph[name] = {each for each in imports if each in modules and each != name}
    return graph


def _packages(graph: Graph) -> dict[str, set[str]]:
    """Return the imports between the folders and modules directly below `rota` and `rota_supervisor`."""
    folded: dict[str, set[str]] = {}
    for name, imports in graph.items():
        at = ".".join(name.split(".")[:2])
        folded.setdefault(at, set()).update({".".join(each.split(".")[:2]) for each in imports} - {at})
    return folded


def _client_folders(graph: Graph) -> dict[str, set[str]]:
    """Return the imports between the folders directly below `rota.client`. Modules directly in `rota.client` are left
    out.
    """
    of_module = {name: name.rpartition(".")[0] for name in graph if name.startswith("rota.client.")}
    folder_of = {name: folder for name, folder in of_module.items() if folder != "rota.client"}
    folders: dict[str, set[str]] = {folder: set() for folder in folder_of.values()}
    for name, folder in folder_of.items():
        imported = {folder_of.get(each, each) for each in graph[name]}
        folders[folder] |= imported & set(folders) - {folder}
    return folders


def cycles_in(graph: Graph) -> set[frozenset[str]]:
    """Return the strongly connected components of the graph that have more than one member."""
    reached = {name: _reached_from(name, graph) for name in graph}
    found = {frozenset({name} | {to for to in reached[name] if name in reached[to]}) for name in graph}
    return {cycle for cycle in found if len(cycle) > 1}


def _reached_from(name: str, graph: Graph) -> set[str]:
    reached, waiting = set[str](), [name]
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def test_module_imports_have_no_cycle() -> None:
    assert cycles_in(_graph()) == set()


def test_package_imports_have_no_cycle() -> None:
    assert cycles_in(_packages(_graph())) == set()


def test_client_folder_imports_have_no_cycle() -> None:
    folders = _client_folders(_graph())
    assert {"rota.client.aio", "rota.client.blocking", "rota.client.consumer"} <= set(folders)
    assert cycles_in(folders) == set()


def test_the_check_for_import_cycles_finds_long_ones() -> None:
    assert cycles_in({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == {frozenset("abc")}


def test_a_worker_imports_no_client() -> None:
    workers = {name: imports for name, imports in _graph().items() if name.startswith(("rota.worker", "rota.poller"))}
    assert workers
    assert {to for imports in workers.values() for to in imports if to.startswith("rota.client")} == set()
