// Dead tasks with their death records, and the page of one task. They are fetched only when they are opened.

import { actions } from "./actions.js";
import { h } from "./dom.js";
import { get } from "./fetching.js";
import { button, facts, id, isWanted, link, mark, section, table } from "./parts.js";
import { count, moment, duration } from "./text.js";

const LEVELS = { dead: "bad", running: "good", done: "good", cancelled: "off", expired: "off" };
const KEPT = 1000;

// The data of the current page: its address, the replies so far, and the error if there was one.
let shown = { address: "" };

async function fetchInto(address, page, redraw) {
  page.isLoading = true;
  try {
    page.take(await get(address));
    page.fault = "";
  } catch (fault) {
    page.fault = fault.message;
  }
  page.isLoading = false;
  if (shown === page) redraw();
}

function open(address, page, redraw) {
  if (shown.address !== address) {
    shown = { address, fault: "", ...page };
    fetchInto(address, shown, redraw);
  }
  return shown;
}

// Forces a new request when the page is opened again.
export function forget() {
  shown = { address: "" };
}

export function deadPage(view, queue) {
  const query = queue ? `queue=${encodeURIComponent(queue)}` : "";
  const page = open(`dead.json?${query}`, { tasks: [], cursor: null, take(response) {
    this.tasks = [...this.tasks, ...response.tasks].slice(0, KEPT);
    this.cursor = response.cursor;
  } }, view.redraw);
  const rows = page.tasks.filter((task) => isWanted(view.filter, task.id, task.name, task.queue, task.death?.error));
  const more = () => fetchInto(`dead.json?${query}&cursor=${page.cursor}`, page, view.redraw);
  return [
    queue ? h("p", {}, link("dead", "of all queues"), " · ", link(`queues/${queue}`, `queue ${queue}`)) : null,
    section("dead", queue ? `Dead tasks of ${queue}` : "Dead tasks", "set aside after their last attempt, the latest first",
      state(page),
      page.isLoading && !page.tasks.length ? null : table("Dead tasks", deadColumns(view), [{ rows }], (task) => `dead/${task.id}`, view.filter ? "No dead task matches the filter." : "There are none."),
      page.cursor ? h("p", {}, button("Show more", more)) : null),
  ];
}

const deadColumns = (view) => [
  ["task", (task) => [h("span", { class: "name" }, link(`task/${task.id}`, task.name || "?")), " ", id(task.id)]],
  ["queue", (task) => link(`queues/${task.queue}`, task.queue)],
  ["why", (task) => [mark("bad", task.death?.reason ?? "unknown"), " ", h("span", { class: "error" }, task.death?.error ?? "")]],
  ["attempts", (task) => count(task.attempt), "number"],
  ["died", (task) => `${duration(task.age_seconds, 1)} ago`, "number"],
  ...(view.status.actions ? [["action", (task) => button("Revive", () => actions.revive(task.id), `Revive ${task.id}`)]] : []),
];

export function taskPage(view, taskId) {
  const page = open(`task.json?id=${encodeURIComponent(taskId)}`, { task: null, take(response) {
    this.task = response;
  } }, view.redraw);
  const task = page.task;
  const refresh = () => fetchInto(page.address, page, view.redraw);
  if (!task) return [h("h2", { tabindex: "-1" }, "Task ", id(taskId)), state(page), h("p", {}, button("Refresh", refresh))];
  return [
    h("h2", { tabindex: "-1" }, h("span", { class: "name" }, task.name || "Task"), " ", mark(LEVELS[task.state] ?? "warn", task.state), h("small", {}, taskId)),
    state(page),
    h("p", { class: "buttons" }, button("Refresh", refresh),
      view.status.actions && task.state === "dead" ? button("Revive", () => actions.revive(taskId)) : null,
      view.status.actions && ["ready", "scheduled", "running"].includes(task.state) ? button("Cancel", () => actions.cancel(taskId)) : null),
    task.death ? h("p", { class: "headline bad" }, `${task.death.reason ?? "dead"}: ${task.death.error ?? "no record"}`) : null,
    facts([
      ["Queue", task.queue ? link(`queues/${task.queue}`, task.queue) : null],
      ["Kind", task.kind],
      ["Due", task.due_at ? moment(task.due_at) : null],
      ["Started late by", task.lag_seconds === undefined ? null : duration(task.lag_seconds)],
      ["Ran for", task.run_seconds === undefined ? null : duration(task.run_seconds)],
      ["Attempt", task.attempt],
      ["Failures, crashes, losses", `${task.failures}, ${task.crashes}, ${task.losses}`],
      ["On", task.node ? `${task.node}${task.pid ? `, pid ${task.pid}` : ""}` : null],
      ["Held by", task.owner],
      ["Why", task.why],
      ["Error", task.error],
    ]),
    section("timeline", "Time line", null, h("ol", { class: "events" }, task.timeline.map((each, index) => h("li", { key: index },
      h("time", { datetime: each.at }, moment(each.at)), h("span", { class: "what" }, each.what), h("span", {}, each.detail ?? ""))))),
    (task.attempts ?? []).length ? section("attempts", "Records of its attempts", "only those that failed",
      table("Attempts", attemptColumns, [{ rows: task.attempts }], (each) => `attempts/${each.attempt}`)) : null,
  ];
}

const attemptColumns = [
  ["attempt", (each) => count(each.attempt)],
  ["why", (each) => [mark("bad", each.reason ?? "failed"), " ", h("span", { class: "error" }, each.error ?? "")]],
  ["when", (each) => moment(each.at)],
  ["ran for", (each) => duration(each.run_seconds), "number"],
  ["where", (each) => (each.node ? `${each.node}, pid ${each.pid}` : "")],
];

const state = (page) => page.fault ? h("p", { class: "headline warn", role: "alert" }, page.fault) : page.isLoading ? h("p", { class: "empty" }, "Loading …") : null;
