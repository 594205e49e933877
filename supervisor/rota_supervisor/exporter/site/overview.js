// The first view. It shows whether the fleet is healthy, and if not, what is wrong.

import { lagChart, rateChart } from "./charts.js";
import { h } from "./dom.js";
import { events, groups, isWorker, nodes, restarts, running, schedules, workers } from "./fleet.js";
import { link, mark } from "./parts.js";
import { isLate, queues } from "./queues.js";
import { DASH, brief, count, duration } from "./text.js";

const HEADLINES_SHOWN = 4;
const SIGNS = { bad: "▲", warn: "◆", good: "✓" };

export function overview(view) {
  const { status } = view;
  return [
    headlines(status.headlines),
    tiles(status),
    h("div", { key: "charts", class: "charts" },
      lagChart("all queues", status.overall, status.history, strictest(status), "strictest objective"), rateChart("all queues", status.overall, status.history)),
    queues(view),
    running(view),
    h("div", { key: "columns", class: "columns" }, events(view), restarts(view)),
    workers(view),
    nodes(view),
    schedules(view),
    groups(view),
  ];
}

function headlines(lines) {
  const [first, ...others] = lines;
  return h("section", { key: "headlines", id: "headlines", "aria-label": "What is wrong" },
    headline(first, "first"),
    others.slice(0, HEADLINES_SHOWN - 1).map((line) => headline(line)),
    others.length >= HEADLINES_SHOWN ? h("details", {}, h("summary", {}, `${others.length - HEADLINES_SHOWN + 1} more`),
      others.slice(HEADLINES_SHOWN - 1).map((line) => headline(line))) : null);
}

function headline(line, more = "") {
  const hasLink = /^(queues|workers|pools|nodes)\//.test(line.where);
  return h("p", { class: `headline ${line.level} ${more}` }, h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[line.level]),
    h("span", {}, line.text), hasLink ? link(line.where, "show") : null);
}

function tiles(status) {
  const members = status.processes.filter(isWorker);
  const busy = members.reduce((sum, process) => sum + process.tasks.length, 0);
  const slots = members.reduce((sum, process) => sum + (process.concurrency || 1), 0);
  const late = status.queues.filter(isLate).length;
  const p99 = status.lag?.p99_seconds;
  return h("dl", { key: "tiles", class: "tiles" },
    tile("Done a second", brief(status.rate?.done_per_second), "on this node"),
    tile("Lag, p99", duration(p99), `p50 ${duration(status.lag?.p50_seconds)}`),
    tile("Late queues", count(late), late ? mark("bad", "over their objective") : "none over its objective"),
    tile("Busy", `${count(busy)} of ${count(slots)}`, !slots ? "no worker runs here" : busy >= slots ? mark("warn", "no worker is free") : `${count(slots - busy)} free`),
    tile("Waiting", total(status, "ready"), `${total(status, "scheduled")} scheduled`),
    tile("Dead", total(status, "dead"), ["0", DASH].includes(total(status, "dead")) ? "tasks set aside" : link("dead", "show them")));
}

const tile = (name, value, note) => h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("span", { class: "soft" }, note)));

// The totals over all queues, if Redis has returned them.
function total(status, what) {
  const known = status.queues.filter((queue) => queue.state);
  return status.queues.length && !known.length ? DASH : brief(known.reduce((sum, queue) => sum + queue.state[what], 0));
}

const strictest = (status) => status.queues.map((queue) => queue.lag_objective_seconds).filter((value) => value !== null).sort((a, b) => a - b)[0] ?? null;
