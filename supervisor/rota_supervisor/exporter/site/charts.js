// Small charts of the last minutes, with lines and areas over steps of equal length. A step without a value is a gap.

import { h } from "./dom.js";
import { DASH, brief, clock, duration } from "./text.js";

const LAG_TICKS = [0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 360000];
const LEAST_LAG = 0.001;

// The step under the pointer, which all charts share.
let pointedAt = null;
let redraw = () => {};

export function onPointed(callback) {
  redraw = callback;
}

// The p50 and p99 of the lag on a logarithmic scale, which can show both a millisecond and an hour. `about`: queue or
// fleet.
export function lagChart(about, history, steps, objective, objectiveName = "objective") {
  const top = Math.max(0.1, (objective ?? 0) * 2, ...history.p99.map((value) => (value ?? 0) * 1.3));
  const ticks = LAG_TICKS.filter((tick) => tick <= top);
  const lines = [
    { name: "p99", kind: "p99", values: history.p99, format: duration },
    { name: "p50", kind: "p50", values: history.p50, format: duration },
  ];
  const chart = { title: `Lag of starts, ${about}`, heading: "Lag of starts", lines, steps, y: logarithmic(top) };
  const shown = ticks.filter((_, index) => (ticks.length - 1 - index) % (ticks.length > 4 ? 2 : 1) === 0);
  return figure({ ...chart, ticks: shown.map((tick) => [tick, duration(tick).replace(".0", "")]), limit: objective, limitName: objectiveName });
}

export function rateChart(about, history, steps) {
  const perSecond = (counts) => counts.map((value) => (value === null ? null : value / steps.step_seconds));
  const format = (value) => (value === null ? DASH : `${brief(value)}/s`);
  const lines = [
    { name: "done", kind: "done", values: perSecond(history.done), format, area: true },
    { name: "started", kind: "started", values: perSecond(history.started), format },
  ];
  const top = niceTop(Math.max(1, ...lines.flatMap((line) => line.values)));
  const ticks = [0, top / 2, top].map((tick) => [tick, brief(tick)]);
  return figure({ title: `Tasks a second, ${about}`, heading: "Tasks a second", lines, steps, y: linear(top), ticks });
}

// The wanted and actual workers of a pool with a range. The chart shares its steps and its cursor with the other
// charts.
export function workersChart(pool, history, steps) {
  const format = (value) => (value === null ? DASH : brief(value));
  const lines = [
    { name: "wanted", kind: "done", values: history.wanted, format },
    { name: "actual", kind: "started", values: history.actual, format, area: true },
  ];
  const top = niceTop(Math.max(1, ...lines.flatMap((line) => line.values.map((value) => value ?? 0))));
  const ticks = [0, top / 2, top].map((tick) => [tick, brief(tick)]);
  return figure({ title: `Workers of pool ${pool}`, heading: `Workers of pool ${pool}`, lines, steps, y: linear(top), ticks });
}

// A small chart without text, for a row that shows the numbers in other cells.
export function lagSpark(history, objective) {
  const top = Math.max(0.1, (objective ?? 0) * 2, ...history.p99.map((value) => (value ?? 0) * 1.3));
  const y = logarithmic(top);
  return spark(history.p99, [
    objective ? h("path", { class: "limit", d: `M0 ${y(objective)}H${history.p99.length - 1}` }) : null,
    h("path", { class: "p50", d: path(history.p50, y) }),
    h("path", { class: "p99", d: path(history.p99, y) }),
  ]);
}

export function rateSpark(history) {
  const values = history.done;
  const y = linear(Math.max(1, ...values));
  return spark(values, [h("path", { class: "area", d: area(values, y) }), h("path", { class: "done", d: path(values, y) })]);
}

function spark(values, content) {
  return h("svg", { class: "spark", viewBox: `0 0 ${Math.max(1, values.length - 1)} 100`, preserveAspectRatio: "none",
    "aria-hidden": "true" }, content);
}

function figure({ title, heading, lines, steps, y, ticks, limit, limitName }) {
  const length = Math.max(2, ...lines.map((line) => line.values.length));
  const at = pointedAt === null ? null : Math.min(length - 1, Math.round(pointedAt * (length - 1)));
  const shownLines = lines.map((line) => ({ ...line, value: at === null ? latest(line.values) : line.values[at] ?? null }));
  const when = at === null ? "now" : clock(steps.ends_at - (length - 1 - at) * steps.step_seconds);
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("strong", {}, heading), h("span", { class: "legend" }, h("span", { class: "soft" }, when), shownLines.map((line) =>
      h("span", { class: `key ${line.kind}` }, line.name, " ", h("b", {}, line.format(line.value)))),
      limit ? h("span", { class: "key limit" }, limitName, " ", h("b", {}, duration(limit).replace(".0", ""))) : null)),
    h("div", { class: "plot", on: { pointermove: point, pointerleave: leave } },
      ticks.map(([tick, text]) => h("span", { class: "tick", css: { "--y": y(tick) } }, text)),
      h("svg", { viewBox: `0 0 ${length - 1} 100`, preserveAspectRatio: "none", role: "img", "aria-label": summary(title, shownLines, limit, limitName) },
        ticks.map(([tick]) => h("path", { class: "grid", d: `M0 ${y(tick)}H${length - 1}` })),
        limit ? h("path", { class: "limit", d: `M0 ${y(limit)}H${length - 1}` }) : null,
        lines.filter((line) => line.area).map((line) => h("path", { class: "area", d: area(line.values, y) })),
        [...lines].reverse().map((line) => h("path", { class: line.kind, d: path(line.values, y) })),
        at === null ? null : h("path", { class: "cursor", d: `M${at} 0V100` }))),
    h("div", { class: "times", "aria-hidden": "true" },
      h("span", {}, `${duration(length * steps.step_seconds, 1)} ago`), h("span", {}, "now")));
}

// Returns a sentence that describes the contents of a chart.
function summary(title, shownLines, limit, limitName) {
  const parts = shownLines.map((line) => {
    const known = line.values.filter((value) => value !== null);
    return `${line.name} ${line.format(line.value)}, at most ${line.format(known.length ? Math.max(...known) : null)}`;
  });
  return `${title} in the last minutes: ${parts.join("; ")}${limit ? `; ${limitName} ${duration(limit)}` : ""}`;
}

export function latest(values) {
  return values.findLast((value) => value !== null) ?? null;
}

function logarithmic(top) {
  const height = Math.log10(top / LEAST_LAG);
  return (value) => round(100 - (96 * Math.log10(Math.max(value, LEAST_LAG) / LEAST_LAG)) / height);
}

function linear(top) {
  return (value) => round(100 - (96 * value) / top);
}

const round = (value) => Math.round(value * 100) / 100;

// Returns the next number in the series 1, 2, 5, 10, ...
function niceTop(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => step >= value);
}

function path(values, y) {
  let isBroken = true;
  return values.map((value, index) => {
    const begins = isBroken;
    isBroken = value === null;
    if (isBroken) return "";
    const isAlone = begins && (values[index + 1] ?? null) === null;
    return `${begins ? "M" : "L"}${index} ${y(value)}${isAlone ? "h.01" : ""}`;
  }).join("");
}

function area(values, y) {
  if (!values.length) return "";
  return `M0 100${values.map((value, index) => `L${index} ${y(value ?? 0)}`).join("")}L${values.length - 1} 100Z`;
}

function point(event) {
  const box = event.currentTarget.querySelector("svg").getBoundingClientRect();
  pointedAt = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  redraw();
}

function leave() {
  pointedAt = null;
  redraw();
}
