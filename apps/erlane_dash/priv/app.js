// SPDX-License-Identifier: Apache-2.0
// Puts the page together: the store, the panels, the connection, and the controls at the top.

import { View } from "./chart.js";
import { $, set } from "./dom.js";
import { Families } from "./families.js";
import { uptime } from "./format.js";
import { Live } from "./live.js";
import * as panels from "./panels.js";
import { Store } from "./store.js";

const store = new Store();
const view = new View(300);
const families = new Families(view);
const glance = panels.vitals(view, store);
const parts = [panels.lanes, panels.schedulers, panels.memory, panels.limits, panels.proxies, panels.dist,
  panels.processes].map((part) => part(view, store));

let node = null;
let newest = null;
let paused = false;

function remember(key, value) {
  try {
    localStorage.setItem("erlane." + key, value);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}

function remembered(key) {
  try {
    return localStorage.getItem("erlane." + key);
  } catch {
    return null;
  }
}

function facts() {
  if (node === null) return;
  set($("node"), node.name);
  document.title = node.name + " \u00b7 erlane";
  const up = newest === null ? "" : " \u00b7 up " + uptime(newest.detail.uptime);
  set($("facts"), "OTP " + node.otp + " \u00b7 ERTS " + node.erts + " \u00b7 erlane " + node.erlane + up);
}

function show(tick) {
  facts();
  glance();
  for (const part of parts) part(tick);
  families.tick();
  view.draw();
}

const live = new Live({
  last: () => store.last,
  state(state, words) {
    const status = $("status");
    const shown = paused && state === "live" ? "paused" : state;
    document.body.dataset.state = shown;
    if (status.dataset.state === shown && shown !== "broken" && shown !== "stalled") return;
    status.dataset.state = shown;
    set(status.lastElementChild, shown === "paused" ? "paused" : words);
  },
  hello(about) {
    // Another node, or the same one started again: its history is not that of the former.
    if (node !== null && node.started !== about.started) {
      location.reload();
      return false;
    }
    node = about;
    facts();
    families.load();
    return true;
  },
  history(cores) {
    for (const core of cores) store.push(core.t, panels.flat(core));
    view.draw();
  },
  tick(tick) {
    store.push(tick.core.t, panels.flat(tick.core));
    newest = tick;
    if (!paused) show(tick);
  },
});

function pause(on) {
  paused = on;
  view.frozen = on ? store.last : null;
  families.freeze(on);
  $("pause").setAttribute("aria-pressed", String(on));
  set($("pause"), on ? "Go on" : "Pause");
  const status = $("status");
  if (status.dataset.state === "live" || status.dataset.state === "paused") {
    status.dataset.state = document.body.dataset.state = on ? "paused" : "live";
    set(status.lastElementChild, on ? "paused" : "live");
  }
  if (!on && newest !== null) show(newest);
}

$("pause").addEventListener("click", () => pause(!paused));

const THEMES = ["system", "dark", "light"];

function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  set($("theme"), "Theme: " + name);
  remember("theme", name);
  view.recolour();
}

$("theme").addEventListener("click", () => {
  const now = THEMES.indexOf(document.documentElement.dataset.theme ?? "system");
  theme(THEMES[(now + 1) % THEMES.length]);
});

$("window").addEventListener("change", (event) => {
  view.seconds = Number(event.target.value);
  remember("window", event.target.value);
  view.draw();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input:not([type=radio]), select, textarea")) return;
  if (event.key === "p") pause(!paused);
  if (event.key === "/") {
    $("fam-search").focus();
    event.preventDefault();
  }
});

const chosen = document.querySelector("#window input[value='" + (Number(remembered("window")) || 300) + "']");
if (chosen !== null) {
  chosen.checked = true;
  view.seconds = Number(chosen.value);
}
theme(THEMES.includes(remembered("theme")) ? remembered("theme") : "system");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.recolour());
live.start();
