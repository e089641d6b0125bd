// SPDX-License-Identifier: Apache-2.0
// The little that is needed to make and update elements. Text is always set as text: names of
// processes, nodes and labels come from anywhere.

export const $ = (id) => document.getElementById(id);

/** An element with attributes (true sets an empty one, false none) and children. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function set(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/**
 * A table whose rows are kept by key, so that nothing that stays is made anew.
 * Columns: {title, hint, cell(row), kind, opt, sort}. `cell` gives text, or for the kinds `bar`
 * {share, text, state}, `swatch` {colour, text}; the first column is the header of its row.
 * `opt` columns are left out on narrow screens. With `sort` (a function of a row) the header is a
 * button.
 */
export class Table {
  constructor(table, columns, { sorted = null, empty = "" } = {}) {
    this.columns = columns;
    this.rows = new Map();
    this.sorted = sorted;
    this.empty = empty;
    this.last = [];
    this.key = (row) => row.key;
    this.heads = columns.map((column) => this.headOf(column));
    this.body = h("tbody");
    table.append(h("thead", {}, h("tr", {}, ...this.heads)), this.body);
    this.markSorted();
  }

  headOf(column) {
    const th = h("th", { scope: "col", class: classOf(column) });
    if (column.sort === undefined) {
      th.append(column.title);
      if (column.hint) th.title = column.hint;
      return th;
    }
    const button = h("button", { type: "button", title: column.hint ?? false }, column.title);
    button.addEventListener("click", () => {
      this.sorted = column.title;
      this.markSorted();
      this.update(this.last);
    });
    th.append(button);
    return th;
  }

  markSorted() {
    this.columns.forEach((column, i) => {
      if (column.sort === undefined) return;
      if (column.title === this.sorted) this.heads[i].setAttribute("aria-sort", "descending");
      else this.heads[i].removeAttribute("aria-sort");
    });
  }

  update(list) {
    this.last = list;
    const by = this.columns.find((column) => column.title === this.sorted && column.sort);
    const ordered = by ? [...list].sort((a, b) => by.sort(b) - by.sort(a)) : list;
    const keep = new Set();
    ordered.forEach((row, place) => {
      const key = this.key(row);
      keep.add(key);
      let entry = this.rows.get(key);
      if (entry === undefined) {
        entry = this.rowOf();
        this.rows.set(key, entry);
      }
      this.columns.forEach((column, i) => fill(entry.cells[i], column, column.cell(row)));
      if (this.body.children[place] !== entry.tr) {
        this.body.insertBefore(entry.tr, this.body.children[place] ?? null);
      }
    });
    for (const [key, entry] of this.rows) {
      if (!keep.has(key)) {
        entry.tr.remove();
        this.rows.delete(key);
      }
    }
  }

  rowOf() {
    const cells = this.columns.map((column, i) => {
      const cell = i === 0 ? h("th", { scope: "row" }) : h("td");
      cell.className = classOf(column);
      if (column.kind === "bar") {
        cell.append(h("span", { class: "meter", "aria-hidden": "true" }, h("i")), h("span", { class: "v" }));
      } else if (column.kind === "swatch") {
        cell.append(h("i", { class: "sw", "aria-hidden": "true" }), h("span"));
      }
      return cell;
    });
    return { tr: h("tr", {}, ...cells), cells };
  }
}

function classOf({ kind = "number", opt = false }) {
  return kind + (opt ? " opt" : "");
}

function fill(cell, { kind }, value) {
  if (kind === "bar") {
    const [meter, label] = cell.children;
    const width = (100 * Math.min(1, Math.max(0, value.share || 0))).toFixed(1) + "%";
    if (meter.firstChild.style.width !== width) meter.firstChild.style.width = width;
    if (meter.dataset.state !== (value.state ?? "")) meter.dataset.state = value.state ?? "";
    set(label, value.text);
  } else if (kind === "swatch") {
    const name = "sw " + value.colour;
    if (cell.firstChild.className !== name) cell.firstChild.className = name;
    set(cell.lastChild, value.text);
  } else if (value instanceof Node) {
    if (cell.firstChild !== value) cell.replaceChildren(value);
  } else {
    set(cell, value);
    if (kind === "text" && cell.title !== value) cell.title = value;
  }
}
