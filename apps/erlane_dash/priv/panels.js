// SPDX-License-Identifier: Apache-2.0
// The panels: what each of them takes from a tick, and where it shows it.

import { Chart } from "./chart.js";
import { $, h, set, Table } from "./dom.js";
import { text } from "./format.js";

const SERIES = 8;

/** Names of the colours in the order in which series get them. */
export const colour = (i) => "c" + ((i % SERIES) + 1);

/** The numbers of a tick that have a history, as pairs of a key and a value. */
export function* flat(core) {
  for (const group of ["lanes", "sched", "dist", "proxies"]) {
    const { id = [], ...columns } = core[group] ?? {};
    for (const [name, values] of Object.entries(columns)) {
      for (let i = 0; i < id.length; i += 1) yield [group + "/" + id[i] + "/" + name, values[i]];
    }
  }
  for (const group of ["runq", "mem", "used", "rate"]) {
    for (const [name, value] of Object.entries(core[group] ?? {})) yield [group + "/" + name, value];
  }
  yield* totals(core);
}

const sum = (values) => values.reduce((a, b) => a + (b ?? 0), 0);

function* totals({ sched, lanes }) {
  const known = sched.util.filter((u) => u !== null);
  yield ["all/util", known.length > 0 ? sum(known) / known.length : NaN];
  if (lanes.id.length === 0) return;
  for (const name of ["waits", "events", "sockets", "in", "out"]) yield ["all/" + name, sum(lanes[name])];
  const waits = sum(lanes.waits);
  yield ["all/epw", waits > 0 ? sum(lanes.events) / waits : 0];
}

/** Rows of a group that came as columns: [{key, id, name: value}]. */
function rows({ id, ...columns }) {
  return id.map((one, i) => {
    const row = { key: String(one), id: one };
    for (const [name, values] of Object.entries(columns)) row[name] = values[i];
    return row;
  });
}

const cell = (name, unit) => (row) => text(row[name], unit);

/** Figures at a glance, each with its history. */
export function vitals(view, store) {
  const tiles = [
    ["Scheduler use", "all/util", "percent", 1],
    ["Run queue", "runq/total", "count"],
    ["Reductions", "rate/reductions", "rate"],
    ["Memory", "mem/total", "bytes"],
    ["Processes", "used/processes", "count"],
    ["Sockets", "all/sockets", "count"],
    ["Lane bytes in", "all/in", "byterate"],
    ["Lane bytes out", "all/out", "byterate"],
    ["epoll waits", "all/waits", "rate"],
    ["Events per wait", "all/epw", "number"],
  ].map(([title, key, unit, most]) => {
    const value = h("b", {}, "\u2013");
    const host = h("div");
    const tile = h("div", { class: "tile" }, h("span", {}, title), value, host);
    $("vitals").append(tile);
    const chart = new Chart(host, { view, store, unit, kind: "area", height: 30, quiet: true, max: most ? () => most : null });
    chart.series = [{ key, label: title, colour: "c1" }];
    return { key, unit, value, tile };
  });
  return () => {
    for (const { key, unit, value, tile } of tiles) {
      tile.hidden = store.data(key) === undefined;
      set(value, text(store.value(key), unit));
    }
  };
}

export function lanes(view, store) {
  const units = { waits: "rate", epw: "number", events: "rate", sockets: "count", in: "byterate", out: "byterate",
    moved: "rate", sleeps: "rate" };
  const charts = new Map();
  const picker = $("lane-measure");
  const table = new Table($("lane-table"), [
    { title: "Lane", cell: (row) => row.key },
    { title: "Waits/s", hint: "calls of epoll_wait", cell: cell("waits", "number") },
    { title: "Events/s", cell: cell("events", "number"), opt: true },
    { title: "Ev/wait", hint: "events per epoll_wait", cell: cell("epw", "number") },
    { title: "Sockets", cell: cell("sockets", "count") },
    { title: "In/s", hint: "bytes received", cell: cell("in", "bytes") },
    { title: "Out/s", hint: "bytes sent", cell: cell("out", "bytes") },
    { title: "Accepted/s", cell: cell("accepted", "number"), opt: true },
    { title: "Relays", cell: cell("relays", "count"), opt: true },
    { title: "Moved/s", hint: "sockets that came from another lane", cell: cell("moved", "number"), opt: true },
    { title: "Sleeps/s", hint: "times the lane had nothing to do", cell: cell("sleeps", "number"), opt: true },
  ]);
  const top = (name) => () => {
    let most = 0;
    for (const { chart } of charts.values()) most = Math.max(most, chart.top(chart.segments()));
    return most;
  };
  const measure = () => {
    const name = picker.value;
    for (const [id, { chart }] of charts) {
      chart.unit = units[name];
      chart.max = top(name);
      chart.series = [{ key: "lanes/" + id + "/" + name, label: picker.selectedOptions[0].text, colour: "c1" }];
    }
  };
  picker.addEventListener("change", () => {
    measure();
    labels();
    view.draw();
  });
  const labels = () => {
    const name = picker.value;
    for (const [id, { value }] of charts) set(value, text(store.value("lanes/" + id + "/" + name), units[name]));
  };
  return ({ core }) => {
    const list = rows(core.lanes);
    $("lanes-none").hidden = list.length > 0;
    $("lane-scroll").hidden = list.length === 0;
    set($("lanes-sum"), list.length === 0 ? "" :
      list.length + (list.length === 1 ? " lane, " : " lanes, ") + text(sum(core.lanes.sockets), "count") + " sockets");
    const known = new Set(list.map(({ key }) => key));
    for (const { key } of list) {
      if (charts.has(key)) continue;
      const value = h("b");
      const host = h("div");
      const figure = h("figure", {}, h("figcaption", {}, "lane " + key + " ", value), host);
      $("lane-charts").append(figure);
      charts.set(key, { figure, value, chart: new Chart(host, { view, store, unit: "rate", kind: "area", height: 64, quiet: true }) });
      // A few lanes have room for tall charts.
      for (const { chart } of charts.values()) chart.tall(charts.size <= 4 ? 124 : charts.size <= 9 ? 64 : 50);
      $("lane-charts").classList.toggle("many", charts.size > 9);
      measure();
    }
    for (const [key, { figure, chart }] of charts) {
      if (known.has(key)) continue;
      chart.remove();
      figure.remove();
      charts.delete(key);
    }
    labels();
    table.update(list);
  };
}

