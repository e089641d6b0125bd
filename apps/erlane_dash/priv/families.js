// SPDX-License-Identifier: Apache-2.0
// Families of metrics: the list of all, and the history of the one that is chosen. The node keeps
// no history of them; it begins here, when the family is chosen.

import { Chart } from "./chart.js";
import { $, h, set, Table } from "./dom.js";
import { text } from "./format.js";
import { colour } from "./panels.js";
import { Store } from "./store.js";

const SHOWN = 8;
// Rates and quantiles are over so many milliseconds; collectors give values every ten seconds.
const OVER = { fresh: 5000, collected: 21000 };
const QUANTILES = [0.5, 0.9, 0.99];

export class Families {
  constructor(view) {
    this.view = view;
    this.all = [];
    this.chosen = null;
    this.asking = false;
    this.frozen = false;
    this.list = $("fam-list");
    this.search = $("fam-search");
    this.search.addEventListener("input", () => this.filter());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        this.list.focus();
        this.step(0);
        event.preventDefault();
      }
    });
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option !== null) this.choose(option.dataset.name);
    });
    this.list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      this.step(step);
      event.preventDefault();
    });
    this.wanted = new URLSearchParams(location.hash.slice(1)).get("family");
  }

  freeze(on) {
    this.frozen = on;
  }

  async load() {
    const response = await fetch("api/families").catch(() => null);
    if (response === null || !response.ok) return;
    this.all = await response.json();
    this.filter();
    if (this.chosen === null && this.wanted !== null) this.choose(this.wanted);
  }

  filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.all.filter(({ name, help }) => {
      const where = (name + " " + help).toLowerCase();
      return words.every((word) => where.includes(word));
    });
    set($("fam-sum"), found.length === this.all.length ? this.all.length + " families" : found.length + " of " + this.all.length + " families");
    this.list.replaceChildren(...found.map(({ name, type }, i) =>
      h("li", { role: "option", id: "fam-" + i, "data-name": name, "aria-selected": String(name === this.chosen?.name) },
        h("span", {}, name), h("small", {}, type))));
    this.point();
  }

  point() {
    const option = this.list.querySelector("[aria-selected=true]");
    if (option === null) this.list.removeAttribute("aria-activedescendant");
    else this.list.setAttribute("aria-activedescendant", option.id);
    return option;
  }

  step(by) {
    const options = [...this.list.children];
    if (options.length === 0) return;
    const now = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
    const to = now < 0 ? 0 : Math.min(options.length - 1, Math.max(0, now + by));
    this.choose(options[to].dataset.name);
  }

  choose(name) {
    const about = this.all.find((one) => one.name === name);
    if (about === undefined || this.chosen?.name === name) return;
    this.chosen?.chart.remove();
    this.chosen = new Family(about, this.view);
    for (const option of this.list.children) {
      option.setAttribute("aria-selected", String(option.dataset.name === name));
    }
    this.point()?.scrollIntoView({ block: "nearest" });
    history.replaceState(null, "", "#family=" + encodeURIComponent(name));
    this.tick();
  }

  /** Asks for the chosen family, once at a time. */
  async tick() {
    const family = this.chosen;
    if (family === null || this.asking || this.frozen) return;
    this.asking = true;
    try {
      const response = await fetch("api/family?name=" + encodeURIComponent(family.about.name));
      if (response.ok && family === this.chosen) family.take(await response.json());
    } catch {
      // The connection tells about itself; the chart has a gap.
    } finally {
      this.asking = false;
    }
  }
}

class Family {
  constructor(about, view) {
    this.about = about;
    this.name = about.name;
    this.view = view;
    this.store = new Store();
    this.past = [];
    this.picked = null;
    this.hist = about.type === "histogram";
    this.counter = about.type === "counter";
    const told = about.type === "info" || about.type === "stateset";
    const unit = { bytes: "bytes", seconds: "seconds" }[about.unit] ?? "number";
    this.unit = this.counter ? (unit === "bytes" ? "byterate" : "rate") : unit;
    $("fam-none").hidden = true;
    $("fam-view").hidden = false;
    set($("fam-name"), about.name);
    set($("fam-help"), [about.type, about.unit, this.counter ? "shown as rate" : "", about.help].filter(Boolean).join(" \u00b7 "));
    const host = h("div");
    $("fam-chart").replaceChildren(host);
    $("fam-chart").hidden = told;
    this.chart = new Chart(host, { view, store: this.store, unit: this.unit, kind: "line", height: 220, label: about.name });
    $("fam-table").replaceChildren($("fam-table").caption);
    this.table = new Table($("fam-table"), this.columns(unit, told));
  }

