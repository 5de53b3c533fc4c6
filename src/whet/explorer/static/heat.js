// The heat map: two parameters, every cell a config or a group of them.

import { FONT, SMALL_FONT, Surface, fitText, roundBox, star } from "./canvas.js";
import { inkOn, rgb, theme, viridis } from "./colors.js";
import { heatCells } from "./dataset.js";
import { hideTip, saveCsv, showTip } from "./dom.js";
import { configText, counted, digits, inUnit, nanoseconds, percent, statusGlyph, statusText } from "./format.js";

const LEFT = 64;
const TOP = 8;
const BOTTOM = 38;

export class HeatMap {
  /** `picked(xi, yi, row)` on a click, `boxed(xs, ys)` after a drag, `moved(dx, dy)` by arrow keys. */
  constructor(parent, { height = 360, label = "heat map", picked, boxed, moved, small = false }) {
    this.surface = new Surface(parent, { height, label });
    this.small = small;
    this.picked = picked;
    this.boxed = boxed;
    this.moved = moved;
    this.drag = null;
    this.listen();
  }

  listen() {
    const { canvas } = this.surface;
    canvas.addEventListener("pointerdown", (event) => {
      const cell = this.cellAt(event);
      if (!cell) return;
      this.drag = { from: cell, to: cell };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const cell = this.cellAt(event);
      if (this.drag && cell) {
        this.drag.to = cell;
        this.draw();
      }
      if (cell) this.tip(cell, event.clientX, event.clientY);
      else hideTip();
    });
    canvas.addEventListener("pointerup", () => {
      const { drag } = this;
      this.drag = null;
      if (!drag) return;
      const [[x0, y0], [x1, y1]] = [drag.from, drag.to];
      if (x0 === x1 && y0 === y1) this.pick(x0, y0);
      else if (this.boxed) this.boxed([Math.min(x0, x1), Math.max(x0, x1)], [Math.min(y0, y1), Math.max(y0, y1)]);
      else this.draw();
    });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("blur", hideTip);
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (step && this.moved) {
      event.preventDefault();
      this.moved(...step);
    } else if ((event.key === "Enter" || event.key === " ") && this.picked && this.input.current) {
      event.preventDefault();
      this.pick(...this.input.current);
    }
  }

  pick(x, y) {
    if (!this.picked) return;
    const cell = y * this.cells.wide + x;
    const row = this.cells.row[cell] >= 0 ? this.cells.row[cell] : this.cells.failedRow[cell];
    this.picked(x, y, row);
  }

  /** `input`: {ds, workload, unit, x, y, fixed, reduce, mask, current:[xi,yi], clicked:row, searchBest:row, walk} */
  update(input) {
    this.input = input;
    this.cells = heatCells(input.ds, input);
    this.across = input.ds.parameter(input.x);
    this.down = input.ds.parameter(input.y);
    const { ns } = this.scaleCells(input);
    let low = Infinity;
    let high = -Infinity;
    for (let i = 0; i < ns.length; i++) {
      if (!(ns[i] >= 0)) continue;
      const worth = input.unit.of(ns[i], input.workload);
      low = Math.min(low, worth);
      high = Math.max(high, worth);
    }
    this.low = low;
    this.high = high;
    this.draw();
  }

  /** Colours mean the same whatever is selected: the scale is that of all rows. */
  scaleCells(input) {
    const key = JSON.stringify([input.x, input.y, input.fixed, input.reduce, input.ds.rows]);
    if (!input.mask) this.whole = { key, ds: input.ds, cells: this.cells };
    else if (!this.whole || this.whole.key !== key || this.whole.ds !== input.ds) {
      this.whole = { key, ds: input.ds, cells: heatCells(input.ds, { ...input, mask: null }) };
    }
    return this.whole.cells;
  }

  share(ns) {
    const { unit, workload } = this.input;
    if (!(this.high > this.low)) return 1;
    if (unit.more) return (unit.of(ns, workload) - this.low) / (this.high - this.low);
    return 1 - Math.log(ns / this.low) / Math.log(this.high / this.low);
  }

