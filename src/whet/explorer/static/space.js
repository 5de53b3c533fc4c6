// The space: heat map, parallel coordinates, importance.

import { Bars } from "./bars.js"
import { gradient } from "./canvas.js"
import { CLASS_NAMES, FAILED_CLASS } from "./dataset.js"
import { button, clamp, el, figure, fill, labelled, note, select, sign, swatch } from "./dom.js"
import { UNITS, counted, inUnit, isNoise, percent, plural, statusGlyph, statusText, unitOf } from "./format.js"
import { HeatMap } from "./heat.js"
import { Parallel, axisName, classColor } from "./parallel.js"
import { Slices } from "./slices.js"
import { timed } from "./timings.js"
import { View, any } from "./view.js"

const BEST_SHARES = [1, 5, 10, 25]
const MOST_AXES = 8

// The two axes of the heat map: those asked for, or the two that matter most.
export function heatAxes(app) {
	const { ds, state, importance } = app
	const varied = ds.parameters.filter(one => one.values.length > 1 && one.values.length <= 64)
	const known = varied.length >= 2 ? varied : ds.parameters
	const ranked = (importance || []).map(one => one.parameter).filter(name => known.some(one => one.name === name))
	const pool = [...new Set([...ranked, ...known.map(one => one.name)])]
	const has = name => name && ds.parameter(name)
	const x = has(state.now.x) ? state.now.x : pool.find(name => name !== state.now.y)
	const y = has(state.now.y) && state.now.y !== x ? state.now.y : pool.find(name => name !== x)
	return { x, y: y || x }
}

function parallelEntries(app) {
	const { ds, state } = app
	const asked = state.now.axes.filter(entry => ds.axes.has(axisName(entry)))
	if (asked.length > 1) return asked
	const varied = ds.parameters.filter(one => one.values.length > 1).map(one => one.name)
	return [...varied.slice(0, MOST_AXES - 1), ...(ds.axes.has("median_ns") ? ["median_ns"] : ["status"])]
}

function usesLog(app) {
	const { ds, state } = app
	if (state.now.log !== null) return state.now.log === "1"
	const axis = ds.axes.get("median_ns")
	return axis?.high > 10 * axis?.low
}

export class SpaceView extends View {
	constructor(app, root) {
		super(app, root)
		this.heatFrame = figure({
			id: "heat",
			title: "Heat map",
			shows: () => `Heat map of ${Object.values(heatAxes(app)).join(" and ")} in ${unitOf(this.now.unit, this.workload).label}`,
			chart: body => new HeatMap(body, {
				height: 330,
				label: "heat map of two parameters; arrow keys move, Enter opens the config",
				picked: (x, y, row) => this.pick(x, y, row),
				boxed: (xs, ys) => this.box(xs, ys),
				moved: (dx, dy) => this.step(dx, dy)
			})
		})
		this.heat = this.heatFrame.chart
		this.heatFrame.body.append((this.legend = el("div.legend#heat-legend")))
		this.controls = figure({
			id: "parameters",
			title: "Parameters",
			line: "'any' shows the best or the median config over that parameter; a value holds it."
		})
		this.controls.root.append((this.readout = el("dl.readout#readout")))
		this.linesFrame = figure({
			id: "parallel",
			title: "All parameters at once",
			line: "Every trial runs from left to right through its values; brighter is faster, the widest ribbons hold most trials. Drag along an axis, or click 'failed', to keep only those trials; drag a title to move it.",
			chart: body => new Parallel(body, {
				height: 290,
				brushed: (name, wanted, draft) => app.brush(name, wanted, draft),
				ordered: axes => this.set({ axes })
			})
		})
		this.lines = this.linesFrame.chart
		this.linesFrame.body.append((this.lineLegend = el("div.legend")))
		this.importanceFrame = figure({
			id: "importance",
			title: "What matters",
			line: "The share of the differences in time that each parameter explains: dark by itself, with its 95 % interval, light together with others. Where the light part is most of a bar, which value is good depends on the other parameters. Click one to make it the heat map's x axis.",
			chart: body => new Bars(body, { label: "parameter importance", clicked: one => this.chooseX(one.name) })
		})
		this.bars = this.importanceFrame.chart
		this.slices = new Slices(this)
		root.append(el("div.split", this.heatFrame.root, this.controls.root), this.linesFrame.root, this.importanceFrame.root, ...this.slices.parts)
	}

