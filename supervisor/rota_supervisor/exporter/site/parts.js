// The building blocks of the views.

import { h } from "./dom.js";
import { DASH, count } from "./text.js";

const SIGNS = { bad: "▲", warn: "◆", good: "●", off: "■" };

// A text with a symbol and a color, because neither of the two is sufficient on its own.
export const mark = (level, text) => h("span", { class: `mark ${level}` }, h("span", { "aria-hidden": "true" }, SIGNS[level]), " ", text);

// `where`: KIND or KIND/NAME of this page. If a name cannot be written in an address, there is no link.
export function link(where, text) {
  const [kind, ...name] = where.toWellFormed().split("/");
  return h("a", { href: `#/${kind}${name.length ? `/${encodeURIComponent(name.join("/"))}` : ""}` }, text);
}

export const soft = (...text) => h("span", { class: "soft" }, ...text);

export const id = (text) => h("span", { class: "id" }, text);

export function section(name, title, note, ...content) {
  return h("section", { key: name, id: name, "aria-labelledby": `${name}-title` },
    h("h2", { id: `${name}-title`, tabindex: "-1" }, title, note ? h("small", {}, note) : null), content);
}

// `columns`: [head, cell(row), kind]; cells of the kind `number` are aligned right. `groups`: [{rows}], or [{key, title, cells, rows}]. A row's
// `key` is its id in the page, so that links can target it. On a narrow screen rows are cards, so the roles are set explicitly.
export function table(caption, columns, groups, keyOf, note = "") {
  if (!groups.some((group) => group.rows.length)) return h("p", { class: "empty" }, note);
  return h("table", { role: "table" },
    h("caption", { class: "hidden" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([head, , kind]) =>
      h("th", { role: "columnheader", scope: "col", class: kind }, head)))),
    groups.map((group) => h("tbody", { key: group.key, role: "rowgroup" },
      group.title ? groupRow(group, columns) : null,
      group.rows.map((row) => h("tr", { role: "row", key: keyOf(row), id: keyOf(row), tabindex: "-1" }, columns.map((column, index) => cellOf(column, row, index)))))));
}

// The header row of a group, with the values of the whole group in the last columns.
function groupRow({ title, cells }, columns) {
  const own = columns.length - cells.length;
  return h("tr", { role: "row", class: "group" }, h("th", { role: "rowheader", scope: "rowgroup", colspan: own }, title),
    cells.map((content, index) => h("td", { role: "cell", class: content === null ? "none" : "wide", "data-head": columns[own + index][0] }, content ?? "")));
}

// The function of a cell returns null for a value that is unknown or does not exist.
function cellOf([head, cell, kind = ""], row, index) {
  const content = cell(row);
  const plain = index ? { role: "cell" } : { role: "rowheader", scope: "row" };
  return h(index ? "td" : "th", { ...plain, class: content === null ? `${kind} blank` : kind, "data-head": head }, content ?? DASH);
}

// A bar that shows a share of a whole, with a mark at the expected share.
export function bar(share, text, { level = "", due = null } = {}) {
  const shown = Math.min(1, Math.max(0, share ?? 0));
  return h("span", { class: "gauge" },
    h("span", { class: `bar ${level}`, css: { "--share": shown }, "aria-hidden": "true" },
      due === null ? null : h("span", { class: "due", css: { "--due": Math.min(1, due) } })),
    h("span", {}, text));
}

export const facts = (rows) => h("dl", { class: "facts" }, rows.filter(([, value]) => isPresent(value)).map(([name, value]) =>
  h("div", {}, h("dt", {}, name), h("dd", {}, value))));

const isPresent = (value) => value !== null && value !== undefined && value !== "";

export const number = (value) => (value ? count(value) : h("span", { class: "zero" }, value === 0 ? "0" : DASH));

export const button = (text, act, label = null) => h("button", { type: "button", class: "small", "aria-label": label, on: { click: act } }, text);

// Whether one of these texts contains the filter's text.
export function isWanted(filter, ...texts) {
  const wanted = filter.trim().toLowerCase();
  return !wanted || texts.some((text) => String(text ?? "").toLowerCase().includes(wanted));
}
