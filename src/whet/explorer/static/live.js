// A tuning run as it happens.

import { SERIES } from "./colors.js"
import { button, el, figure, fill } from "./dom.js"
import { counted, nanoseconds, plural, timeTick, workloadText } from "./format.js"
import { rowTip } from "./heat.js"
import { Plot } from "./plot.js"
import { View } from "./view.js"

const KEPT_EVENTS = 6

export class LiveView extends View {
	constructor(app, root) {
		super(app, root)
		this.events = []
		this.frame = figure({
			id: "live",
			title: "Live",
			line: "Trials appear here as they end, whichever process tunes into this store. Nothing needs to be reloaded."
		})
		this.status = el("p.fact#live-status")
		this.list = el("ol.events#live-events")
		this.frame.body.append(this.status, this.list)
		this.curve = figure({
			id: "live-curve",
			title: "Best so far",
			line: "Every dot is a trial in the order in which they ended; the line is the best time up to then.",
			chart: body => new Plot(body, {
				height: 260,
				label: "times in the order tried",
				tip: (one, i) => this.tipOf(one, i),
				clicked: (one, i) => one.rows && this.open(one.rows[i])
			})
		})
		root.append(this.frame.root, this.curve.root)
		app.followers.push(event => this.told(event))
	}

	told(event) {
		if (event?.workload) {
			this.events.unshift(event)
			this.events.length = Math.min(this.events.length, KEPT_EVENTS)
			const other = this.now.view === "live" && event.workload !== this.workload?.id
			if (other && this.workloads.some(one => one.id === event.workload)) this.set({ w: event.workload })
		} else if (this.now.view === "live") this.render()
	}

	render() {
		const { app, ds } = this
		const link = app.connected ? "Watching the store." : "Not connected; trying again."
		this.status.dataset.connected = String(Boolean(app.connected))
		this.status.textContent = this.events.length ? link : `${link} Nothing has changed since the page was opened.`
		fill(this.list, this.events.map(event => el("li", button(this.eventText(event), "Show this workload", () => this.set({ w: event.workload }), { class: "plain" }))))
		this.curve.root.hidden = !ds
		if (ds) this.drawCurve()
		else this.status.textContent += " Start 'whet tune' or 'whet demo' and look here."
	}

	eventText(event) {
		const workload = this.workloads.find(one => one.id === event.workload)
		const best = event.best > 0 ? `, best ${nanoseconds(event.best)}` : ""
		return `${workload ? workloadText(workload) : event.workload}: ${plural(event.rows_total, "trial")}${best}`
	}

	drawCurve() {
		const { ds } = this
		const every = Math.ceil(ds.rows / 20000)
		const times = ds.columns.median_ns
		const rows = []
		const best = { x: [], y: [] }
		const ok = ds.statuses.indexOf("ok")
		let least = Infinity
		for (let row = 0; row < ds.rows; row++) {
			if (!(times[row] >= 0)) continue
			if (row % every === 0) rows.push(row)
			if (ds.columns.status[row] === ok && times[row] < least) {
				least = times[row]
				best.x.push(row + 1)
				best.y.push(least)
			}
		}
		this.curve.chart.update({
			series: [
				{ name: "trial", kind: "points", color: SERIES[4], alpha: 0.6, size: 2.4, x: rows.map(row => row + 1), y: rows.map(row => times[row]), rows },
				{ name: "best so far", kind: "steps", color: SERIES[1], width: 2.5, until: ds.rows, ...best }
			],
			x: { label: "trials", show: counted },
			y: { label: "time", log: true, show: timeTick }
		})
	}

	tipOf(one, i) {
		return [`${one.name} ${counted(one.x[i])}`, ...(one.rows ? rowTip(this.ds, this.workload, one.rows[i]) : [["time", nanoseconds(one.y[i], 4)]])]
	}
}
