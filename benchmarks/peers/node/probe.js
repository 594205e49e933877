// The tasks of a benchmark, the same as in `benchmarks.probe_async`: they count, wait, and record their start.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");

const FOLDER = process.env.BENCH_FOLDER;
const WORK_MS = 10;
const LOOK_MS = 5;

const inFolder = (name) => path.join(FOLDER, name);
const nowUs = () => Math.round((performance.timeOrigin + performance.now()) * 1000); // Date.now() has whole milliseconds

const words = new BigUint64Array(2); // calls, and microseconds in them
let table = null;
let place = 0;
let journal = null;

// Node.js cannot map files, so the two words are written to the table, which costs a microsecond more per call.
function count(busyUs = 0) {
  if (table === null) findPlace();
  words[0] += 1n;
  words[1] += BigInt(busyUs);
  fs.writeSync(table, words, 0, 16, place);
}

// The position of the appended byte assigns this process its two words; only the kernel knows this position.
function findPlace() {
  table = fs.openSync(inFolder("counts"), "r+");
  const taken = fs.openSync(inFolder("places"), "a");
  fs.writeSync(taken, "x");
  const [, after] = /^pos:\s*(\d+)/.exec(fs.readFileSync(`/proc/self/fdinfo/${taken}`, "latin1"));
  fs.closeSync(taken);
  place = 16 * (Number(after) - 1);
}

function write(event, label) {
  const line = `${event} ${label} ${nowUs()}000 ${process.pid}\n`;
  journal ??= fs.openSync(inFolder("journal"), "a");
  fs.writeSync(journal, line);
}

async function until(file) {
  while (!fs.existsSync(inFolder(file))) await sleep(LOOK_MS);
}

const tasks = {
  async nothing() {
    count();
  },
  async work() {
    const started = performance.now();
    await sleep(WORK_MS);
    count(Math.round((performance.now() - started) * 1000));
  },
  async mark(label) {
    write("mark", label);
  },
  async linger(label) {
    write("linger", label);
    await sleep(WORK_MS);
  },
  async meet(label) {
    write("meet", label);
    await until("met");
    write("met", label);
  },
  async hold(label) {
    write("hold", label);
    await until("let-go");
  },
};

module.exports = { tasks, nowUs, sleep };
