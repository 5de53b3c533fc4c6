// The same kernel on two devices, keys or commits.

import { Beside } from "./beside.js"
import { SERIES } from "./colors.js"
import { extent, readWhole } from "./dataset.js"
import { el, facts, figure, fill, headCells, labelled, note, numberCells, opens, saveCsv, select } from "./dom.js"
import { configText, counted, digits, keyText, nanoseconds, percent, plural, varied, workloadText } from "./format.js"
import { Plot } from "./plot.js"
import { View, any } from "./view.js"

const MOST_DRAWN = 20000
const LISTED = 12

function sharedRows(a, b) {
	const shared = a.parameters.filter(one => b.parameter(one.name))
	// What only one has must not vary, or a config of the other would be several.
	const alone = [...a.parameters, ...b.parameters].filter(one => !(a.parameter(one.name) && b.parameter(one.name)))
	if (!shared.length || alone.some(one => one.values.length > 1)) return []
	// A config is one number: its codes in a, digit by digit; NaN where a lacks the value.
	const keyed = (ds, codes) => new Map(Array.from(ds.fastest, row => [codes.reduce((key, code, p) => key * shared[p].values.length + code(row), 0), row]))
	const mine = keyed(a, shared.map(one => row => one.codes[row]))
	const theirs = keyed(b, shared.map(one => {
		const { codes, labels } = b.parameter(one.name)
		const places = labels.map(text => (one.labels.includes(text) ? one.labels.indexOf(text) : NaN))
		return row => places[codes[row]]
	}))
	return [...theirs].filter(([key]) => mine.has(key)).map(([key, row]) => [mine.get(key), row])
}

function sharedPlaces(pairs, side, usable) {
	const places = new Float64Array(pairs.length)
	const order = [...places.keys()].sort((p, q) => usable[pairs[p][side]] - usable[pairs[q][side]])
	order.forEach((i, place) => (places[i] = place + 1))
	return places
}

function correlation(a, b) {
	const n = a.length
	if (n < 3) return NaN
	let sum = 0
	for (let i = 0; i < n; i++) sum += (a[i] - b[i]) ** 2
	return 1 - (6 * sum) / (n * (n * n - 1))
}

export class CompareView extends View {
	constructor(app, root) {
		super(app, root)
		this.frame = figure({
			id: "compare",
			title: "Compare",
			csv: () => this.csv(),
			chart: body => new Plot(body, {
				height: 330,
				label: "places of shared configs on both sides",
				tip: (one, i) => this.tipOf(one, i),
				clicked: (one, i) => one.pairs && this.open(this.pairs[one.pairs[i]][0]),
				ranged: (low, high) => this.ranged(low, high)
			})
		})
		this.plot = this.frame.chart
		this.words = el("div#compare-words")
		this.lists = el("div")
		this.beside = new Beside(this)
		this.frame.body.prepend(this.beside.root, this.frame.caption, this.words)
		this.frame.body.append(this.lists)
		root.append(this.frame.root)
	}

	others() {
		const { workload, workloads } = this
		const rest = workloads.filter(one => one.id !== workload.id)
		return [...rest.filter(one => one.kernel === workload.kernel), ...rest.filter(one => one.kernel !== workload.kernel)]
	}

	render(changed) {
		if (!this.ds) return
		const others = this.others()
		if (!others.length) {
			fill(this.frame.tools)
			fill(this.words, note("There is only one workload: nothing to compare it with."))
			this.plot.canvas.hidden = true
			fill(this.lists)
			return
		}
		const found = id => others.find(one => one.id === id)
		const other = found(this.now.b) || others[0]
		const third = found(this.now.c)
		const options = others.map(one => [one.id, workloadText(one)])
		fill(
			this.frame.tools,
			labelled("with", select("the other workload", options, other.id, b => this.set({ b }), { id: "compare-b" })),
			labelled("and", select("a third workload", [["", "–"], ...options], third?.id || "", c => this.set({ c: c || null }), { id: "compare-c" }))
		)
		const key = `${this.workload.id}|${other.id}|${third?.id}|${this.ds.rows}`
		if (this.key0 !== key) this.read(other, third, key)
		else if (this.pairs && any(changed, "brush theme size data view")) this.draw(other)
		if (changed && any(changed, "ir diff")) this.beside.draw()
	}

	async read(other, third, key) {
		const { workload } = this
		this.key0 = key
		this.pairs = null
		fill(this.words, note("Reading…"))
		const sides = [workload, other, ...(third && third !== other ? [third] : [])]
		let read
		try {
			read = [this.ds, ...(await Promise.all(sides.slice(1).map(one => readWhole(this.source, one.id))))]
		} catch (error) {
			fill(this.words, note(error.message, "bad"))
			return
		}
		if (this.workload !== workload || this.key0 !== key) return
		const ds = read[1]
		this.beside.read(sides.map((workload, i) => ({ workload, row: read[i].best })).filter(one => one.row >= 0))
		this.other = ds
		this.pairs = sharedRows(this.ds, ds)
		this.places = [sharedPlaces(this.pairs, 0, this.ds.usable), sharedPlaces(this.pairs, 1, ds.usable)]
		this.draw(other)
	}

