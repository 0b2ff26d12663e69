"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const bytes = Uint8Array.from(atob(data.images), c => c.charCodeAt(0));
const pixels = data.side * data.side, frames = data.time.length, points = data.frame.length;
const find = id => document.getElementById(id);
const sheet = find("sheet"), slider = find("time"), play = find("play");
let chosen = -1, playing = false, time = 0, last = 0, rest = 0;

// --- images: one small canvas for each sample, by rows of all requested digits ---
const tiles = data.requested.map((digit, s) => {
  const button = document.createElement("button"), canvas = document.createElement("canvas");
  const seen = document.createElement("span");
  canvas.width = canvas.height = data.side;
  seen.textContent = data.seen[s] + (data.seen[s] === digit ? " ✓" : " ✗");
  seen.className = data.seen[s] === digit ? "right" : "wrong";
  button.type = "button";
  button.title = `requested ${digit}, recognized as ${data.seen[s]} (${Math.round(100 * data.scores[s])} % sure)`;
  button.setAttribute("aria-label", `sample ${s + 1}, ${button.title}`);
  button.setAttribute("aria-pressed", "false");
  button.append(canvas, seen);
  button.addEventListener("click", () => choose(chosen === s ? -1 : s));
  sheet.append(button);
  const context = canvas.getContext("2d");
  return {button, context, image: context.createImageData(data.side, data.side)};
});

const HEAT = [[0, 0, 4], [59, 15, 112], [140, 41, 129], [222, 73, 104], [254, 159, 109], [252, 253, 191]]; // as in the lab
const LIGHT = Array.from({length: 256}, (_, v) => {
  const place = v / 255 * (HEAT.length - 1), low = Math.min(Math.floor(place), HEAT.length - 2);
  return HEAT[low].map((from, c) => from + (place - low) * (HEAT[low + 1][c] - from));
});

function paint(position) { // between two frames the nearer one: states are never blended
  const frame = Math.round(position), from = frame * data.samples * pixels;
  tiles.forEach((tile, s) => {
    const to = tile.image.data;
    for (let i = 0; i < pixels; i++) {
      [to[4 * i], to[4 * i + 1], to[4 * i + 2]] = LIGHT[bytes[from + s * pixels + i]];
      to[4 * i + 3] = 255;
    }
    tile.context.putImageData(tile.image, 0, 0);
  });
}

// --- numbers: of the chosen sample, or the mean of all ---
const of = table => chosen >= 0 ? table[chosen]
  : table[0].map((_, p) => table.reduce((sum, row) => sum + row[p], 0) / table.length);
let heat, work;
const when = data.frame.map(f => data.time[f]);

function at(curve, t) { // linear between points; after a switch at the switch
  let p = points - 1;
  while (p > 0 && when[p] > t) p--;
  if (p === points - 1) return curve[p];
  return curve[p] + (curve[p + 1] - curve[p]) * (t - when[p]) / (when[p + 1] - when[p]);
}

const show = value => (Math.round(value) + 0).toLocaleString("en").replace("-", "−");

// --- plot ---
const [width, height, left, right, top_, bottom] = [720, 300, 78, 12, 12, 34];
const make = (name, attributes, text) => {
  const element = document.createElementNS(find("plot").namespaceURI, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  find("plot").append(element);
  return element;
};
const X = t => left + t * (width - left - right);
let now;

function draw() {
  find("plot").replaceChildren();
  const curves = Object.values(data.parts).map(of);
  const low = Math.min(...curves.flat()), high = Math.max(...curves.flat());
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(m => m * power >= rough);
  const Y = v => height - bottom - (v - low) / (high - low) * (height - top_ - bottom);
  for (let v = Math.ceil(low / step) * step; v <= high; v += step) {
    make("line", {class: "grid", x1: left, x2: width - right, y1: Y(v), y2: Y(v)});
    make("text", {x: left - 6, y: Y(v) + 4, "text-anchor": "end"}, show(v));
  }
  [0, .25, .5, .75, 1].forEach(t => make("text",
    {x: X(t), y: height - 10, "text-anchor": t === 1 ? "end" : t ? "middle" : "start"},
    t === 0 ? "noise" : t === 1 ? "digits" : t));
  curves.forEach((curve, c) => make("polyline",
    {class: "c" + c, points: curve.map((v, p) => `${X(when[p])},${Y(v)}`).join(" ")}));
  now = make("line", {class: "now", y1: top_, y2: height - bottom});
}

Object.keys(data.parts).forEach((name, c) => {
  const entry = document.createElement("span"), mark = document.createElement("i");
  mark.className = "c" + c;
  entry.append(mark, name);
  find("legend").append(entry);
});

// --- time ---
let painted = -1;
function update() {
  let f = frames - 1; // frames need not be evenly spaced
  while (f > 0 && data.time[f] > time) f--;
  const next = Math.min(f + 1, frames - 1), span = data.time[next] - data.time[f];
  const position = f + (span ? (time - data.time[f]) / span : 0);
  if (Math.round(position) !== painted) paint(painted = Math.round(position));
  slider.value = time;
  const name = data.windows[data.stage[Math.max(0, when.findLastIndex(w => w <= time))]];
  find("clock").textContent = `${Math.round(100 * time)} %, ${name > 0 ? `stage ${name}` : name}`;
  const Q = at(heat, time);
  find("heat").textContent = show(Q);
  find("heatkT").textContent = show(Q / data.kT);
  find("work").textContent = show(at(work, time));
  now.setAttribute("x1", X(time));
  now.setAttribute("x2", X(time));
  sheet.classList.toggle("over", time >= 1);
}

function choose(sample) {
  chosen = sample;
  tiles.forEach((tile, s) => tile.button.setAttribute("aria-pressed", String(s === sample)));
  find("who").textContent = sample < 0 ? "mean" : data.requested[sample];
  find("whose").textContent = sample < 0 ? `of ${data.samples} samples` : `sample ${sample + 1} alone`;
  heat = of(data.heat);
  work = of(data.work);
  draw();
  update();
}

const SECONDS = 8, PAUSE = 3;
function tick(moment) {
  if (!playing) return;
  const passed = Math.min(Math.max(moment - last, 0) / 1000, .1); // a frame may be older than the start
  last = moment;
  if (time < 1) time = Math.min(1, time + passed / SECONDS);
  else if ((rest += passed) > PAUSE) time = rest = 0;
  update();
  requestAnimationFrame(tick);
}

let touched = false;
for (const name of ["pointerdown", "keydown"]) addEventListener(name, () => { touched = true; });
function run(on) {
  playing = on;
  play.firstElementChild.textContent = on ? "❚❚" : "▶";
  play.setAttribute("aria-label", on ? "Pause" : "Play");
  if (!on) return;
  if (time >= 1) time = 0;
  rest = 0;
  last = performance.now();
  requestAnimationFrame(tick);
}

play.addEventListener("click", () => run(!playing));
slider.addEventListener("input", () => { run(false); time = Number(slider.value); update(); });
document.addEventListener("keydown", event => {
  const tag = event.target.tagName;
  if (event.key === " " && tag !== "BUTTON" && tag !== "SUMMARY") {
    event.preventDefault();
    run(!playing);
  } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && tag !== "INPUT") {
    event.preventDefault();
    run(false);
    time = Math.min(1, Math.max(0, time + (event.key === "ArrowLeft" ? -.025 : .025)));
    update();
  }
});

const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
time = 1; // show the final images before the animation begins
choose(-1);
run(false);
if (!still && location.hash !== "#end") setTimeout(() => { if (!touched) run(true); }, 1000 * PAUSE);
