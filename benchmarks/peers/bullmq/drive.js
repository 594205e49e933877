// BullMQ's producer: does what `benchmarks.drive` does for the others, as far as BullMQ is measured.
"use strict";

const readline = require("node:readline");
const { Queue } = require("bullmq");
const { nowUs, sleep } = require("./probe");

const opts = { attempts: 3, removeOnComplete: true };
const queue = new Queue("bench", { connection: { url: process.env.BENCH_URL } });

const verbs = {
  async each({ task, count }) {
    for (let number = 0; number < count; number++) await queue.add(task, number, opts);
  },
  async many({ task, count, batch }) {
    for (let first = 0; first < count; first += batch) {
      const length = Math.min(batch, count - first);
      await queue.addBulk(Array.from({ length }, (_, index) => ({ name: task, data: first + index, opts })));
    }
  },
  async steadily({ task, count, rate }) {
    const started = performance.now();
    for (let number = 0; number < count; number++) {
      const rest = started + (number / rate) * 1000 - performance.now();
      if (rest > 0) await sleep(rest);
      await queue.add(task, nowUs(), opts);
    }
  },
};

async function main() {
  await queue.waitUntilReady();
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { verb, ...asked } = JSON.parse(line);
    const started = performance.now();
    await verbs[verb](asked);
    console.log((performance.now() - started) / 1000);
  }
}

main();
