// bee-queue: two retries, no events, successful jobs are removed, each delayed job starts at its time. Run as a program,
// this file is one worker, which runs as many jobs at once as its environment sets.
"use strict";

const Queue = require("bee-queue");
const { tasks } = require("./probe");

const STALL_MS = 5000; // the default
const quiet = { redis: { url: process.env.BENCH_URL }, getEvents: false, sendEvents: false, storeJobs: false };
let queue = null;

async function startup() {
  queue = new Queue("bench", { ...quiet, isWorker: false });
  await queue.ready();
}

const job = (task, number) => queue.createJob({ task, number }).retries(2);

const enqueue = (task, number) => job(task, number).save();

const enqueueMany = (task, numbers) => queue.saveAll(numbers.map((number) => job(task, number)));

// Times are whole milliseconds, rounded up here.
const enqueueManyAt = (task, rows) =>
  queue.saveAll(rows.map(([due, number]) => job(task, number).delayUntil(Math.ceil(due * 1000))));

function work() {
  const worker = new Queue("bench", {
    ...quiet,
    removeOnSuccess: true,
    activateDelayedJobs: true,
    delayedDebounce: 1, // ms during which delayed jobs are collected; the default is a second
    stallInterval: STALL_MS,
  });
  worker.on("error", (error) => console.error(error));
  worker.on("failed", (failed, error) => console.error(error));
  worker.process(Number(process.env.BENCH_AT_ONCE), ({ data }) => tasks[data.task](data.number));
  worker.checkStalledJobs(STALL_MS / 2);
}

module.exports = { startup, enqueue, enqueueMany, enqueueManyAt };
if (require.main === module) work();
