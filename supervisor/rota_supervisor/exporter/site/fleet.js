// The running tasks, the processes, and the events of the fleet.

import { actions } from "./actions.js";
import { lagChart, workersChart } from "./charts.js";
import { h } from "./dom.js";
import { bar, button, facts, id, isWanted, link, mark, number, section, soft, table } from "./parts.js";
import { brief, clock, count, counted, moment, percent, duration } from "./text.js";

const SHOWN = 60;
const EVENTS_SHOWN = 40;
const STEPS_SHOWN = 5;
const NEAR = 0.8;
const PHASES = { booting: "warn", draining: "warn", quiet: "warn" };
const LEVELS = { error: "bad", critical: "bad", warning: "warn" };

// A child without a process has no phase.
export const isWorker = (process) => process.role === "worker" && process.phase !== null;

// Running tasks, the longest first

export function running(view, fits = () => true) {
  const tasks = view.status.processes.flatMap((process) => process.tasks.map((task) => ({ ...task, process })));
  const wanted = tasks.filter((task) => fits(task) && isWanted(view.filter, task.task.name, task.task.id, task.task.queue, `worker ${task.process.slot}`));
  const rows = wanted.sort((a, b) => b.task_age_seconds - a.task_age_seconds).slice(0, SHOWN);
  const note = wanted.length > SHOWN ? `${count(wanted.length)}, the longest first; ${SHOWN} are shown` : `${count(wanted.length)}, the longest first`;
  return section("running", "Running now", note,
    table("Running tasks", runningColumns(view), [{ rows }], (task) => `running/${task.process.slot}/${task.place}`, "No task is running."));
}

const runningColumns = (view) => [
  ["task", (task) => [h("span", { class: "name" }, link(`task/${task.task.id}`, task.task.name)), " ", id(task.task.id)]],
  ["queue", (task) => link(`queues/${task.task.queue}`, task.task.queue)],
  ["worker", (task) => link(`workers/${task.process.slot}`, `${task.process.slot}`), "number"],
  ["started late by", (task) => duration(task.lag_seconds), "number"],
  ["running for", (task) => duration(task.task_age_seconds), "number"],
  ["of its limit", ofLimit, "wide"],
  ["progress", (task) => progress(task.progress)],
  ...(view.status.actions ? [["action", (task) => button("Cancel", () => actions.cancel(task.task.id), `Cancel ${task.task.id}`)]] : []),
];

function ofLimit(task) {
  if (!task.limit_seconds) return soft("no limit");
  const share = task.task_age_seconds / task.limit_seconds;
  const left = task.left_seconds ?? task.limit_seconds - task.task_age_seconds;
  const text = left < 0 ? mark("bad", `over ${duration(task.limit_seconds, 1)}`) : `${duration(left, 1)} left of ${duration(task.limit_seconds, 1)}`;
  return bar(share, text, { level: share > 1 ? "bad" : share > NEAR ? "warn" : "" });
}

function progress(row) {
  if (!row) return null;
  const text = row.total ? `${brief(row.done)} of ${brief(row.total)}` : brief(row.done);
  return [row.total ? bar(row.done / row.total, text) : text, row.note ? soft(` ${row.note}`) : null];
}

// Pools and processes

export function workers(view) {
  const { status, filter } = view;
  const wanted = status.processes.filter((process) => isWanted(filter, `worker ${process.slot}`, process.role, process.pid, process.pool,
    process.phase, ...process.tasks.flatMap((task) => [task.task.name, task.task.id, task.task.queue])));
  const rows = view.showsAll ? wanted : wanted.slice(0, SHOWN);
  return section("workers", "Workers", "and the other processes of this node",
    table("Pools", poolColumns(view), [{ rows: status.pools }], (pool) => `pools/${pool.name}`, "The master has not published its pools yet."),
    Object.keys(status.scaled_pools).map((pool) => scalingOf(pool, view)),
    held(status),
    table("Processes", processColumns, [{ rows }], (process) => `workers/${process.slot}`, filter ? "No process matches the filter." : "No process is running."),
    wanted.length > rows.length ? h("p", {}, button(`Show all ${count(wanted.length)}`, view.showAll)) : null);
}

