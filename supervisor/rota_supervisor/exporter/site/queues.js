// The queues by tier, with their waiting tasks, their lateness, and their share of the starts.

import { actions } from "./actions.js";
import { lagChart, lagSpark, latest, rateChart, rateSpark } from "./charts.js";
import { h } from "./dom.js";
import { events, running } from "./fleet.js";
import { bar, button, facts, isWanted, link, mark, number, section, soft, table } from "./parts.js";
import { DASH, brief, count, counted, percent, duration } from "./text.js";

const SHOWN = 60;
const NO_HISTORY = { started: [], done: [], p50: [], p99: [] };

// A queue that is counted under its pattern does not have its own counts.
const historyOf = (queue) => queue.history ?? NO_HISTORY;

export function queues(view) {
  const { status, filter } = view;
  const wanted = status.queues.filter((queue) => isWanted(filter, queue.name, queue.pattern));
  const shown = view.showsAll ? wanted : wanted.slice(0, SHOWN);
  const groups = [...Map.groupBy(shown, (queue) => queue.tier)].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity));
  const rows = groups.map(([tier, rows]) => ({ key: `tier-${tier}`, title: tierTitle(tier), cells: tierCells(rows, view), rows }));
  return section("queues", "Queues", `${count(status.queues.length)}, by tier`,
    table("Queues by tier", columns(view), rows, (queue) => `queues/${queue.name}`, filter ? "No queue matches the filter." : "No queue is configured."),
    wanted.length > shown.length ? h("p", {}, button(`Show all ${count(wanted.length)}`, view.showAll)) : null);
}

function tierTitle(tier) {
  if (tier === null) return "In no tier of this node";
  return [`Tier ${tier}`, tier === 1 ? soft(" served before all tiers below") : null];
}

function tierCells(rows, { status }) {
  const history = together(rows.map(historyOf).filter((each) => each !== NO_HISTORY));
  return [
    h("span", { class: "trend" }, lagSpark(history, null), h("span", {}, soft("latest "), duration(latest(history.p99)))),
    h("span", { class: "trend" }, rateSpark(history), rate(history, status)),
    null,
  ];
}

// Merges the histories of several queues: rates are added up, and the lag is that of the latest queue.
function together(histories) {
  const over = (name, join) => (histories[0]?.[name] ?? []).map((_, step) => {
    const known = histories.map((history) => history[name][step]).filter((value) => value !== null);
    return known.length ? join(known) : null;
  });
  return { ...NO_HISTORY, done: over("done", (known) => known.reduce((sum, value) => sum + value, 0)), p99: over("p99", (known) => Math.max(...known)) };
}

const columns = (view) => [
  ["queue", (queue) => [h("span", { class: "name" }, link(`queues/${queue.name}`, queue.name)), badges(queue)]],
  ["waiting", waiting, "number"],
  ["scheduled", (queue) => known(queue, (state) => [number(state.scheduled), state.overdue ? mark("warn", `${count(state.overdue)} overdue`) : null]), "number"],
  ["running", (queue) => known(queue, (state) => number(state.inflight)), "number"],
  ["dead", (queue) => known(queue, (state) => (state.dead ? link(`dead/${queue.name}`, count(state.dead)) : number(0))), "number"],
  ["lag, p50 and p99", (queue) => h("span", { class: "trend" }, lagSpark(historyOf(queue), queue.lag_objective_seconds), lag(queue)), "wide"],
  ["done a second", (queue) => h("span", { class: "trend" }, rateSpark(historyOf(queue)), h("b", {}, rate(historyOf(queue), view.status))), "wide"],
  ["share of its tier", share, "wide"],
];

// The facts about a queue that only Redis knows.
const known = (queue, show) => (queue.state ? show(queue.state) : h("span", { class: "zero" }, "?"));

function waiting(queue) {
  return known(queue, (state) => [number(state.ready),
    state.ready ? h("span", { class: isOverObjective(queue, state.oldest_ready_age_seconds) ? "late" : "soft" }, ` oldest ${duration(state.oldest_ready_age_seconds, 1)}`) : null]);
}

