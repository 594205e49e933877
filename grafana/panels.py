"""The few kinds of panel that Rota's dashboards are made of, each with its title, description and unit.

Every panel takes its data source from the variable `datasource` and its series from the variables `job` and
`fleet` and, where it is of queues or tasks, `queue` and `task`. Spans are columns of a grid 24 wide; a row of panels
fills it exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import heatmap as heatmap_builders
from grafana_foundation_sdk.builders import prometheus as prometheus_builders
from grafana_foundation_sdk.builders import stat as stat_builders
from grafana_foundation_sdk.builders import table as table_builders
from grafana_foundation_sdk.builders import timeseries as timeseries_builders
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    BigValueTextMode,
    DataSourceRef,
    GraphDrawStyle,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue, Threshold, ThresholdsMode
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
STAT_HEIGHT: Final = 4
GRAPH_HEIGHT: Final = 8
BAR: Final = "1m"  # what one bar counts at least: more than one scrape, or most bars would be empty

GREEN: Final = "green"
YELLOW: Final = "yellow"
RED: Final = "red"


@dataclass(frozen=True, slots=True)
class Query:
    """One query, and how its series are called in the legend: a text with `{{label}}` in it."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Face:
    """What every panel has. `unit`: Grafana's id of it, as "s" or "percentunit". `nothing`: shown without a series."""

    title: str
    description: str
    unit: str
    span: int
    nothing: str = "none"


@dataclass(frozen=True, slots=True)
class Step:
    """From this value on, this colour."""

    value: float
    color: str


def stat(face: Face, query: Query, steps: Sequence[Step] = (), *, first: str = GREEN) -> stat_builders.Panel:
    """The number of now, and whose it is. The steps colour it; `first` is the colour below them all.

    It is never the last number that was seen: what is gone has none.
    """
    return (
        stat_builders.Panel()
        .title(face.title)
        .description(face.description)
        .unit(face.unit)
        .datasource(DATASOURCE)
        .span(face.span)
        .height(STAT_HEIGHT)
        .no_value(face.nothing)
        .min(0)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(BigValueTextMode.VALUE_AND_NAME)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(steps, first))
        .with_target(_target("A", query).instant())
    )


class Style(Enum):
    """How a graph is drawn."""

    LINES = "lines"
    LOGARITHMIC = "logarithmic"  # lines on an axis of powers of ten: lag spans six orders of magnitude
    STACKED = "stacked"  # areas that add up to something
    BARS = "bars"  # stacked


_FILL: Final = {Style.LINES: 5, Style.LOGARITHMIC: 0, Style.STACKED: 25, Style.BARS: 60}


def graph(face: Face, *queries: Query, style: Style = Style.LINES) -> timeseries_builders.Panel:
    """Values over time."""
    stacking = StackingMode.NORMAL if style in (Style.STACKED, Style.BARS) else StackingMode.NONE
    panel = (
        timeseries_builders.Panel()
        .title(face.title)
        .description(face.description)
        .unit(face.unit)
        .datasource(DATASOURCE)
        .span(face.span)
        .height(GRAPH_HEIGHT)
        .draw_style(GraphDrawStyle.BARS if style is Style.BARS else GraphDrawStyle.LINE)
        .fill_opacity(_FILL[style])
        .line_width(1)
        .show_points(VisibilityMode.AUTO)
        .stacking(common_builders.StackingConfig().mode(stacking))
        .legend(_legend())
        .tooltip(common_builders.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if style is Style.BARS:
        panel.interval(BAR).no_value(face.nothing)
    if style is Style.LOGARITHMIC:
        panel.scale_distribution(common_builders.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))
    else:
        panel.min(0)
    for letter, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_target(letter, query).range())
    return panel


def heatmap(face: Face, query: Query) -> heatmap_builders.Panel:
    """How often each bucket of a histogram was hit, over time. The query sums by `le`."""
    return (
        heatmap_builders.Panel()
        .title(face.title)
        .description(face.description)
        .unit(face.unit)
        .datasource(DATASOURCE)
        .span(face.span)
        .height(GRAPH_HEIGHT)
        .calculate(False)
        .y_axis(heatmap_builders.YAxisConfig().unit("s"))
        .color(heatmap_builders.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .interval(BAR)
        .with_target(_target("A", query).range().format(PromQueryFormat.HEATMAP))
    )


def table(face: Face, query: Query, columns: dict[str, str]) -> table_builders.Panel:
    """The series of now, a row each. `columns` are the labels shown and their headings, from left to right."""
    organize = {
        "excludeByName": {"Time": True, "Value": True},
        "indexByName": {label: place for place, label in enumerate(columns)},
        "renameByName": columns,
    }
    return (
        table_builders.Panel()
        .title(face.title)
        .description(face.description)
        .unit(face.unit)
        .datasource(DATASOURCE)
        .span(face.span)
        .height(GRAPH_HEIGHT)
        .no_value(face.nothing)
        .transformations([DataTransformerConfig(id_val="organize", options=organize)])
        .with_target(_target("A", query).instant().format(PromQueryFormat.TABLE))
    )


def link(title: str, url: str) -> dict[str, object]:
    """A link that a value of a table carries: for `override_by_name`, as a value of `links`."""
    return {"title": title, "url": url, "targetBlank": True}


def dashed(panel: timeseries_builders.Panel, legend: str, color: str) -> timeseries_builders.Panel:
    """Draw the series of that name as a dashed line in that colour, outside of any stack."""
    return panel.override_by_name(
        legend,
        [
            DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 8]}),
            DynamicConfigValue("custom.lineWidth", 2),
            DynamicConfigValue("custom.fillOpacity", 0),
            DynamicConfigValue("custom.stacking", {"mode": "none", "group": "A"}),
            DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color}),
        ],
    )


def lines_at(panel: timeseries_builders.Panel, *steps: Step) -> timeseries_builders.Panel:
    """Draw a dashed line across the panel at each of those values."""
    style = common_builders.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
    return panel.thresholds(_thresholds(steps, "transparent")).thresholds_style(style)


def _thresholds(steps: Sequence[Step], first: str) -> dashboard_builders.ThresholdsConfig:
    thresholds = [Threshold(None, first), *(Threshold(step.value, step.color) for step in steps)]
    return dashboard_builders.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(thresholds)


def _legend() -> common_builders.VizLegendOptions:
    return (
        common_builders.VizLegendOptions()
        .display_mode(LegendDisplayMode.TABLE)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )


def _target(letter: str, query: Query) -> prometheus_builders.Dataquery:
    return (
        prometheus_builders.Dataquery()
        .ref_id(letter)
        .datasource(DATASOURCE)
        .expr(query.expr)
        .legend_format(query.legend)
    )
