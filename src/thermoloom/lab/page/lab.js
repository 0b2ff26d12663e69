// The page: it sends requests to the lab and shows the answers.
import {chart, mosaic, onTheme, picture, show, variable} from "./paint.js";
import {Pad, fromFile} from "./pad.js";
import {Player, partName} from "./player.js";

const find = id => document.getElementById(id);
const make = (tag, properties = {}, ...inside) => { const element = Object.assign(document.createElement(tag), properties); element.append(...inside); return element; };
const base64 = bytes => { let text = ""; for (const b of bytes) text += String.fromCharCode(b); return btoa(text); };
const unpacked = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const SIDE = 14, aside = document.querySelector("aside");
const machines = {given: null, taught: null};
const lines = {given: "", taught: ""};
let which = "given", viewer = "", number = 0, current = 0, doing = "", tab = "generate";

// --- the connection ---

let socket, retry = 0;
function connect() {
  socket = new WebSocket(`ws://${location.host}/viewer`);
  socket.binaryType = "arraybuffer";
  socket.addEventListener("message", event => {
    const length = new DataView(event.data).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(event.data, 4, length)));
    retry = 0;
    answers[head.say]?.(head, new Uint8Array(event.data, 4 + length));
  });
  socket.addEventListener("close", () => {
    state("lost", "not connected");
    idle();
    looking = 0;
    enable(false);
    if (retry >= 0) setTimeout(connect, Math.min(5000, 500 * ++retry));
  });
}
function ask(message) {
  if (socket.readyState !== WebSocket.OPEN) return 0;
  socket.send(JSON.stringify({...message, number: ++number}));
  return number;
}
function order(message, what) { // starts a task, which ends the previous one
  notice("");
  player.giveUp();
  if (aside.contains(document.activeElement) && matchMedia("(max-width: 46rem)").matches)
    document.querySelector("main").scrollIntoView({behavior: "smooth"});
  current = ask(message);
  doing = what;
  if (current) state("busy", what);
}
const mine = head => head.number === current;
function state(kind, text) { find("state").className = kind; find("state").lastElementChild.textContent = text; }
function notice(text) { find("notice").textContent = text; find("notice").hidden = !text; }
function working(fraction, text) {
  for (const id of ["working", "teaching"]) {
    const box = find(id), active = (id === "teaching") === (doing === "learning");
    box.hidden = fraction === null || !active;
    if (fraction !== null && active) { box.firstElementChild.value = fraction; box.children[1].textContent = text; }
  }
}
function idle() { doing = ""; working(null); player.giveUp(); find("png").disabled = !player.whole; }
function enable(on) {
  for (const id of ["generate", "complete", "teach", "damage"]) find(id).disabled = !on;
  find("once").disabled = !on || !machines.taught;
}

const answers = {
  wait(head) {
    state(head.failed ? "lost" : "busy", head.failed ? "failed" : "getting ready");
    find("whose").textContent = head.text;
    noise(!head.failed);
  },
  full(head) { retry = -1; state("lost", "full"); notice(head.text); },
  ready(head) {
    noise(false);
    viewer = head.viewer; machines.given = head.given;
    machines.taught = null; // a new connection is a new viewer, which has taught nothing
    document.querySelector('[name=which][value="taught"]').disabled = true;
    choose("given");
    state("ready", "ready");
    enable(true);
    generate();
  },
  error(head) {
    if (looking && head.number === looking) { // about a scene that no longer exists, or that has diverged
      looking = 0;
      find("unit").replaceChildren(make("p", {className: "note", textContent: head.text}));
      if (again) look();
      return;
    }
    if (head.number === current || head.number === null) { idle(); state("ready", "ready"); }
    notice(head.text);
  },
  stopped() { if (doing !== "learning") { idle(); state("ready", "ready"); } },
  progress(head) { if (mine(head)) working(head.done, head.text ?? (head.done ? `${Math.round(100 * head.done)} % computed` : "waiting for a free core")); },
  begun(head) { if (mine(head)) { player.form(head, machines[which]); find("png").disabled = true; } },
  forming(head, bytes) { if (mine(head)) player.formed(head, bytes); },
  scene(head) {
    if (!mine(head)) return;
    lines[which] = head.lines;
    player.begin(head, machines[which]);
    find("png").disabled = false;
    exportPanel();
  },
  frames(head, bytes) { if (mine(head)) { player.take(head, bytes); working(null); } },
  generated(head) { if (mine(head)) { idle(); state("ready", "ready"); remember(); player.onMoment(true); if (next) generate({fresh: false, damage: next}); } },
  taught(head, bytes) { if (mine(head)) lesson(head, bytes); },
  learned(head) {
    if (!mine(head)) return;
    idle(); state("ready", "ready");
    machines.taught = head.taught; lines.taught = head.lines;
    document.querySelector('[name=which][value="taught"]').disabled = false;
    find("which").hidden = tab === "teach";
    find("once").disabled = false;
    choose("taught");
    exportPanel();
  },
  inspected(head, bytes) { if (head.number === looking) { looking = 0; unit(head, bytes); if (again) look(); } },
};

