// One parameter at a time through a config, and any number that is known of trials against their time.

import { SERIES } from "./colors.js"
import { el, fill, figure, labelled, select } from "./dom.js"
import { bytesText, configText, digits, percent, seconds, timeTick, varied } from "./format.js"
import { rowTip } from "./heat.js"
import { Plot } from "./plot.js"

const MOST_DOTS = 5000
const PATIENCE_MS = 500
// What is known of built configs beside what all trials have.
const SHOWN_AS = { shared_bytes: ["shared memory", bytesText], occupancy: ["occupancy", percent] }

export class Slices {
	constructor(view) {
		this.view = view
		this.frame = figure({
			id: "slices",
			title: "One parameter at a time"
		})
		this.grid = el("div.lanes")
		this.frame.body.append(this.grid)
		this.plots = new Map()
		this.scatter = figure({
			id: "scatter",
			title: "Against time",
			shows: () => `${this.metric?.label} against time`,
			chart: body => new Plot(body, {
				height: 260,
				label: "a metric against time",
				tip: (one, i) => this.tipOf(one.rows[i]),
				clicked: (one, i) => view.open(one.rows[i])
			})
		})
		this.parts = [this.frame.root, this.scatter.root]
	}

	// When nobody waits for something else.
	update(at_once) {
		clearTimeout(this.waiting)
		if (at_once && this.of === this.view.ds) this.draw(true)
		else this.waiting = setTimeout(() => this.draw(), PATIENCE_MS)
	}

	draw(whole) {
		const { ds } = this.view
		if (!ds?.rows || this.view.root.hidden) return
		const { row } = this.view.now
		const base = ds.usable[row] >= 0 ? row : ds.best
		if (whole || this.of !== ds || this.rows !== ds.rows || this.base !== base) {
			Object.assign(this, { of: ds, rows: ds.rows, base })
			this.drawSlices()
		}
		this.readFacts()
		this.drawScatter()
	}

	// By parameter, the rows that differ from the base in nothing else.
	lines() {
		const { view: { ds }, base } = this
		const lines = new Map(ds.parameters.filter(one => one.values.length > 1).map(one => [one, [base]]))
		const codes = ds.parameters.map(one => one.codes)
		for (let row = 0; row < ds.rows; row++) {
			if (!ds.standing[row] || row === base) continue
			let other = null
			let count = 0
			for (let p = 0; count < 2 && p < codes.length; p++) {
				if (codes[p][row] === codes[p][base]) continue
				other = ds.parameters[p]
				count++
			}
			if (count === 1) lines.get(other).push(row)
		}
		return lines
	}

	drawSlices() {
		const { view: { ds }, base } = this
		const shown = base >= 0 ? [...this.lines()].filter(([one]) => one.values.length <= 64) : []
		this.frame.root.hidden = !shown.length
		if (!shown.length) return
		this.frame.caption.textContent = `Each parameter by itself, all others as in ${base === ds.best ? "the pick" : "the opened config"}, ${configText(varied(ds, ds.config(base)))} (the large dot): times with 95 % intervals, less is better; ✕ failed. Dashed: the fastest config with that value.`
		const least = shown.map(([one]) => this.bests(one))
		const all = [...shown.flatMap(([, rows]) => rows.map(row => ds.usable[row])), ...least.flat().map(row => ds.usable[row])].filter(ns => ns >= 0)
		const [low, high] = [Math.min(...all), Math.max(...all)]
		if (shown.some(([one]) => !this.plots.has(one.name)) || this.plots.size !== shown.length) {
			this.plots = new Map(shown.map(([{ name }]) => [name, el("div.slice", { "data-slice": name })]))
			fill(this.grid, [...this.plots.values()])
			for (const [name, place] of this.plots) this.plots.set(name, this.plotIn(place, name))
		}
		shown.forEach(([one, rows], i) => this.drawSlice(one, rows, least[i], low, high))
	}

	plotIn(place, name) {
		return new Plot(place, {
			height: 170,
			label: `time by ${name}`,
			tip: (one, i) => this.tipOf(one.rows[i]),
			clicked: (one, i) => this.view.open(one.rows[i])
		})
	}

	// The fastest row with each value.
	bests(one) {
		const { ds } = this.view
		const found = new Map()
		for (const row of ds.fastest) {
			if (!found.has(one.codes[row])) found.set(one.codes[row], row)
			if (found.size === one.values.length) break
		}
		return [...found.values()].sort((a, b) => one.codes[a] - one.codes[b])
	}

