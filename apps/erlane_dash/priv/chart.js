// SPDX-License-Identifier: Apache-2.0
// History charts on canvas. A chart draws series of a store over the time its view shows; all
// charts of a view share the cursor. The keyboard moves the cursor where the chart has the focus.

import { ago, clock, text, ticks } from "./format.js";
import { h } from "./dom.js";

// Moments further apart than this (milliseconds) are not joined by a line.
const GAP = 25000;
const TIP_ROWS = 12;
// Seconds between two labels of the axis of time, for each time shown; as many as there is room for.
const STEPS = { 60: [15, 30], 300: [60, 150], 900: [180, 300, 450] };

/** What charts have in common: the time shown, the cursor, the colours, when to draw. */
export class View {
  constructor(seconds) {
    this.seconds = seconds;
    this.frozen = null;
    this.cursor = null;
    this.charts = new Set();
    this.colours = new Map();
    this.pending = false;
  }

  /** The colour of a custom property of the style sheet. */
  colour(name) {
    let value = this.colours.get(name);
    if (value === undefined) {
      value = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
      this.colours.set(name, value);
    }
    return value;
  }

  /** Draws all charts with the next frame. */
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      for (const chart of this.charts) chart.draw();
    });
  }

  recolour() {
    this.colours.clear();
    this.draw();
  }
}

const resized = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) owners.get(target)?.resize(contentRect.width);
});
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) owners.get(target)?.show(isIntersecting);
}, { rootMargin: "200px" });
const owners = new WeakMap();

export class Chart {
  /**
   * `unit` as in format.js; `kind` is line, area or stack; `label` for those who do not see it.
   * `quiet`: no axis of time, no stop for the keyboard (its values are in a table beside it).
   * `max`: a function for the top of the axis, where several charts share one.
   */
  constructor(host, { view, store, unit, kind = "line", height = 160, label = "", quiet = false, max = null }) {
    Object.assign(this, { host, view, store, unit, kind, height, label, quiet, max });
    this.series = [];
    this.width = 0;
    this.visible = false;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.live = h("p", { class: "hide", "aria-live": "polite" });
    host.classList.add("chart");
    host.replaceChildren(this.canvas, this.tip, this.live);
    this.canvas.style.height = height + "px";
    if (quiet) {
      host.setAttribute("aria-hidden", "true");
    } else {
      host.tabIndex = 0;
      host.setAttribute("role", "group");
      host.setAttribute("aria-label", label + ", chart; arrow keys read its values");
      host.addEventListener("keydown", (event) => this.key(event));
      host.addEventListener("blur", () => this.leave());
    }
    host.addEventListener("pointermove", (event) => this.point(event));
    host.addEventListener("pointerleave", () => this.leave());
    owners.set(host, this);
    resized.observe(host);
    seen.observe(host);
    view.charts.add(this);
  }

  /** Ends the chart: nothing refers to it any more. */
  remove() {
    this.view.charts.delete(this);
    resized.unobserve(this.host);
    seen.unobserve(this.host);
    owners.delete(this.host);
    this.host.remove();
  }

  /** Changes the height. */
  tall(height) {
    this.height = height;
    this.canvas.style.height = height + "px";
    this.draw();
  }

  resize(width) {
    this.width = Math.floor(width);
    this.draw();
  }

  show(visible) {
    this.visible = visible;
    if (visible) this.draw();
  }

  get end() {
    return this.view.frozen ?? this.store.last;
  }

  get begin() {
    return this.end - this.view.seconds * 1000;
  }

  get frame() {
    const top = this.quiet ? 6 : 10;
    return { left: this.quiet ? 2 : 62, right: this.width - (this.quiet ? 2 : 10), top,
      bottom: this.height - (this.quiet ? 3 : 22) };
  }

  /** Places of the ring that are shown, in segments without a gap. */
  segments() {
    const { store } = this;
    const out = [];
    let run = null;
    for (let i = Math.max(0, store.first(this.begin) - 1); i < store.size; i += 1) {
      const p = store.at(i);
      if (store.times[p] > this.end) break;
      if (run === null || store.times[p] - store.times[run[run.length - 1]] > GAP) {
        run = [];
        out.push(run);
      }
      run.push(p);
    }
    return out;
  }