// --- noise, which is shown until the machine is ready

let humming = null;
function noise(on) {
  clearInterval(humming);
  humming = null;
  if (!on) return;
  const tiles = Array.from({length: 10}, () => make("button", {type: "button", disabled: true}, make("canvas")));
  const paint = () => tiles.forEach(tile => picture(tile.firstElementChild, crypto.getRandomValues(new Uint8Array(784)).map(v => v / 2.5), 28, 28));
  player.sheet.replaceChildren(...tiles);
  paint();
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) humming = setInterval(paint, 120);
}

// --- tabs ---

const tabs = [...document.querySelectorAll("[role=tab]")];
function turn(name, focus = false) {
  tab = name;
  for (const each of tabs) {
    const on = each.id === `tab-${name}`;
    each.setAttribute("aria-selected", String(on)); each.tabIndex = on ? 0 : -1;
    find(each.getAttribute("aria-controls")).hidden = !on;
    if (on) { if (focus) each.focus(); each.scrollIntoView({block: "nearest", inline: "nearest"}); }
  }
  find("bench").dataset.tab = name;
  find("scene").hidden = name === "teach"; find("lesson").hidden = name !== "teach";
  find("which").hidden = name === "teach" || !machines.taught;
  if (name === "teach") drawLesson();
  else if (machines[which] && request.computer && request.computer !== which) generate(); // show samples of the machine that was just taught
  if (name === "complete") known.paint();
  if (name === "export") exportPanel();
  if (name === "inspect") { if (player.unit === null && machines[which]) player.unit = central(machines[which]); look(); }
  player.draw(); player.paint(true);
}
tabs.forEach((each, place) => {
  each.addEventListener("click", () => turn(each.id.slice(4)));
  each.addEventListener("keydown", event => {
    const to = {ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault(); event.stopPropagation();
    turn(tabs[(to + tabs.length) % tabs.length].id.slice(4), true);
  });
});
const central = machine => Math.floor(machine.shape[0] / 2) * machine.shape[1] + Math.floor(machine.shape[1] / 2);

// --- which machine, which classes ---

let wanted = new Set();
function choose(name) {
  which = name;
  const machine = machines[name];
  document.querySelector(`[name=which][value="${name}"]`).checked = true;
  find("given-name").textContent = machines.given.digits && machines.given.classes.length === 10 ? "ten digits" : "loaded";
  const stages = machine.stages > 1 ? `, ${machine.stages} stages` : "";
  find("about").textContent = `${machine.visible} visible${machine.hidden ? ` and ${machine.hidden} hidden` : ""} units, `
    + `${machine.couplings.toLocaleString("en")} couplings${stages}, ${machine.learned} learned ${machine.learned === 1 ? "pattern" : "patterns"}`;
  if (machine.unfinished) find("about").prepend(make("strong", {id: "unfinished", textContent: machine.unfinished}), " ");
  wanted = new Set(machine.classes.map(c => c.class));
  chips();
  const [rows, columns] = machine.shape;
  known.resize(columns, rows);
  find("examples").replaceChildren(...machine.patterns.map(pattern => {
    const bytes = unpacked(pattern.pixels), canvas = make("canvas");
    picture(canvas, bytes, columns, rows);
    const button = make("button", {type: "button", title: `start from ${pattern.name}`}, canvas);
    button.setAttribute("aria-label", button.title);
    button.addEventListener("click", () => known.set(bytes));
    return button;
  }));
  if (machine.patterns.length) { known.set(unpacked(machine.patterns[Math.min(3, machine.patterns.length - 1)].pixels)); known.hold("top"); }
  find("history").tBodies[0].replaceChildren();
  player.unit = player.partner = null;
}
function chips() {
  const {classes} = machines[which];
  for (const box of document.querySelectorAll("[data-chips]")) {
    box.closest("fieldset").hidden = !classes.length;
    const all = make("button", {type: "button", textContent: "all"});
    all.setAttribute("aria-pressed", String(wanted.size === classes.length));
    all.addEventListener("click", () => { wanted = new Set(classes.map(c => c.class)); chips(); });
    box.replaceChildren(...classes.map(({class: id, name}) => {
      const chip = make("button", {type: "button", textContent: name});
      chip.dataset.class = id;
      chip.setAttribute("aria-pressed", String(wanted.has(id)));
      chip.setAttribute("aria-label", `class ${name}`);
      chip.addEventListener("click", () => { // if all are selected, a click selects this one alone
        if (wanted.size === classes.length) wanted = new Set([id]);
        else if (!wanted.delete(id)) wanted.add(id);
        if (!wanted.size) wanted.add(id);
        const place = [...box.children].indexOf(chip);
        chips(); box.children[place].focus();
      });
      return chip;
    }), all);
  }
}
for (const radio of document.querySelectorAll("[name=which]")) radio.addEventListener("change", () => { choose(radio.value); generate(); });

// --- generate, complete, damage: one kind of request ---

const player = new Player(soon => { if (tab === "inspect") look(soon); });
let request = {};
function generate({fresh = true, ...more} = {}) {
  const seed = find("seed"), machine = machines[which];
  if (!machine) return;
  if (fresh && find("fresh").checked) seed.value = Math.floor(Math.random() * 1e6);
  seed.value = message().seed; // the seed in use, also where the input is not a whole number
  request = message(more);
  next = null;
  order(request, "computing");
}
function message(more = {}) {
  const classes = [...wanted].sort((a, b) => a - b), all = classes.length === machines[which].classes.length;
  return {do: "generate", computer: which, samples: Number(find("samples").value), seed: Math.max(0, Math.floor(Number(find("seed").value)) || 0),
    classes: all ? [] : classes, ...more};
}
const warm = () => Number(find("warmth").value) ? {damage: {...broken.none, temperature: 2 ** Number(find("warmth").value)}} : {};
find("generate").addEventListener("click", () => generate(warm()));
find("warmth").addEventListener("change", () => generate({fresh: false, ...warm()})); // the same noise, warmer or colder
for (const button of document.querySelectorAll(".stop")) button.addEventListener("click", () => ask({do: "stop"}));

const known = new Pad(find("known"), 28, 28, {masked: true});
known.tool = "keep"; known.size = 3;
for (const radio of document.querySelectorAll("[name=tool]")) radio.addEventListener("change", () => { known.tool = radio.value; });
for (const button of document.querySelectorAll("[data-mask]")) button.addEventListener("click", () => known.hold(button.dataset.mask));
find("clear").addEventListener("click", () => { known.clear(); document.querySelector("[name=tool][value=ink]").click(); });
async function open(file) {
  if (!file) return;
  try { known.set(await fromFile(file, known.columns, known.rows)); notice(""); }
  catch { notice(`${file.name || "this file"}: not a picture that this browser can read`); }
}
find("picture").addEventListener("change", event => { open(event.target.files[0]); event.target.value = ""; });
for (const name of ["dragover", "drop", "dragleave"]) addEventListener(name, event => {
  event.preventDefault();
  find("known").classList.toggle("over", name === "dragover");
  if (name === "drop" && event.dataTransfer.files.length) { turn("complete"); open(event.dataTransfer.files[0]); }
});
addEventListener("paste", event => { const file = event.clipboardData?.files[0]; if (file) { turn("complete"); open(file); } });
find("complete").addEventListener("click", () => {
  if (!known.mask.some(Boolean)) { notice("Hold some pixels first: paint them with the brush, or choose a half."); return; }
  const {visible} = machines[which]; // a layer that is not an image may not fill its rectangle
  generate({known: {pixels: base64(known.ink.subarray(0, visible)), mask: base64(known.mask.subarray(0, visible)), hold: find("hold").checked}});
});

const broken = () => {
  const bits = Number(find("bits").value);
  return {temperature: 2 ** Number(find("temperature").value), bits: bits > 12 ? 32 : bits, noise: Number(find("noise").value),
    dead_wires: Number(find("dead-wires").value), dead_units: Number(find("dead-units").value)};
};
broken.none = {temperature: 1, bits: 32, noise: 0, dead_wires: 0, dead_units: 0};
const sliders = ["temperature", "bits", "noise", "dead-wires", "dead-units"];
let due, next = null; // damage to apply once the intact machine has run from the same noise
function damageSoon(wait) { clearTimeout(due); due = setTimeout(damageNow, wait); }
function damageNow() {
  if (intact?.noise === noiseOf(message())) generate({fresh: false, damage: broken()});
  else { generate({fresh: false}); next = broken(); }
}
find("damage").addEventListener("click", () => damageSoon(0));
for (const id of sliders) find(id).addEventListener("change", () => damageSoon(150));
find("repair").addEventListener("click", () => {
  for (const id of sliders) { find(id).value = {bits: 13}[id] ?? 0; find(id).dispatchEvent(new Event("input")); }
  damageSoon(0);
});
function words({temperature, bits, noise, dead_wires, dead_units}) {
  const faults = [];
  if (temperature !== 1) faults.push(`T × ${show(temperature, temperature < 1 ? 2 : 1)}`);
  if (bits < 32) faults.push(`${bits} bits`);
  if (noise) faults.push(`noise ${Math.round(100 * noise)} %`);
  if (dead_wires) faults.push(`${Math.round(100 * dead_wires)} % dead wires`);
  if (dead_units) faults.push(`${Math.round(100 * dead_units)} % dead units`);
  return faults.join(", ") || "none";
}
const noiseOf = ({computer, samples, seed, classes}) => JSON.stringify([computer, samples, seed, classes]);
let intact = null, history = ""; // the last run without damage, and the noise that the runs in the table share
function row(damage, verdicts) {
  const mean = key => verdicts.some(v => v[key] === null) ? null : verdicts.reduce((sum, v) => sum + v[key], 0) / verdicts.length;
  const right = verdicts.some(v => v.requested !== null) ? `${verdicts.filter(v => v.requested === v.seen).length} / ${verdicts.length}` : "–";
  const cell = text => make("td", {className: "n", textContent: text});
  const {scene, machine} = player, canvas = make("canvas");
  picture(canvas, scene.frames.at(-1).subarray(0, scene.visible), machine.shape[1], machine.shape[0]);
  return make("tr", {}, make("td", {}, canvas), make("td", {textContent: words(damage)}), cell(right), cell(show(mean("heat"))), cell(show(mean("work"))));
}
function remember() {
  const body = find("history").tBodies[0], {verdicts} = player.scene, noise = noiseOf(request);
  if (request.known) return;
  if (!request.damage) { intact = {noise, row: row(broken.none, verdicts)}; return; }
  if (noise !== history) body.replaceChildren();
  if (!body.rows.length && intact?.noise === noise && words(request.damage) !== "none") body.prepend(intact.row);
  history = noise;
  body.prepend(row(request.damage, verdicts));
  while (body.rows.length > 8) body.lastElementChild.remove();
}

// --- sliders show their values ---

const value = {
  samples: v => v, cycles: v => v, "hidden-units": v => v, "known-size": v => v,
  rate: v => `× ${show(2 ** v, v < 0 ? 2 : v % 1 ? 1 : 0)}`,
  temperature: v => `× ${show(2 ** v, v < 0 ? 2 : 1)}`, warmth: v => `× ${show(2 ** v, v < 0 ? 2 : 1)}`,
  bits: v => v > 12 ? "float" : v,
  noise: v => `${Math.round(100 * v)} %`, "dead-wires": v => `${Math.round(100 * v)} %`, "dead-units": v => `${Math.round(100 * v)} %`,
};
for (const id in value) {
  const slider = find(id), tell = () => { document.querySelector(`output[for="${id}"]`).value = value[id](Number(slider.value)); };
  slider.addEventListener("input", tell);
  tell();
}
find("known-size").addEventListener("input", event => { known.size = Number(event.target.value); });

// --- teach ---

const shapes = [ // a ring, a cross, a wave
  (x, y) => Math.abs(Math.hypot(x, y) - 4.4) < 1.1,
  (x, y) => Math.min(Math.abs(x - y), Math.abs(x + y)) < 1.5 && Math.max(Math.abs(x), Math.abs(y)) < 5.6,
  (x, y) => Math.abs(y - 3.2 * Math.sin(x * .75)) < 1.6 && Math.abs(x) < 6,
].map(inside => Uint8Array.from({length: SIDE * SIDE}, (_, i) => inside(i % SIDE - 6.5, Math.floor(i / SIDE) - 6.5) ? 255 : 0));
let patterns = shapes, drawn = 0;
const draw = new Pad(find("draw"), SIDE, SIDE, {onChange: () => { patterns[drawn] = draw.ink.slice(); thumbs(); }});
function select(place) { drawn = place; draw.ink.set(patterns[place]); draw.paint(); thumbs(); }
function thumbs() {
  const buttons = patterns.map((pattern, place) => {
    const canvas = make("canvas"), button = make("button", {type: "button", title: `pattern ${place}`}, canvas);
    picture(canvas, pattern, SIDE, SIDE);
    button.setAttribute("aria-label", button.title);
    button.setAttribute("aria-pressed", String(place === drawn));
    button.addEventListener("click", () => select(place));
    return button;
  });
  if (patterns.length < 8) {
    const add = make("button", {type: "button", className: "add", textContent: "+", title: "another pattern"});
    add.setAttribute("aria-label", add.title);
    add.addEventListener("click", () => { patterns = [...patterns, new Uint8Array(SIDE * SIDE)]; select(patterns.length - 1); });
    buttons.push(add);
  }
  find("patterns").replaceChildren(...buttons);
}
function drawTool(tool) {
  draw.tool = tool;
  find("draw-ink").setAttribute("aria-pressed", String(tool === "ink")); find("draw-rub").setAttribute("aria-pressed", String(tool === "rub"));
}
find("draw-ink").addEventListener("click", () => drawTool("ink"));
find("draw-rub").addEventListener("click", () => drawTool("rub"));
find("draw-clear").addEventListener("click", () => draw.clear());
find("draw-remove").addEventListener("click", () => { if (patterns.length > 1) { patterns = patterns.filter((_, place) => place !== drawn); select(Math.min(drawn, patterns.length - 1)); } });

const learned = {loss: [], head: null, bytes: null, trial: null};
let target = 0;
function teach(cycles, more) {
  const rule = document.querySelector("[name=rule]:checked").value;
  const drawnOnes = patterns.filter(p => p.some(v => v));
  if (!drawnOnes.length) { notice("Draw a pattern first."); return; }
  if (!more) learned.loss = [];
  target = (more ? learned.loss.at(-1)?.[0] ?? 0 : 0) + cycles;
  order({do: "teach", patterns: drawnOnes.map(base64), hidden: Number(find("hidden-units").value), rule, rate: 2 ** Number(find("rate").value), cycles, more}, "learning");
}
find("teach").addEventListener("click", () => teach(Number(find("cycles").value), false));
find("once").addEventListener("click", () => teach(1, true));
function lesson(head, bytes) {
  if (head.loss.length && learned.loss.length && head.loss[0][0] <= learned.loss.at(-1)[0]) learned.loss = [];
  learned.loss.push(...head.loss);
  learned.head = head; learned.bytes = bytes;
  if (head.trial) {
    const size = SIDE * SIDE;
    learned.trial = {...head.trial, bytes: bytes.subarray(bytes.length - size * head.trial.samples)};
  }
  working(Math.min(1, (learned.loss.at(-1)?.[0] ?? 0) / target), "learning");
  drawLesson();
}
function drawLesson() {
  const last = learned.loss.at(-1);
  find("cycle").textContent = last ? last[0] : 0;
  find("loss").textContent = last ? show(last[1], 2) : "–";
  find("trial-heat").textContent = learned.trial ? show(learned.trial.heat, 1) : "–";
  if (last) {
    const at = learned.loss.map(p => p[0]), values = learned.loss.map(p => p[1]);
    chart(find("losses"), at, [{values, colour: variable("--c2"), wide: true}], {left: `cycle ${at[0]}`, right: `${Math.max(target, last[0])}`, to: Math.max(target, last[0], 1)});
    find("losses").setAttribute("aria-label", `Loss ${show(last[1], 2)} after ${last[0]} cycles`);
  }
  if (learned.trial) {
    const {samples, bytes} = learned.trial, box = find("trials"), size = SIDE * SIDE;
    if (box.children.length !== samples) box.replaceChildren(...Array.from({length: samples}, (_, k) => make("div", {}, make("canvas"), `class ${k}`)));
    [...box.children].forEach((each, k) => picture(each.firstElementChild, bytes.subarray(k * size, (k + 1) * size), SIDE, SIDE));
  }
  if (learned.head) blocks();
}
function blocks() {
  const {head, bytes} = learned, box = find("blocks");
  if (box.dataset.names !== head.blocks.map(b => b.name + b.shape).join()) {
    box.dataset.names = head.blocks.map(b => b.name + b.shape).join();
    box.replaceChildren(...head.blocks.map(block => {
      const each = make("div", {}, make("span"), make("canvas"));
      each.style.order = block.name === "visible_label" ? -1 : 0; // the block that is easiest to read comes first
      return each;
    }));
  }
  let from = 0;
  head.blocks.forEach((block, k) => {
    const [rows, columns = 1] = block.shape, couplings = bytes.subarray(from, from += rows * columns), canvas = box.children[k].lastElementChild;
    const name = block.columns === "one" ? `${block.rows} biases` : partName(block.name);
    const each = block.rows === "visible" && block.columns !== "visible" && block.columns !== "one" ? `, one picture per ${block.columns} unit` : "";
    box.children[k].firstElementChild.textContent = `${name}${each}: up to ${show(block.largest, 3)} E₀`;
    canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", name);
    if (block.rows === "visible") mosaic(canvas, couplings, rows, columns, SIDE, SIDE);
    else { // hidden units from left to right
      const turned = new Uint8Array(couplings.length);
      for (let i = 0; i < couplings.length; i++) turned[(i % columns) * rows + Math.floor(i / columns)] = couplings[i];
      picture(canvas, turned, rows, columns, true);
      canvas.style.width = `${Math.min(rows * 9, 300)}px`;
    }
  });
}

// --- inspect ---

let looking = 0, again = false, lookTimer;
function look(soon = true) { // one request at a time; during playback, ten per second are enough
  if (!player.scene || player.unit === null || !player.scene.frames.length) return;
  if (!soon) { if (!lookTimer) lookTimer = setTimeout(() => { lookTimer = null; look(); }, 100); return; }
  again = Boolean(looking);
  if (looking) return;
  looking = ask({do: "inspect", sample: player.sample, frame: player.frame, unit: player.unit, ...player.partner === null ? {} : {partner: player.partner}});
}
for (const radio of document.querySelectorAll("[name=pick]")) radio.addEventListener("change", () => { player.pick = radio.value; });
const fixed = (v, digits = 3) => Math.abs(v) < 5e-4 && v !== 0 ? v.toExponential(1).replace("e-", " × 10⁻").replace(/⁻(\d+)/, (_, n) => "⁻" + [...n].map(d => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]).join("")).replace("-", "−") : show(v, digits);
const bracket = v => v < 0 ? `(${fixed(v)})` : fixed(v);
function unit(head, bytes) {
  const machine = player.machine, [rows, columns] = head.mapped === "hidden" ? machine.hidden_shape : machine.shape;
  document.querySelector(".map").hidden = !head.mapped;
  picture(find("wires"), bytes, columns, rows, true);
  find("wires-to").textContent = head.mapped === "hidden" ? "hidden unit" : "pixel";
  find("wires-largest").value = fixed(head.largest);
  if (player.partner === null && head.rule) { player.partner = head.rule.partner; player.paint(true); player.partner = null; }
  const box = find("unit"), largest = Math.max(...Object.values(head.forces).map(Math.abs), Math.abs(head.total), 1e-9);
  const bars = make("div", {className: "bars"});
  const bar = (name, force, kind = "") => {
    const inner = make("i", {className: force < 0 ? "minus" : ""}), much = 50 * Math.abs(force) / largest;
    inner.style.width = `${much}%`; inner.style.left = `${force < 0 ? 50 - much : 50}%`;
    bars.append(make("span", {textContent: name, className: kind}), make("span", {className: "bar"}, inner), make("output", {value: fixed(force), className: kind}));
  };
  for (const [name, force] of Object.entries(head.forces)) bar(name === "onsite" ? "its own potential" : partName(name), force);
  bar("sum", head.total, "total");
  const parts = [make("h3", {textContent: `Force on ${head.name}, step ${head.step}${player.scene.windows.length > 1 ? `, ${player.scene.windows[head.window]}` : ""}`})];
  parts[0].style.marginTop = 0;
  parts.push(equation("F<sub>i</sub> = −V′<sub>onsite</sub>(x<sub>i</sub>) − Σ<sub>j</sub> J<sub>ij</sub> x<sub>j</sub> − b<sub>i</sub>"), bars);
  parts.push(make("p", {className: "note", innerHTML: head.held ? "This unit is held: it feels the force but does not follow it."
    : `<i>x<sub>i</sub></i> = ${fixed(head.x)}. In this step the force moves it by μΔ<i>t F<sub>i</sub></i> = ${fixed(head.drift)}, the thermal kick by about ±${fixed(head.kick)}: `
      + (Math.abs(head.drift) < head.kick ? "noise dominates a single step, but the force dominates in the long run." : "the force dominates even a single step.")}));
  if (head.rule) parts.push(...rule(head));
  parts.push(partners(head));
  box.replaceChildren(...parts);
}
function equation(html, numbers = false) { return make("p", {className: numbers ? "equation numbers" : "equation", innerHTML: html}); }
function rule(head) {
  const r = head.rule, title = make("h3", {textContent: `The local rule between ${head.name} and ${r.name}`});
  if (!r.wired) return [title, make("p", {className: "note", textContent: "These two units are not wired to each other, so there is nothing to learn between them."})];
  const what = r.name === "bias" ? equation("b<sub>i</sub> ← b<sub>i</sub> − α r<sub>i</sub>")
    : equation("J<sub>ij</sub> ← J<sub>ij</sub> − α (r<sub>i</sub> x<sub>j</sub>′ + r<sub>j</sub> x<sub>i</sub>′), &nbsp; r<sub>i</sub> = [−Δx<sub>i</sub> + μΔt ∂<sub>i</sub>V(x′)] / 2k<sub>B</sub>T");
  const sum = `${fixed(r.after, 5)} ← ${fixed(r.J, 5)} − ${fixed(r.alpha)} × (${fixed(r.r_i)} × ${bracket(r.x_j)} + ${bracket(r.r_j)} × ${bracket(r.x_i)})`;
  const drift = Math.abs(r.mean) > 3 * r.error ? "so learning would continue to change this coupling" : "which is consistent with zero: on average this coupling does not change";
  return [title, what, equation(sum, true),
    make("p", {className: "note", textContent: `Step ${r.step} of a noising path of pattern “${r.pattern}”, along which learning runs. Here the update is ${fixed(r.update)}; `
      + `its mean over ${r.steps} steps of this stage is ${fixed(r.mean)} ± ${fixed(r.error)}, ${drift}.`})];
}
function partners(head) {
  const body = make("tbody"), table = make("table", {}, make("thead", {}, make("tr", {},
    make("th", {innerHTML: "strongest partners <i>j</i>"}), ...["<i>J<sub>ij</sub></i>", "<i>x<sub>j</sub></i>", "force"].map(text => make("th", {className: "n", innerHTML: text})))), body);
  for (const partner of head.partners) {
    const pick = make("button", {type: "button", textContent: partner.name});
    pick.addEventListener("click", () => { player.partner = partner.unit; player.paint(true); look(); });
    body.append(make("tr", {}, make("td", {}, pick), ...[partner.J, partner.x, partner.force].map(v => make("td", {className: "n", textContent: fixed(v)}))));
  }
  return make("div", {className: "scroll"}, table);
}

