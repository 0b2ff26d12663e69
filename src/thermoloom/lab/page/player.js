// One generation: its samples while they are computed, then all frames at a pace that the eye can follow.
import {chart, mark, onTheme, picture, show, variable} from "./paint.js";

const find = id => document.getElementById(id);
const SECONDS = 6;
const NAMES = {onsite: "single units", bias: "biases"};
export const partName = name => NAMES[name] ?? name.replace("_", "–") + " couplings";
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

export class Player {
  constructor(onMoment) {
    this.onMoment = onMoment; // the time, the sample or the unit has changed
    this.scene = null; this.chosen = -1; this.time = 0; this.playing = false; this.unit = null; this.partner = null; this.pick = "unit";
    this.slider = find("time"); this.play = find("play"); this.sheet = find("sheet");
    this.play.addEventListener("click", () => this.toggle());
    this.slider.addEventListener("input", () => { this.run(false); this.seek(Number(this.slider.value)); });
    addEventListener("keydown", event => {
      const tag = event.target.tagName, busy = event.target.isContentEditable || ["INPUT", "SELECT", "TEXTAREA"].includes(tag);
      if (!this.scene || this.scene.forming || event.altKey || event.ctrlKey || event.metaKey || find("scene").hidden) return;
      if (event.key === " " && !busy && !["BUTTON", "A", "LABEL", "PRE"].includes(tag)) { event.preventDefault(); this.toggle(); }
      else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && !busy && event.target.getAttribute("role") !== "tab") {
        event.preventDefault(); this.run(false);
        this.seek(this.time + (event.key === "ArrowLeft" ? -.02 : .02));
      }
    });
    for (const group of ["visible", "hidden"]) this.choosable(find(group), group);
    addEventListener("resize", () => this.draw());
    onTheme(() => { this.draw(); this.paint(true); });
  }

  // --- a scene arrives ---

  begin(numbers, machine) {
    this.lay({...numbers, frames: [], ...noCurves(numbers.samples, machine)}, machine);
    this.time = still ? 1 : 0;
    this.run(!still);
  }
  lay(scene, machine) {
    const S = scene.samples;
    this.machine = machine;
    this.scene = scene;
    this.painted = -1;
    if (this.chosen >= S) this.chosen = -1;
    this.tiles();
    this.legends();
    for (const each of [this.slider, this.play]) each.disabled = Boolean(scene.forming);
    find("boxes").hidden = false;
    find("hidden-box").hidden = !machine.hidden;
    find("label-box").hidden = !scene.words;
  }

  take(numbers, bytes) {
    const scene = this.scene, size = scene.samples * scene.units;
    for (let f = 0; f * size < bytes.length; f++) scene.frames.push(bytes.subarray(f * size, (f + 1) * size));
    this.append(numbers);
    this.draw();
    if (still) this.seek(1);
  }
  append(numbers, first = 0) { // points of the curves of samples from the first on
    const {scene} = this;
    numbers.frame.forEach((frame, p) => {
      scene.at.push(scene.times[frame]); scene.frame.push(frame); scene.stage.push(numbers.stage[p]);
      numbers.heat.forEach((heat, row) => {
        const s = first + row;
        scene.heat[s].push(heat[p]); scene.work[s].push(numbers.work[row][p]);
        let total = 0;
        for (const name in scene.parts) { const v = numbers.parts[name][row][p]; scene.parts[name][s].push(v); total = v === null ? null : total + v; }
        scene.total[s].push(total);
      });
    });
  }

  // --- while it is computed; the previous scene is kept until the new one is complete ---

  form(numbers, machine) {
    if (still) return;
    if (!this.scene?.forming) this.kept = {scene: this.scene, machine: this.machine, time: this.time};
    const forming = new Uint8Array(numbers.samples * numbers.units), verdicts = Array.from({length: numbers.samples}, () => ({requested: null, heat: null}));
    this.run(false);
    this.sheet.classList.remove("over");
    this.lay({...numbers, verdicts, forming, frames: [], ...noCurves(numbers.samples, machine)}, machine);
  }
  formed(numbers, bytes) {
    const {scene, machine} = this;
    if (!scene?.forming) return;
    if (scene.turn !== numbers.sample) Object.assign(scene, noCurves(scene.samples, machine), {turn: numbers.sample}); // the next samples
    scene.forming.set(bytes, numbers.sample * scene.units);
    this.append(numbers, numbers.sample);
    this.time = this.slider.value = scene.at.at(-1);
    this.paint(true);
    this.draw();
  }
  giveUp() {
    if (!this.scene?.forming) return;
    if (!this.kept.scene) { this.scene = null; return; }
    this.lay(this.kept.scene, this.kept.machine);
    this.seek(this.kept.time);
  }

  get whole() { return this.scene && this.scene.frames.length === this.scene.times.length; }
  get frame() { // the last one that is not later than now
    const {times, frames} = this.scene;
    let f = frames.length - 1;
    while (f > 0 && times[f] > this.time + 1e-9) f--;
    return f;
  }
  get sample() { return Math.max(0, this.chosen); }

  tiles() {
    const {verdicts} = this.scene, named = number => this.machine.classes.find(c => c.class === number)?.name ?? number;
    const across = verdicts.length <= 10 ? verdicts.length : Math.ceil(verdicts.length / Math.ceil(verdicts.length / 10));
    this.sheet.style.setProperty("--across", across > 5 || across < 4 ? Math.max(across, 5) : across);
    this.sheet.replaceChildren(...verdicts.map((verdict, s) => {
      const button = document.createElement("button"), canvas = document.createElement("canvas"), line = document.createElement("div");
      const known = verdict.seen !== null && verdict.seen !== undefined, right = verdict.requested === null || verdict.requested === verdict.seen;
      const request = verdict.requested === null ? "" : `requested ${named(verdict.requested)}, `;
      const seen = known ? `recognized as ${named(verdict.seen)} by ${verdict.by} (${Math.round(100 * verdict.score)} %)` : "no verdict";
      button.type = "button";
      const energy = this.scene.forming ? "" : `${show(verdict.heat)} E₀`;
      button.title = `sample ${s + 1}: ${request}${seen}${energy && `, heat ${energy}`}`;
      button.setAttribute("aria-label", button.title);
      button.setAttribute("aria-pressed", String(s === this.chosen));
      line.className = "verdict" + (known && right ? "" : " wrong");
      const sign = document.createElement("b"), heat = document.createElement("span");
      sign.textContent = known ? named(verdict.seen) + (verdict.requested === null ? "" : right ? " ✓" : " ✗") : "?";
      heat.innerHTML = energy.replace("E₀", "<small>E₀</small>"); // the unit shows where there is room
      line.append(sign, heat);
      button.append(canvas, line);
      button.addEventListener("click", () => this.choose(this.chosen === s ? -1 : s));
      return button;
    }));
    this.who();
  }

  legends() {
    const entries = (id, names) => find(id).replaceChildren(...names.map(([name, colour]) => {
      const row = document.createElement("div"), swatch = document.createElement("i"), value = document.createElement("output");
      swatch.style.background = `var(${colour})`;
      row.append(swatch, name, value);
      return row;
    }));
    entries("parts-legend", [...this.machine.parts.map((name, c) => [partName(name), `--c${c % 7}`]), ["total", "--ink"]]);
    entries("books-legend", [["heat released", "--c2"], ["work put in", "--c0"]]);
  }

  choose(sample) {
    this.chosen = sample;
    [...this.sheet.children].forEach((tile, s) => tile.setAttribute("aria-pressed", String(s === sample)));
    this.who(); this.draw(); this.paint(true); this.onMoment();
  }

  who() {
    find("units-of").textContent = `of sample ${this.sample + 1}`;
    if (this.scene.forming) { find("whose").textContent = "Live: shown while it is computed."; return; }
    const {samples, seconds, verdicts} = this.scene, right = verdicts.filter(v => v.requested !== null && v.requested === v.seen).length;
    const count = verdicts.some(v => v.requested !== null) ? `${right} of ${samples} are recognized as the correct class. ` : "";
    find("whose").textContent = (this.chosen < 0 ? `${count}Curves: mean of ${samples} ${samples > 1 ? "samples" : "sample"}. `
      : `Curves: sample ${this.chosen + 1} alone. `) + `Computed in ${show(seconds, 1)} s, shown in slow motion.`;
  }

  // --- time ---

  toggle() { if (!this.playing && this.time >= 1) this.time = 0; this.run(!this.playing); }
  run(on) {
    this.playing = on;
    this.play.firstElementChild.textContent = on ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", on ? "Pause" : "Play");
    if (on) { this.last = performance.now(); requestAnimationFrame(now => this.tick(now)); }
  }
  tick(now) {
    if (!this.playing) return;
    const passed = Math.min(Math.max(now - this.last, 0) / 1000, .1), loaded = this.scene.times[this.scene.frames.length - 1] ?? 0;
    this.last = now;
    this.seek(Math.min(loaded, this.time + passed / SECONDS * Number(find("speed").value)));
    if (this.time >= 1) this.run(false); else requestAnimationFrame(later => this.tick(later));
  }
  seek(time) {
    this.time = Math.min(1, Math.max(0, time));
    this.slider.value = this.time;
    this.sheet.classList.toggle("over", this.time >= 1);
    this.paint();
    this.draw();
  }

  // --- pictures and numbers ---

  paint(again = false) {
    const {scene, machine} = this;
    if (!scene || !scene.forming && !scene.frames.length) return;
    const frame = this.frame;
    if (frame === this.painted && !again) return;
    const moved = frame !== this.painted;
    this.painted = frame;
    const bytes = scene.forming ?? scene.frames[frame], [rows, columns] = machine.shape;
    [...this.sheet.children].forEach((tile, s) => picture(tile.firstElementChild, bytes.subarray(s * scene.units, s * scene.units + scene.visible), columns, rows));
    const from = this.sample * scene.units;
    enlarged(find("visible"), bytes.subarray(from, from + scene.visible), columns, rows, false, this.marks(0, scene.visible));
    if (machine.hidden) {
      const [down, across] = machine.hidden_shape;
      enlarged(find("hidden"), bytes.subarray(from + scene.visible, from + scene.units), across, down, true, this.marks(scene.visible, scene.units));
    }
    if (scene.words) {
      const one = machine.styles === 1, across = one ? Math.min(machine.labels, 5) : machine.styles, down = one ? Math.ceil(machine.labels / across) : machine.labels;
      const lit = new Uint8Array(across * down).fill(128);
      lit[scene.words[this.sample]] = 255;
      find("label").style.width = `${Math.min(6, across * (one ? 1.1 : .55))}rem`;
      enlarged(find("label"), lit, across, down, true, this.marks(scene.units, scene.units + machine.labels * machine.styles), true);
    }
    if (moved) this.onMoment();
  }

  marks(first, last) {
    return [[this.unit, "--accent"], [this.partner, "--plus"]].filter(([unit]) => unit !== null && unit >= first && unit < last)
      .map(([unit, colour]) => [unit - first, colour]);
  }

  draw() {
    const scene = this.scene;
    if (!scene || !scene.at.length || find("scene").hidden) return;
    const of = table => {
      const there = table.filter(row => row.length); // while samples are computed: those that have begun
      return table[this.chosen]?.length ? table[this.chosen] : there[0].map((_, p) => {
        let sum = 0;
        for (const row of there) { if (row[p] === null) return null; sum += row[p]; }
        return sum / there.length;
      });
    };
    const heat = of(scene.heat), work = of(scene.work), total = of(scene.total), parts = Object.values(scene.parts).map(of);
    const here = curve => at(scene.at, curve, this.time), ends = {now: this.time, left: "noise", right: "image", from: 0, to: 1};
    chart(find("books"), scene.at, [{values: heat, colour: variable("--c2"), wide: true}, {values: work, colour: variable("--c0"), wide: true}], ends);
    chart(find("parts"), scene.at, [...parts.map((values, c) => ({values, colour: variable(`--c${c % 7}`)})), {values: total, colour: variable("--ink"), wide: true}], ends);
    const Q = here(heat), W = here(work), V = here(total);
    const say = v => scene.forming && v === null ? "–" : show(v); // heat is known once moving pixels have arrived
    [...parts.map(here), V].forEach((v, row) => { find("parts-legend").children[row].lastElementChild.value = say(v); });
    [Q, W].forEach((v, row) => { find("books-legend").children[row].lastElementChild.value = say(v) + " E₀"; });
    find("heat").textContent = say(Q); find("heat-kt").textContent = say(Q === null ? null : Q / scene.kT);
    find("work").textContent = say(W); find("energy").textContent = say(V);
    let p = scene.at.length - 1;
    while (p > 0 && scene.at[p] > this.time) p--;
    find("clock").textContent = `${Math.round(100 * this.time)} %` + (scene.windows.length > 1 ? ` · ${scene.windows[scene.stage[p]]}` : "");
    find("books").setAttribute("aria-label", `Heat ${say(Q)} and work ${say(W)} E₀ at ${Math.round(100 * this.time)} % of the time`);
    find("parts").setAttribute("aria-label", `Energy ${say(V)} E₀, in its parts`);
  }

  // --- choosing a unit ---

  choosable(canvas, group) {
    const grid = () => group === "visible" ? this.machine.shape : this.machine.hidden_shape;
    const first = () => group === "visible" ? 0 : this.machine.visible, count = () => group === "visible" ? this.machine.visible : this.machine.hidden;
    canvas.addEventListener("click", event => {
      if (!this.scene) return;
      const box = canvas.getBoundingClientRect(), [rows, columns] = grid();
      const x = Math.floor((event.clientX - box.left) / box.width * columns), y = Math.floor((event.clientY - box.top) / box.height * rows);
      this.pickUnit(first(), y * columns + x, count());
    });
    canvas.addEventListener("keydown", event => {
      const columns = this.scene ? grid()[1] : 0, move = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Enter: 0, " ": 0}[event.key];
      if (move === undefined || !this.scene) return;
      const now = this.pick === "partner" ? this.partner : this.unit, inside = now !== null && now >= first() && now < first() + count();
      this.pickUnit(first(), inside ? now - first() + move : Math.floor(count() / 2), count());
      event.preventDefault(); event.stopPropagation();
    });
  }
  pickUnit(first, place, count) {
    if (place < 0 || place >= count) return;
    if (this.pick === "partner") this.partner = first + place; else { this.unit = first + place; this.partner = null; }
    this.paint(true);
    this.onMoment(true);
  }
}

