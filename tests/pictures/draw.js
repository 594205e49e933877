// Draws one dashboard from the answers to its queries, with uPlot, which draws Grafana's own graphs.
// `show({board, answers, from, to, step})`: answers[panel id] has, for each target, the series as Prometheus gave them.

const UNIT_HEIGHT = 38, WIDTH = 1584, HEADER = 28;
const PALETTE = ["#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#37872D", "#E0B400", "#96D98D",
  "#FFB357", "#C4162A", "#1F60C4", "#8F3BB8", "#CA95E5", "#FADE2A"];
const NAMED = { green: "#73BF69", yellow: "#FADE2A", red: "#F2495C", orange: "#FF9830", "dark-red": "#C4162A", blue: "#5794F2", transparent: "" };
const MOST_SERIES = 16, LEGEND_LINES = 4;

function add(parent, tag, className = "", text = "") {
  const made = parent.appendChild(document.createElement(tag));
  made.className = className;
  made.textContent = text;
  return made;
}

const named = (legend, labels) => legend.replace(/{{(\w+)}}/g, (_, label) => labels[label] ?? "");

function colorOf(value, thresholds) {
  const passed = thresholds.steps.filter((step) => step.value === null || step.value === undefined || value >= step.value);
  return NAMED[passed.at(-1).color] || passed.at(-1).color;
}

function drawStat(body, panel, series) {
  const box = add(body, "div", "stat");
  const defaults = panel.fieldConfig.defaults;
  if (!series.length) return add(box, "b", "", defaults.noValue);
  const value = Number(series[0].values.at(-1)[1]);
  const color = colorOf(value, defaults.thresholds);
  if (panel.options.textMode === "value_and_name") add(box, "span", "", series[0].name).style.color = color;
  add(box, "b", "", written(value, defaults.unit)).style.color = color;
}

function drawTable(body, panel, series) {
  if (!series.length) return add(body, "div", "none", panel.fieldConfig.defaults.noValue);
  const { renameByName, indexByName } = panel.transformations[0].options;
  const labels = Object.keys(renameByName).sort((one, other) => indexByName[one] - indexByName[other]);
  const table = add(body, "table", "rows");
  const head = add(table, "tr");
  labels.forEach((label) => add(head, "th", "", renameByName[label]));
  for (const { metric } of series) {
    const row = add(table, "tr");
    labels.forEach((label) => add(row, "td", "", metric[label] ?? ""));
  }
}

function onGrid(series, times, step) {
  const places = new Map(times.map((time, place) => [time, place]));
  const values = times.map(() => null);
  for (const [time, value] of series.values) {
    const place = places.get(Math.round(time / step) * step);
    if (place !== undefined && Number.isFinite(Number(value))) values[place] = Number(value);
  }
  return values;
}

function overrideOf(panel, name) {
  const found = panel.fieldConfig.overrides.find((each) => each.matcher.options === name);
  return Object.fromEntries((found?.properties ?? []).map((property) => [property.id, property.value]));
}

function drawLegend(body, entries, unit) {
  const legend = add(body, "table", "legend");
  for (const entry of entries.slice(0, LEGEND_LINES)) {
    const row = add(legend, "tr");
    const name = add(row, "td");
    add(name, "i").style.background = entry.color;
    name.append(entry.name);
    const seen = entry.values.filter((value) => value !== null);
    add(row, "td", "", written(seen.at(-1), unit));
    add(row, "td", "", written(Math.max(...seen), unit));
  }
}

function stacked(lines) {
  const sums = lines[0]?.values.map(() => 0) ?? [];
  return lines.map((line) => line.values.map((value, place) => (value === null ? null : (sums[place] += value))));
}

function thresholdLines(panel, isDrawn) {
  return (plot) => {
    if (!isDrawn) return;
    for (const step of panel.fieldConfig.defaults.thresholds.steps.filter((each) => each.value)) {
      const y = plot.valToPos(step.value, "y", true);
      if (y < plot.bbox.top) continue;
      plot.ctx.save();
      plot.ctx.strokeStyle = NAMED[step.color];
      plot.ctx.setLineDash([6, 6]);
      plot.ctx.strokeRect(plot.bbox.left, y, plot.bbox.width, 0);
      plot.ctx.restore();
    }
  };
}

