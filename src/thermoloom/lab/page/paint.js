// Colours, pictures of units, and curves. States are never blended between frames.

const HEAT = [[0, 0, 4], [59, 15, 112], [140, 41, 129], [222, 73, 104], [254, 159, 109], [252, 253, 191]];
const LIGHT = new Uint8ClampedArray(256 * 3);
for (let v = 0; v < 256; v++) {
  const place = v / 255 * (HEAT.length - 1), low = Math.min(Math.floor(place), HEAT.length - 2);
  for (let c = 0; c < 3; c++) LIGHT[3 * v + c] = HEAT[low][c] + (place - low) * (HEAT[low + 1][c] - HEAT[low][c]);
}

export const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");
let signed; // 0 … 255: negative, none, positive
function signedColours() {
  const hex = name => variable(name).match(/\w\w/g).map(part => parseInt(part, 16));
  const none = hex("--zebra"), plus = hex("--plus"), minus = hex("--minus");
  signed = new Uint8ClampedArray(256 * 3);
  for (let v = 0; v < 256; v++) {
    const t = (v - 128) / 127, end = t < 0 ? minus : plus, much = Math.min(1, Math.abs(t)) ** .7;
    for (let c = 0; c < 3; c++) signed[3 * v + c] = none[c] + much * (end[c] - none[c]);
  }
}
export const onTheme = action => dark.addEventListener("change", () => { signed = null; action(); });

// bytes as pixels of a canvas, rows by columns, in the colours of heat or of sign
export function picture(canvas, bytes, columns, rows, sign = false) {
  if (canvas.width !== columns || canvas.height !== rows) { canvas.width = columns; canvas.height = rows; }
  if (sign && !signed) signedColours();
  const colours = sign ? signed : LIGHT, context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows), to = image.data;
  for (let i = 0; i < bytes.length; i++) {
    const v = bytes[i];
    to[4 * i] = colours[3 * v]; to[4 * i + 1] = colours[3 * v + 1]; to[4 * i + 2] = colours[3 * v + 2]; to[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

// many small pictures side by side on one canvas: column k of a matrix (pixels, count) is picture k
export function mosaic(canvas, bytes, pixels, count, rows, columns) {
  const across = Math.min(count, Math.ceil(Math.sqrt(count * 2))), down = Math.ceil(count / across);
  const wide = across * (columns + 1) - 1, high = down * (rows + 1) - 1;
  if (!signed) signedColours();
  canvas.width = wide; canvas.height = high;
  const context = canvas.getContext("2d"), image = context.createImageData(wide, high), to = image.data;
  for (let k = 0; k < count; k++) for (let p = 0; p < pixels; p++) {
    const x = (k % across) * (columns + 1) + p % columns, y = Math.floor(k / across) * (rows + 1) + Math.floor(p / columns);
    const v = bytes[p * count + k], i = 4 * (y * wide + x);
    to[i] = signed[3 * v]; to[i + 1] = signed[3 * v + 1]; to[i + 2] = signed[3 * v + 2]; to[i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  canvas.style.width = `${Math.max(wide, Math.min(4 * wide, 420))}px`;
}

export function mark(canvas, place, columns, colour, part = 1) {
  const context = canvas.getContext("2d");
  context.save();
  context.strokeStyle = colour;
  context.lineWidth = part / 4;
  context.strokeRect(place % columns * part + part / 8, Math.floor(place / columns) * part + part / 8, part - part / 4, part - part / 4);
  context.restore();
}

export const show = (value, digits = 0) => value === null || value === undefined || !isFinite(value) ? "∞"
  : Math.abs(value) >= 1e6 ? value.toExponential(1).replace("e+", " · 10^").replace("-", "−")
  : (Number(value.toFixed(digits)) + 0).toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits}).replace("-", "−");

// curves: [{values, colour, wide, dashed}], all against the same `at`; drawn up to `now`
export function chart(canvas, at, curves, {now = Infinity, left = "", right = "", from = at[0], to = at[at.length - 1]} = {}) {
  const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  if (!box.width) return;
  const wide = Math.round(box.width * ratio), high = Math.round(box.height * ratio);
  if (canvas.width !== wide || canvas.height !== high) { canvas.width = wide; canvas.height = high; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, box.width, box.height);
  const all = curves.flatMap(c => c.values).filter(v => v !== null && isFinite(v));
  if (!all.length) return;
  let low = Math.min(...all), high_ = Math.max(...all);
  if (high_ - low < 1e-9) { low -= 1; high_ += 1; }
  const rough = (high_ - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const times = [1, 2, 2.5, 5, 10].find(m => m * power >= rough), step = times * power;
  const digits = Math.max(0, (times === 2.5 ? 1 : 0) - Math.floor(Math.log10(step) + 1e-9));
  context.font = "12px system-ui, sans-serif";
  const ticks = [];
  for (let v = Math.ceil(low / step) * step; v <= high_ + 1e-9 * step; v += step) ticks.push(v);
  const margin = Math.max(...ticks.map(v => context.measureText(show(v, digits)).width)) + 10;
  const X = t => margin + (t - from) / (to - from || 1) * (box.width - margin - 6);
  const Y = v => box.height - 22 - (v - low) / (high_ - low) * (box.height - 30);
  context.fillStyle = variable("--soft"); context.strokeStyle = variable("--line"); context.lineWidth = 1;
  context.textAlign = "right"; context.textBaseline = "middle";
  for (const v of ticks) {
    context.beginPath(); context.moveTo(margin, Y(v)); context.lineTo(box.width - 6, Y(v)); context.stroke();
    context.fillText(show(v, digits), margin - 6, Y(v));
  }
  context.textBaseline = "alphabetic";
  context.textAlign = "left"; context.fillText(left, margin, box.height - 4);
  context.textAlign = "right"; context.fillText(right, box.width - 6, box.height - 4);
  for (const curve of curves) {
    context.strokeStyle = curve.colour; context.lineWidth = curve.wide ? 2.4 : 1.7; context.lineJoin = "round";
    context.setLineDash(curve.dashed ? [4, 4] : []);
    context.beginPath();
    let last = null, pen = false;
    for (let p = 0; p < at.length && p < curve.values.length && at[p] <= now + 1e-9; p++) {
      const v = curve.values[p];
      if (v === null) { pen = false; continue; }
      last = [X(at[p]), Y(v)];
      if (pen) context.lineTo(...last); else context.moveTo(...last);
      pen = true;
    }
    context.stroke();
    context.setLineDash([]);
    if (last && !curve.dashed) { context.fillStyle = curve.colour; context.beginPath(); context.arc(...last, 3.2, 0, 7); context.fill(); }
  }
}