	draw(other) {
		const { app, pairs, places } = this
		const { ds, workload } = app
		this.plot.canvas.hidden = pairs.length < 3
		if (!pairs.length) {
			fill(this.words, note("The two have no measured config in common."))
			fill(this.lists)
			return
		}
		const { mask } = app.selection()
		const inside = []
		const outside = []
		const every = Math.ceil(pairs.length / MOST_DRAWN)
		for (let i = 0; i < pairs.length; i += every) (mask[pairs[i][0]] ? inside : outside).push(i)
		const points = (list, more) => ({ kind: "points", x: list.map(i => places[0][i]), y: list.map(i => places[1][i]), pairs: list, ...more })
		const bests = [this.placeOf(ds.best, 0), this.placeOf(this.other.best, 1)].filter(i => i >= 0)
		this.plot.update({
			series: [
				points(outside, { name: "not selected", color: SERIES[7], alpha: 0.25, size: 2, faint: true }),
				points(inside, { name: "shared configs", color: SERIES[0], alpha: 0.6, size: 2.6 }),
				points(bests, { name: "the best of either", color: SERIES[1], size: 6 }),
				{ name: "the same place on both", kind: "line", x: [1, pairs.length], y: [1, pairs.length], color: SERIES[7], dash: [5, 4], width: 1, faint: true }
			],
			x: { label: `place on ${this.name(workload, other)}`, low: 0, show: counted },
			y: { label: `place on ${this.name(other, workload)}`, low: 0, show: counted }
		})
		this.frame.caption.textContent = pairs.length < 3 ? "" : "Every dot is a config, by its place on either side: far from the dashed line the two disagree. Drag to select configs."
		this.drawWords(other)
		this.drawMoves()
	}

	// What tells the two apart, the first that does.
	name(one, other) {
		if (one.kernel !== other.kernel) return one.kernel
		if (one.device !== other.device) return one.device
		if (keyText(one) !== keyText(other)) return keyText(one)
		return one.commit || one.fingerprint?.slice(0, 8) || one.source_where || one.id
	}

	placeOf(row, side) {
		return this.pairs.findIndex(pair => pair[side] === row)
	}

	drawWords(other) {
		const { app, pairs, places } = this
		const { ds, workload } = app
		const rho = correlation(places[0], places[1])
		const [here, there] = [this.name(workload, other), this.name(other, workload)]
		const order = rho > 0.9 ? "mostly the same order" : rho > 0.6 ? "a similar order, with exceptions" : "a different order"
		const texts = [`${plural(pairs.length, "config")} measured on both${rho >= -1 ? `; rank correlation ${digits(rho, 2)}: ${order}` : ""}.`]
		const mine = this.placeOf(ds.best, 0)
		const theirs = this.placeOf(this.other.best, 1)
		if (mine >= 0) texts.push(this.moveText(here, there, this.other, mine, 1))
		if (theirs >= 0 && theirs !== mine) texts.push(this.moveText(there, here, ds, theirs, 0))
		fill(this.words, facts(texts))
	}

	moveText(here, there, ds, at, side) {
		const row = this.pairs[at][side]
		const share = ds.share(ds.usable[row])
		return `The pick of ${here} is place ${counted(this.places[side][at])} on ${there}: ${percent(share)} of the best speed there.`
	}

	drawMoves() {
		const { pairs, places, ds, other } = this
		const { mask } = this.chosen
		const moves = [...places[0].keys()].filter(i => mask[pairs[i][0]])
		moves.sort((p, q) => Math.abs(places[0][q] - places[1][q]) - Math.abs(places[0][p] - places[1][p]))
		fill(this.lists, el("h3", "Which change their place most"), el("div.scroll.tall", { tabindex: "0", "aria-label": "configs that change their place" }, el("table.rows", headCells(["config", "place here", "place there", "time here", "time there"], "number"), el("tbody", moves.slice(0, LISTED).map(i => {
			const [a, b] = pairs[i]
			return el("tr", opens(() => this.open(a), `place ${counted(places[0][i])} here, ${counted(places[1][i])} there: ${configText(varied(ds, ds.config(a)))}`), el("td.wide", configText(varied(ds, ds.config(a)))), numberCells([counted(places[0][i]), counted(places[1][i]), nanoseconds(ds.usable[a]), nanoseconds(other.usable[b])]))
		})))))
	}

	ranged(low, high) {
		const { ds } = this
		const inside = this.pairs.filter((_, i) => this.places[0][i] >= low && this.places[0][i] <= high).map(pair => ds.usable[pair[0]])
		const [first, last] = extent(inside)
		if (inside.length) this.app.brush("median_ns", [`${first * (1 - 1e-6)}..${last * (1 + 1e-6)}`])
	}

	tipOf(one, i) {
		if (!one.pairs) return [one.name]
		const at = one.pairs[i]
		const [a, b] = this.pairs[at]
		const { ds } = this
		return [configText(ds.config(a)), ["here", `place ${counted(this.places[0][at])}, ${nanoseconds(ds.usable[a])}`], ["there", `place ${counted(this.places[1][at])}, ${nanoseconds(this.other.usable[b])}`]]
	}

	csv() {
		if (!this.pairs) return
		const { ds } = this
		const rows = this.pairs.map(([a, b], i) => [configText(ds.config(a)), this.places[0][i], this.places[1][i], ds.usable[a], this.other.usable[b]])
		saveCsv([["config", "place_here", "place_there", "ns_here", "ns_there"], ...rows], "compare.csv")
	}
}