const busy = (share) => (share > 0.9 ? "bad" : share > 0.7 ? "warn" : "");

export function schedulers(view, store) {
  const sparks = new Map();
  const spark = ({ key }) => {
    if (!sparks.has(key)) {
      const host = h("div", { class: "spark" });
      const chart = new Chart(host, { view, store, unit: "percent", kind: "area", height: 22, quiet: true, max: () => 1 });
      chart.series = [{ key: "sched/" + key + "/util", label: "scheduler " + key, colour: "c3" }];
      sparks.set(key, { host, chart });
    }
    return sparks.get(key).host;
  };
  const table = new Table($("sched-table"), [
    { title: "No.", cell: (row) => row.key },
    { title: "Use", kind: "bar", cell: ({ util }) => ({ share: util, text: text(util, "percent"), state: busy(util) }) },
    { title: "Queue", hint: "waits to run", cell: cell("queue", "count") },
    { title: "History", kind: "wide", cell: spark },
  ]);
  const chart = new Chart($("runq-chart"), { view, store, unit: "count", kind: "line", height: 120, label: "Run queues" });
  chart.series = [{ key: "runq/total", label: "normal, all", colour: "c1" }, { key: "runq/max", label: "longest", colour: "c2" },
    { key: "runq/dirty", label: "dirty", colour: "c6" }];
  $("runq-chart").after(legend(chart.series));
  return ({ core, detail }) => {
    const list = rows(core.sched);
    const known = new Set(list.map(({ key }) => key));
    for (const [key, one] of sparks) {
      if (known.has(key)) continue;
      one.chart.remove();
      sparks.delete(key);
    }
    table.update(list);
    set($("sched-sum"), detail.online + " of " + list.length + " online");
  };
}

function legend(series) {
  return h("p", { class: "legend" }, ...series.map(({ label, colour: c }) =>
    h("span", {}, h("i", { class: "sw " + c, "aria-hidden": "true" }), label)));
}

const KINDS = ["processes", "binary", "ets", "code", "atom", "other"];

export function memory(view, store) {
  const chart = new Chart($("mem-chart"), { view, store, unit: "bytes", kind: "stack", height: 190, label: "Memory by kind" });
  chart.series = KINDS.map((kind, i) => ({ key: "mem/" + kind, label: kind, colour: colour(i) }));
  const table = new Table($("mem-table"), [
    { title: "Kind", kind: "swatch", cell: ({ key, i }) => ({ colour: colour(i), text: key }) },
    { title: "Bytes", cell: cell("value", "bytes") },
    { title: "Share", kind: "bar", cell: ({ share }) => ({ share, text: text(share, "percent") }) },
  ]);
  return ({ core: { mem } }) => {
    set($("mem-sum"), text(mem.total, "bytes") + " allocated by the emulator");
    table.update(KINDS.map((key, i) => ({ key, i, value: mem[key], share: mem[key] / mem.total })));
  };
}

