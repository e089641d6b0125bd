// SPDX-License-Identifier: Apache-2.0
// The profile and the trees that are made of it. Knows nothing of the page.
"use strict";

const Model = (() => {
  const ON = new Set(["running", "gc"]);

  // Rows as the file has them, with names for the places of their numbers.
  function load(raw) {
    const stride = 3 + raw.columns.length;
    const text = (i) => (i < 0 ? "" : raw.strings[i]);
    const functions = raw.functions.map(([name, file, module]) => ({ name: text(name), file: text(file), module: text(module) }));
    const groups = raw.groups.map(([proc, pid, app, state]) => ({ proc: text(proc), pid: text(pid), app: text(app), state: text(state) }));
    const half = raw.base ? raw.columns.length / 2 : raw.columns.length;
    const order = ["running", "gc", "runnable", "waiting", "suspended", "no_answer", "any"];
    const states = order.filter((state) => groups.some((group) => group.state === state));
    return { raw, stride, functions, groups, states, columns: raw.columns.slice(0, half), half, compared: raw.base !== null };
  }

  // Sums of a column over the rows by a label of their groups.
  function sums(model, column, label) {
    const { raw: { rows }, stride, groups } = model;
    const out = new Map();
    for (let i = 0; i < rows.length; i += stride) {
      const key = groups[rows[i]][label];
      out.set(key, (out.get(key) ?? 0) + rows[i + 3 + column] + (model.compared ? rows[i + 3 + column + model.half] : 0));
    }
    return out;
  }

  // What is shown at first. On most nodes nearly everything waits, in wall time; what works would
  // be too narrow to be seen beside it.
  function firstStates(model) {
    const by = sums(model, 0, "state");
    const busy = model.states.filter((state) => state !== "waiting" && state !== "suspended");
    const all = [...by.values()].reduce((a, b) => a + b, 0);
    const worked = busy.reduce((sum, state) => sum + by.get(state), 0);
    return worked > 0 && worked < 0.2 * all ? busy : model.states;
  }

  const node = (key, name, parent, kind, code) => ({
    key, name, parent, kind, code, kids: new Map(), depth: parent ? parent.depth + 1 : 0,
    value: 0, self: 0, now: 0, before: 0, selfNow: 0, selfBefore: 0, states: null, lines: null, list: [],
  });

  // The tree of the rows that pass, with the labels of `view.group` above their frames.
  // `value` is what widths are made of; `now` and `before` are the two sides of a difference.
  function build(model, view) {
    const { raw: { rows, nodes }, stride, functions, groups, states, half, compared } = model;
    const place = 3 + view.column;
    const totals = { now: 0, before: 0 };
    const passes = groups.map((group) => view.passes(group));
    if (compared) {
      for (let i = 0; i < rows.length; i += stride) {
        if (!passes[rows[i]]) continue;
        totals.now += rows[i + place];
        totals.before += rows[i + place + half];
      }
    }
    // Runs of different length are compared by share: the earlier one is brought to the later's sum.
    const scale = compared && totals.before > 0 && totals.now > 0 ? totals.now / totals.before : 1;
    const root = node("", "all", null, "all", -1);
    const heads = new Map();
    const caches = new Map();
    const stateAt = groups.map((group) => states.indexOf(group.state));

    const headOf = (g) => {
      if (heads.has(g)) return heads.get(g);
      let at = root;
      for (const label of view.group) {
        const name = groups[g][label] || "(none)";
        const key = label + ":" + name;
        if (!at.kids.has(key)) at.kids.set(key, node(key, name, at, label, -1));
        at = at.kids.get(key);
      }
      if (!caches.has(at)) caches.set(at, new Map());
      const head = { at, cache: caches.get(at) };
      heads.set(g, head);
      return head;
    };
    const leafOf = (head, index) => {
      const way = [];
      let i = index;
      while (i >= 0 && !head.cache.has(i)) {
        way.push(i);
        i = nodes[2 * i];
      }
      let at = i < 0 ? head.at : head.cache.get(i);
      while (way.length > 0) {
        i = way.pop();
        const code = nodes[2 * i + 1];
        if (!(view.fold && at.code === code)) {
          if (!at.kids.has(code)) at.kids.set(code, node(code, functions[code].name, at, "frame", code));
          at = at.kids.get(code);
        }
        head.cache.set(i, at);
      }
      return at;
    };

    for (let i = 0; i < rows.length; i += stride) {
      const g = rows[i];
      if (!passes[g]) continue;
      const now = rows[i + place];
      const before = compared ? rows[i + place + half] : 0;
      const wide = !compared || view.width === "after" ? now : view.width === "before" ? before : now + before * scale;
      if (now + before === 0) continue;
      const leaf = leafOf(headOf(g), rows[i + 1]);
      leaf.self += wide;
      leaf.selfNow += now;
      leaf.selfBefore += before;
      leaf.states ??= new Float64Array(states.length);
      leaf.states[stateAt[g]] += wide;
      const line = rows[i + 2];
      if (line > 0) {
        leaf.lines ??= new Map();
        leaf.lines.set(line, (leaf.lines.get(line) ?? 0) + now);
      }
    }
    const all = flatten(root, states.length);
    return { root, all, deepest: all.reduce((most, n) => Math.max(most, n.depth), 0), totals: { now: root.now, before: root.before } };
  }

  // Sums from the leaves up, then the nodes in the order of the picture, widest first. Without
  // recursion: a stack may be deeper than the one of this script.
  function flatten(root, count) {
    const all = [];
    const todo = [root];
    while (todo.length > 0) {
      const n = todo.pop();
      all.push(n);
      for (const kid of n.kids.values()) todo.push(kid);
    }
    for (let i = all.length - 1; i >= 0; i -= 1) {
      const n = all[i];
      n.value += n.self;
      n.now += n.selfNow;
      n.before += n.selfBefore;
      n.states ??= new Float64Array(count);
      n.list = [...n.kids.values()].sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
      if (n.parent === null) continue;
      n.parent.value += n.value;
      n.parent.now += n.now;
      n.parent.before += n.before;
      n.parent.states ??= new Float64Array(count);
      for (let s = 0; s < count; s += 1) n.parent.states[s] += n.states[s];
    }
    root.from = 0;
    for (const n of all) {
      let x = n.from;
      for (const kid of n.list) {
        kid.from = x;
        x += kid.value;
      }
    }
    return all;
  }

  // Self and total of each function; what is twice in a stack counts once.
  function functionsOf(model, tree) {
    const out = new Map();
    const open = new Map();
    const todo = [[tree.root, false]];
    while (todo.length > 0) {
      const [n, leaving] = todo.pop();
      if (leaving) {
        open.set(n.code, open.get(n.code) - 1);
        continue;
      }
      if (n.code >= 0) {
        const entry = out.get(n.code) ?? { code: n.code, name: n.name, self: 0, total: 0, selfBefore: 0, totalBefore: 0 };
        out.set(n.code, entry);
        entry.self += n.selfNow;
        entry.selfBefore += n.selfBefore;
        const depth = open.get(n.code) ?? 0;
        if (depth === 0) {
          entry.total += n.now;
          entry.totalBefore += n.before;
        }
        open.set(n.code, depth + 1);
        todo.push([n, true]);
      }
      for (const kid of n.list) todo.push([kid, false]);
    }
    return [...out.values()];
  }

  // A test of names: words that are all in it, or a regular expression between slashes.
  function matcher(text) {
    const trimmed = text.trim();
    if (trimmed === "") return null;
    const pattern = /^\/(.+)\/$/.exec(trimmed);
    if (pattern) {
      try {
        const re = new RegExp(pattern[1], "i");
        return (name) => re.test(name);
      } catch {
        return () => false;
      }
    }
    const words = trimmed.toLowerCase().split(/\s+/);
    return (name) => {
      const lower = name.toLowerCase();
      return words.every((word) => lower.includes(word));
    };
  }

  // The frames that match, in the order of the picture, and their sum; those within others count once.
  function find(tree, test) {
    const hits = new Set();
    let sum = 0;
    const todo = [[tree.root, false]];
    while (todo.length > 0) {
      const [n, within] = todo.pop();
      const hit = n.kind !== "all" && test(n.name);
      if (hit) {
        hits.add(n);
        if (!within) sum += n.value;
      }
      for (let i = n.list.length - 1; i >= 0; i -= 1) todo.push([n.list[i], within || hit]);
    }
    return { hits, list: [...hits], sum };
  }

  const scaled = (n, steps) => {
    const [size, unit] = steps.find(([least]) => Math.abs(n) >= least) ?? steps[steps.length - 1];
    return (size === 1 ? Math.round(n).toString() : (n / size).toFixed(2)) + " " + unit;
  };

  // An amount in its unit, for people.
  function amount(n, unit) {
    switch (unit) {
      case "nanoseconds": return scaled(n, [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]]);
      case "bytes": return scaled(n, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
      case "words": return scaled(n, [[1e9, "Gwords"], [1e6, "Mwords"], [1e3, "kwords"], [1, "words"]]);
      default: return Math.round(n).toLocaleString("en");
    }
  }

  const share = (part, whole) => (whole > 0 ? (100 * part) / whole : 0);

  return { ON, load, sums, firstStates, build, functionsOf, matcher, find, amount, share };
})();
