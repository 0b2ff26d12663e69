// A pad to draw on: bytes of ink, and where pixels are held. Mouse, finger, pen or keyboard.
import {picture, variable} from "./paint.js";

export class Pad {
  constructor(canvas, columns, rows, {masked = false, onChange = () => {}} = {}) {
    Object.assign(this, {canvas, masked, onChange, tool: "ink", size: 2, cursor: null});
    this.resize(columns, rows);
    let drawing = false, before = null;
    const at = event => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width * this.columns, (event.clientY - box.top) / box.height * this.rows];
    };
    canvas.addEventListener("pointerdown", event => {
      drawing = true; before = at(event); this.cursor = null;
      try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is already gone */ }
      this.stroke(before, before); event.preventDefault(); canvas.focus({preventScroll: true});
    });
    canvas.addEventListener("pointermove", event => {
      if (!drawing) return;
      const here = at(event);
      this.stroke(before, here); before = here;
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { drawing = false; });
    canvas.addEventListener("keydown", event => {
      const moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
      this.cursor ??= [Math.floor(this.columns / 2), Math.floor(this.rows / 2)];
      if (event.key in moves) {
        const [dx, dy] = moves[event.key];
        this.cursor = [Math.min(this.columns - 1, Math.max(0, this.cursor[0] + dx)), Math.min(this.rows - 1, Math.max(0, this.cursor[1] + dy))];
        this.paint();
      } else if (event.key === " " || event.key === "Backspace") {
        const place = [this.cursor[0] + .5, this.cursor[1] + .5], tool = this.tool;
        if (event.key === "Backspace") this.tool = tool === "keep" ? "free" : "rub";
        this.stroke(place, place);
        this.tool = tool;
      } else return;
      event.preventDefault(); event.stopPropagation();
    });
    canvas.addEventListener("blur", () => { this.cursor = null; this.paint(); });
  }

  resize(columns, rows) {
    this.columns = columns; this.rows = rows;
    this.ink = new Uint8Array(columns * rows); this.mask = new Uint8Array(columns * rows);
    this.scale = Math.max(4, Math.round(420 / columns));
    this.paint();
  }

  set(ink, mask) { this.ink.set(ink); if (mask) this.mask.set(mask); this.changed(); }
  clear() { this.ink.fill(0); this.mask.fill(0); this.changed(); }
  changed() { this.paint(); this.onChange(); }

  // a brush with a soft edge for ink, a hard one for the mask
  stroke([x0, y0], [x1, y1]) {
    const length = Math.hypot(x1 - x0, y1 - y0), steps = Math.max(1, Math.ceil(2 * length)), radius = this.size / 2;
    for (let s = 0; s <= steps; s++) {
      const cx = x0 + (x1 - x0) * s / steps, cy = y0 + (y1 - y0) * s / steps;
      for (let y = Math.max(0, Math.floor(cy - radius - 1)); y < Math.min(this.rows, cy + radius + 1); y++)
        for (let x = Math.max(0, Math.floor(cx - radius - 1)); x < Math.min(this.columns, cx + radius + 1); x++) {
          const away = Math.hypot(x + .5 - cx, y + .5 - cy), i = y * this.columns + x;
          const much = Math.min(1, Math.max(0, radius + .5 - away));
          if (this.tool === "ink") this.ink[i] = Math.max(this.ink[i], 255 * much);
          else if (this.tool === "rub") this.ink[i] = Math.min(this.ink[i], 255 * (1 - much));
          else if (away <= radius + .2) this.mask[i] = this.tool === "keep" ? 1 : 0;
        }
    }
    this.changed();
  }

  hold(where) {
    const near = (x, y) => {
      for (let v = -2; v <= 2; v++) for (let u = -2; u <= 2; u++) {
        const X = x + u, Y = y + v;
        if (X >= 0 && Y >= 0 && X < this.columns && Y < this.rows && this.ink[Y * this.columns + X] > 60) return true;
      }
      return false;
    };
    const test = {top: (x, y) => y < this.rows / 2, left: x => x < this.columns / 2, none: () => false, near}[where];
    for (let y = 0; y < this.rows; y++) for (let x = 0; x < this.columns; x++) this.mask[y * this.columns + x] = test(x, y) ? 1 : 0;
    this.changed();
  }

  paint() {
    const {canvas, columns, rows, scale} = this, small = document.createElement("canvas");
    picture(small, this.ink, columns, rows);
    canvas.width = columns * scale; canvas.height = rows * scale;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    if (this.masked) {
      context.fillStyle = "rgb(255 255 255 / .16)";
      context.strokeStyle = "rgb(255 255 255 / .28)"; context.lineWidth = scale / 9;
      for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) {
        if (this.mask[y * columns + x]) continue;
        context.fillRect(x * scale, y * scale, scale, scale);
        context.beginPath(); context.moveTo(x * scale, (y + 1) * scale); context.lineTo((x + 1) * scale, y * scale); context.stroke();
      }
    }
    if (this.cursor) {
      context.strokeStyle = variable("--accent"); context.lineWidth = scale / 5;
      context.strokeRect(this.cursor[0] * scale, this.cursor[1] * scale, scale, scale);
    }
  }
}

// a picture file on the pixels of a pad: fitted, grey, ink bright on dark
export async function fromFile(file, columns, rows) {
  const bitmap = await createImageBitmap(file), canvas = document.createElement("canvas");
  canvas.width = columns; canvas.height = rows;
  const context = canvas.getContext("2d", {willReadFrequently: true});
  const scale = Math.min(columns / bitmap.width, rows / bitmap.height);
  const wide = bitmap.width * scale, high = bitmap.height * scale;
  const grey = new Uint8Array(columns * rows);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, bitmap.width, bitmap.height, 0, 0, columns, rows);
  const all = context.getImageData(0, 0, columns, rows).data;
  const light = (data, i) => (.3 * data[4 * i] + .59 * data[4 * i + 1] + .11 * data[4 * i + 2]) * data[4 * i + 3] / 255;
  let edge = 0, count = 0; // the edge shows how bright the paper is
  for (let i = 0; i < grey.length; i++) {
    const x = i % columns, y = Math.floor(i / columns);
    if (x && y && x < columns - 1 && y < rows - 1) continue;
    edge += light(all, i); count++;
  }
  const paper = edge / count, inverted = paper > 128;
  context.fillStyle = inverted ? "#fff" : "#000";
  context.fillRect(0, 0, columns, rows);
  context.drawImage(bitmap, (columns - wide) / 2, (rows - high) / 2, wide, high);
  const data = context.getImageData(0, 0, columns, rows).data;
  for (let i = 0; i < grey.length; i++) grey[i] = inverted ? 255 - light(data, i) : light(data, i);
  return grey;
}