	drawSlice(one, rows, bests, low, high) {
		const { view: { ds }, base } = this
		const log = high > 4 * low
		const [bottom, top] = log ? [low / 1.1, high * 1.15] : [low - 0.08 * (high - low), high + 0.1 * (high - low)]
		const series = (name, list, more) => ({ name, rows: list, x: list.map(row => one.codes[row]), y: list.map(row => (ds.usable[row] >= 0 ? ds.usable[row] : NaN)), ...more })
		const inOrder = rows.filter(row => ds.usable[row] >= 0).sort((a, b) => one.codes[a] - one.codes[b])
		const of = name => inOrder.map(row => ds.value(row, name))
		const failed = rows.filter(row => !(ds.usable[row] >= 0))
		const last = one.labels.length - 1
		this.plots.get(one.name).update({
			series: [
				series("the fastest with this value", bests, { kind: "line", color: SERIES[7], dash: [4, 3], width: 1.5 }),
				series("", inOrder, { kind: "line", color: SERIES[0], faint: true }),
				series("", inOrder, { kind: "points", color: SERIES[0], size: 3.5, lows: of("low_ns"), highs: of("high_ns") }),
				series("", failed, { kind: "points", color: SERIES[1], size: 4, cross: true, y: failed.map(() => top / (log ? 1.06 : 1.01)) }),
				series("", [base], { kind: "points", color: SERIES[1], size: 6 })
			],
			x: { label: one.name, low: -0.5, high: last + 0.5, marks: [...one.labels.keys()], show: at => one.labels[at] },
			y: { label: "", log, low: bottom, high: top, show: timeTick }
		})
	}

	// Registers and the like, which the columns lack.
	async readFacts() {
		const { ds, workload, source } = this.view
		const key = `${workload.id} ${ds.rows}`
		// A run wants the machine for itself.
		if (this.key0 === key || (workload.running && this.key0?.startsWith(workload.id))) return
		this.key0 = key
		const known = await source.facts(workload.id).catch(() => ({}))
		if (this.key0 !== key) return
		this.facts = known
		if (this.view.ds) this.drawScatter()
	}

	metrics() {
		const { ds } = this.view
		const axes = [...ds.axes.values()].filter(one => one.name !== "median_ns")
		const own = axes.map(one => one.kind === "numbers"
			? { name: one.name, label: one.label, values: one.values, show: one.unit === "s" ? seconds : digits }
			: ds.parameter(one.name) && { name: one.name, label: one.label, values: one.bins(), labels: one.labels })
		const known = Object.entries(this.facts || {}).map(([name, values]) => ({ name: `fact:${name}`, label: SHOWN_AS[name]?.[0] || name.replaceAll("_", " "), values, show: SHOWN_AS[name]?.[1] || digits }))
		return [...known, ...own.filter(Boolean)]
	}

	drawScatter() {
		const { view } = this
		const { ds } = view
		const metrics = this.metrics()
		const metric = [view.now.metric, "fact:registers"].map(name => metrics.find(one => one.name === name)).find(Boolean) || metrics[0]
		this.metric = metric
		this.scatter.root.hidden = !metric || !ds.fastest.length
		if (this.scatter.root.hidden) return
		fill(this.scatter.tools, labelled("x", select("what is set against time", metrics.map(one => [one.name, one.label]), metric.name, name => view.set({ metric: name }), { id: "metric" })))
		const { mask } = view.chosen
		const every = Math.ceil(ds.fastest.length / MOST_DOTS)
		const has = value => value !== null && Number.isFinite(value)
		const rows = []
		for (let i = 0; i < ds.fastest.length; i += every) if (has(metric.values[ds.fastest[i]])) rows.push(ds.fastest[i])
		const dots = (name, list, more) => ({ name, kind: "points", rows: list, x: list.map(row => metric.values[row]), y: list.map(row => ds.usable[row]), ...more })
		const { labels, name } = metric
		const brushed = ds.axes.has(name) && ((low, high) => view.app.brush(name, labels ? labels.filter((_, at) => at >= low && at <= high) : [`${low}..${high}`]))
		this.scatter.chart.ranged = brushed
		this.scatter.caption.textContent = `Every dot is a config: click one to open it${brushed ? ", drag along the x axis to select" : ""}.`
		const lowest = rows.reduce((least, row) => Math.min(least, metric.values[row]), Infinity)
		this.scatter.chart.update({
			series: [
				dots("not selected", rows.filter(row => !mask[row]), { color: SERIES[7], alpha: 0.3, size: 2, faint: true }),
				dots("config", rows.filter(row => mask[row]), { color: SERIES[0], alpha: 0.6, size: 2.8 }),
				dots("the pick", rows.filter(row => row === ds.best), { color: SERIES[1], size: 6 })
			],
			x: { label: metric.label, ...(labels ? { low: -0.5, high: labels.length - 0.5, marks: [...labels.keys()], show: at => labels[at] } : { show: metric.show, low: lowest < 0 ? undefined : 0 }) },
			y: { label: "time", log: ds.timeAt(1) > 10 * ds.peak, show: timeTick }
		})
	}

	tipOf(row) {
		const { ds, workload } = this.view
		const { labels, label, show, values } = this.metric || {}
		const value = labels ? labels[values[row]] : values?.[row] != null && show(values[row])
		return [...rowTip(ds, workload, row), value && !labels && [label, value]]
	}
}
