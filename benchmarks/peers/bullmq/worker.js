// A worker of BullMQ: as many jobs at once as its environment says.
"use strict";

const { Worker } = require("bullmq");
const { tasks } = require("./probe");

const worker = new Worker("bench", (job) => tasks[job.name](job.data), {
  connection: { url: process.env.BENCH_URL },
  concurrency: Number(process.env.BENCH_AT_ONCE),
});
worker.on("error", (error) => console.error(error));
worker.on("failed", (job, error) => console.error(error));