  /** The greatest value that is shown. */
  top(segments) {
    let top = 0;
    const datas = this.series.map(({ key }) => this.store.data(key)).filter((d) => d !== undefined);
    for (const run of segments) {
      for (const p of run) {
        let sum = 0;
        for (const data of datas) {
          const v = data[p];
          if (v !== v) continue;
          if (this.kind === "stack") sum += v;
          else if (v > sum) sum = v;
        }
        if (sum > top) top = sum;
      }
    }
    return top;
  }

  draw() {
    if (!this.visible || this.width < 40) return;
    const { canvas, width, height } = this;
    const ratio = window.devicePixelRatio || 1;
    const w = Math.round(width * ratio);
    const hgt = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== hgt) {
      canvas.width = w;
      canvas.height = hgt;
    }
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    const segments = this.segments();
    const steps = ticks(this.max === null ? this.top(segments) : this.max(), this.unit, this.quiet ? 2 : 4);
    const frame = this.frame;
    const high = steps[steps.length - 1];
    const x = (t) => frame.left + ((t - this.begin) / (this.view.seconds * 1000)) * (frame.right - frame.left);
    const y = (v) => frame.bottom - (v / high) * (frame.bottom - frame.top);
    this.axes(g, frame, steps, x, y);
    g.save();
    g.beginPath();
    g.rect(frame.left, 0, frame.right - frame.left, height);
    g.clip();
    if (this.kind === "stack") this.stack(g, segments, x, y);
    else this.lines(g, segments, x, y);
    g.restore();
    this.mark(g, frame, x, y);
  }

  axes(g, frame, steps, x, y) {
    const { view } = this;
    g.font = "11px " + view.colour("font");
    g.textBaseline = "middle";
    g.lineWidth = 1;
    g.strokeStyle = view.colour("grid");
    g.fillStyle = view.colour("dim");
    g.textAlign = "right";
    for (const v of steps) {
      const at = Math.round(y(v)) + 0.5;
      g.beginPath();
      g.moveTo(frame.left, at);
      g.lineTo(frame.right, at);
      g.stroke();
      if (!this.quiet) g.fillText(text(v, this.unit), frame.left - 6, at);
    }
    if (this.quiet) {
      // Inside of the chart, where it is tall enough: the top of the axis.
      if (this.height < 50) return;
      g.textAlign = "left";
      g.textBaseline = "top";
      g.fillText(text(steps[steps.length - 1], this.unit), frame.left + 2, frame.top + 3);
      return;
    }
    const room = (frame.right - frame.left) / 66;
    const every = (STEPS[view.seconds] ?? []).find((step) => view.seconds / step <= room) ?? view.seconds;
    g.textBaseline = "alphabetic";
    for (let s = 0; s <= view.seconds; s += every) {
      const at = x(this.end - s * 1000);
      if (!Number.isFinite(at)) break;
      g.textAlign = s === 0 ? "right" : s === view.seconds ? "left" : "center";
      g.fillText(ago(s, view.seconds), s === 0 ? frame.right : s === view.seconds ? frame.left : at, this.height - 6);
      g.beginPath();
      g.moveTo(Math.round(at) + 0.5, frame.bottom);
      g.lineTo(Math.round(at) + 0.5, frame.bottom + 4);
      g.stroke();
    }
  }

  lines(g, segments, x, y) {
    const { times } = this.store;
    g.lineJoin = "round";
    for (const { key, colour } of this.series) {
      const data = this.store.data(key);
      if (data === undefined) continue;
      const stroke = this.view.colour(colour);
      g.strokeStyle = stroke;
      g.lineWidth = 1.5;
      for (const run of segments) {
        let from = null;
        let last = null;
        g.beginPath();
        const close = () => {
          if (from === null || this.kind !== "area") return;
          g.stroke();
          g.lineTo(last, y(0));
          g.lineTo(from, y(0));
          g.globalAlpha = 0.16;
          g.fillStyle = stroke;
          g.fill();
          g.globalAlpha = 1;
          g.beginPath();
        };
        for (const p of run) {
          const v = data[p];
          if (v !== v) {
            close();
            from = null;
            continue;
          }
          last = x(times[p]);
          if (from === null) {
            from = last;
            g.moveTo(last, y(v));
          } else {
            g.lineTo(last, y(v));
          }
        }
        if (this.kind === "area") close();
        else g.stroke();
      }
    }
  }

  stack(g, segments, x, y) {
    const { times } = this.store;
    for (const run of segments) {
      let under = run.map(() => 0);
      for (const { key, colour } of this.series) {
        const data = this.store.data(key);
        if (data === undefined) continue;
        const over = run.map((p, i) => under[i] + (data[p] === data[p] ? data[p] : 0));
        g.beginPath();
        run.forEach((p, i) => g.lineTo(x(times[p]), y(over[i])));
        const fill = this.view.colour(colour);
        g.strokeStyle = fill;
        g.lineWidth = 1;
        g.stroke();
        for (let i = run.length - 1; i >= 0; i -= 1) g.lineTo(x(times[run[i]]), y(under[i]));
        g.globalAlpha = 0.55;
        g.fillStyle = fill;
        g.fill();
        g.globalAlpha = 1;
        under = over;
      }
    }
  }

  /** The cursor: a line, and a dot on each series that is not stacked. */
  mark(g, frame, x, y) {
    const i = this.view.cursor === null ? -1 : this.store.nearest(this.view.cursor);
    if (i < 0) return;
    const p = this.store.at(i);
    const at = x(this.store.times[p]);
    if (!(at >= frame.left - 0.5 && at <= frame.right + 0.5)) return;
    g.strokeStyle = this.view.colour("dim");
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(Math.round(at) + 0.5, frame.top - 4);
    g.lineTo(Math.round(at) + 0.5, frame.bottom);
    g.stroke();
    if (this.kind === "stack") return;
    for (const { key, colour } of this.series) {
      const v = this.store.data(key)?.[p];
      if (v === undefined || v !== v) continue;
      g.fillStyle = this.view.colour(colour);
      g.beginPath();
      g.arc(at, y(v), 3, 0, 7);
      g.fill();
    }
  }

  point(event) {
    const { left, right } = this.frame;
    const px = event.clientX - this.canvas.getBoundingClientRect().left;
    const share = Math.min(1, Math.max(0, (px - left) / (right - left)));
    this.move(this.begin + share * this.view.seconds * 1000);
  }

  key(event) {
    const { store, view } = this;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === "Escape") {
      this.leave();
    } else if (event.key === "Home") {
      this.move(this.begin);
    } else if (event.key === "End") {
      this.move(this.end);
    } else if (step !== undefined && store.size > 0) {
      const from = view.cursor === null ? store.nearest(this.end) + (step < 0 ? 1 : 0) : store.nearest(view.cursor);
      const to = Math.min(store.size - 1, Math.max(store.first(this.begin), from + step));
      this.move(store.times[store.at(to)]);
    } else {
      return;
    }
    event.preventDefault();
    this.live.textContent = this.tip.hidden ? "" : this.tip.textContent;
  }

  leave() {
    this.view.cursor = null;
    this.tip.hidden = true;
    this.view.draw();
  }

  /** Puts the cursor to a moment and tells the values there. */
  move(time) {
    const { store, view, tip } = this;
    const i = store.nearest(time);
    if (i < 0) return;
    const p = store.at(i);
    view.cursor = store.times[p];
    const values = this.series
      .map(({ key, label, colour }) => ({ label, colour, value: store.data(key)?.[p] }))
      .filter(({ value }) => value === value && value !== undefined);
    if (values.length > TIP_ROWS) values.sort((a, b) => b.value - a.value);
    if (this.kind === "stack") values.reverse();
    const back = Math.round((this.end - view.cursor) / 1000);
    tip.replaceChildren(
      h("p", {}, clock(view.cursor) + (back > 0 ? " (" + ago(back) + ") " : " ")),
      ...values.slice(0, TIP_ROWS).map(({ label, colour, value }) =>
        h("p", {}, h("i", { class: "sw " + colour }), label + " ", h("b", {}, text(value, this.unit) + " "))));
    tip.hidden = false;
    const { left, right } = this.frame;
    const at = left + ((view.cursor - this.begin) / (view.seconds * 1000)) * (right - left);
    const wide = tip.offsetWidth;
    const rect = this.host.getBoundingClientRect();
    // Beside the cursor, on the side with more room, and inside of the window.
    let to = at + (at > this.width / 2 ? -wide - 12 : 12);
    to = Math.max(4 - rect.left, Math.min(to, document.documentElement.clientWidth - rect.left - wide - 4));
    tip.style.transform = "translate(" + Math.round(to) + "px, 4px)";
    view.draw();
  }
}
