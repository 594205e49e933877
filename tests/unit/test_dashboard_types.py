"""The TypeScript compiler checks every dashboard and panel against Grafana's own types. The tests are skipped if the
packages of `make board-types` are not installed.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from support.dashboards import TOP, boards

NODE: Final = TOP / "build" / "node"
COMPILER: Final = NODE / "node_modules" / ".bin" / "tsc"
# The types of the options and of the field options, for each kind of panel. A table has only the field options that all
# panels share.
KINDS: Final = {"stat": "Stat", "timeseries": "TimeSeries", "heatmap": "Heatmap", "table": "Table"}
# Keys that our dashboards use but that Grafana's types lack. Grafana reads the keys of variables and of Prometheus
# annotations, but Grafana 13 does not read the footer of tables.
UNTYPED: Final = {"auto", "auto_count", "auto_min", "expr", "step", "titleFormat", "footer"}
HEAD: Final = """
import type {
  Dashboard, FieldConfig, Panel, RowPanel
} from '@grafana/schema/dist/esm/raw/dashboard/x/Dashboard_types.gen';
// A text of JSON where the types have an enum of texts.
type Plain<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
type PanelOf<Options, Custom> = Omit<Panel, 'options' | 'fieldConfig'> & {
  options: Options;
  fieldConfig: { defaults: Omit<FieldConfig, 'custom'> & { custom?: Custom }; overrides: unknown[] };
};
"""


def program() -> str:
    """Return a TypeScript program in which each dashboard and panel is a constant of Grafana's type."""
    lines = [HEAD]
    for kind, name in KINDS.items():
        module = f"@grafana/schema/dist/esm/raw/composable/{kind}/panelcfg/x/{name}PanelCfg_types.gen"
        custom = "object" if kind == "stat" else f"import('{module}').FieldConfig"
        lines.append(f"type {name} = PanelOf<Partial<import('{module}').Options>, Partial<{custom}>>;")
    for place, board in enumerate(boards().values()):
        panels = board.pop("panels")
        lines.append(f"const board{place}: Plain<Omit<Dashboard, 'panels'>> = {json.dumps(_typed(board))};")
        for panel in panels:
            kind = KINDS.get(panel["type"], "RowPanel")
            lines.append(f"const panel{place}x{panel['id']}: Plain<{kind}> = {json.dumps(_typed(panel))};")
    return "\n".join(lines)


def _typed(value: Any) -> Any:
    if isinstance(value, list):
        return [_typed(each) for each in value]
    if isinstance(value, dict):
        return {key: _typed(each) for key, each in value.items() if key not in UNTYPED}
    return value


def compiled(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "node_modules").symlink_to(NODE / "node_modules")
    (folder / "boards.ts").write_text(text)
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--moduleResolution", "nodenext"]
    return subprocess.run(
        [str(COMPILER), *options, "boards.ts"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.skipif(not COMPILER.exists(), reason="make board-types installs what this needs")
def test_every_dashboard_matches_the_types_of_grafana(tmp_path: Path) -> None:
    found = compiled(program(), tmp_path)
    assert found.returncode == 0, found.stdout


@pytest.mark.skipif(not COMPILER.exists(), reason="make board-types installs what this needs")
def test_the_compiler_finds_a_panel_option_that_grafana_does_not_know(tmp_path: Path) -> None:
    found = compiled(program().replace('"textMode": "value_and_name"', '"textMode": "values"', 1), tmp_path)
    assert '"values"' in found.stdout