const poolColumns = ({ status }) => [
  ["pool", (pool) => h("span", { class: "name" }, pool.name)],
  ["state", (pool) => (pool.state === "running" ? mark("good", pool.state) : mark("bad", pool.state))],
  ["workers", (pool) => bar((pool.workers.running ?? 0) / Math.max(1, pool.desired), `${count(pool.workers.running ?? 0)} of ${count(pool.desired)}`)],
  ...(status.pools.some((pool) => pool.scaling) ? [["range", (pool) => (pool.scaling ? scaled(pool.scaling) : null)]] : []),
  ["not running", (pool) => Object.entries(pool.workers).filter(([state]) => state !== "running").map(([state, n]) => `${n} ${state}`).join(", ") || null],
  ["busy", (pool) => {
    const members = status.processes.filter((process) => isWorker(process) && (process.pool ?? pool.name) === pool.name);
    const slots = members.reduce((sum, process) => sum + (process.concurrency || 1), 0);
    return bar(pool.busy / Math.max(1, slots), `${count(pool.busy)} of ${count(slots)}`, { level: slots && pool.busy >= slots ? "warn" : "" });
  }],
  ...(status.actions ? [["action", (pool) => button("Scale", () => actions.scale(pool.name, pool.desired), `Scale pool ${pool.name}`)]] : []),
];

// Returns the range of a pool, and the reason for its number of workers.
function scaled({ min, max, reason, limited_by: causes }) {
  return [`${count(min)} to ${count(max)} `, causes?.length ? mark("warn", reason) : soft(reason ?? "no decision yet")];
}

// Returns charts of a pool's workers and of the lag on the same time axis, and the reason for each recent step.
function scalingOf(pool, { status, events }) {
  const steps = events.filter((event) => event.event === "fleet.autoscaled" && event.fields?.pool === pool).slice(-STEPS_SHOWN).reverse();
  return h("div", { key: `scaling-${pool}` },
    h("div", { class: "charts" }, workersChart(pool, status.scaled_pools[pool], status.history), lagChart("all queues", status.overall, status.history, null)),
    steps.length ? h("ol", { class: "events", "aria-label": `Steps of pool ${pool}` }, steps.map((event) => h("li", { key: event.n },
      h("time", { datetime: new Date(event.at * 1000).toISOString() }, clock(event.at)), h("span", {}, event.text)))) : null);
}

// Returns the reason why starts are held back.
function held(status) {
  return status.held.map((row) => h("p", { class: "headline bad", key: `held-${row.role}-${row.pool}` },
    `${row.role === "worker" ? `Pool ${row.pool}` : `The ${row.role}`} is in ${row.state} after ${counted(row.failures_in_a_row, "failure")} in a row; `
    + `next try in ${duration(row.next_try_seconds)}. The last failure: ${row.last_error || "unknown"}`));
}

const processColumns = [
  ["process", (process) => h("span", { class: "name" }, `${process.role} ${process.slot}`)],
  ["pool", (process) => process.pool || null],
  ["state", (process) => [
    process.phase === "busy" || process.phase === "idle" ? h("span", { class: process.phase }, process.phase) : mark(PHASES[process.phase] ?? "off", process.phase ?? process.state),
    process.quiet && process.phase !== "quiet" ? mark("warn", "quiet") : null]],
  ["pid", (process) => (process.pid ? id(process.pid) : null), "number"],
  ["generation", (process) => process.generation ?? null, "number"],
  ["last heartbeat", (process) => (process.role === "zygote" || process.phase === null ? null : `${duration(process.beat_age_seconds)} ago`), "number"],
  ["runs", (process) => (process.tasks.length ? process.tasks.slice(0, 3).map((task) =>
    h("span", { class: "run", key: task.place }, link(`task/${task.task.id}`, task.task.name), soft(` for ${duration(task.task_age_seconds, 1)}`)))
    .concat(process.tasks.length > 3 ? [soft(`and ${process.tasks.length - 3} more`)] : []) : null)],
];

// Events

export function events(view, fits = () => true) {
  const wanted = view.events.filter((event) => fits(event) && isWanted(view.filter, event.text, event.event, ...Object.values(event.fields ?? {}))).slice(-EVENTS_SHOWN).reverse();
  return section("events", "Events", "of this node, the newest first",
    wanted.length ? h("ol", { class: "events", tabindex: "0", "aria-label": "Events" }, wanted.map((event) => h("li", { key: event.n, class: LEVELS[event.level] ?? "" },
      h("time", { datetime: new Date(event.at * 1000).toISOString() }, clock(event.at)),
      h("span", { class: "what" }, LEVELS[event.level] ? mark(LEVELS[event.level], event.event) : event.event),
      h("span", {}, event.text)))) : h("p", { class: "empty" }, "No recent events."));
}

