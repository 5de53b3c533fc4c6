// Parallel coordinates. Parameters have few values, so rows are counted between pairs of axes and
// drawn as ribbons: the time to draw depends on the values, not on the rows.

import { FONT, SMALL_FONT, Surface, fitText, logTicks, ticks } from "./canvas.js";
import { rgb, theme, viridis } from "./colors.js";
import { CLASSES, FAILED_CLASS, brushEnds } from "./dataset.js";
import { button, el, fill, saveCsv } from "./dom.js";
import { digits, nanoseconds } from "./format.js";

const HEAD = 46;
const FOOT = 20;
const SIDE = 66;
const CLASS_SHARES = [1, 0.82, 0.62, 0.42, 0.15];
const CLASS_ALPHAS = [0.95, 0.85, 0.75, 0.6, 0.32, 0.4];

export const classColor = (kind) =>
  kind === FAILED_CLASS ? theme().bad : rgb(viridis(CLASS_SHARES[kind]));

export const axisName = (entry) => entry.replace(/^!/, "");

export class Parallel {
  /** `brushed(name, labels or null, draft)`, `ordered(axes)`: entries starting with ! are inverted. */
  constructor(parent, { height = 300, brushed, ordered }) {
    this.holder = el("div", { class: "parallel" });
    parent.append(this.holder);
    this.surface = new Surface(this.holder, { height, label: "parallel coordinates", focus: false });
    this.heads = el("div", { class: "axis-heads" });
    this.holder.append(this.heads);
    this.brushed = brushed;
    this.ordered = ordered;
    this.drag = null;
    this.ground = document.createElement("canvas");
    this.groundKey = "";
    this.listen();
  }

  listen() {
    const { canvas } = this.surface;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
  }

  /** `input`: {ds, entries, brush, mask, count, log} */
  update(input) {
    this.input = input;
    this.axes = input.entries
      .map((entry) => ({ entry, inverted: entry.startsWith("!"), axis: input.ds.axes.get(axisName(entry)) }))
      .filter((one) => one.axis);
    this.draw();
    if (!this.carrying) this.drawHeads();
  }

  x(index) {
    const count = this.axes.length;
    return count < 2 ? this.surface.wide / 2 : SIDE + (index * (this.surface.wide - 2 * SIDE)) / (count - 1);
  }

  get floor() {
    return this.surface.high - FOOT;
  }

  /** 0 at the bottom, 1 at the top. */
  y(one, share) {
    const up = one.inverted ? 1 - share : share;
    return this.floor - up * (this.floor - HEAD);
  }

  logs(axis) {
    return this.input.log && axis.logarithmic;
  }

  shareOf(axis, value) {
    if (this.logs(axis)) return Math.log(value / axis.low) / Math.log(axis.high / axis.low);
    return (value - axis.low) / (axis.high - axis.low);
  }

  valueOf(axis, share) {
    if (this.logs(axis)) return axis.low * (axis.high / axis.low) ** share;
    return axis.low + share * (axis.high - axis.low);
  }

  /** Top and height of a bin's slot on its axis. */
  slot(one, bin) {
    const { axis } = one;
    if (axis.kind === "numbers") {
      // Rows without a value hang below the axis.
      if (bin === 0) return [this.floor + 8, 6];
      const high = (this.floor - HEAD) / (axis.count - 1);
      return [this.y(one, (bin - 0.5) / (axis.count - 1)) - high / 2, high];
    }
    const room = (this.floor - HEAD) / axis.count;
    const high = Math.min(room * 0.78, 44);
    return [this.y(one, (bin + 0.5) / axis.count) - high / 2, high];
  }

  draw() {
    const pen = this.surface.begin();
    if (!this.axes.length) return;
    const { ds, mask, count } = this.input;
    const selective = count < ds.count;
    if (selective) pen.drawImage(this.prepared(), 0, 0, this.surface.wide, this.surface.high);
    // The first brush should not be the one that waits.
    else setTimeout(() => this.prepared(), 50);
    for (let i = 0; i + 1 < this.axes.length; i++) {
      const [a, b] = [this.axes[i].axis, this.axes[i + 1].axis];
      this.ribbons(pen, i, selective ? ds.pairs(a, b, mask, this.input.log) : ds.allPairs(a, b, this.input.log), false);
    }
    this.axes.forEach((one, i) => this.drawAxis(pen, one, i));
  }

