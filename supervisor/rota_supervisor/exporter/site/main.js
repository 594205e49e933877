// Fetches the state of the fleet while the page is visible, and shows the view that the address of the page names.

import { onActed } from "./actions.js";
import { onPointed } from "./charts.js";
import { h, render } from "./dom.js";
import { get } from "./fetching.js";
import { mark, soft } from "./parts.js";
import { overview } from "./overview.js";
import { queuePage } from "./queues.js";
import { deadPage, forget, taskPage } from "./tasks.js";
import { clock, printable, duration } from "./text.js";

const EVERY_MS = 2000;
const STALE_MS = 3 * EVERY_MS;
const EVENTS_KEPT = 200;
const THEMES = ["auto", "light", "dark"];
const SECTIONS = ["queues", "running", "events", "workers", "nodes", "schedules", "groups"];

const of = (name) => document.getElementById(name);
const view = { status: null, events: [], filter: "", showsAll: false, fault: "", respondedAt: 0, redraw, showAll };
let isDrawing = false;
let timer = null;
let announcedCause = "";

// Fetching

async function poll() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    take(await get(`status.json?events_after=${view.events.at(-1)?.n ?? 0}`));
  } catch (fault) {
    view.fault = fault.message;
  }
  redraw();
  clearTimeout(timer);
  timer = setTimeout(poll, EVERY_MS);
}

function take(status) {
  const isAnotherMaster = view.status && view.status.started_at !== status.started_at;
  const last = view.events.at(-1)?.n ?? 0;
  if (isAnotherMaster) view.events = []; // the event numbers start again, so the request used a wrong number
  else view.events = [...view.events, ...status.events.filter((event) => event.n > last)].slice(-EVENTS_KEPT);
  Object.assign(view, { status, fault: "", respondedAt: Date.now() });
  announce(status.headlines[0]);
}

// For screen readers. A problem is announced only when its cause changes, not every second.
function announce(line) {
  const cause = `${line.level} ${line.where}`;
  if (announcedCause === cause) return;
  announcedCause = cause;
  render(of("spoken"), [line.text]);
}

// Rendering

function redraw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    draw();
  });
}

function draw() {
  const isStale = Boolean(view.fault) || Date.now() - view.respondedAt > STALE_MS;
  render(of("live"), [live(isStale)]);
  document.body.classList.toggle("stale", isStale && view.status !== null);
  if (!view.status) {
    if (view.fault) render(of("main"), [h("p", { class: "headline bad first" }, `No data yet: ${view.fault}`)]);
    return;
  }
  const { fleet, node, version } = view.status;
  document.title = printable(`${title()} - Rota`);
  render(of("fleet"), [h("h1", {}, fleet), soft([node, version].filter(Boolean).join(" · "))]);
  render(of("main"), [isStale ? staleness() : null, ...[page()].flat(Infinity)].filter(Boolean));
  render(of("sections"), sections());
  arrive();
}

function title() {
  const bad = view.status.headlines.filter((line) => line.level === "bad").length;
  return bad ? `(${bad}) ${view.status.fleet}` : view.status.fleet;
}

function live(isStale) {
  if (!view.status) return soft("loading …");
  return isStale ? mark("bad", "stale") : mark("good", "live");
}

const staleness = () => h("p", { key: "stale", class: "headline bad first" }, h("span", { class: "sign", "aria-hidden": "true" }, "▲"),
  h("span", {}, `The exporter has not responded for ${duration((Date.now() - view.respondedAt) / 1000, 1)}${view.fault ? ` (${view.fault})` : ""}: the data below is from ${clock(view.respondedAt / 1000)}`));

const route = () => location.hash.replace(/^#\/?/, "").split("/").map(decode);

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // the user has typed the address
  }
}

function page() {
  const [kind, name] = route();
  const children = kind === "queues" && name ? queuePage(view, name)
    : kind === "dead" ? deadPage(view, name ?? "")
    : kind === "task" && name ? taskPage(view, name)
    : null;
  return children ? h("article", { key: location.hash }, back(), children) : overview(view);
}

const back = () => h("p", { class: "back" }, h("a", { href: "#/" }, "← Overview"));

function sections() {
  const there = SECTIONS.filter((name) => of(name) && of(name).parentNode.localName !== "article");
  const links = there.map((name) => h("a", { key: name, href: `#/${name}` }, of(`${name}-title`).firstChild.data));
  return [h("a", { key: "overview", href: "#/" }, "Overview"), ...links, h("a", { key: "dead", href: "#/dead" }, "Dead tasks")];
}

// Scrolls to the target of the address once. Later updates do not scroll.
let arrivedAt = null;

function arrive() {
  if (arrivedAt === location.hash) return;
  const isFirst = arrivedAt === null;
  arrivedAt = location.hash;
  const path = route().join("/");
  const goal = of(path) ?? (path ? of("main").querySelector("article h2") : null);
  if (!goal) {
    if (!isFirst) scrollTo(0, 0);
    return;
  }
  const target = goal.localName === "section" ? goal.querySelector("h2") : goal;
  goal.scrollIntoView({ block: goal.localName === "section" ? "start" : "center" });
  target.focus({ preventScroll: true });
}

function refresh() {
  forget();
  poll();
}

function showAll() {
  view.showsAll = true;
  redraw();
}

// Input

function filterBy(text) {
  of("filter").value = text;
  view.filter = text;
  redraw();
}

function useTheme(theme) {
  localStorage.setItem("rota-theme", theme);
  document.documentElement.dataset.theme = theme;
  const name = theme === "auto" ? "as the system" : theme;
  of("theme").textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
  of("theme").setAttribute("aria-label", `Colors: ${name}`);
  of("theme").title = `Colors: ${name}`;
}

const nextTheme = () => useTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);

const KEYS = {
  "/": () => of("filter").focus(),
  "?": () => of("keys").showModal(),
  o: () => { location.hash = "#/"; },
  d: () => { location.hash = "#/dead"; },
  e: () => { location.hash = "#/events"; },
  t: nextTheme,
};

function press(event) {
  const isTyping = event.target.matches("input, textarea, select") || document.querySelector("dialog[open]");
  if (event.key === "Escape" && event.target === of("filter")) filterBy("");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
}

useTheme(THEMES.includes(localStorage.getItem("rota-theme")) ? localStorage.getItem("rota-theme") : "auto");
onPointed(redraw);
onActed(refresh);
of("filter").addEventListener("input", () => filterBy(of("filter").value));
of("theme").addEventListener("click", nextTheme);
of("help").addEventListener("click", KEYS["?"]);
of("skip").addEventListener("click", (event) => {
  event.preventDefault();
  of("main").focus();
});
addEventListener("keydown", press);
addEventListener("hashchange", () => {
  forget();
  redraw();
});
document.addEventListener("visibilitychange", poll);
setInterval(redraw, 1000);
poll();
