// A tuning run as it happens.

import { SERIES } from "./colors.js";
import { button, el, figure, fill, note } from "./dom.js";
import { configText, counted, nanoseconds, plural, statusText, workloadText } from "./format.js";
import { Plot } from "./plot.js";

const KEPT_EVENTS = 40;

export class LiveView {
  constructor(app, root) {
    this.app = app;
    this.events = [];
    this.frame = figure({
      id: "live",
      title: "Live",
      line: "Trials appear here as they end, whichever process tunes into this store. Nothing needs to be reloaded.",
    });
    this.status = el("p", { class: "fact", id: "live-status" });
    this.follow = true;
    this.list = el("ol", { class: "events", id: "live-events" });
    this.frame.body.append(this.status, this.list);
    this.curve = figure({
      id: "live-curve",
      title: "Best so far",
      line: "Every dot is a trial in the order in which they ended; the line is the best time up to then.",
      png: () => this.plot.png("live"),
      csv: () => this.plot.csv("live"),
    });
    this.plot = new Plot(this.curve.body, {
      height: 260,
      label: "times in the order tried; arrow keys read values",
      tip: (one, i) => this.tipOf(one, i),
      clicked: (one, i) => one.rows && app.state.set({ row: one.rows[i], view: "trial" }),
    });
    this.recent = figure({ id: "live-recent", title: "Latest trials", line: "The last ones, newest first." });
    root.append(el("div", { class: "halves" }, this.frame.root, this.recent.root), this.curve.root);
    app.followers.push((event) => this.told(event));
  }

  told(event) {
    if (event && event.workload) {
      this.events.unshift(event);
      this.events.length = Math.min(this.events.length, KEPT_EVENTS);
      const other = this.follow && this.app.state.now.view === "live" && event.workload !== this.app.workload?.id;
      if (other && this.app.workloads.some((one) => one.id === event.workload)) this.app.state.set({ w: event.workload });
    }
    if (this.app.state.now.view === "live") this.render(null);
  }

  render() {
    const { app } = this;
    const { ds } = app;
    const link = app.connected ? "Watching the store." : "Not connected; trying again.";
    const last = this.events[0];
    this.status.textContent = last ? `${link} Last news: ${this.eventText(last)}.` : `${link} Nothing has changed since the page was opened.`;
    this.status.dataset.connected = String(Boolean(app.connected));
    fill(this.list, this.events.slice(0, 10).map((event) => el("li", {}, button(this.eventText(event), "Show this workload", () => app.state.set({ w: event.workload }), { class: "plain" }))));
    this.curve.root.hidden = !ds;
    if (!ds) {
      fill(this.recent.body, note("Nothing has been tuned yet. Start 'whet tune' or 'whet demo' and look here."));
      return;
    }
    this.drawCurve();
    this.drawRecent();
  }

  eventText(event) {
    const workload = this.app.workloads.find((one) => one.id === event.workload);
    const best = event.best > 0 ? `, best ${nanoseconds(event.best)}` : "";
    return `${workload ? workloadText(workload) : event.workload}: ${plural(event.rows_total, "trial")}${best}`;
  }

  drawCurve() {
    const { ds } = this.app;
    const every = Math.ceil(ds.rows / 20000);
    const times = ds.columns.median_ns;
    const xs = [];
    const ys = [];
    const rows = [];
    const best = { x: [], y: [] };
    const ok = ds.statuses.indexOf("ok");
    let least = Infinity;
    for (let row = 0; row < ds.rows; row++) {
      if (!(times[row] >= 0)) continue;
      if (row % every === 0) {
        xs.push(row + 1);
        ys.push(times[row]);
        rows.push(row);
      }
      if (ds.columns.status[row] === ok && times[row] < least) {
        least = times[row];
        best.x.push(row + 1);
        best.y.push(least);
      }
    }
    this.plot.update({
      series: [
        { name: "trial", kind: "points", color: SERIES[4], alpha: 0.6, size: 2.4, x: xs, y: ys, rows },
        { name: "best so far", kind: "steps", color: SERIES[1], width: 2.5, until: ds.rows, ...best },
      ],
      x: { label: "trials", show: counted },
      y: { label: "time", log: true, show: nanoseconds },
    });
  }

  tipOf(one, i) {
    const { ds } = this.app;
    const lines = [one.name, ["trial", counted(one.x[i])], ["time", nanoseconds(one.y[i], 4)]];
    if (one.rows) lines.push(["config", configText(ds.config(one.rows[i]))]);
    return lines;
  }

  drawRecent() {
    const { ds, state } = this.app;
    const rows = [];
    for (let row = ds.rows - 1; row >= 0 && rows.length < 10; row--) if (ds.status(row) !== "untried") rows.push(row);
    fill(
      this.recent.body,
      el("table", { class: "rows" }, el("tbody", {}, rows.map((row) => {
        const open = () => state.set({ row, view: "trial" });
        const ns = ds.value(row, "median_ns");
        return el("tr", { tabindex: "0", "data-live-row": row, onclick: open, onkeydown: (event) => event.key === "Enter" && open() }, el("td", { class: "number", text: counted(row + 1) }), el("td", { class: "number", text: ns >= 0 ? nanoseconds(ns) : statusText(ds.status(row)) }), el("td", { text: configText(ds.config(row)), title: ds.error(row) }));
      }))),
    );
  }
}
