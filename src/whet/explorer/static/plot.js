// Lines, steps and points over two scales.

import { SMALL_FONT, Surface, fitText, logTicks, ticks } from "./canvas.js";
import { theme } from "./colors.js";
import { hideTip, saveCsv, showTip } from "./dom.js";
import { digits } from "./format.js";

const PAD = { left: 62, right: 14, top: 10, bottom: 34 };

export class Plot {
  /** `clicked(series, index)`, `ranged(low, high)` after a drag along x, `tip(series, index)` lines. */
  constructor(parent, { height = 260, label, clicked, ranged, tip }) {
    this.surface = new Surface(parent, { height, label });
    this.clicked = clicked;
    this.ranged = ranged;
    this.tip = tip;
    this.hover = null;
    this.drag = null;
    const { canvas } = this.surface;
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("blur", () => this.leave());
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = this.ranged ? { from: this.surface.at(event)[0] } : null;
      if (this.drag) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** `input`: {series: [{name, color, x, y, kind, faint}], x: {label, log, show}, y: {…, low, high}, cursor, rules} */
  update(input) {
    this.input = input;
    this.scale("x");
    this.scale("y");
    this.draw();
  }

  scale(side) {
    const axis = this.input[side];
    let low = Infinity;
    let high = -Infinity;
    for (const one of this.input.series) {
      for (const value of one[side]) {
        if (!Number.isFinite(value) || (axis.log && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    for (const rule of this.input.rules || []) {
      if (rule.side === side && Number.isFinite(rule.at) && rule.fit) [low, high] = [Math.min(low, rule.at), Math.max(high, rule.at)];
    }
    if (axis.low !== undefined) low = axis.low;
    if (axis.high !== undefined) high = axis.high;
    if (!(high > low)) [low, high] = Number.isFinite(low) ? [low * 0.9, low * 1.1 || 1] : axis.log ? [1, 10] : [0, 1];
    else if (axis.log) [low, high] = [low / 1.04, high * 1.04];
    else if (side === "y" && axis.low === undefined) [low, high] = [low - (high - low) * 0.06, high + (high - low) * 0.06];
    axis.ends = [low, high];
  }

  share(side, value) {
    const { log, ends } = this.input[side];
    return log ? Math.log(value / ends[0]) / Math.log(ends[1] / ends[0]) : (value - ends[0]) / (ends[1] - ends[0]);
  }

  px(value) {
    return PAD.left + this.share("x", value) * (this.surface.wide - PAD.left - PAD.right);
  }

  py(value) {
    return this.surface.high - PAD.bottom - this.share("y", value) * (this.surface.high - PAD.top - PAD.bottom);
  }

  /** The value at a place across. */
  inverse(x) {
    const { log, ends } = this.input.x;
    const share = Math.max(0, Math.min(1, (x - PAD.left) / (this.surface.wide - PAD.left - PAD.right)));
    return log ? ends[0] * (ends[1] / ends[0]) ** share : ends[0] + share * (ends[1] - ends[0]);
  }

  draw() {
    const pen = this.surface.begin();
    this.drawGrid(pen);
    for (const rule of this.input.rules || []) this.drawRule(pen, rule);
    for (const one of this.input.series) this.drawSeries(pen, one);
    const { cursor } = this.input;
    if (Number.isFinite(cursor)) this.drawRule(pen, { side: "x", at: cursor, color: theme().accent, solid: true });
    if (this.hover) this.drawHover(pen);
    if (this.drag && this.drag.to !== undefined) {
      pen.fillStyle = theme().accent;
      pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(this.drag.from, this.drag.to), PAD.top, Math.abs(this.drag.to - this.drag.from), this.surface.high - PAD.top - PAD.bottom);
      pen.globalAlpha = 1;
    }
  }

  drawGrid(pen) {
    const colors = theme();
    const { wide, high } = this.surface;
    pen.font = SMALL_FONT;
    pen.lineWidth = 1;
    for (const side of ["x", "y"]) {
      const axis = this.input[side];
      const marks = axis.log ? logTicks(...axis.ends) : ticks(...axis.ends, side === "x" ? 7 : 5);
      let last = -100;
      for (const value of marks) {
        const at = side === "x" ? this.px(value) : this.py(value);
        pen.strokeStyle = colors.faint;
        pen.beginPath();
        if (side === "x") {
          pen.moveTo(at, PAD.top);
          pen.lineTo(at, high - PAD.bottom);
        } else {
          pen.moveTo(PAD.left, at);
          pen.lineTo(wide - PAD.right, at);
        }
        pen.stroke();
        pen.fillStyle = colors.soft;
        const text = (axis.show || digits)(value);
        if (side === "x") {
          const half = pen.measureText(text).width / 2;
          if (at - half < last + 6) continue;
          last = at + half;
          pen.textAlign = "center";
          pen.fillText(text, Math.min(at, wide - half - 2), high - PAD.bottom + 11);
        } else {
          pen.textAlign = "right";
          pen.fillText(text, PAD.left - 6, at);
        }
      }
    }
    pen.strokeStyle = colors.line;
    pen.strokeRect(PAD.left + 0.5, PAD.top + 0.5, wide - PAD.left - PAD.right, high - PAD.top - PAD.bottom);
    pen.fillStyle = colors.ink;
    pen.textAlign = "center";
    pen.fillText(this.input.x.label, (PAD.left + wide) / 2, high - 8);
    pen.save();
    pen.translate(9, (high - PAD.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(fitText(pen, this.input.y.label, high - PAD.bottom), 0, 0);
    pen.restore();
  }

  drawRule(pen, { side, at, color, text, solid }) {
    if (!Number.isFinite(at)) return;
    const { wide, high } = this.surface;
    pen.strokeStyle = color || theme().soft;
    pen.fillStyle = pen.strokeStyle;
    pen.lineWidth = solid ? 2 : 1;
    pen.setLineDash(solid ? [] : [5, 4]);
    pen.beginPath();
    if (side === "x") {
      pen.moveTo(this.px(at), PAD.top);
      pen.lineTo(this.px(at), high - PAD.bottom);
    } else {
      pen.moveTo(PAD.left, this.py(at));
      pen.lineTo(wide - PAD.right, this.py(at));
    }
    pen.stroke();
    pen.setLineDash([]);
    if (!text) return;
    pen.font = SMALL_FONT;
    pen.textAlign = side === "x" ? "left" : "right";
    if (side === "x") pen.fillText(text, this.px(at) + 4, PAD.top + 9);
    else pen.fillText(text, wide - PAD.right - 4, this.py(at) - 8);
  }

  drawSeries(pen, one) {
    pen.save();
    pen.beginPath();
    pen.rect(PAD.left, PAD.top, this.surface.wide - PAD.left - PAD.right, this.surface.high - PAD.top - PAD.bottom);
    pen.clip();
    pen.strokeStyle = one.color;
    pen.fillStyle = one.color;
    pen.globalAlpha = one.alpha ?? 1;
    if (one.kind === "points") this.drawPoints(pen, one);
    else this.drawLine(pen, one);
    pen.restore();
  }

  drawPoints(pen, one) {
    const size = one.size || 2.5;
    for (let i = 0; i < one.x.length; i++) {
      if (!Number.isFinite(one.y[i])) continue;
      pen.beginPath();
      pen.arc(this.px(one.x[i]), this.py(one.y[i]), one.sizes ? one.sizes[i] : size, 0, 7);
      pen.fill();
    }
  }

  drawLine(pen, one) {
    pen.lineWidth = one.width || 2;
    if (one.dash) pen.setLineDash(one.dash);
    pen.beginPath();
    let begun = false;
    let y = 0;
    for (let i = 0; i < one.x.length; i++) {
      if (!Number.isFinite(one.y[i])) continue;
      const x = this.px(one.x[i]);
      if (!begun) pen.moveTo(x, this.py(one.y[i]));
      else {
        if (one.kind === "steps") pen.lineTo(x, y);
        pen.lineTo(x, this.py(one.y[i]));
      }
      y = this.py(one.y[i]);
      begun = true;
    }
    if (begun && one.kind === "steps" && one.until) pen.lineTo(this.px(one.until), y);
    pen.stroke();
    pen.setLineDash([]);
  }

  nearest(x, y) {
    let found = null;
    let least = 26 * 26;
    this.input.series.forEach((one, s) => {
      if (one.faint) return;
      for (let i = 0; i < one.x.length; i++) {
        if (!Number.isFinite(one.y[i])) continue;
        const far = (this.px(one.x[i]) - x) ** 2 + (this.py(one.y[i]) - y) ** 2;
        if (far < least) {
          least = far;
          found = [s, i];
        }
      }
    });
    return found;
  }

  move(event) {
    if (!this.input) return;
    const [x, y] = this.surface.at(event);
    if (this.drag) this.drag.to = x;
    this.hover = this.nearest(x, y);
    this.draw();
    if (this.hover) this.showHover(event.clientX, event.clientY);
    else hideTip();
  }

  showHover(x, y) {
    const [s, i] = this.hover;
    const one = this.input.series[s];
    const lines = this.tip ? this.tip(one, i) : [
      one.name,
      [this.input.x.label, (this.input.x.show || digits)(one.x[i])],
      [this.input.y.label, (this.input.y.show || digits)(one.y[i])],
    ];
    showTip(x, y, lines);
  }

  leave() {
    hideTip();
    if (!this.hover) return;
    this.hover = null;
    this.draw();
  }

  release(event) {
    const { drag } = this;
    this.drag = null;
    const [x, y] = this.surface.at(event);
    if (drag && Math.abs(x - drag.from) > 5) {
      this.ranged(...[this.inverse(drag.from), this.inverse(x)].sort((a, b) => a - b));
      this.draw();
      return;
    }
    const found = this.input && this.nearest(x, y);
    if (found && this.clicked) this.clicked(this.input.series[found[0]], found[1]);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: 0, ArrowDown: 0 }[event.key];
    if (!this.input || !this.input.series.length) return;
    if (event.key === "Enter" && this.hover && this.clicked) {
      this.clicked(this.input.series[this.hover[0]], this.hover[1]);
      return;
    }
    if (step === undefined) return;
    event.preventDefault();
    const solid = this.input.series.map((one, s) => [one, s]).filter(([one]) => !one.faint && one.x.length);
    if (!solid.length) return;
    let at = Math.max(0, solid.findIndex(([, s]) => this.hover && s === this.hover[0]));
    if (!step) at = (at + (event.key === "ArrowUp" ? 1 : solid.length - 1)) % solid.length;
    const [one, s] = solid[at];
    const i = this.hover ? Math.max(0, Math.min(one.x.length - 1, this.hover[1] + step)) : 0;
    this.hover = [s, i];
    this.draw();
    if (Number.isFinite(one.y[i])) this.showHover(...this.surface.outside(this.px(one.x[i]), this.py(one.y[i])));
  }

  drawHover(pen) {
    const [s, i] = this.hover;
    const one = this.input.series[s];
    if (!one || !Number.isFinite(one.y[i])) return;
    pen.strokeStyle = theme().ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(this.px(one.x[i]), this.py(one.y[i]), 5, 0, 7);
    pen.stroke();
  }

  png(name) {
    this.surface.png(name);
  }

  csv(name) {
    const rows = [["series", this.input.x.label, this.input.y.label]];
    for (const one of this.input.series) for (let i = 0; i < one.x.length; i++) rows.push([one.name, one.x[i], one.y[i]]);
    saveCsv(rows, `${name}.csv`);
  }
}

