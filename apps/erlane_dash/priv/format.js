// SPDX-License-Identifier: Apache-2.0
// Numbers as text, and the steps of an axis, for each unit the page knows.

const BLANK = "\u2013";
const THIN = "\u202f";

/** A number with about three digits. */
function digits(n) {
  const a = Math.abs(n);
  if (a >= 100 || a === Math.round(a)) return n.toFixed(0);
  if (a >= 10) return n.toFixed(1);
  if (a >= 1) return n.toFixed(2);
  if (a >= 0.01) return n.toFixed(3).replace(/0+$/, "");
  return n === 0 ? "0" : n.toPrecision(2);
}

function scaled(n, base, names) {
  let i = 0;
  let v = n;
  // 999.95 would be written as 1000.
  while (Math.abs(v) >= base * 0.9995 && i < names.length - 1) {
    v /= base;
    i += 1;
  }
  return digits(v) + (names[i] === "" ? "" : THIN + names[i]);
}

const SI = ["", "k", "M", "G", "T", "P"];
const IEC = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function seconds(s) {
  const a = Math.abs(s);
  if (a === 0) return "0" + THIN + "s";
  if (a < 1e-6) return digits(s * 1e9) + THIN + "ns";
  if (a < 1e-3) return digits(s * 1e6) + THIN + "\u00b5s";
  if (a < 1) return digits(s * 1e3) + THIN + "ms";
  if (a < 120) return digits(s) + THIN + "s";
  return a < 7200 ? digits(s / 60) + THIN + "min" : digits(s / 3600) + THIN + "h";
}

const UNITS = {
  number: { text: (n) => scaled(n, 1000, SI), base: 10 },
  count: { text: (n) => (Math.abs(n) < 1e5 ? String(Math.round(n)) : scaled(n, 1000, SI)), base: 10, whole: true },
  rate: { text: (n) => scaled(n, 1000, SI) + "/s", base: 10 },
  bytes: { text: (n) => scaled(n, 1024, IEC), base: 2 },
  byterate: { text: (n) => scaled(n, 1024, IEC) + "/s", base: 2 },
  percent: { text: (n) => (n < 0.0995 ? (100 * n).toFixed(1) : (100 * n).toFixed(0)) + THIN + "%", base: 10 },
  seconds: { text: seconds, base: 10 },
};

/** A value in a unit; what is no number is a dash. */
export function text(value, unit = "number") {
  return typeof value === "number" && Number.isFinite(value) ? UNITS[unit].text(value) : BLANK;
}

/** Values of an axis from 0 to at least `max`, three to five of them, at round numbers. */
export function ticks(max, unit, wanted = 4) {
  const { base, whole } = UNITS[unit];
  const span = max > 0 ? max : 1;
  let step;
  if (base === 2 && span >= 1024) {
    step = 2 ** Math.ceil(Math.log2(span / wanted));
  } else {
    const raw = span / wanted;
    const mag = 10 ** Math.floor(Math.log10(raw));
    step = [1, 2, 2.5, 5, 10].map((m) => m * mag).find((s) => s >= raw * 0.999);
    if (whole && step < 1) step = 1;
    if (whole) step = Math.ceil(step);
  }
  const out = [];
  for (let i = 0; i * step < span + step * 0.999; i += 1) out.push(i * step);
  return out;
}

/** Seconds as days, hours, minutes and seconds. */
export function uptime(s) {
  const d = Math.floor(s / 86400);
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const clock = two((s % 86400) / 3600) + ":" + two((s % 3600) / 60) + ":" + two(s % 60);
  return (d > 0 ? d + THIN + "d " : "") + clock;
}

/** The time of day of a moment. */
export function clock(ms) {
  const d = new Date(ms);
  return [d.getHours(), d.getMinutes(), d.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

/** How far back a moment is; on an axis of minutes in minutes. */
export function ago(s, span = s) {
  if (s <= 0) return "now";
  return span < 120 ? "\u2212" + s + THIN + "s" : "\u2212" + digits(s / 60) + THIN + "min";
}