  /** The first row of values is at the bottom, as on any chart. */
  box(x, y) {
    return [
      this.left + x * this.stepX + 1,
      TOP + (this.cells.high - 1 - y) * this.stepY + 1,
      this.stepX - 2,
      this.stepY - 2,
    ];
  }

  cellAt(event) {
    if (!this.cells) return null;
    const [px, py] = this.surface.at(event);
    const x = Math.floor((px - this.left) / this.stepX);
    const y = this.cells.high - 1 - Math.floor((py - TOP) / this.stepY);
    const inside = x >= 0 && y >= 0 && x < this.cells.wide && y < this.cells.high;
    return inside ? [x, y] : null;
  }

  draw() {
    if (!this.cells) return;
    const pen = this.surface.begin();
    const { wide, high } = this.cells;
    pen.font = SMALL_FONT;
    const labels = this.down.labels.map((text) => pen.measureText(text).width);
    this.left = Math.max(this.small ? 40 : LEFT - 12, Math.min(this.small ? 70 : 120, Math.max(...labels) + (this.small ? 26 : 34)));
    this.stepX = (this.surface.wide - this.left - 4) / wide;
    this.stepY = (this.surface.high - TOP - BOTTOM) / high;
    for (let y = 0; y < high; y++) for (let x = 0; x < wide; x++) this.drawCell(pen, x, y);
    this.drawLabels(pen);
    this.drawMarkers(pen);
    if (this.drag) this.drawDrag(pen);
  }

  drawCell(pen, x, y) {
    const { cells, input } = this;
    const cell = y * cells.wide + x;
    const box = this.box(x, y);
    const walk = input.walk;
    if (walk && !walk.tried[cell]) return this.drawGhost(pen, cell, box);
    const ns = walk ? walk.ns[cell] : cells.ns[cell];
    if (ns >= 0) {
      const color = viridis(this.share(ns));
      roundBox(pen, ...box, 3);
      pen.fillStyle = rgb(color);
      pen.fill();
      this.drawValue(pen, inUnit(ns, input.unit, input.workload, false), box, inkOn(color));
      if (!walk && cells.tie[cell]) this.drawTie(pen, box, inkOn(color));
    } else if (walk || cells.failed[cell] >= 0) {
      const status = walk ? walk.failed[cell] : cells.failed[cell];
      this.drawFailed(pen, input.ds.statuses[status], box);
    } else this.drawUnmeasured(pen, box, cells.hidden[cell]);
    return undefined;
  }

  /** What the search has not visited yet: the table shines through faintly. */
  drawGhost(pen, cell, box) {
    const ns = this.cells.ns[cell];
    roundBox(pen, ...box, 3);
    pen.fillStyle = ns >= 0 ? rgb(viridis(this.share(ns)), theme().dark ? 0.22 : 0.16) : theme().faint;
    pen.fill();
  }

  drawValue(pen, text, [x, y, w, h], ink) {
    if (h < 13 || w < 16) return;
    pen.font = h > 26 && w > 52 && !this.small ? FONT : SMALL_FONT;
    if (pen.measureText(text).width > w - 4) return;
    pen.fillStyle = ink;
    pen.textAlign = "center";
    pen.fillText(text, x + w / 2, y + h / 2 + 0.5);
  }

  drawTie(pen, [x, y, w, h], ink) {
    if (w < 12 || h < 12) return;
    pen.strokeStyle = ink;
    pen.lineWidth = 1.5;
    pen.setLineDash([3, 2]);
    roundBox(pen, x + 3, y + 3, w - 6, h - 6, 2);
    pen.stroke();
    pen.setLineDash([]);
  }

