"use strict";
// Elements, text and tables. All text of the archive goes through textContent.

const data = JSON.parse(document.getElementById("data").textContent);

/** An element with attributes and children; `class` and listeners (`onclick`) as they are in HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : String(child)));
  return element;
}

/** The same of SVG. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

function bytes(count) {
  if (count < 1024) return `${count} bytes`;
  let size = count;
  for (const unit of ["KB", "MB", "GB", "TB"]) {
    size /= 1024;
    if (size < 1024 || unit === "TB") return `${size.toFixed(1)} ${unit}`;
  }
}

function seconds(value) {
  if (value < 1e-3) return `${(value * 1e6).toFixed(2)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(2)} ms`;
  return `${value.toFixed(2)} s`;
}

/** Text that lines may break after dots, underscores and commas. */
function breakable(text) {
  const parts = text.split(/(?<=[._,])(?=\S)/);
  return parts.length < 2 ? text : parts.flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
}

const percent = (value) => `${(value * 100).toFixed(1)} %`;

function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many || one + "s"}`;
}

/** A share as a bar beside its text. */
function shareBar(value) {
  const bar = make("i");
  bar.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
  return make("span", { class: "share", "aria-hidden": "true" }, bar);
}

const FIRST_ROWS = 200, MORE_ROWS = 1000;

/**
 * A table that sorts by its columns.
 *   columns: {title, value(row): string or number, show(row): node or text, kind: "number" | "name" | "wrap"}
 * Rows beyond the first come on demand, so that long tables open fast.
 */
function table(columns, rows, { caption = "", sort = null, id = null, onrow = null } = {}) {
  const body = make("tbody");
  const head = make("tr");
  const more = make("div", { class: "more hidden" });
  let order = rows;
  let sorted = sort;
  let limit = FIRST_ROWS;

  function fill() {
    body.replaceChildren(...order.slice(0, limit).map((row) => {
      const line = make("tr", {}, columns.map((column) => {
        const shown = (column.show || column.value)(row);
        const text = shown === null || shown === undefined ? "" : shown;
        return make("td", { class: column.kind }, typeof text === "string" && column.kind !== "number" ? breakable(text) : text);
      }));
      if (onrow) onrow(line, row);
      return line;
    }));
    const left = order.length - limit;
    more.classList.toggle("hidden", left <= 0);
    if (left > 0) {
      more.replaceChildren(make("button", { type: "button", onclick: () => { limit += MORE_ROWS; fill(); } },
        `Show ${plural(Math.min(left, MORE_ROWS), "more row")} of ${left}`));
    }
  }

  function arrange() {
    if (sorted) {
      const column = columns[sorted.column];
      const sign = sorted.descending ? -1 : 1;
      const key = (row) => { const value = column.value(row); return value === null || value === undefined ? "" : value; };
      order = rows.map((row, index) => [key(row), index, row]).sort(([a, i], [b, j]) => {
        const compared = typeof a === "number" && typeof b === "number" ? a - b
          : String(a).localeCompare(String(b), "en", { numeric: true });
        return sign * compared || i - j;
      }).map((entry) => entry[2]);
    }
    [...head.children].forEach((cell, index) => {
      const is = sorted && sorted.column === index;
      cell.setAttribute("aria-sort", is ? (sorted.descending ? "descending" : "ascending") : "none");
    });
    fill();
  }

  columns.forEach((column, index) => head.append(make("th", { scope: "col", class: column.kind === "number" ? "number" : null },
    make("button", { type: "button", onclick: () => {
      const again = sorted && sorted.column === index;
      sorted = { column: index, descending: again ? !sorted.descending : column.kind === "number" };
      arrange();
    } }, column.title))));
  const element = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "table" },
    make("table", { id }, caption ? make("caption", {}, caption) : null, make("thead", {}, head), body), more);
  element.update = (found) => { rows = found; order = found; arrange(); };
  arrange();
  return element;
}

/** Calls `fill` with the body of a details element when it is opened for the first time. */
function lazyDetails(summary, fill, attributes = {}) {
  const body = make("div");
  const element = make("details", attributes, summary, body);
  let filled = false;
  const open = () => {
    if (!element.open || filled) return;
    filled = true;
    fill(body);
  };
  element.addEventListener("toggle", open);
  element.fill = () => { element.open = true; open(); };
  if (element.open) open();
  return element;
}

/** A labelled search box; `found` gets the words in lower case, shortly after the last key. */
function searchBox(label, found) {
  let timer = 0;
  const input = make("input", { type: "search", placeholder: "name, operator, module, shape", oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(() => found(input.value.toLowerCase().split(/\s+/).filter(Boolean)), 80);
  } });
  return make("label", {}, label, input);
}

const matches = (words, texts) => {
  const all = texts.join(" ").toLowerCase();
  return words.every((word) => all.includes(word));
};