export function restarts(view) {
  const { status } = view;
  const rows = status.restarts.filter((row) => isWanted(view.filter, row.role, row.reason));
  return section("restarts", "This node", status.node ?? null,
    facts([
      ["Version", status.version],
      ["Running since", status.started_at ? `${moment(status.started_at * 1000)}, ${duration(status.at - status.started_at)}` : null],
      ["Last reload", lastReload(status)],
      ["Last death", lastDeath(status)],
      ["Quiet", status.quiet_seconds ? mark("warn", `for ${duration(status.quiet_seconds)}: it starts no tasks`) : null],
      ["Clock", Math.abs(status.clock_offset_seconds ?? 0) > 1 ? mark("warn", `${duration(Math.abs(status.clock_offset_seconds))} off the Redis clock`) : null],
      ["Log", status.log_lines_dropped ? mark("warn", `${count(status.log_lines_dropped)} lines lost`) : null],
    ]),
    h("h3", {}, "Restarts"),
    table("Restarts by cause", [["process", (row) => row.role], ["cause", (row) => row.reason], ["times", (row) => number(row.count), "number"]],
      [{ rows }], (row) => `restarts/${row.role}/${row.reason}`, "None since it started."));
}

function lastReload({ last_reload: reload }) {
  if (!reload) return null;
  const good = reload.result === "success";
  const details = good ? reload.changes ?? [] : reload.faults ?? [];
  return [mark(good ? "good" : "bad", good ? "in force" : "refused"), ` at ${clock(reload.at)}`, details.length ? soft(`: ${details.map(String).join("; ")}`) : null];
}

function lastDeath({ last_death: death }) {
  if (!death) return null;
  const ran = death.task ? ` while it ran ${death.task}` : "";
  return `${clock(death.at)}: ${death.child ?? "process"} ${death.slot ?? ""} ${death.words ?? death.reason ?? ""}${ran}`;
}

export function nodes(view) {
  const rows = (view.status.nodes ?? []).filter((node) => isWanted(view.filter, node.node));
  return section("nodes", "Nodes", "of this fleet, by their heartbeats", table("Nodes", nodeColumns, [{ rows }], (node) => `nodes/${node.node}`,
    view.filter ? "No node matches the filter." : "Redis has not returned any node yet."));
}

const nodeColumns = [
  ["node", (node) => [h("span", { class: "name" }, node.url && !node.is_this ? h("a", { href: node.url, rel: "noreferrer" }, node.node) : node.node), node.is_this ? soft(" this one") : null]],
  ["state", (node) => [mark(node.state === "running" ? "good" : node.state === "lost" ? "bad" : "warn", node.state), node.quiet ? mark("warn", "quiet") : null]],
  ["workers", (node) => `${count(node.workers)} of ${count(node.desired)}`, "number"],
  ["busy", (node) => bar((node.busy ?? 0) / Math.max(1, node.concurrency ?? 1), `${count(node.busy)} of ${count(node.concurrency)}`)],
  ["done a second", (node) => brief(node.done_per_second), "number"],
  ["lag, p50 and p99", (node) => [soft(duration(node.lag_p50_seconds)), " ", duration(node.lag_p99_seconds)], "number"],
  ["late", (node) => (node.late >= 0.01 ? mark("warn", percent(node.late)) : node.late > 0 ? "< 1 %" : node.late === 0 ? soft("none") : null), "number"],
  ["seen", (node) => `${duration(node.seen_seconds_ago)} ago`, "number"],
  ["last death", (node) => node.last_death || null],
];

// Schedules and groups, or nothing if there are none

export function schedules(view) {
  const rows = (view.status.schedules ?? []).filter((row) => isWanted(view.filter, row.name, row.task, row.queue));
  if (!view.status.schedules?.length) return null;
  return section("schedules", "Schedules", "the next first", table("Schedules", [
    ["schedule", (row) => h("span", { class: "name" }, row.name)],
    ["task", (row) => row.task],
    ["when", (row) => row.when],
    ["last", (row) => moment(row.last_at)],
    ["next in", (row) => row.error ? mark("bad", row.error) : row.state && row.state !== "waiting" ? mark("off", row.state) : duration(row.next_in_seconds), "number"],
  ], [{ rows }], (row) => `schedules/${row.name}`, "No schedule matches the filter."));
}

export function groups(view) {
  if (!view.status.groups?.length) return null;
  const rows = view.status.groups.filter((row) => isWanted(view.filter, row.id));
  return section("groups", "Groups", "those that have not ended", table("Groups", [
    ["group", (row) => id(row.id)],
    ["state", (row) => row.state],
    ["ended", (row) => bar((row.total - row.left) / Math.max(1, row.total), `${count(row.total - row.left)} of ${count(row.total)}`), "wide"],
    ["dead", (row) => (row.dead ? mark("bad", count(row.dead)) : number(0)), "number"],
    ["open since", (row) => moment(row.opened_at)],
  ], [{ rows }], (row) => `groups/${row.id}`, "No group matches the filter."));
}
