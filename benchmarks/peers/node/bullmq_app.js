// BullMQ: up to three attempts, successful jobs are removed, stalled jobs are found as soon as with bee-queue. Run as a
// program, this file is one worker, which runs as many jobs at once as its environment sets.
"use strict";

const { Queue, Worker } = require("bullmq");
const { tasks } = require("./probe");

const NAME = "bench";
const STALL_MS = 5000; // the default is 30,000
const connection = { url: process.env.BENCH_URL };
const opts = { attempts: 3, removeOnComplete: true };
let queue = null;

async function startup() {
  queue = new Queue(NAME, { connection });
  await queue.waitUntilReady();
}

const enqueue = (name, data) => queue.add(name, data, opts);

const enqueueMany = (name, numbers) => queue.addBulk(numbers.map((data) => ({ name, data, opts })));

// Delays are whole milliseconds, rounded up here.
function enqueueManyAt(name, rows) {
  const later = (due) => ({ ...opts, delay: Math.ceil(due * 1000 - Date.now()) });
  return queue.addBulk(rows.map(([due, data]) => ({ name, data, opts: later(due) })));
}

function work() {
  const worker = new Worker(NAME, (job) => tasks[job.name](job.data), {
    connection,
    concurrency: Number(process.env.BENCH_AT_ONCE),
    lockDuration: STALL_MS,
    stalledInterval: STALL_MS,
  });
  worker.on("error", (error) => console.error(error));
  worker.on("failed", (job, error) => console.error(error));
}

module.exports = { startup, enqueue, enqueueMany, enqueueManyAt };
if (require.main === module) work();
