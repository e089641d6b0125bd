// SPDX-License-Identifier: Apache-2.0
// The picture: a canvas as large as what is seen of it, in a box that scrolls. Draws what is wide
// enough to be seen and says what is at a point; what to do about it is the page's business.
"use strict";

class Graph {
  static ROW = 19;
  static LEAST = 0.4;

  constructor(box, extent, canvas, events) {
    Object.assign(this, { box, extent, canvas, events });
    this.pen = canvas.getContext("2d");
    this.tree = null;
    this.at = null;
    this.chosen = null;
    this.hovered = null;
    this.found = null;
    this.up = false;
    this.dark = true;
    this.even = false;
    this.colourOf = () => [0, 0];
    this.waiting = false;
    box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.fit()).observe(box);
    canvas.addEventListener("mousemove", (e) => this.point(e));
    canvas.addEventListener("mouseleave", () => this.hover(null, null));
    canvas.addEventListener("click", (e) => {
      const n = this.under(e);
      if (n) events.click(n);
    });
  }

  show(tree, at) {
    this.tree = tree;
    this.at = at;
    this.hovered = null;
    this.fit();
  }

  // The box has rows for the frames above the one that is zoomed to, and all below it.
  fit() {
    if (this.tree === null) return;
    let deepest = this.at.depth;
    const todo = [this.at];
    while (todo.length > 0) {
      const n = todo.pop();
      if (n.depth > deepest) deepest = n.depth;
      for (const kid of n.list) if (this.width(kid) >= Graph.LEAST) todo.push(kid);
    }
    this.rows = deepest + 1;
    const ratio = window.devicePixelRatio || 1;
    this.wide = this.box.clientWidth;
    this.high = this.box.clientHeight;
    this.extent.style.height = Math.max(this.high, this.rows * Graph.ROW + 2) + "px";
    this.canvas.width = Math.round(this.wide * ratio);
    this.canvas.height = Math.round(this.high * ratio);
    this.canvas.style.width = this.wide + "px";
    this.canvas.style.height = this.high + "px";
    this.draw();
  }

  width(n) {
    return this.at.value > 0 ? (this.wide * n.value) / this.at.value : 0;
  }

  left(n) {
    return this.at.value > 0 ? (this.wide * (n.from - this.at.from)) / this.at.value : 0;
  }

  top(depth) {
    const all = parseFloat(this.extent.style.height);
    return (this.up ? all - (depth + 1) * Graph.ROW : depth * Graph.ROW) - this.box.scrollTop;
  }

  draw() {
    if (this.waiting || this.tree === null) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const { pen } = this;
    const ratio = window.devicePixelRatio || 1;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const look = { ink: colour("--frame-ink"), faint: colour("--dim"), edge: colour("--panel"), mark: colour("--strong") };
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.wide, this.high);
    pen.font = "12px " + colour("--mono");
    pen.textBaseline = "middle";
    this.letter = pen.measureText("mmmmmmmmmm").width / 10;
    for (let n = this.at.parent; n; n = n.parent) this.frame(n, 0, this.wide, look, true);
    const todo = [this.at];
    while (todo.length > 0) {
      const n = todo.pop();
      const wide = this.width(n);
      if (wide < Graph.LEAST) continue;
      this.frame(n, this.left(n), wide, look, false);
      for (const kid of n.list) todo.push(kid);
    }
    for (const [n, line] of [[this.hovered, 1], [this.chosen, 2]]) if (n) this.outline(n, line, look.mark);
    this.canvas.dataset.painted = "yes";
  }

  frame(n, x, wide, look, above) {
    const y = this.top(n.depth);
    if (y > this.high || y + Graph.ROW < 0) return;
    const { pen } = this;
    const hit = this.found !== null && this.found.hits.has(n);
    const faded = above || (this.found !== null && !hit);
    // Of one hue for each change in a difference; else names tell neighbours apart.
    const shade = this.even ? "" : n.name;
    pen.fillStyle = hit ? Colour.fill(Colour.FOUND, n.name, this.dark, false) : Colour.fill(this.colourOf(n), shade, this.dark, faded);
    const gap = wide > 3 ? 1 : 0;
    pen.fillRect(x, y, Math.max(wide - gap, 0.5), Graph.ROW - 1);
    const room = Math.floor((wide - 9) / this.letter);
    if (room < 3) return;
    pen.fillStyle = faded ? look.faint : look.ink;
    pen.fillText(this.label(n, room), x + 5, y + Graph.ROW / 2);
  }

  // A name that does not fit loses its module first: what is called says more than where it is.
  label(n, room) {
    if (n.name.length <= room) return n.name;
    const colon = n.kind === "frame" ? n.name.indexOf(":") : -1;
    const short = colon > 0 && room < 14 ? n.name.slice(colon + 1) : n.name;
    return short.length <= room ? short : short.slice(0, Math.max(1, room - 1)) + "\u2026";
  }

  outline(n, line, mark) {
    const within = this.isShown(n);
    if (!within) return;
    const above = n.depth < this.at.depth;
    const x = above ? 0 : this.left(n);
    const wide = above ? this.wide : Math.max(this.width(n), 2);
    const { pen } = this;
    pen.strokeStyle = mark;
    pen.lineWidth = line;
    pen.strokeRect(x + line / 2, this.top(n.depth) + line / 2, Math.max(1, wide - 1 - line), Graph.ROW - 1 - line);
  }

  // Is a frame below or above the one that is zoomed to?
  isShown(n) {
    const [inner, outer] = n.depth >= this.at.depth ? [n, this.at] : [this.at, n];
    let at = inner;
    while (at && at.depth > outer.depth) at = at.parent;
    return at === outer;
  }

  under(event) {
    if (this.tree === null) return null;
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const all = parseFloat(this.extent.style.height);
    const far = y + this.box.scrollTop;
    const depth = Math.floor((this.up ? all - far : far) / Graph.ROW);
    if (depth < 0) return null;
    if (depth < this.at.depth) {
      let n = this.at;
      while (n.depth > depth) n = n.parent;
      return n;
    }
    let n = this.at;
    while (n && n.depth < depth) n = n.list.find((kid) => x >= this.left(kid) && x < this.left(kid) + this.width(kid)) ?? null;
    return n;
  }

  point(event) {
    this.hover(this.under(event), event);
  }

  hover(n, event) {
    if (n !== this.hovered) {
      this.hovered = n;
      this.canvas.style.cursor = n ? "pointer" : "default";
      this.draw();
    }
    this.events.hover(n, event);
  }

  // Scrolls so that a frame is seen.
  reveal(n) {
    const y = this.top(n.depth);
    if (y < 0) this.box.scrollTop += y - Graph.ROW;
    else if (y + Graph.ROW > this.high) this.box.scrollTop += y + 2 * Graph.ROW - this.high;
    this.draw();
  }

  // Where a frame is on the screen, for those who want to point at it.
  place(n) {
    const { left, top } = this.canvas.getBoundingClientRect();
    return { x: left + this.left(n) + this.width(n) / 2, y: top + this.top(n.depth) + Graph.ROW / 2 };
  }
}