	axes() {
		const { x, y } = heatAxes(this.app)
		return [this.ds.parameter(x), this.ds.parameter(y)]
	}

	labelsAt(cx, cy) {
		const [across, down] = this.axes()
		return JSON.stringify([across.labels[cx], down.labels[cy]])
	}

	pick(x, y, row) {
		this.set({ at: this.labelsAt(x, y), row: row >= 0 ? row : null })
	}

	box([x0, x1], [y0, y1]) {
		const [across, down] = this.axes()
		this.set({ brush: { ...this.now.brush, [across.name]: across.labels.slice(x0, x1 + 1), [down.name]: down.labels.slice(y0, y1 + 1) } })
	}

	current() {
		const { best } = this.ds
		const [across, down] = this.axes()
		let labels = []
		try {
			labels = JSON.parse(this.now.at) || []
		} catch {
			// Edited by hand: fall back to the best.
		}
		const cell = [across.labels.indexOf(labels[0]), down.labels.indexOf(labels[1])]
		if (cell[0] >= 0 && cell[1] >= 0) return cell
		return best >= 0 ? [across.codes[best], down.codes[best]] : [0, 0]
	}

	step(dx, dy) {
		const [across, down] = this.axes()
		const [cx, cy] = this.current()
		this.setCurrent(clamp(cx + dx, 0, across.values.length - 1), clamp(cy + dy, 0, down.values.length - 1))
	}

	setCurrent(cx, cy) {
		this.set({ at: this.labelsAt(cx, cy) })
	}

	key(event) {
		return {
			b: () => this.nextBest(),
			l: () => this.set({ log: usesLog(this.app) ? "0" : "1" }),
			u: () => this.app.state.undo(),
			c: () => this.set({ brush: {} }),
			m: () => this.set({ reduce: this.now.reduce === "median" ? "best" : "median" })
		}[event.key]
	}

	nextBest() {
		const end = this.now.brush.median_ns?.[0]
		const next = BEST_SHARES[BEST_SHARES.findIndex(share => this.bestEnd(share) === end) + 1]
		if (next) this.setBest(next)
		else this.app.brush("median_ns", null)
	}

	bestEnd(share) {
		// Rounded up, so that the config at the border is in.
		const time = this.ds.timeAt(share / 100)
		return `..${Number((time * (1 + 1e-6)).toPrecision(7))}`
	}

	setBest(share) {
		if (share > 0) this.app.brush("median_ns", [this.bestEnd(Math.min(100, share))])
	}

	render(changed) {
		const { ds } = this
		this.root.classList.toggle("without", !ds)
		if (!ds) return
		if (!ds.rows || !ds.parameters.length) return
		// Where one parameter varies there is no map, and the one slice has everything.
		const only = ds.parameters.filter(one => one.values.length > 1).length < 2
		if (this.heatFrame.root.hidden !== only) {
			this.heatFrame.root.hidden = only
			if (only) this.heatFrame.root.after(this.slices.frame.root)
			else this.importanceFrame.root.after(this.slices.frame.root)
		}
		const redraw = text => any(changed, `data w theme size ${text}`)
		if (redraw("x y fix at reduce unit row importance brush")) {
			timed("heat", () => this.drawHeat())
			timed("controls", () => this.drawControls())
		} else if (changed.has("grown")) {
			timed("heat", () => this.drawHeat())
			this.drawReadout()
		}
		if (redraw("brush axes log")) timed("parallel", () => this.drawLines())
		if (redraw("importance")) this.drawImportance()
		if (redraw("row brush metric view")) this.slices.update(any(changed, "theme size metric"))
	}

	drawHeat() {
		const { app, ds, workload, now } = this
		const { x, y } = heatAxes(app)
		const unit = unitOf(now.unit, workload)
		const { mask, count } = this.chosen
		this.heat.update({
			ds, workload, unit, x, y,
			fixed: now.fix,
			reduce: now.reduce,
			mask: count < ds.count ? mask : null,
			current: this.current(),
			clicked: now.row,
			searchBest: app.searchBest()
		})
		const held = Object.entries(now.fix).filter(([name]) => name !== x && name !== y && ds.parameter(name))
		const rest = held.length ? `with ${held.map(([name, value]) => `${name} = ${value}`).join(", ")} and ` : "with "
		this.heatFrame.caption.textContent = `Each cell is the ${now.reduce === "median" ? "median" : "best"} config with these two values, ${rest}all other parameters free, in ${unit === UNITS.time ? "time (less is better)" : unit.label}.`
		this.drawLegend()
	}