  /** All rows in grey, kept until axes or rows change. */
  prepared() {
    const { ds, log } = this.input;
    const { canvas, wide, high } = this.surface;
    const key = [ds.rows, wide, high, log, theme().dark, this.input.workload, ...this.axes.map((one) => one.entry)].join("\n");
    if (key !== this.groundKey) {
      this.groundKey = key;
      this.ground.width = canvas.width;
      this.ground.height = canvas.height;
      const below = this.ground.getContext("2d", { willReadFrequently: true });
      below.setTransform(canvas.width / wide, 0, 0, canvas.height / high, 0, 0);
      for (let i = 0; i + 1 < this.axes.length; i++) {
        this.ribbons(below, i, ds.allPairs(this.axes[i].axis, this.axes[i + 1].axis, log), true);
      }
    }
    return this.ground;
  }

  ribbons(pen, index, counts, grey) {
    const [a, b] = [this.axes[index], this.axes[index + 1]];
    const [na, nb] = [a.axis.count, b.axis.count];
    const outs = new Float64Array(na);
    const ins = new Float64Array(nb);
    for (let i = 0; i < na; i++) {
      for (let j = 0; j < nb; j++) {
        const base = (i * nb + j) * CLASSES;
        for (let c = 0; c < CLASSES; c++) {
          outs[i] += counts[base + c];
          ins[j] += counts[base + c];
        }
      }
    }
    const scaleA = Math.max(...outs) || 1;
    const scaleB = Math.max(...ins) || 1;
    const x0 = this.x(index) + 5;
    const x1 = this.x(index + 1) - 5;
    const flat = grey ? theme().line : null;
    const fromY = stackStarts(a, outs, scaleA, this);
    const toY = stackStarts(b, ins, scaleB, this);
    const bend = (x1 - x0) * 0.42;
    // The slow first, so that the best lie on top.
    for (const c of [5, 4, 3, 2, 1, 0]) {
      pen.fillStyle = flat || classColor(c);
      pen.globalAlpha = grey ? 0.5 : CLASS_ALPHAS[c];
      for (let i = 0; i < na; i++) {
        if (!outs[i]) continue;
        const unitA = fromY.unit[i];
        for (let j = 0; j < nb; j++) {
          const n = counts[(i * nb + j) * CLASSES + c];
          if (!n) continue;
          const unitB = toY.unit[j];
          const ya = fromY.at[i];
          const yb = toY.at[j];
          const ha = Math.max(n * unitA, 0.35);
          const hb = Math.max(n * unitB, 0.35);
          pen.beginPath();
          pen.moveTo(x0, ya);
          pen.bezierCurveTo(x0 + bend, ya, x1 - bend, yb, x1, yb);
          pen.lineTo(x1, yb + hb);
          pen.bezierCurveTo(x1 - bend, yb + hb, x0 + bend, ya + ha, x0, ya + ha);
          pen.fill();
          fromY.at[i] += n * unitA;
          toY.at[j] += n * unitB;
        }
      }
    }
    pen.globalAlpha = 1;
  }

