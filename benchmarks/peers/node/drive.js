// A producer on Node.js: `node drive.js APP`, with the protocol of `benchmarks.drive`.
// APP exports `startup()`, `enqueue(task, number)`, `enqueueMany(task, numbers)` and `enqueueManyAt(task, rows)`, where
// each row is a Unix time and a number. APP runs a worker if it is started as a program.
"use strict";

const path = require("node:path");
const readline = require("node:readline");
const { nowUs, sleep } = require("./probe");

const app = require(path.resolve(process.argv[2]));

const verbs = {
  async each({ task, count }) {
    for (let number = 0; number < count; number++) await app.enqueue(task, number);
  },
  async many({ task, count, batch }) {
    for (let first = 0; first < count; first += batch) {
      const length = Math.min(batch, count - first);
      await app.enqueueMany(task, Array.from({ length }, (_, index) => first + index));
    }
  },
  async later({ task, dues }) {
    await app.enqueueManyAt(task, dues.map((due) => [due, Math.round(due * 1e6)]));
  },
  async singly({ task, count }) {
    for (let number = 0; number < count; number++) {
      await sleep(15 + 10 * Math.random());
      await app.enqueue(task, nowUs());
    }
  },
  async steadily({ task, count, rate }) {
    const started = performance.now();
    for (let number = 0; number < count; number++) {
      const rest = started + (number / rate) * 1000 - performance.now();
      if (rest > 0) await sleep(rest);
      await app.enqueue(task, nowUs());
    }
  },
};

async function main() {
  await app.startup();
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { verb, ...asked } = JSON.parse(line);
    const started = performance.now();
    await verbs[verb](asked);
    console.log((performance.now() - started) / 1000);
  }
}

main();