	drawLegend() {
		const { ds } = this
		const { unit, workload } = this.heat.input
		const ends = unit.more ? [this.heat.least, this.heat.most] : [this.heat.most, this.heat.least]
		const show = worth => (unit === UNITS.time ? inUnit(worth, unit, workload) : `${Math.round(worth * 10) / 10}`)
		const failed = new Set(this.heat.cells.failed)
		failed.delete(-1)
		fill(
			this.legend,
			Number.isFinite(ends[0]) && el("span", "slow ", show(ends[0]), gradient(), show(ends[1]), " fast"),
			sign("★", "the pick"),
			ds.disputed && sign("▲", "the fastest seen"),
			sign("◆", "best of this search"),
			sign("▢", "the cursor"),
			sign("▣", "the opened config", "accent"),
			sign("┄", "tied with the pick"),
			[...failed].map(s => sign(statusGlyph(ds.statuses[s]), statusText(ds.statuses[s]), "bad")),
			sign("⬚", "never measured")
		)
	}

	drawControls() {
		const { app, ds, now, workload } = this
		const { x, y } = heatAxes(app)
		const names = ds.parameters.map(one => [one.name, one.name])
		const units = Object.entries(UNITS).filter(([, unit]) => unit.known(workload)).map(([key, unit]) => [key, unit.label])
		const shownUnit = Object.keys(UNITS).find(key => UNITS[key] === unitOf(now.unit, workload))
		const focus = document.activeElement?.dataset?.control
		fill(
			this.heatFrame.tools,
			labelled("x", select("x axis", names, x, value => this.set({ x: value, y: value === y ? x : y }), { id: "heat-x", "data-control": "x" })),
			labelled("y", select("y axis", names, y, value => this.set({ y: value, x: value === x ? y : x }), { id: "heat-y", "data-control": "y" })),
			select("reduce other parameters to", [["best", "best over the others"], ["median", "median over the others"]], now.reduce, reduce => this.set({ reduce }), { id: "heat-reduce", "data-control": "reduce" }),
			select("unit", units, shownUnit, unit => this.set({ unit }), { id: "heat-unit", "data-control": "unit" })
		)
		const constant = ds.parameters.filter(one => one.values.length < 2 && one.name !== x && one.name !== y)
		fill(
			this.controls.body,
			ds.parameters.filter(one => !constant.includes(one)).map(one => this.parameterRow(one, x, y)),
			constant.length > 0 && el("p.line.constant", `Always: ${constant.map(one => `${one.name} = ${one.labels[0]}`).join(", ")}`)
		)
		if (focus) document.querySelector(`[data-control="${CSS.escape(focus)}"]`)?.focus()
		this.drawReadout()
	}

	parameterRow(one, x, y) {
		const { now } = this
		const axis = one.name === x ? "x" : one.name === y ? "y" : ""
		const [cx, cy] = this.current()
		const fixed = now.fix[one.name]
		const chosen = axis === "x" ? cx : axis === "y" ? cy : one.labels.indexOf(fixed)
		const choose = code => {
			if (axis === "x") this.setCurrent(code, cy)
			else if (axis === "y") this.setCurrent(cx, code)
			else {
				const fix = { ...now.fix }
				if (code < 0) delete fix[one.name]
				else fix[one.name] = one.labels[code]
				this.set({ fix })
			}
		}
		const value = (text, title, code) => button(text, title, () => choose(code), { "aria-pressed": String(code === chosen || (code < 0 && chosen < 0)), class: "value", "data-control": `${one.name}=${text}` })
		return el("div.parameter", { "data-parameter": one.name },
			el("span.name", { title: one.name }, one.name, axis && el("em", axis)),
			el("div.values", { role: "group", "aria-label": one.name },
				!axis && value("any", `Leave ${one.name} free`, -1),
				one.values.length < 13
					? one.labels.map((text, code) => value(text, `${one.name} = ${text}`, code))
					: select(one.name, one.labels.map((text, code) => [String(code), text]), String(chosen), code => choose(Number(code)), { "data-control": `${one.name}=` })
			)
		)
	}

