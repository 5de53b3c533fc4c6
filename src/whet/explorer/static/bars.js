// Horizontal bars with a name, a value and, where known, an interval.

import { SMALL_FONT, Surface, fitText } from "./canvas.js";
import { SERIES, theme } from "./colors.js";
import { hideTip, saveCsv, showTip } from "./dom.js";

const BAR_STEP = 22;
const NAMES = 150;

export class Bars {
  constructor(parent, { label, clicked, color = SERIES[0] }) {
    this.surface = new Surface(parent, { height: 60, label, focus: Boolean(clicked) });
    this.color = color;
    this.list = [];
    this.at = -1;
    const { canvas } = this.surface;
    const under = (event) => this.list[Math.floor((this.surface.at(event)[1] - 5) / BAR_STEP)];
    canvas.addEventListener("click", (event) => clicked && under(event) && clicked(under(event)));
    canvas.addEventListener("pointermove", (event) => {
      const one = under(event);
      if (one) showTip(event.clientX, event.clientY, [one.name, ["", one.text], ...(one.tip || [])]);
      else hideTip();
    });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (step) {
        event.preventDefault();
        this.at = Math.max(0, Math.min(this.list.length - 1, this.at + step));
        this.draw();
      } else if (event.key === "Enter" && clicked && this.list[this.at]) clicked(this.list[this.at]);
    });
  }

  /** `list`: [{name, value, low, high, outer, text, color, tip}]; `outer` is drawn faintly around it */
  update(list) {
    this.list = list;
    this.draw();
  }

  draw() {
    const { list } = this;
    const pen = this.surface.begin(12 + BAR_STEP * Math.max(1, list.length));
    const colors = theme();
    pen.font = SMALL_FONT;
    const texts = Math.max(40, ...list.map((one) => pen.measureText(one.text).width));
    const room = this.surface.wide - NAMES - texts - 16;
    const most = Math.max(...list.map((one) => Math.max(one.value, one.high || 0, one.outer || 0)), 1e-12);
    list.forEach((one, i) => {
      const y = 16 + BAR_STEP * i;
      const reach = (value) => NAMES + (room * Math.max(0, value)) / most;
      pen.font = SMALL_FONT;
      pen.textAlign = "right";
      pen.fillStyle = colors.ink;
      pen.fillText(fitText(pen, one.name, NAMES - 12), NAMES - 8, y);
      pen.fillStyle = one.color || this.color;
      if (one.outer > 0) {
        pen.globalAlpha = 0.3;
        pen.fillRect(NAMES, y - 7, Math.max(1, reach(one.outer) - NAMES), 14);
        pen.globalAlpha = 1;
      }
      pen.fillRect(NAMES, y - 7, Math.max(1, reach(one.value) - NAMES), 14);
      if (Number.isFinite(one.low) && Number.isFinite(one.high) && one.high !== null) {
        pen.strokeStyle = colors.ink;
        pen.lineWidth = 1.5;
        pen.beginPath();
        pen.moveTo(reach(one.low), y);
        pen.lineTo(reach(one.high), y);
        for (const end of [one.low, one.high]) {
          pen.moveTo(reach(end), y - 4);
          pen.lineTo(reach(end), y + 4);
        }
        pen.stroke();
      }
      pen.textAlign = "left";
      pen.fillStyle = colors.ink;
      pen.fillText(one.text, reach(Math.max(one.value, one.high || 0, one.outer || 0)) + 8, y);
      if (i === this.at && document.activeElement === this.surface.canvas) {
        pen.strokeStyle = colors.accent;
        pen.strokeRect(NAMES - 1, y - 9, this.surface.wide - NAMES - 2, 18);
      }
    });
  }

  png(name) {
    this.surface.png(name);
  }

  csv(name) {
    saveCsv([["name", "value", "low", "high"], ...this.list.map((one) => [one.name, one.value, one.low, one.high])], `${name}.csv`);
  }
}
