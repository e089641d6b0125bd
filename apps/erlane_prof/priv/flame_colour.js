// SPDX-License-Identifier: Apache-2.0
// Colours of frames. All have the same lightness for the eye, so that the text on each of them is
// as easy to read; they differ in hue and, a little and by name, in depth.
"use strict";

const Colour = (() => {
  // Hue and chroma: warm is on a processor, cold is off it.
  const STATES = {
    running: [48, 0.125], gc: [145, 0.1], runnable: [85, 0.115], waiting: [250, 0.085],
    suspended: [310, 0.08], no_answer: [0, 0.02], any: [48, 0.11],
  };
  const NEUTRAL = [250, 0.012];
  const FOUND = [330, 0.17];

  function hash(text) {
    let h = 2166136261;
    for (let i = 0; i < text.length; i += 1) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    return (h >>> 0) / 4294967296;
  }

  // From OKLCH, the space of Bjorn Ottosson (https://bottosson.github.io/posts/oklab/), to sRGB.
  function rgb(l, c, hue) {
    const a = c * Math.cos((hue * Math.PI) / 180);
    const b = c * Math.sin((hue * Math.PI) / 180);
    const x = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const y = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const z = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
    return [4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z, -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z, -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z]
      .map((v) => Math.min(1, Math.max(0, v)))
      .map((v) => Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055)));
  }

  const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

  // `dark` asks for frames that light text can be read on.
  function fill([hue, chroma], name, dark, faded) {
    const turn = hash(name);
    const l = dark ? 0.405 + 0.055 * turn : 0.845 - 0.055 * turn;
    const c = chroma * (dark ? 0.8 : 0.78);
    return css(rgb(faded ? (dark ? 0.27 : 0.93) : l, faded ? c * 0.25 : c, hue + 14 * (turn - 0.5)));
  }

  function largest(values) {
    let at = 0;
    for (let i = 1; i < values.length; i += 1) if (values[i] > values[at]) at = i;
    return at;
  }

  // What decides the hue of a frame.
  function tone(n, how, model, totals) {
    if (n.kind === "all") return NEUTRAL;
    if (how === "difference") {
      const points = Model.share(n.now, totals.now) - Model.share(n.before, totals.before);
      const size = Math.min(1, Math.abs(points) / 10);
      return Math.abs(points) < 0.05 ? NEUTRAL : [points > 0 ? 28 : 255, 0.03 + 0.14 * Math.sqrt(size)];
    }
    if (how === "module") {
      if (n.kind !== "frame") return NEUTRAL;
      const { module } = model.functions[n.code];
      return module === "" ? [0, 0.02] : [360 * hash(module + "."), 0.1];
    }
    if (n.kind !== "frame" && n.kind !== "state") return NEUTRAL;
    return STATES[model.states[largest(n.states)]] ?? STATES.any;
  }

  return { STATES, FOUND, hash, rgb, css, fill, tone };
})();
