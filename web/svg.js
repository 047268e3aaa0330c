// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// Elements of SVG and HTML. Texts of a run are only ever set as text.

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children) {
    if (child !== null) element.append(child);
  }
  return element;
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function line(kind, x1, y1, x2, y2) {
  return svg("line", { class: kind, x1, y1, x2, y2 });
}

function box(kind, x, y, width, height, more = {}) {
  return svg("rect", { class: kind, x, y, width: Math.max(0, width), height, ...more });
}

function label(kind, x, y, text) {
  return svg("text", { class: kind, x, y }, text);
}

export { svg, html, line, box, label };
