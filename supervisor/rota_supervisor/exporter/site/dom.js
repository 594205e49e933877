// h() describes elements; render() changes only what differs, so that focus, selection and scroll positions are
// kept. Text and attributes are always text, never markup, and made printable.

import { printable } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

// In `attributes`, `key` identifies an element among its siblings, `on` has its handlers, and `css` its custom
// properties.
export function h(name, attributes, ...children) {
  const { key, on = {}, css = {}, ...plain } = attributes ?? {};
  const shown = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return { name, key, on, css, plain, children: shown };
}

export function render(parent, children) {
  const keyed = new Map();
  for (const node of parent.childNodes) if (node.key !== undefined) keyed.set(node.key, node);
  let at = parent.firstChild;
  for (const child of children) {
    let node = child.key === undefined ? at : keyed.get(child.key);
    if (!node || !fits(node, child)) node = make(child, parent);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    update(node, child);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function fits(node, child) {
  if (child.name === undefined) return node.nodeType === Node.TEXT_NODE;
  return node.localName === child.name && node.key === child.key;
}

function make(child, parent) {
  if (child.name === undefined) return document.createTextNode("");
  const inSvg = child.name === "svg" || parent.namespaceURI === SVG;
  const node = inSvg ? document.createElementNS(SVG, child.name) : document.createElement(child.name);
  node.key = child.key;
  return node;
}

function update(node, child) {
  if (child.name === undefined) {
    const text = printable(child);
    if (node.data !== text) node.data = text;
    return;
  }
  updateAttributes(node, child.plain);
  for (const [name, value] of Object.entries(child.css)) {
    if (node.style.getPropertyValue(name) !== String(value)) node.style.setProperty(name, value);
  }
  for (const name of Object.keys(node.handlers ?? {})) if (!child.on[name]) node[`on${name}`] = null;
  for (const [name, handler] of Object.entries(child.on)) node[`on${name}`] = handler;
  node.handlers = child.on;
  render(node, child.children);
}

function updateAttributes(node, wanted) {
  for (const { name } of [...node.attributes]) if (name !== "style" && !isSet(wanted[name])) node.removeAttribute(name);
  for (const [name, value] of Object.entries(wanted)) {
    const text = value === true ? "" : printable(value);
    if (isSet(value) && node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

const isSet = (value) => value !== undefined && value !== null && value !== false;
