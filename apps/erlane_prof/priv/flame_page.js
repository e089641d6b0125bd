// SPDX-License-Identifier: Apache-2.0
// The page: controls, keys, what is chosen. Text from the profile is only ever set as text.
"use strict";

const Page = (() => {
  const $ = (id) => document.getElementById(id);
  const h = (tag, props = {}, ...kids) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(props)) {
      if (value === false) continue;
      if (key in element && key !== "list") element[key] = value;
      else element.setAttribute(key, value);
    }
    element.append(...kids);
    return element;
  };

  const model = Model.load(JSON.parse($("data").textContent));
  const { raw } = model;
  const GROUPS = [["state,proc", "state, process"], ["state", "state"], ["proc", "process"], ["proc,state", "process, state"], ["proc,pid", "process, pid"],
    ["app,proc", "application, process"], ["app", "application"], ["", "nothing"]];
  const view = { column: 0, width: "both", group: [], fold: true, states: new Set(Model.firstStates(model)), proc: "", app: "", colour: "state", search: "", sort: "self" };
  let tree = null;
  let found = null;
  let chosen = null;
  let foundAt = -1;

  const unit = () => model.columns[view.column].unit;
  const amount = (n) => Model.amount(n, unit());
  const percent = (part, whole) => Model.share(part, whole).toFixed(part > 0 && Model.share(part, whole) < 1 ? 2 : 1) + " %";
  const signed = (p) => (Math.abs(p) < 0.05 ? "" : p > 0 ? "+" : "\u2212") + Math.abs(p).toFixed(1);
  const points = (n) => signed(Model.share(n.now, tree.totals.now) - Model.share(n.before, tree.totals.before));
  const plain = (state) => state.replace("_", " ");

  const graph = new Graph($("graph"), $("extent"), $("canvas"), {
    click: (n) => {
      choose(n, false);
      zoom(n);
    },
    hover: tip,
  });

  // What passes, as a tree; the frame that was zoomed to is looked for in the new one.
  function rebuild() {
    const way = wayOf(graph.at);
    const chosenWay = wayOf(chosen);
    const proc = Model.matcher(view.proc);
    tree = Model.build(model, {
      ...view,
      passes: (group) => view.states.has(group.state) && (proc === null || proc(group.proc + " " + group.pid)) && (view.app === "" || group.app === view.app),
    });
    graph.colourOf = (n) => Colour.tone(n, view.colour, model, tree.totals);
    graph.even = view.colour === "difference";
    graph.found = null;
    found = null;
    $("none").hidden = tree.root.value > 0;
    $("extent").hidden = tree.root.value === 0;
    graph.show(tree, follow(way));
    chosen = chosenWay.length > 0 ? follow(chosenWay) : null;
    search();
    table();
    path();
    details();
    document.body.dataset.total = String(tree.totals.now);
  }

  function wayOf(n) {
    const way = [];
    for (let at = n; at && at.parent; at = at.parent) way.unshift(at.key);
    return way;
  }

  function follow(way) {
    let at = tree.root;
    for (const key of way) {
      const kid = at.kids.get(key);
      if (kid === undefined || kid.value === 0) break;
      at = kid;
    }
    return at;
  }

  function zoom(n) {
    graph.show(tree, n);
    path();
    if (chosen) graph.reveal(chosen);
  }

  function path() {
    const steps = [];
    for (let n = graph.at; n; n = n.parent) steps.unshift(n);
    const short = steps.length > 6 ? [...steps.slice(0, 2), null, ...steps.slice(-3)] : steps;
    $("path").replaceChildren(...short.map((n) => {
      if (n === null) return h("span", {}, "\u2026");
      if (n === graph.at) return h("b", {}, n.name);
      const button = h("button", { type: "button" }, n.name);
      button.addEventListener("click", () => {
        choose(n, false);
        zoom(n);
      });
      return button;
    }), h("small", {}, `${amount(graph.at.now)} ${unit() === "count" ? model.columns[view.column].name : ""}`));
  }

  function choose(n, say) {
    chosen = n;
    graph.chosen = n;
    details();
    if (say && n) {
      graph.reveal(n);
      $("said").textContent = `${n.name}, ${percent(n.value, tree.root.value)}, self ${percent(n.self, tree.root.value)}, ${n.list.length} below`;
    } else graph.draw();
  }

  const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];

  function details() {
    graph.chosen = chosen;
    if (chosen === null) {
      $("chosen").replaceChildren(h("p", { className: "dim" }, "Choose a frame: click it, or go to the graph and use the arrow keys."));
      return;
    }
    const n = chosen;
    const code = n.code >= 0 ? model.functions[n.code] : null;
    const list = [...fact("total", `${amount(n.now)}, ${percent(n.now, tree.totals.now)}`), ...fact("self", `${amount(n.selfNow)}, ${percent(n.selfNow, tree.totals.now)}`)];
    if (model.compared) list.push(...fact("before", `${amount(n.before)}, ${percent(n.before, tree.totals.before)}`), ...fact("change", `${points(n)} points`));
    if (n.parent && n.parent.parent) list.push(...fact("of caller", percent(n.value, n.parent.value)));
    const mix = model.states.map((state, i) => [state, n.states[i]]).filter(([, v]) => v > 0);
    if (mix.length > 0 && model.states.length > 1) list.push(...fact("states", mix.map(([state, v]) => `${plain(state)} ${percent(v, n.value)}`).join(", ")));
    if (code && code.file) list.push(...fact("file", code.file));
    const lines = n.lines ? [...n.lines].filter(([, v]) => v > 0).sort((a, b) => b[1] - a[1]).slice(0, 5) : [];
    if (lines.length > 0) list.push(...fact("lines", lines.map(([line, v]) => `${line}: ${percent(v, n.selfNow)}`).join(", ")));
    const kind = { frame: "", all: "", state: "state", proc: "process", app: "application", pid: "pid" }[n.kind];
    $("chosen").replaceChildren(h("p", { className: "name" }, kind ? h("span", { className: "dim" }, kind + " ") : "", n.name), h("dl", {}, ...list));
  }

  function tip(n, event) {
    const box = $("tip");
    box.hidden = n === null;
    if (n === null) return;
    const rows = [h("b", {}, n.name), h("p", {}, `${amount(n.now)} \u00b7 ${percent(n.value, tree.root.value)}`, n.selfNow > 0 ? ` \u00b7 self ${percent(n.self, tree.root.value)}` : "")];
    if (model.compared) rows.push(h("p", {}, `before ${percent(n.before, tree.totals.before)}, now ${percent(n.now, tree.totals.now)}: ${points(n)} points`));
    box.replaceChildren(...rows);
    const { offsetWidth: w, offsetHeight: t } = box;
    box.style.left = Math.max(8, Math.min(event.clientX + 14, window.innerWidth - w - 8)) + "px";
    box.style.top = (event.clientY + 18 + t > window.innerHeight ? event.clientY - t - 10 : event.clientY + 18) + "px";
  }

  function search() {
    const test = Model.matcher(view.search);
    found = test === null ? null : Model.find(tree, test);
    foundAt = -1;
    graph.found = found;
    $("found").textContent = found === null ? "" : found.list.length === 0 ? "nothing found" : `${percent(found.sum, tree.root.value)} in ${found.list.length} ${found.list.length === 1 ? "frame" : "frames"}`;
    graph.draw();
  }

  // The next of the frames found; zooms out if it is not in the picture.
  function step(by) {
    if (found === null || found.list.length === 0) return;
    foundAt = (foundAt + by + found.list.length) % found.list.length;
    const n = found.list[foundAt];
    if (!graph.isShown(n) || n.depth < graph.at.depth) zoom(tree.root);
    choose(n, true);
  }

  function table() {
    const list = Model.functionsOf(model, tree);
    const { now, before } = tree.totals;
    const change = (e) => Model.share(e.self, now) - Model.share(e.selfBefore, before);
    const keys = { self: (e) => e.self, total: (e) => e.total, change: (e) => Math.abs(change(e)) };
    list.sort((a, b) => keys[view.sort](b) - keys[view.sort](a) || b.total - a.total || (a.name < b.name ? -1 : 1));
    const columns = model.compared ? ["self", "total", "change"] : ["self", "total"];
    const heads = columns.map((name) => {
      const button = h("button", { type: "button" }, name);
      button.addEventListener("click", () => {
        view.sort = name;
        table();
        $("functions").querySelector(`th[aria-sort] button`).focus();
      });
      const th = h("th", { scope: "col" }, button);
      if (view.sort === name) th.setAttribute("aria-sort", "descending");
      return th;
    });
    const rows = list.slice(0, 200).map((e) => {
      const button = h("button", { type: "button", title: e.name }, e.name);
      button.addEventListener("click", () => lookFor(e.name));
      const cells = [h("td", {}, percent(e.self, now)), h("td", {}, percent(e.total, now))];
      if (model.compared) {
        const by = change(e);
        cells.push(h("td", { className: by > 0.05 ? "more" : by < -0.05 ? "less" : "" }, signed(by)));
      }
      return h("tr", {}, ...cells, h("th", { scope: "row" }, button));
    });
    $("functions").replaceChildren(h("thead", {}, h("tr", {}, ...heads, h("th", { scope: "col" }, "function"))), h("tbody", {}, ...rows));
  }

  function lookFor(text) {
    view.search = text;
    $("search").value = text;
    search();
    step(1);
  }

  // Along the tree: to what called, what is called, what is beside. Too narrow is not passed over.
  function move(key) {
    const n = chosen && graph.isShown(chosen) ? chosen : graph.at;
    if (chosen === null) return choose(n, true);
    const outwards = graph.up ? "ArrowDown" : "ArrowUp";
    const inwards = graph.up ? "ArrowUp" : "ArrowDown";
    if (key === outwards && n.parent) return choose(n.parent, true);
    if (key === inwards && n.list.length > 0) return choose(n.list[0], true);
    if (n.parent && (key === "ArrowLeft" || key === "ArrowRight")) {
      const at = n.parent.list.indexOf(n) + (key === "ArrowRight" ? 1 : -1);
      const next = n.parent.list[at] ?? beside(n, key === "ArrowRight");
      if (next) choose(next, true);
    }
    return undefined;
  }

  // The next frame of the same depth under another caller.
  function beside(n, right) {
    const row = tree.all.filter((other) => other.depth === n.depth && other.value > 0).sort((a, b) => a.from - b.from);
    return row[row.indexOf(n) + (right ? 1 : -1)];
  }

  function escape() {
    if ($("search").value !== "") {
      $("search").value = "";
      view.search = "";
      return search();
    }
    if (graph.at.parent) return zoom(graph.at.parent);
    return undefined;
  }

  function flip() {
    graph.up = !graph.up;
    $("flip").setAttribute("aria-pressed", String(graph.up));
    graph.fit();
    $("graph").scrollTop = graph.up ? $("graph").scrollHeight : 0;
  }

  const THEMES = ["system", "light", "dark"];
  let theme = 0;
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function turnTheme() {
    theme = (theme + 1) % THEMES.length;
    dress();
  }

  function dress() {
    if (theme === 0) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = THEMES[theme];
    $("theme").textContent = "Theme: " + THEMES[theme];
    graph.dark = theme === 0 ? system.matches : THEMES[theme] === "dark";
    chips();
    graph.draw();
  }

  // A button for each state: switches it; their colours are the legend.
  function chips() {
    const sums = Model.sums(model, view.column, "state");
    const whole = [...sums.values()].reduce((a, b) => a + b, 0);
    const set = (states) => {
      view.states = new Set(states);
      chips();
      rebuild();
    };
    const chip = (name, on, act, colour, part) => {
      const button = h("button", { type: "button", "aria-pressed": String(on) }, name, part === undefined ? "" : h("small", {}, percent(part, whole)));
      if (colour) {
        const dot = h("i");
        dot.style.background = colour;
        button.prepend(dot);
      }
      button.addEventListener("click", () => {
        const label = button.textContent;
        act();
        [...$("states").children].find((b) => b.textContent === label)?.focus();
      });
      return button;
    };
    const on = model.states.filter((s) => Model.ON.has(s));
    const off = model.states.filter((s) => !Model.ON.has(s));
    const same = (list) => list.length === view.states.size && list.every((s) => view.states.has(s));
    const quick = on.length > 0 && off.length > 0
      ? [chip("All", same(model.states), () => set(model.states)), chip("On CPU", same(on), () => set(on)), chip("Off CPU", same(off), () => set(off))] : [];
    const one = model.states.map((state) => chip(plain(state), view.states.has(state), () => {
      const next = new Set(view.states);
      if (!next.delete(state)) next.add(state);
      set(next);
    }, Colour.css(Colour.rgb(graph.dark ? 0.68 : 0.62, Colour.STATES[state][1] * 1.15, Colour.STATES[state][0])), sums.get(state)));
    $("states").replaceChildren(...quick, ...one);
    $("states").hidden = model.states.length < 2;
  }

  function options(select, list, value) {
    select.replaceChildren(...list.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  }

  function head() {
    $("title").textContent = `${raw.node} \u00b7 ${raw.mode}`;
    const when = raw.began > 0 ? new Date(raw.began / 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "";
    const facts = [when, raw.ns > 0 ? Model.amount(raw.ns, "nanoseconds") : "", "OTP " + raw.otp,
      model.compared ? `against ${raw.base.node}, ${new Date(raw.base.began / 1000).toISOString().slice(0, 19).replace("T", " ")} UTC` : "",
      raw.lost > 0 ? `${raw.lost} lost` : ""];
    $("facts").textContent = facts.filter((f) => f !== "").join(" \u00b7 ");
    $("facts").title = $("facts").textContent;
    $("notes").hidden = raw.notes.length === 0;
    $("notes").textContent = raw.notes.length === 1 ? "1 note" : `${raw.notes.length} notes`;
    $("noted").replaceChildren(...raw.notes.map((note) => h("li", {}, note)));
  }

  function controls() {
    const many = (label) => new Set(model.groups.map((g) => g[label])).size > 1;
    const pids = model.groups.some((g) => g.pid !== "");
    const apps = model.groups.some((g) => g.app !== "");
    const groups = GROUPS.filter(([key]) => (pids || !key.includes("pid")) && (apps || !key.includes("app")) && (model.states.length > 1 || !key.includes("state")));
    view.group = groups[0][0].split(",").filter((label) => label !== "");
    view.colour = model.compared ? "difference" : model.states.length > 1 ? "state" : "module";
    view.sort = model.compared ? "change" : "self";
    options($("column"), model.columns.map((c, i) => [String(i), `${c.name}${c.unit === "count" ? "" : ", " + c.unit}`]), "0");
    $("column-field").hidden = model.columns.length < 2;
    $("width-field").hidden = !model.compared;
    options($("group"), groups, view.group.join(","));
    options($("colour"), [["difference", "difference"], ["state", "state"], ["module", "module"]]
      .filter(([key]) => (model.compared || key !== "difference") && (model.states.length > 1 || key !== "state")), view.colour);
    const top = (label) => [...Model.sums(model, 0, label)].filter(([name]) => name !== "").sort((a, b) => b[1] - a[1]);
    $("procs").replaceChildren(...top("proc").slice(0, 500).map(([name]) => h("option", { value: name })));
    options($("app"), [["", "all"], ...top("app").map(([name]) => [name, name])], "");
    $("app-field").hidden = !many("app");
    const change = (id, event, act) => $(id).addEventListener(event, () => {
      act($(id));
      rebuild();
    });
    change("column", "change", (e) => { view.column = Number(e.value); chips(); });
    change("width", "change", (e) => { view.width = e.value; });
    change("group", "change", (e) => { view.group = e.value.split(",").filter((label) => label !== ""); });
    change("colour", "change", (e) => { view.colour = e.value; });
    change("proc", "input", (e) => { view.proc = e.value; });
    change("app", "change", (e) => { view.app = e.value; });
    change("fold", "change", (e) => { view.fold = e.checked; });
    $("search").addEventListener("input", () => {
      view.search = $("search").value;
      search();
    });
    $("flip").addEventListener("click", flip);
    $("theme").addEventListener("click", turnTheme);
    $("help").addEventListener("click", () => $("keys").showModal());
    $("notes").addEventListener("click", () => $("all-notes").showModal());
    $("clear").addEventListener("click", () => {
      view.states = new Set(model.states);
      view.proc = $("proc").value = "";
      view.app = $("app").value = "";
      chips();
      rebuild();
      $("graph").focus();
    });
    system.addEventListener("change", dress);
    document.addEventListener("keydown", keys);
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const { target, key } = event;
    if (target === $("search") && (key === "Enter" || key === "Escape")) {
      event.preventDefault();
      if (key === "Escape") {
        escape();
        $("graph").focus();
      } else step(event.shiftKey ? -1 : 1);
      return;
    }
    if (target.closest("input:not([type=checkbox]), select")) return;
    const acts = { "/": () => { $("search").focus(); $("search").select(); }, n: () => step(1), p: () => step(-1), f: flip, t: turnTheme,
      "?": () => $("keys").showModal(), 0: () => zoom(tree.root), Escape: escape };
    const inGraph = { ArrowUp: () => move(key), ArrowDown: () => move(key), ArrowLeft: () => move(key), ArrowRight: () => move(key),
      Enter: () => { if (chosen) zoom(chosen); }, Backspace: escape };
    const act = acts[key] ?? (target === $("graph") ? inGraph[key] : undefined);
    if (act === undefined) return;
    event.preventDefault();
    act();
  }

  head();
  controls();
  dress();
  rebuild();
  document.body.dataset.state = "ready";

  return { graph, tree: () => tree, chosen: () => chosen, found: () => found, zoomed: () => graph.at };
})();
