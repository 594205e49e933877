// The actions that a person may perform, each after a confirmation. They are offered only if the fleet allows them.

import { post } from "./fetching.js";
import { counted, printable } from "./text.js";

const TOLD_MS = 6000;

const of = (name) => document.getElementById(name);

let acted = () => {};

// `listener` is called after an action, so that the page is updated.
export function onActed(listener) {
  acted = listener;
}

export const ask = {
  pause: (queue) => confirm({ verb: "pause", queue }, `Pause queue ${queue}?`, "What runs goes on. What waits stays, and becomes late, until somebody resumes it.", "Pause"),
  resume: (queue) => confirm({ verb: "resume", queue }, `Resume queue ${queue}?`, "Its tasks may start again at once.", "Resume"),
  revive: (taskId) => confirm({ verb: "revive", task_id: taskId }, "Revive this task?", `${taskId} goes back to its queue, its failures forgiven.`, "Revive"),
  cancel: (taskId) => confirm({ verb: "cancel", task_id: taskId }, "Cancel this task?", `${taskId} ends: at once if it waits; if it runs, rota.Cancelled is raised in it.`, "Cancel it"),
  scale: (pool, workers) => confirm({ verb: "scale", pool, workers }, `Scale pool ${pool}`, `It has ${counted(workers, "worker")} now. The number holds until the configuration has another one, or the master ends.`, "Scale"),
};

function confirm(action, title, text, verb) {
  of("confirm-title").textContent = printable(title);
  of("confirm-text").textContent = printable(text);
  of("confirm-do").textContent = verb;
  of("confirm-number").hidden = action.workers === undefined;
  Object.assign(of("confirm-workers"), { value: action.workers ?? "", required: action.workers !== undefined });
  const dialog = of("confirm");
  of("confirm-leave").onclick = () => dialog.close();
  dialog.onclose = () => {
    if (dialog.returnValue !== "do") return;
    act(action.workers === undefined ? action : { ...action, workers: of("confirm-workers").valueAsNumber });
  };
  dialog.returnValue = "";
  dialog.showModal();
}

async function act(action) {
  try {
    tell((await post("actions", action)).text, "good");
  } catch (fault) {
    tell(fault.message, "bad");
  }
  acted();
}

function tell(text, level) {
  const toast = of("toast");
  toast.textContent = printable(text);
  toast.className = level;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { toast.textContent = ""; }, TOLD_MS);
}