  drawFailed(pen, status, [x, y, w, h]) {
    const colors = theme();
    pen.save();
    roundBox(pen, x, y, w, h, 3);
    pen.fillStyle = colors.faint;
    pen.fill();
    pen.clip();
    pen.strokeStyle = colors.bad;
    pen.globalAlpha = 0.35;
    pen.lineWidth = 1;
    pen.beginPath();
    const leaning = statusGlyph(status).charCodeAt(0) % 2 === 0;
    for (let at = -h; at < w; at += 7) {
      pen.moveTo(x + at, leaning ? y + h : y);
      pen.lineTo(x + at + h, leaning ? y : y + h);
    }
    pen.stroke();
    pen.restore();
    if (w > 12 && h > 12) {
      pen.font = `600 ${this.small ? 10 : 12}px ui-sans-serif, system-ui, sans-serif`;
      pen.textAlign = "center";
      pen.fillStyle = colors.bad;
      pen.fillText(statusGlyph(status), x + w / 2, y + h / 2 + 0.5);
    }
  }

  drawUnmeasured(pen, [x, y, w, h], hidden) {
    const colors = theme();
    roundBox(pen, x + 0.5, y + 0.5, w - 1, h - 1, 3);
    pen.strokeStyle = colors.line;
    pen.setLineDash(hidden ? [] : [2, 3]);
    pen.lineWidth = 1;
    pen.stroke();
    pen.setLineDash([]);
    if (hidden) {
      pen.fillStyle = colors.faint;
      pen.fill();
    }
  }