  drawAxis(pen, one, index) {
    const colors = theme();
    const { axis } = one;
    const x = this.x(index);
    const brush = this.input.brush[axis.name];
    pen.strokeStyle = colors.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x, HEAD - 4);
    pen.lineTo(x, this.floor + 2);
    pen.stroke();
    pen.font = SMALL_FONT;
    pen.textAlign = "center";
    if (axis.kind === "values") this.drawValues(pen, one, x, brush);
    else this.drawScale(pen, one, x, brush);
    pen.font = `600 ${FONT}`;
    pen.textAlign = "center";
    pen.fillStyle = brush ? colors.accent : colors.ink;
    const wide = this.axes.length > 1 ? this.x(1) - this.x(0) - 8 : 200;
    pen.fillText(fitText(pen, `${axis.label}${one.inverted ? " ↓" : ""}`, wide), x, 14);
  }

  drawValues(pen, one, x, brush) {
    const { axis } = one;
    const keys = axis.keys || axis.labels;
    const every = Math.ceil(13 / ((this.floor - HEAD) / axis.count));
    for (let bin = 0; bin < axis.count; bin++) {
      const [y, high] = this.slot(one, bin);
      const on = !brush || brush.includes(keys[bin]);
      pen.fillStyle = on ? theme().ink : theme().soft;
      pen.globalAlpha = on ? 1 : 0.3;
      pen.fillRect(x - 4, y, 8, high);
      pen.globalAlpha = 1;
      if (bin % every === 0) this.tag(pen, fitText(pen, axis.labels[bin], 96), x, y + high / 2, on);
    }
  }

  drawScale(pen, one, x, brush) {
    const { axis } = one;
    const marks = this.logs(axis) ? logTicks(axis.low, axis.high) : ticks(axis.low, axis.high, 5);
    for (const value of marks) {
      const y = this.y(one, this.shareOf(axis, value));
      pen.fillStyle = theme().ink;
      pen.fillRect(x - 4, y - 0.5, 8, 1);
      this.tag(pen, axis.unit === "ns" ? nanoseconds(value) : digits(value), x, y, true);
    }
    if (!brush) return;
    const [low, high] = brushEnds(brush);
    const top = this.y(one, this.shareOf(axis, Math.min(high, axis.high)));
    const bottom = this.y(one, this.shareOf(axis, Math.max(low, axis.low)));
    pen.fillStyle = theme().accent;
    pen.globalAlpha = 0.35;
    pen.fillRect(x - 7, Math.min(top, bottom), 14, Math.max(3, Math.abs(bottom - top)));
    pen.globalAlpha = 1;
  }

  tag(pen, text, x, y, on) {
    const wide = pen.measureText(text).width + 6;
    pen.globalAlpha = 0.82;
    pen.fillStyle = theme().panel;
    pen.fillRect(x + 7, y - 7, wide, 14);
    pen.globalAlpha = 1;
    pen.textAlign = "left";
    pen.fillStyle = on ? theme().ink : theme().soft;
    pen.fillText(text, x + 10, y);
  }

  /** Over the drawn titles: what the keyboard and a dragging pointer take hold of. */
  drawHeads() {
    const focused = document.activeElement?.dataset?.axis;
    fill(
      this.heads,
      this.axes.map((one, i) => this.head(one, i)),
    );
    if (focused) [...this.heads.children].find((head) => head.dataset.axis === focused)?.focus();
  }

  head(one, index) {
    const { name, label } = one.axis;
    const title = `${label}: drag to move, double-click or I to invert, arrow keys to move and to brush, Escape to clear`;
    const made = button("", title, null, { class: "axis-head", "data-axis": name, "aria-label": title, tabindex: "0" });
    made.style.left = `${this.x(index) - 46}px`;
    made.addEventListener("dblclick", () => this.invert(index));
    made.addEventListener("pointerdown", (event) => {
      this.carrying = { index, from: event.clientX };
      made.setPointerCapture(event.pointerId);
    });
    made.addEventListener("pointermove", (event) => {
      if (this.carrying) made.style.left = `${this.x(index) - 46 + event.clientX - this.carrying.from}px`;
    });
    made.addEventListener("pointerup", (event) => {
      const carried = this.carrying;
      this.carrying = null;
      if (!carried) return;
      const step = this.axes.length > 1 ? this.x(1) - this.x(0) : 1;
      const moved = Math.round((event.clientX - carried.from) / step);
      if (moved) this.reorder(index, index + moved);
      else made.style.left = `${this.x(index) - 46}px`;
    });
    made.addEventListener("keydown", (event) => this.headKey(event, index));
    return made;
  }

  headKey(event, index) {
    const acts = {
      ArrowLeft: () => this.reorder(index, index - 1),
      ArrowRight: () => this.reorder(index, index + 1),
      ArrowUp: () => this.shift(index, 1),
      ArrowDown: () => this.shift(index, -1),
      i: () => this.invert(index),
      Escape: () => this.brushed(this.axes[index].axis.name, null),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  entries() {
    return this.axes.map((one) => one.entry);
  }

  invert(index) {
    const entries = this.entries();
    entries[index] = entries[index].startsWith("!") ? axisName(entries[index]) : `!${entries[index]}`;
    this.ordered(entries);
  }

  reorder(from, to) {
    const entries = this.entries();
    const [moved] = entries.splice(from, 1);
    entries.splice(Math.max(0, Math.min(entries.length, to)), 0, moved);
    this.ordered(entries);
  }

  /** By keyboard: one value at a time, or a tenth of a scale. */
  shift(index, by) {
    const { axis, inverted } = this.axes[index];
    const step = inverted ? -by : by;
    const brush = this.input.brush[axis.name];
    if (axis.kind === "values") {
      const keys = axis.keys || axis.labels;
      const at = brush ? keys.indexOf(brush[0]) + step : step > 0 ? 0 : keys.length - 1;
      this.brushed(axis.name, [keys[Math.max(0, Math.min(keys.length - 1, at))]]);
      return;
    }
    const centre = brush
      ? this.shareOf(axis, Math.max(axis.low, brushEnds(brush)[0])) + step / 10
      : step > 0 ? 0 : 0.9;
    const low = Math.max(0, Math.min(0.9, centre));
    this.brushed(axis.name, [`${tidy(this.valueOf(axis, low))}..${tidy(this.valueOf(axis, low + 0.1))}`]);
  }

  nearest(px) {
    let best = -1;
    this.axes.forEach((_, i) => {
      if (Math.abs(this.x(i) - px) < 34 && (best < 0 || Math.abs(this.x(i) - px) < Math.abs(this.x(best) - px))) best = i;
    });
    return best;
  }

  press(event) {
    const [px, py] = this.surface.at(event);
    const index = this.nearest(px);
    if (index < 0 || py < HEAD - 8) return;
    this.drag = { index, from: py, to: py, add: event.shiftKey, before: this.input.brush[this.axes[index].axis.name] };
    this.surface.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.drag) return;
    this.drag.to = this.surface.at(event)[1];
    if (this.drag.asked) return;
    // One redraw a frame, however fast the pointer reports.
    this.drag.asked = true;
    requestAnimationFrame(() => {
      if (!this.drag) return;
      this.drag.asked = false;
      if (Math.abs(this.drag.to - this.drag.from) > 3) this.tell(true);
    });
  }

  release(event) {
    if (!this.drag) return;
    this.drag.to = this.surface.at(event)[1];
    if (Math.abs(this.drag.to - this.drag.from) > 3) this.tell(false);
    else this.click();
    this.drag = null;
  }

  tell(draft) {
    const { index, from, to, add, before } = this.drag;
    const one = this.axes[index];
    const { axis } = one;
    const [top, bottom] = [Math.min(from, to), Math.max(from, to)];
    if (axis.kind === "values") {
      const keys = axis.keys || axis.labels;
      const within = keys.filter((_, bin) => {
        if (bin >= axis.count) return false;
        const [y, high] = this.slot(one, bin);
        return y + high > top && y < bottom;
      });
      const all = add && before ? [...new Set([...before, ...within])] : within;
      this.brushed(axis.name, all.length ? all : null, draft);
      return;
    }
    const share = (y) => {
      const up = (this.floor - y) / (this.floor - HEAD);
      return Math.max(0, Math.min(1, one.inverted ? 1 - up : up));
    };
    const ends = [share(from), share(to)].sort((p, q) => p - q);
    const low = ends[0] <= 0 ? "" : tidy(this.valueOf(axis, ends[0]));
    const high = ends[1] >= 1 ? "" : tidy(this.valueOf(axis, ends[1]));
    this.brushed(axis.name, [`${low}..${high}`], draft);
  }

  /** A click takes one value, or clears the axis' brush. */
  click() {
    const { index, from, add, before } = this.drag;
    const one = this.axes[index];
    const { axis } = one;
    if (axis.kind === "values") {
      const keys = axis.keys || axis.labels;
      const at = keys.findIndex((_, bin) => {
        if (bin >= axis.count) return false;
        const [y, high] = this.slot(one, bin);
        return from >= y - 2 && from <= y + high + 2;
      });
      const same = before && before.length === 1 && before[0] === keys[at];
      if (at >= 0 && !same) {
        this.brushed(axis.name, add && before ? [...new Set([...before, keys[at]])] : [keys[at]]);
        return;
      }
    }
    this.brushed(axis.name, null);
  }

  png(name) {
    this.surface.png(name);
  }

  /** What is drawn: how many selected rows go from one value to the next axis' value. */
  csv(name) {
    const { ds, mask, log } = this.input;
    const rows = [["axis", "value", "next_axis", "next_value", "rows"]];
    const label = (axis, bin) => {
      if (axis.kind === "values") return axis.labels[bin];
      return bin === 0 ? "none" : String(tidy(this.valueOf(axis, (bin - 0.5) / (axis.count - 1))));
    };
    for (let i = 0; i + 1 < this.axes.length; i++) {
      const [a, b] = [this.axes[i].axis, this.axes[i + 1].axis];
      const counts = ds.pairs(a, b, mask, log);
      for (let p = 0; p < a.count; p++) {
        for (let q = 0; q < b.count; q++) {
          let n = 0;
          for (let c = 0; c < CLASSES; c++) n += counts[(p * b.count + q) * CLASSES + c];
          if (n) rows.push([a.name, label(a, p), b.name, label(b, q), n]);
        }
      }
    }
    saveCsv(rows, `${name}.csv`);
  }
}

const tidy = (value) => Number(value.toPrecision(4));

/** Where each bin's ribbons start, and pixels per row there. */
function stackStarts(one, sums, most, chart) {
  const at = new Float64Array(sums.length);
  const unit = new Float64Array(sums.length);
  for (let bin = 0; bin < sums.length; bin++) {
    const [y, high] = chart.slot(one, bin);
    if (one.axis.kind === "numbers") {
      // A scale shows how many by width: the square root keeps rare values visible.
      const tall = sums[bin] ? Math.max(0.6, high * 1.6 * Math.sqrt(sums[bin] / most)) : 0;
      at[bin] = y + high / 2 - tall / 2;
      unit[bin] = sums[bin] ? tall / sums[bin] : 0;
    } else {
      const tall = sums[bin] ? Math.max(1, (high * sums[bin]) / most) : 0;
      at[bin] = y + high / 2 - tall / 2;
      unit[bin] = sums[bin] ? tall / sums[bin] : 0;
    }
  }
  return { at, unit };
}