const rows = count => Array.from({length: count}, () => []);
const noCurves = (samples, {parts}) => ({at: [], frame: [], stage: [], heat: rows(samples), work: rows(samples), total: rows(samples),
  parts: Object.fromEntries(parts.map(name => [name, rows(samples)]))});

function at(times, curve, now) { // linear between points; after a switch at the switch
  let p = curve.length - 1;
  while (p > 0 && times[p] > now) p--;
  if (p === curve.length - 1 || curve[p] === null || curve[p + 1] === null || times[p + 1] === times[p]) return curve[p];
  return curve[p] + (curve[p + 1] - curve[p]) * (now - times[p]) / (times[p + 1] - times[p]);
}

const small = document.createElement("canvas");
function enlarged(canvas, bytes, columns, rows, sign, marks, apart = false) {
  const part = 12;
  picture(small, bytes, columns, rows, sign);
  if (canvas.width !== columns * part || canvas.height !== rows * part) { canvas.width = columns * part; canvas.height = rows * part; }
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  if (apart) {
    context.fillStyle = variable("--card");
    for (let x = 0; x <= columns; x++) context.fillRect(x * part - 1, 0, 2, rows * part);
    for (let y = 0; y <= rows; y++) context.fillRect(0, y * part - 1, columns * part, 2);
  }
  for (const [place, colour] of marks) mark(canvas, place, columns, variable(colour), part);
}