	drawReadout() {
		const { ds, workload, now } = this
		const unit = unitOf(now.unit, workload)
		const [cx, cy] = this.current()
		const cell = cy * this.heat.cells.wide + cx
		const ns = this.heat.cells.ns[cell]
		const failed = this.heat.cells.failed[cell]
		const size = workload.space_size
		const items = [
			["current", "At the cursor", ns >= 0 ? inUnit(ns, unit, workload) : failed >= 0 ? statusText(ds.statuses[failed]) : "not measured"],
			["best-found", "The pick", inUnit(ds.usable[ds.best], unit, workload)],
			["fastest-seen", "The fastest seen", inUnit(ds.peak, unit, workload)],
			["of-best", "Of the fastest's speed", percent(ds.share(ns))],
			["of-roofline", "Of the roofline", workload.roofline_ns ? percent(workload.roofline_ns / ns) : "flops, bytes unknown"],
			["tested", "Tested", `${counted(ds.count)} of ${size ? counted(size) : "an unknown number"}`],
			["product", "The space", workload.space_product || (size ? counted(size) : plural(ds.count, "config"))]
		]
		fill(this.readout, items.map(([name, text, value]) => el("div", el("dt", text), el("dd", { "data-readout": name, text: value }))))
	}

	drawLines() {
		const { app, ds, now } = this
		const { mask, count } = this.chosen
		const entries = parallelEntries(app)
		const log = usesLog(app)
		const k = el("input#best-k", { type: "number", min: "0.1", max: "100", step: "any", value: this.k || 5, "aria-label": "best k percent", onchange: () => (this.k = k.value) })
		fill(
			this.linesFrame.tools,
			button("Best", "Keep the best k % (key B: 1, 5, 10, 25 %, all)", () => this.setBest(Number(k.value)), { id: "best-button", disabled: !ds.fastest.length }),
			k,
			el("span.soft", "%"),
			button(log ? "log ✓" : "log", "Logarithmic scales (key L)", () => this.set({ log: log ? "0" : "1" }), { "aria-pressed": String(log), id: "log-button" }),
			button("Undo", "Undo the last brush or axis change (key U)", () => this.app.state.undo(), { id: "undo-button", disabled: !this.app.state.past.length }),
			button("Clear", "Remove all brushes (key C)", () => this.set({ brush: {} }), { id: "clear-button", disabled: !Object.keys(now.brush).length }),
			this.axisChooser(entries)
		)
		this.lines.update({ ds, workload: this.workload.id, entries, brush: now.brush, mask, count, log })
		fill(this.lineLegend, CLASS_NAMES.map((name, c) => swatch(c === FAILED_CLASS ? `repeating-linear-gradient(90deg, ${classColor(c)} 0 3px, transparent 3px 5px)` : classColor(c), name)))
	}

	axisChooser(entries) {
		const names = entries.map(axisName)
		const was = this.linesFrame.tools.querySelector("details")
		return el("details.chooser", { open: was?.open },
			el("summary", "Axes"),
			el("div.menu", [...this.ds.axes.values()].map(axis => {
				const box = el("input", { type: "checkbox", onchange: () => this.set({ axes: box.checked ? [...entries, axis.name] : entries.filter(entry => axisName(entry) !== axis.name) }) })
				box.checked = names.includes(axis.name)
				return el("label", box, axis.label)
			}))
		)
	}

	drawImportance() {
		const { importance } = this
		const list = importance || []
		this.importanceFrame.root.querySelector(".note")?.remove()
		this.bars.canvas.hidden = !list.length
		if (!list.length) {
			this.importanceFrame.body.append(note(importance === null ? "Reading…" : "Too few trials to say what matters."))
			return
		}
		this.bars.update(list.map(one => ({ name: one.parameter, value: one.share, low: one.low, high: one.high, outer: one.total, text: importanceText(one) })))
	}

	chooseX(name) {
		const { x, y } = heatAxes(this.app)
		this.set({ x: name, y: name === y ? x : y })
	}
}

function importanceText(one) {
	const others = one.total > 0 ? `, ${percent(one.total, 2)} with others` : ""
	return `${percent(one.share, 2)}${others}${isNoise(one) ? ", may be noise" : ""}`
}