  drawLabels(pen) {
    const colors = theme();
    const { wide, high } = this.cells;
    pen.fillStyle = colors.soft;
    pen.font = SMALL_FONT;
    const bottom = TOP + high * this.stepY;
    pen.textAlign = "center";
    const every = Math.ceil(28 / this.stepX);
    for (let x = 0; x < wide; x += every) {
      pen.fillText(fitText(pen, this.across.labels[x], this.stepX * every - 2), this.left + (x + 0.5) * this.stepX, bottom + 10);
    }
    pen.textAlign = "right";
    const everyRow = Math.ceil(12 / this.stepY);
    for (let y = 0; y < high; y += everyRow) {
      pen.fillText(fitText(pen, this.down.labels[y], this.left - 22), this.left - 6, TOP + (high - y - 0.5) * this.stepY);
    }
    pen.fillStyle = colors.ink;
    pen.font = `600 ${SMALL_FONT}`;
    pen.textAlign = "center";
    pen.fillText(this.across.name, this.left + (wide * this.stepX) / 2, bottom + 27);
    pen.save();
    pen.translate(9, TOP + (high * this.stepY) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(fitText(pen, this.down.name, high * this.stepY), 0, 0);
    pen.restore();
  }

  place(row) {
    const x = this.across.codes[row];
    const y = this.down.codes[row];
    return this.box(x, y);
  }

  drawMarkers(pen) {
    const { ds, current, clicked, searchBest } = this.input;
    const colors = theme();
    if (clicked !== null && clicked !== undefined && clicked >= 0 && clicked < ds.rows) {
      this.outline(pen, this.place(clicked), colors.accent, 3, 0);
    }
    if (current) {
      this.outline(pen, this.box(...current), "#ffffff", 3, 2.5);
      this.outline(pen, this.box(...current), "#10151c", 1.5, 2.5);
    }
    if (searchBest !== null && searchBest !== undefined && searchBest >= 0) {
      drawDiamond(pen, ...corner(this.place(searchBest), 1), this.small ? 5 : 6);
    }
    if (ds.best >= 0) drawStar(pen, ...corner(this.place(ds.best), 0), this.small ? 6 : 8);
  }

  outline(pen, [x, y, w, h], color, width, inset) {
    pen.strokeStyle = color;
    pen.lineWidth = width;
    roundBox(pen, x + inset, y + inset, w - 2 * inset, h - 2 * inset, 3);
    pen.stroke();
  }

  drawDrag(pen) {
    const [[x0, y0], [x1, y1]] = [this.drag.from, this.drag.to];
    const a = this.box(Math.min(x0, x1), Math.max(y0, y1));
    const b = this.box(Math.max(x0, x1), Math.min(y0, y1));
    pen.fillStyle = theme().accent;
    pen.globalAlpha = 0.25;
    pen.fillRect(a[0], a[1], b[0] + b[2] - a[0], b[1] + b[3] - a[1]);
    pen.globalAlpha = 1;
  }

  tip([x, y], px, py) {
    const { cells, input } = this;
    const { ds, workload } = input;
    const cell = y * cells.wide + x;
    const row = cells.row[cell] >= 0 ? cells.row[cell] : cells.failedRow[cell];
    const head = `${this.across.name} = ${this.across.labels[x]}, ${this.down.name} = ${this.down.labels[y]}`;
    if (row < 0) {
      showTip(px, py, [head, ["", cells.hidden[cell] ? "outside the selection" : "never measured"]]);
      return;
    }
    showTip(px, py, [head, ...rowTip(ds, workload, row), ["configs in this cell", `${counted(cells.measured[cell])} of ${counted(cells.tried[cell])} measured`]]);
  }

  png(name) {
    this.surface.png(name);
  }

  csv(name) {
    const { input, cells } = this;
    const rows = [[input.x, input.y, "row", "time_ns", input.unit.label, "outcome", "configs", "tied_with_best"]];
    for (let y = 0; y < cells.high; y++) {
      for (let x = 0; x < cells.wide; x++) {
        const cell = y * cells.wide + x;
        const ns = cells.ns[cell];
        const outcome = ns >= 0 ? "ok" : cells.failed[cell] >= 0 ? input.ds.statuses[cells.failed[cell]] : "unmeasured";
        rows.push([
          this.across.labels[x], this.down.labels[y], cells.row[cell] >= 0 ? cells.row[cell] : "", ns,
          ns >= 0 ? input.unit.of(ns, input.workload) : NaN, outcome, cells.tried[cell], cells.tie[cell],
        ]);
      }
    }
    saveCsv(rows, `${name}.csv`);
  }
}

const corner = ([x, y, w, h], side) =>
  side ? [x + w - Math.min(9, w / 2), y + Math.min(9, h / 2)] : [x + Math.min(10, w / 2), y + Math.min(10, h / 2)];

export function drawStar(pen, x, y, r) {
  star(pen, x, y, r);
  pen.fillStyle = "#ffffff";
  pen.strokeStyle = "#10151c";
  pen.lineWidth = 1.5;
  pen.fill();
  pen.stroke();
}

export function drawDiamond(pen, x, y, r) {
  pen.beginPath();
  pen.moveTo(x, y - r);
  pen.lineTo(x + r, y);
  pen.lineTo(x, y + r);
  pen.lineTo(x - r, y);
  pen.closePath();
  pen.fillStyle = "#e69f00";
  pen.strokeStyle = "#10151c";
  pen.lineWidth = 1.5;
  pen.fill();
  pen.stroke();
}

/** Everything known of one trial, for a tooltip. */
export function rowTip(ds, workload, row) {
  const ns = ds.value(row, "median_ns");
  const lines = [["config", configText(ds.config(row))], ["outcome", statusText(ds.status(row))]];
  if (ns >= 0) {
    lines.push(["time", nanoseconds(ns, 4)]);
    const low = ds.value(row, "low_ns");
    const high = ds.value(row, "high_ns");
    if (low >= 0 && high >= 0) lines.push(["95 % interval", `${nanoseconds(low, 4)} to ${nanoseconds(high, 4)}`]);
    if (workload.flops) lines.push(["TFLOP/s", digits(workload.flops / ns / 1e3)]);
    if (workload.bytes) lines.push(["GB/s", digits(workload.bytes / ns)]);
    if (ds.best >= 0) lines.push(["of the best", percent(ds.usable[ds.best] / ns)]);
    if (workload.roofline_ns) lines.push(["of the roofline", percent(workload.roofline_ns / ns)]);
    if (ds.ties[row]) lines.push(["", "cannot be told from the best"]);
  }
  const error = ds.error(row);
  if (error) lines.push(["error", error.length > 160 ? `${error.slice(0, 160)}…` : error]);
  for (const [column, label] of [["registers", "registers"], ["spills", "spills"], ["shared_bytes", "shared memory, bytes"]]) {
    const value = ds.value(row, column);
    if (Number.isFinite(value)) lines.push([label, digits(value, 6)]);
  }
  if (ds.columns.cost_s) lines.push(["cost", `${digits(ds.value(row, "cost_s"))} s`]);
  return lines;
}