export function limits(view, store) {
  const chart = new Chart($("work-chart"), { view, store, unit: "rate", kind: "area", height: 120, label: "Reductions" });
  chart.series = [{ key: "rate/reductions", label: "reductions", colour: "c7" }];
  const table = new Table($("limits-table"), [
    { title: "Kind", kind: "text", cell: (row) => row.key },
    { title: "Used", cell: cell("used", "count") },
    { title: "Limit", cell: cell("limit", "count") },
    { title: "Share", kind: "bar", cell: ({ share }) => ({ share, text: text(share, "percent"), state: busy(share) }) },
  ]);
  const work = new Table($("work-table"), [
    { title: "What", kind: "text", cell: (row) => row.key },
    { title: "Per second", cell: (row) => text(row.value, row.unit) },
  ]);
  return ({ core: { used, rate }, detail: { limits: most } }) => {
    table.update(["processes", "ports", "atoms", "ets"].map((key) =>
      ({ key, used: used[key], limit: most[key], share: most[key] ? used[key] / most[key] : NaN })));
    work.update([["reductions", rate.reductions, "number"], ["garbage collections", rate.gc, "number"],
      ["received by ports", rate.io_in, "bytes"], ["sent by ports", rate.io_out, "bytes"]]
      .map(([key, value, unit]) => ({ key, value, unit })));
  };
}

export function proxies(view, store) {
  const chart = new Chart($("proxy-chart"), { view, store, unit: "byterate", kind: "line", height: 130, label: "Bytes of each proxy" });
  const table = new Table($("proxy-table"), [
    { title: "Proxy", kind: "swatch", cell: ({ key, i }) => ({ colour: colour(i), text: key }) },
    { title: "State", kind: "text", opt: true, cell: ({ state }) => state ?? "\u2013" },
    { title: "From, to", kind: "text", opt: true, cell: ({ listen, to }) => [listen, to].filter(Boolean).join(" \u2192 ") },
    { title: "Servers up", cell: ({ up, servers }) => (servers ? up + " of " + servers : "\u2013") },
    { title: "Open", hint: "connections", cell: cell("connections", "count") },
    { title: "New/s", cell: cell("accepted", "number"), opt: true },
    { title: "In/s", hint: "to the servers", cell: cell("in", "bytes") },
    { title: "Out/s", hint: "to the clients", cell: cell("out", "bytes") },
    { title: "Errors", cell: cell("errors", "count"), opt: true },
  ]);
  return ({ core, detail }) => {
    const list = rows(core.proxies).map((row, i) => ({ ...row, ...detail.proxies[i], key: row.key, i }));
    $("proxies-none").hidden = list.length > 0;
    $("proxy-table").hidden = $("proxy-chart").hidden = list.length === 0;
    set($("proxies-sum"), list.length === 0 ? "" : text(sum(core.proxies.connections), "count") + " connections");
    chart.series = list.slice(0, SERIES).map(({ key, i }) => ({ key: "proxies/" + key + "/out", label: key, colour: colour(i) }));
    table.update(list);
  };
}

export function dist(view, store) {
  const chart = new Chart($("dist-chart"), { view, store, unit: "byterate", kind: "line", height: 130, label: "Bytes sent to each node" });
  const table = new Table($("dist-table"), [
    { title: "Node", kind: "swatch", cell: ({ key, i }) => ({ colour: colour(i), text: key }) },
    { title: "In/s", cell: cell("in", "bytes") },
    { title: "Out/s", cell: cell("out", "bytes") },
    { title: "Queue", cell: cell("queue", "bytes") },
  ]);
  return ({ core }) => {
    const list = rows(core.dist).map((row, i) => ({ ...row, i }));
    $("dist-none").hidden = list.length > 0;
    $("dist-table").hidden = $("dist-chart").hidden = list.length === 0;
    set($("dist-sum"), list.length === 0 ? "" : list.length + (list.length === 1 ? " node" : " nodes"));
    chart.series = list.slice(0, SERIES).map(({ key, i }) => ({ key: "dist/" + key + "/out", label: key, colour: colour(i) }));
    table.update(list);
  };
}

const TOP = 15;

export function processes() {
  const table = new Table($("proc-table"), [
    { title: "Process", kind: "code", cell: ({ key }) => key },
    { title: "Name or first call", kind: "text", cell: ({ name }) => name },
    { title: "Runs", kind: "text", opt: true, cell: ({ current }) => current },
    { title: "Reductions/s", sort: ({ reds }) => reds ?? 0, cell: cell("reds", "number") },
    { title: "Memory", sort: ({ memory: m }) => m ?? 0, cell: cell("memory", "bytes") },
    { title: "Mailbox", sort: ({ mailbox }) => mailbox ?? 0, cell: cell("mailbox", "count") },
  ], { sorted: "Reductions/s" });
  // The node sends the first ones by each order; only those of the chosen order are shown.
  const all = table.update.bind(table);
  table.update = (list) => {
    const { sort } = table.columns.find(({ title }) => title === table.sorted);
    all([...list].sort((a, b) => sort(b) - sort(a)).slice(0, TOP));
    table.last = list;
  };
  return ({ core, detail: { procs } }) => {
    set($("proc-sum"), text(core.used.processes, "count") + " in all");
    table.update(procs.map(({ pid, ...row }) => ({ key: pid, ...row })));
  };
}