function axes(unit) {
  const look = { stroke: "#8e8e9f", grid: { stroke: "#25282d", width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
  const clock = (_, splits) => splits.map((at) => new Date(at * 1000).toISOString().slice(11, 19));
  const numbers = (_, splits) => splits.map((value) => (value === null ? "" : written(value, unit)));
  return [{ ...look, values: clock, space: 90, size: 24 }, { ...look, values: numbers, size: 66 }];
}

function drawGraph(body, panel, series, { from, to, step }) {
  const { unit, custom } = panel.fieldConfig.defaults;
  const times = Array.from({ length: Math.round((to - from) / step) + 1 }, (_, place) => from + place * step);
  const lines = series.slice(0, MOST_SERIES).map((each, place) => {
    const changed = overrideOf(panel, each.name);
    const color = NAMED[changed.color?.fixedColor] ?? PALETTE[place % PALETTE.length];
    return { name: each.name, values: onGrid(each, times, step), color, dash: changed["custom.lineStyle"]?.dash, alone: "custom.stacking" in changed };
  });
  const isStacked = custom.stacking.mode === "normal", isBars = custom.drawStyle === "bars";
  const together = lines.filter((line) => isStacked && !line.alone);
  const tops = new Map(stacked(together).map((values, place) => [together[place], values]));
  const front = [...lines].reverse(); // the lowest of a stack is painted last
  const logarithmic = custom.scaleDistribution?.type === "log";
  const clean = (values) => (logarithmic ? values.map((value) => (value > 0 ? value : null)) : values);
  const most = Math.max(...front.flatMap((line) => tops.get(line) ?? line.values)) || 1;
  const alpha = Math.round((custom.fillOpacity ?? 0) * 2.55).toString(16).padStart(2, "0");
  const thresholds = custom.thresholdsStyle?.mode === "dashed";
  const height = panel.gridPos.h * UNIT_HEIGHT - 8 - HEADER - 16 * Math.min(lines.length, LEGEND_LINES) - 6;
  new uPlot({
    width: body.clientWidth - 4, height, legend: { show: false }, cursor: { show: false },
    scales: { x: { min: from, max: to }, y: logarithmic ? { distr: 3 } : { range: (_, low) => [Math.min(0, low), most * 1.08] } },
    axes: axes(unit),
    series: [{}, ...front.map((line) => ({
      stroke: line.color, width: line.dash ? 2 : 1.2, dash: line.dash, fill: line.dash ? undefined : (isStacked ? line.color + alpha : line.color + "0d"),
      paths: isBars ? uPlot.paths.bars({ size: [0.9, 40] }) : undefined, points: { show: isBars ? false : undefined, size: 4 }, spanGaps: false,
    }))],
    hooks: { draw: [thresholdLines(panel, thresholds)] },
  }, [times, ...front.map((line) => clean(tops.get(line) ?? line.values))], body);
  drawLegend(body, lines, unit);
}

// Buckets of a histogram come as growth up to each bound; a cell is what lies between two bounds.
function drawHeatmap(body, panel, series, { from, to, step }) {
  const height = panel.gridPos.h * UNIT_HEIGHT - 8 - HEADER - 30, left = 70, width = body.clientWidth - left - 8;
  const canvas = add(body, "canvas");
  [canvas.width, canvas.height] = [body.clientWidth, height + 30];
  const context = canvas.getContext("2d");
  const bounds = series.map((each) => ({ at: each.metric.le === "+Inf" ? Infinity : Number(each.metric.le), counts: new Map(each.values) }));
  bounds.sort((one, other) => one.at - other.at);
  const cells = bounds.flatMap(({ counts }, row) => [...counts].map(([time, upTo]) => [row, time, upTo - (bounds[row - 1]?.counts.get(time) ?? 0)]));
  const most = Math.max(1, ...cells.map(([, , count]) => Number(count)));
  const used = cells.filter(([, , count]) => count > 0).map(([row]) => row);
  const [low, high] = [Math.min(...used), Math.max(...used) + 1];
  const tall = height / (high - low), wide = (width * step) / (to - from + step);
  for (const [row, time, count] of cells.filter(([, , each]) => each > 0)) {
    context.fillStyle = `hsl(${40 - 25 * (count / most)} 90% ${22 + 40 * Math.sqrt(count / most)}%)`;
    context.fillRect(left + ((time - from) / step) * wide, height - (row - low + 1) * tall, wide - 1, tall - 1);
  }
  context.fillStyle = "#8e8e9f";
  context.font = "11px sans-serif";
  for (let row = low; row < high; row++) context.fillText(bounds[row].at === Infinity ? "+Inf" : written(bounds[row].at, "s"), 8, height - (row - low) * tall - 4);
  for (const share of [0, 0.25, 0.5, 0.75]) context.fillText(new Date((from + share * (to - from)) * 1000).toISOString().slice(11, 19), left + share * width, height + 18);
}

const DRAWN = { stat: drawStat, table: drawTable, timeseries: drawGraph, heatmap: drawHeatmap };

function place(made, { x, y, w, h }) {
  Object.assign(made.style, { left: `${(x * WIDTH) / 24}px`, top: `${y * UNIT_HEIGHT}px`, width: `${(w * WIDTH) / 24 - 8}px`, height: `${h * UNIT_HEIGHT - 8}px` });
}

function show({ board, answers, note, ...times }) {
  add(add(document.body, "header", "", board.title), "small", "", note);
  const main = add(document.body, "main");
  main.style.height = `${UNIT_HEIGHT * Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h))}px`;
  for (const panel of board.panels) {
    const made = add(main, "section", panel.type === "row" ? "row" : "panel", panel.type === "row" ? panel.title : "");
    place(made, panel.gridPos);
    if (panel.type === "row") continue;
    add(made, "h2", "", panel.title);
    const series = panel.targets.flatMap((target, number) =>
      answers[panel.id][number].map((each) => ({ ...each, values: each.values ?? [each.value], name: named(target.legendFormat, each.metric) })));
    if (!series.length && panel.type !== "stat" && panel.type !== "table") add(made, "div", "none", panel.fieldConfig.defaults.noValue ?? "No data");
    else DRAWN[panel.type](made, panel, series, times);
  }
}