  columns(unit, told) {
    const label = { title: "Series", kind: "swatch", cell: ({ key, colour: c }) => ({ colour: c, text: key === "" ? "(no labels)" : key }) };
    const value = (title, name, u, opt = false) => ({ title, opt, cell: (row) => text(row[name], u) });
    if (told) return [label, { title: "Value", kind: "text", cell: ({ raw }) => raw }];
    if (this.hist) {
      return [label, value("Count", "count", "count"), value("Per second", "rate", "rate"), value("Mean", "mean", unit, true),
        ...QUANTILES.map((q) => value("p" + 100 * q, "q" + q, unit))];
    }
    if (this.counter) return [label, value("Total", "value", unit === "number" ? "count" : unit), value("Now", "rate", this.unit)];
    return [label, value("Value", "value", unit), ...(this.about.type === "summary" ? [value("Count", "count", "count")] : [])];
  }

  /** Takes an answer of the node: {t, more, series: [{labels, value | hist fields}]}. */
  take({ t, series, more }) {
    const over = this.about.collected ? OVER.collected : OVER.fresh;
    while (this.past.length > 1 && this.past[1].t <= t - over) this.past.shift();
    const before = this.past[0];
    this.past.push({ t, series: new Map(series.map((one) => [one.labels, one])) });
    const rows = series.map((one) => this.row(one, before?.series.get(one.labels), before ? (t - before.t) / 1000 : 0));
    const points = [];
    if (this.hist) {
      const best = [...rows].sort((a, b) => (b.rate || 0) - (a.rate || 0))[0];
      this.picked = this.picked !== null && rows.some(({ key }) => key === this.picked) ? this.picked : best?.key ?? null;
      const row = rows.find(({ key }) => key === this.picked);
      if (row !== undefined) {
        QUANTILES.forEach((q) => points.push(["q" + q, row["q" + q]]));
        this.chart.series = QUANTILES.map((q, i) => ({ key: "q" + q, label: "p" + 100 * q + " " + row.key, colour: colour(i) }));
        row.colour = colour(0);
      }
    } else {
      const name = this.counter ? "rate" : "value";
      for (const row of rows) points.push([row.key, row[name]]);
      // Colours stay with the series that have them, as long as there are not too many.
      const known = new Map(this.chart.series.map(({ key, colour: c }) => [key, c]));
      const first = [...rows].sort((a, b) => (b[name] || 0) - (a[name] || 0)).slice(0, SHOWN);
      const kept = first.filter(({ key }) => known.has(key));
      const free = Array.from({ length: SHOWN }, (_, i) => colour(i)).filter((c) => !kept.some(({ key }) => known.get(key) === c));
      this.chart.series = first.map((row) => {
        row.colour = known.get(row.key) ?? free.shift();
        return { key: row.key, label: row.key === "" ? this.about.name : row.key, colour: row.colour };
      });
    }
    this.store.push(t, points);
    this.table.update(rows);
    set($("fam-table").caption, "Series of " + this.name + (more > 0 ? ", " + more + " more are not shown" : ""));
    $("fam-table").caption.className = more > 0 ? "" : "hide";
    this.view.draw();
  }

  row(one, before, seconds) {
    const row = { key: one.labels, colour: "none", value: one.value, raw: String(one.value) };
    if (this.hist) {
      const counts = difference(one, before);
      const n = counts.reduce((a, [, c]) => a + c, 0);
      row.count = one.count;
      row.rate = before && seconds > 0 ? (one.count - before.count) / seconds : NaN;
      row.mean = before && one.count > before.count ? (one.sum - before.sum) / (one.count - before.count)
        : one.count > 0 ? one.sum / one.count : NaN;
      for (const q of QUANTILES) row["q" + q] = quantile(counts, n, q);
    } else if (this.counter) {
      row.rate = before && seconds > 0 && one.value >= before.value ? (one.value - before.value) / seconds : NaN;
    } else if (this.about.type === "summary") {
      row.count = one.count;
    }
    return row;
  }
}

/** Counts of the buckets [[upper edge, count]] since the answer before; all, if there was none. */
function difference({ buckets }, before) {
  if (before === undefined) return buckets;
  const old = new Map(before.buckets);
  const out = buckets.map(([edge, n]) => [edge, n - (old.get(edge) ?? 0)]).filter(([, n]) => n > 0);
  return out;
}

/** The upper edge of the bucket that holds a quantile. */
function quantile(counts, n, q) {
  let rank = Math.max(1, Math.ceil(q * n));
  for (const [edge, count] of counts) {
    rank -= count;
    if (rank <= 0) return edge;
  }
  return NaN;
}