// --- export ---

function exportPanel() {
  find("lines").textContent = lines[which] || "generate samples first";
  for (const [id, name] of [["save-computer", "computer.safetensors"], ["save-run", "lab-run.zip"]])
    if (viewer) find(id).href = `export/${viewer}/${which}-${name}`;
}
find("copy").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText(find("lines").textContent); find("copy").textContent = "copied"; }
  catch { getSelection().selectAllChildren(find("lines")); find("copy").textContent = "selected: copy it now"; }
  setTimeout(() => { find("copy").textContent = "copy"; }, 1500);
});
export function sheetCanvas() { // the samples with their verdicts, as one picture
  const {scene, machine} = player, [rows, columns] = machine.shape, scale = Math.max(1, Math.round(112 / columns)), gap = 10, line = 22;
  const across = Math.min(scene.samples, 10), down = Math.ceil(scene.samples / across), wide = columns * scale, high = rows * scale;
  const canvas = make("canvas", {width: across * (wide + gap) + gap, height: down * (high + gap + line) + gap}), context = canvas.getContext("2d");
  context.fillStyle = "#fff"; context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = false; context.font = "14px system-ui, sans-serif";
  [...player.sheet.children].forEach((tile, s) => {
    const x = gap + s % across * (wide + gap), y = gap + Math.floor(s / across) * (high + gap + line);
    context.drawImage(tile.firstElementChild, x, y, wide, high);
    context.fillStyle = "#333"; context.fillText([...tile.lastElementChild.children].map(e => e.textContent).join("  "), x, y + high + 16, wide);
  });
  return canvas;
}
find("png").addEventListener("click", () => sheetCanvas().toBlob(blob => {
  const link = make("a", {href: URL.createObjectURL(blob), download: `thermoloom-${request.seed}.png`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}));

select(0);
onTheme(() => { drawLesson(); look(); });
addEventListener("resize", () => { if (tab === "teach") drawLesson(); });
if (find(`tab-${location.hash.slice(1)}`)) turn(location.hash.slice(1));
connect();
Object.assign(window, {lab: {player, known, draw, machines, turn, get which() { return which; }}}); // for the curious, in the browser's console