const isOverObjective = (queue, seconds) => queue.lag_objective_seconds !== null && seconds > queue.lag_objective_seconds;

export const isLate = (queue) => queue.late?.now || isOverObjective(queue, queue.state?.oldest_ready_age_seconds ?? 0);

function lag(queue) {
  if (!queue.lag?.starts) return soft("no start lately");
  const late = isOverObjective(queue, queue.lag.p99_seconds);
  return h("span", {}, soft(duration(queue.lag.p50_seconds)), " ", late ? mark("bad", duration(queue.lag.p99_seconds)) : h("b", {}, duration(queue.lag.p99_seconds)));
}

// This uses the last two steps, because one step is too short for rare events.
function rate({ done }, status) {
  const last = done.slice(-2).filter((value) => value !== null);
  return last.length ? `${brief(last.reduce((sum, value) => sum + value, 0) / last.length / status.history.step_seconds)}/s` : DASH;
}

function share(queue) {
  if (queue.share === null) return soft(`weight ${queue.weight ?? 1}`);
  const due = queue.due_share === null ? "" : `, due ${percent(queue.due_share)}`;
  return bar(queue.share, percent(queue.share) + due, { due: queue.due_share });
}

function badges(queue) {
  const state = queue.state;
  const found = [];
  if (isLate(queue)) found.push(mark("bad", "late"));
  if (state && !state.served) found.push(mark(state.ready ? "bad" : "off", "not served"));
  if (state?.condition_error) found.push(mark("bad", `condition ${state.closed_by} fails: ${state.condition_error}`));
  if (state?.paused) found.push(mark("warn", `paused ${duration(state.closed_age_seconds, 1)}`));
  else if (state?.closed_by) found.push(mark("off", `closed by ${state.closed_by} ${duration(state.closed_age_seconds, 1)}`));
  if (queue.pattern) found.push(soft(` counted as ${queue.pattern}`));
  return found.length ? h("span", { class: "badges" }, found) : null;
}

// The page of one queue

export function queuePage(view, name) {
  const { status } = view;
  const queue = status.queues.find((each) => each.name === name);
  if (!queue) return [h("h2", { tabindex: "-1" }, "Queue ", name), h("p", { class: "empty" }, "No queue of this name is known, or it is one of many that are not shown by name.")];
  const state = queue.state;
  return [
    h("h2", { tabindex: "-1" }, "Queue ", h("span", { class: "name" }, queue.name), badges(queue)),
    status.headlines.filter((line) => line.where === `queues/${name}`).map((line) => h("p", { class: `headline ${line.level}` }, line.text)),
    status.actions && state ? h("p", {}, state.paused ? button("Resume", () => actions.resume(name)) : button("Pause", () => actions.pause(name))) : null,
    h("div", { class: "charts" }, lagChart(name, historyOf(queue), status.history, queue.lag_objective_seconds), rateChart(name, historyOf(queue), status.history)),
    facts([
      ["Tier", queue.tier ?? "none of this node"],
      ["Weight", queue.weight],
      ["Share of its tier", queue.share === null ? null : share(queue)],
      ["Objective", queue.lag_objective_seconds === null ? null : duration(queue.lag_objective_seconds)],
      ["Ready", state ? [count(state.ready), state.ready ? soft(`, the oldest for ${duration(state.oldest_ready_age_seconds)}`) : null] : null],
      ["Scheduled", state ? count(state.scheduled) : null],
      ["Overdue", state ? [count(state.overdue), state.overdue ? soft(`, the oldest for ${duration(state.oldest_overdue_age_seconds)}`) : null] : null],
      ["Running", state ? count(state.inflight) : null],
      ["Dead", state ? link(`dead/${name}`, counted(state.dead, "task")) : null],
      ["Ended here", Object.entries(queue.processed).map(([outcome, n]) => `${count(n)} ${outcome}`).join(", ")],
    ]),
    running({ ...view, filter: "" }, (task) => task.task.queue === name),
    events({ ...view, filter: "" }, (event) => Object.values(event.fields ?? {}).includes(name)),
  ];
}
