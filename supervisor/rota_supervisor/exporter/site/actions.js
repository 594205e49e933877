// The actions that a person can perform, each after a confirmation. They are shown only if the fleet allows them.

import { post } from "./fetching.js";
import { counted, printable } from "./text.js";

const SHOWN_MS = 6000;

const of = (name) => document.getElementById(name);

let acted = () => {};

// `listener` is called after an action to update the page.
export function onActed(listener) {
  acted = listener;
}

export const actions = {
  pause: (queue) => confirm({ verb: "pause", queue }, `Pause queue ${queue}?`, "Running tasks continue. Waiting tasks stay in the queue until it is resumed, and may become late.", "Pause"),
  resume: (queue) => confirm({ verb: "resume", queue }, `Resume queue ${queue}?`, "Its tasks can start again immediately.", "Resume"),
  revive: (taskId) => confirm({ verb: "revive", task_id: taskId }, "Revive this task?", `${taskId} returns to its queue, and its failures are reset.`, "Revive"),
  cancel: (taskId) => confirm({ verb: "cancel", task_id: taskId }, "Cancel this task?", `${taskId} ends immediately if it is waiting. If it is running, rota.Cancelled is raised in it.`, "Cancel it"),
  scale: (pool, workers) => confirm({ verb: "scale", pool, workers }, `Scale pool ${pool}`, `It has ${counted(workers, "worker")} now. The new number applies until the configured number changes or the master stops.`, "Scale"),
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
    notify((await post("actions", action)).text, "good");
  } catch (fault) {
    notify(fault.message, "bad");
  }
  acted();
}

function notify(text, level) {
  const toast = of("toast");
  toast.textContent = printable(text);
  toast.className = level;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { toast.textContent = ""; }, SHOWN_MS);
}
