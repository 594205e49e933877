"""`python -m benchmarks.code_size FOLDER ...`: counts the lines of Python code in folders, for example of Rota or of a
package that pip has unpacked.

A code line is a line that is not blank and not part of a comment or a docstring. Import lines are the lines of all
import statements, including those inside functions.
"""

import ast
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of lines in one file. `functions` contains the number of lines of each function."""

    lines: int
    code: int
    imports: int
    functions: tuple[int, ...]


def size_of(source: str) -> Size:
    """Count the lines of a module, by kind."""
    docs = set[int]()
    imports = set[int]()
    functions = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _Documented) and ast.get_docstring(node, clean=False) is not None:
            docs |= _lines(node.body[0])
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= _lines(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(len(_lines(node)))
    lines = source.splitlines()
    bare = sum(not line.strip() or line.lstrip().startswith("#") for line in lines)
    return Size(len(lines), len(lines) - bare - len(docs), len(imports), tuple(functions))


def _lines(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def main(folders: list[str]) -> None:
    """Print a line for each folder."""
    for folder in folders:
        sizes = [size_of(path.read_text(encoding="utf-8")) for path in Path(folder).rglob("*.py")]
        code = sum(each.code for each in sizes)
        functions = [n for each in sizes for n in each.functions]
        print(
            f"{folder}: {len(sizes)} modules, {sum(each.lines for each in sizes):,} lines, {code:,} of code, imports "
            f"{sum(each.imports for each in sizes) / code:.1%}; functions: median {statistics.median(functions):g}, "
            f"longest {max(functions)}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
