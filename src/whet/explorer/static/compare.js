// Two keys, devices, commits, stores or runs of a kernel: what became slower first.

import { Beside } from "./beside.js"
import { SERIES } from "./colors.js"
import { extent, ofRun, readWhole } from "./dataset.js"
import { el, facts, figure, fill, labelled, listing, note, numberCells, opens, saveCsv, select } from "./dom.js"
import { configText, counted, digits, kernelText, keyText, nanoseconds, percent, plural, timeTick, valueText, varied, workloadText } from "./format.js"
import { Plot } from "./plot.js"
import { sizesOf } from "./sizes.js"
import { View, any } from "./view.js"

const MOST_DRAWN = 20000
const LISTED = 12
// What times of one config differ by on two occasions anyway, as in 'whet store diff'.
const ANYWAY = 1.02
const RUN = "run:"
const SAID = ["slower", "faster", ""]

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

// B's time over A's: the intervals of both join as squares of logarithms do.
function ratioOf(a, b, unit = 1) {
	const far = (end, { ns }) => (end > 0 ? Math.log(end / ns) : 0)
	const mid = b.ns / a.ns / unit
	const low = mid * Math.exp(-Math.hypot(far(b.low_ns, b), far(a.high_ns, a)))
	const high = mid * Math.exp(Math.hypot(far(b.high_ns, b), far(a.low_ns, a)))
	return { mid, low, high, said: low > ANYWAY ? "slower" : high < 1 / ANYWAY ? "faster" : "" }
}

const times = value => `${digits(value)}×`
const ratioCells = ({ mid, low, high, said }) => [times(mid), `${times(low)} to ${times(high)}`, said || "tied"]
// The surest of either in front.
const slowerFirst = (p, q) => SAID.indexOf(p.said) - SAID.indexOf(q.said) || (p.said === "faster" ? p.high - q.high : q.low - p.low)

function changedText(a, b) {
	const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter(name => JSON.stringify(a[name]) !== JSON.stringify(b[name]))
	const show = value => (value === undefined ? "–" : valueText(value))
	return names.map(name => `${name} ${show(a[name])} → ${show(b[name])}`).join(", ")
}

const timed0 = (ds, row) => ({ ns: ds.usable[row], low_ns: ds.value(row, "low_ns"), high_ns: ds.value(row, "high_ns") })

export class CompareView extends View {
	constructor(app, root) {
		super(app, root)
		this.frame = figure({
			id: "compare",
			title: "Compare",
			csv: () => this.csv(),
			chart: body => new Plot(body, {
				height: 300,
				label: "ratio of the times of configs measured on both sides",
				tip: (one, i) => this.tipOf(one, i),
				clicked: (one, i) => this.openPair(one.pairs[i]),
				ranged: (low, high) => this.app.brush("median_ns", [`${low}..${high}`])
			})
		})
		this.plot = this.frame.chart
		this.words = el("div#compare-words")
		this.lists = el("div")
		this.beside = new Beside(this)
		this.keys = figure({ id: "compare-keys", title: "Every key", line: "The picks of both sides at every key that both have, what became slower first. Click one to compare its configs.", csv: () => saveCsv([["key", "a_ns", "b_ns", "ratio", "low", "high", "verdict", "pick"], ...this.matched.map(one => [keyText(one.a), one.a.best.ns, one.b.best.ns, one.mid, one.low, one.high, one.said, one.changed])], "keys.csv") })
		this.frame.body.prepend(this.words, this.beside.root, this.frame.caption)
		this.frame.body.append(this.lists)
		root.append(this.frame.root, this.keys.root)
	}

	// What is most like it comes first: another store, commit or device, then another key.
	others() {
		const { workload, workloads } = this
		const like = w => [w.kernel === workload.kernel, keyText(w) === keyText(workload), w.device === workload.device]
		const order = (p, q) => like(q).map((one, i) => one - like(p)[i]).find(Boolean) || 0
		return workloads.filter(one => one.id !== workload.id).sort(order)
	}

	render(changed) {
		if (!this.ds) return
		const { workload, ds } = this
		if (this.asked !== workload.id) {
			this.asked = workload.id
			this.runs = []
			this.source.runs(workload.id).then(runs => {
				this.runs = runs.filter(run => ds.runs?.includes(run.id))
				if (this.runs.length > 1) this.render(null)
			})
		}
		const others = this.others()
		// What they have in common needs no words.
		const parts = w => [kernelText(w), keyText(w), w.device]
		const told = w => parts(w).filter((text, i) => text !== parts(workload)[i]).join(" · ") || workloadText(w)
		const options = [...others.map(one => [one.id, told(one)]), ...(this.runs.length > 1 ? this.runs.map(run => [RUN + run.id, this.runText(run.id)]) : [])]
		if (!options.length) {
			fill(this.frame.tools)
			fill(this.words, note("There is nothing to compare it with: tune it with another key, on another device or after a change, or open another store beside this one with 'whet explore --against STORE'."))
			this.plot.canvas.hidden = this.keys.root.hidden = true
			return
		}
		const found = id => others.find(one => one.id === id)
		const run = this.now.b?.startsWith(RUN) && this.runs.find(one => RUN + one.id === this.now.b)
		const other = run ? workload : found(this.now.b) || others[0] || workload
		const third = found(this.now.c)
		fill(
			this.frame.tools,
			labelled("with", select("what to compare it with", options, run ? this.now.b : other.id, b => this.set({ b }), { id: "compare-b" })),
			labelled("and", select("a third workload", [["", "–"], ...others.map(one => [one.id, told(one)])], third?.id || "", c => this.set({ c: c || null }), { id: "compare-c" }))
		)
		const key = `${workload.id}|${run?.id || other.id}|${third?.id}|${ds.rows}`
		if (this.key0 !== key) this.read(other, third, key, run)
		else if (this.pairs && any(changed, "brush theme size data view")) this.draw()
		if (changed && any(changed, "ir diff")) this.beside.draw()
	}

	runText(id) {
		const run = this.runs.find(one => one.id === id)
		return `run of ${new Date(1000 * run.started).toISOString().slice(0, 16).replace("T", " ")}, ${run.search}`
	}

	// B is what the rest of the page shows, A what it is compared with.
	async read(other, third, key, run) {
		const { workload, ds } = this
		this.key0 = key
		this.pairs = null
		fill(this.words, note("Reading…"))
		const sides = [workload, other, ...(third && third !== other ? [third] : [])]
		let read
		try {
			read = await Promise.all(sides.map(one => (one === workload ? ds : readWhole(this.source, one.id))))
		} catch (error) {
			fill(this.words, note(error.message, "bad"))
			return
		}
		if (this.workload !== workload || this.key0 !== key) return
		this.beside.read(run ? [] : sides.map((workload, i) => ({ workload, row: read[i].best })).filter(one => one.row >= 0))
		if (run) {
			const mine = this.runs.find(one => one !== run)
			this.a = this.sideOf(workload, ofRun(ds, run.id), this.runText(run.id))
			this.b = this.sideOf(workload, ofRun(ds, mine.id), this.runText(mine.id))
		} else {
			this.a = this.sideOf(other, read[1], this.name(other, workload), other.best)
			this.b = this.sideOf(workload, ds, this.name(workload, other), workload.best)
		}
		this.pair()
		this.draw()
	}

	sideOf(workload, ds, name, best) {
		return { workload, ds, name, best: best || (ds.best >= 0 ? { ...timed0(ds, ds.best), config: ds.config(ds.best) } : null) }
	}

	// Of another key or device, times say little: there each counts as a multiple of the fastest on its side.
	pair() {
		const { a, b } = this
		const alike = a.workload.kernel === b.workload.kernel
		this.relative = a.workload.device !== b.workload.device || keyText(a.workload) !== keyText(b.workload)
		const unit = this.relative ? b.ds.peak / a.ds.peak : 1
		this.pairs = (alike ? sharedRows(a.ds, b.ds) : []).map(rows => ({ rows, ...ratioOf(timed0(a.ds, rows[0]), timed0(b.ds, rows[1]), unit) })).sort(slowerFirst)
	}

	get head() {
		return this.relative ? "B / A, of the fastest on each side" : "B / A"
	}

	draw() {
		const { a, b, pairs } = this
		const { mask } = this.chosen
		this.drawWords()
		this.drawKeys()
		this.plot.canvas.hidden = pairs.length < 3
		this.frame.caption.textContent = pairs.length < 3 ? "" : "Every dot is a config: above the dashed line it is slower on B. Drag to select configs by their time on B."
		const every = Math.ceil(pairs.length / MOST_DRAWN)
		const shown = pairs.filter((_, i) => i % every === 0)
		const inside = one => mask[this.rowOf(one)]
		const dots = (name, list, more) => ({ name, kind: "points", x: list.map(one => b.ds.usable[one.rows[1]]), y: list.map(one => one.mid), pairs: list, ...more })
		const [low, high] = extent([0.95, 1.05, ...shown.map(one => one.mid)])
		const of = said => shown.filter(one => inside(one) && one.said === said)
		this.plot.update({
			series: [
				dots("not selected", shown.filter(one => !inside(one)), { color: SERIES[7], alpha: 0.2, size: 2, faint: true }),
				dots("tied", of(""), { color: SERIES[7], alpha: 0.7, size: 2.6 }),
				dots("slower", of("slower"), { color: SERIES[1], alpha: 0.7, size: 3 }),
				dots("faster", of("faster"), { color: SERIES[0], alpha: 0.7, size: 3 })
			],
			x: { label: `time on B, ${b.name}`, log: true, show: timeTick },
			y: { label: this.head, log: true, show: times, low, high, marks: [1, 0.5, 2, 0.1, 0.2, 5, 10, 0.8, 1.25, 0.9, 1.1, 0.95, 1.05].filter(at => at >= low && at <= high) },
			rules: [{ side: "y", at: 1, text: "the same" }]
		})
		const rows = pairs.filter(one => one.said && inside(one))
		const listed = [...rows.filter(one => one.said === "slower").slice(0, LISTED), ...rows.filter(one => one.said === "faster").slice(0, LISTED)]
		fill(this.lists, pairs.length > 0 && (listed.length ? listing("configs that differ, the slower first", ["config", "A", "B", this.head, "95 % interval", "on B"], listed.map(one => {
			const text = configText(varied(a.ds, a.ds.config(one.rows[0])))
			return el("tr", opens(() => this.openPair(one), `${one.said}, ${times(one.mid)}: ${text}`), el("td.wide", text), numberCells([nanoseconds(a.ds.usable[one.rows[0]]), nanoseconds(b.ds.usable[one.rows[1]]), ...ratioCells(one)]))
		})) : note("No config differs by more than the 2 % by which two occasions differ anyway.")))
	}

	rowOf({ rows: [, row] }) {
		return this.b.ds.origins?.[row] ?? row
	}

	openPair(one) {
		this.open(this.rowOf(one))
	}

	// What tells the two apart, the first that does.
	name(one, other) {
		if (one.kernel !== other.kernel) return one.kernel
		if (one.device !== other.device) return one.device
		if (keyText(one) !== keyText(other)) return keyText(one)
		return one.place !== other.place && one.place || one.version || one.fingerprint?.slice(0, 8) || one.id
	}

	drawWords() {
		const { a, b, pairs } = this
		const texts = [`A is ${a.name}, B is ${b.name}.`]
		if (a.best && b.best) {
			const one = ratioOf(a.best, b.best)
			texts.push(`The picks: ${nanoseconds(a.best.ns)} on A, ${nanoseconds(b.best.ns)} on B, ${times(one.mid)} (${times(one.low)} to ${times(one.high)}): ${one.said ? `B is ${one.said}` : "they are tied"}.`)
			if (a.workload.kernel === b.workload.kernel) {
				const changed = changedText(a.best.config, b.best.config)
				texts.push(changed ? `In the pick: ${changed}.` : "Both picked the same config.", this.carried(a, b, 0), this.carried(b, a, 1))
			}
		}
		if (a.workload.kernel !== b.workload.kernel) texts.push("They are different kernels, so that single configs are not compared.")
		else if (!pairs.length) texts.push("No config was measured on both sides.")
		else {
			const mids = pairs.map(one => one.mid).sort((p, q) => p - q)
			const at = share => times(mids[Math.floor(share * (mids.length - 1))])
			const count = said => counted(pairs.filter(one => one.said === said).length)
			texts.push(`${plural(pairs.length, "config")} measured on both: ${this.head} is ${at(0.5)} in the middle, ${at(0.25)} to ${at(0.75)} for half of them; ${count("slower")} slower, ${count("faster")} faster, ${count("")} tied.`)
		}
		fill(this.words, facts(texts))
	}

	// What the pick of one side is worth on the other.
	carried(from, to, side) {
		const one = this.pairs.find(({ rows }) => rows[side] === from.ds.best)
		if (!one || from.ds.best < 0 || one.rows[1 - side] === to.ds.best) return ""
		return `The pick of ${side ? "B" : "A"} has ${percent(to.ds.share(to.ds.usable[one.rows[1 - side]]))} of the fastest's speed on ${side ? "A" : "B"}.`
	}

	// Where both sides were tuned for several keys.
	drawKeys() {
		const { a, b } = this
		const [mine, theirs] = [a, b].map(({ workload }) => sizesOf(this.workloads, workload).filter(w => w.best?.ns > 0))
		const keyed = new Map(theirs.map(w => [JSON.stringify(w.key), w]))
		this.matched = theirs.includes(a.workload) || a.workload.kernel !== b.workload.kernel ? [] : mine.filter(w => keyed.has(JSON.stringify(w.key))).map(w => {
			const other = keyed.get(JSON.stringify(w.key))
			return { a: w, b: other, changed: changedText(w.best.config, other.best.config), ...ratioOf(w.best, other.best) }
		}).sort(slowerFirst)
		this.keys.root.hidden = this.matched.length < 2
		const count = said => this.matched.filter(one => one.said === said).length
		fill(this.keys.body, facts([`${plural(this.matched.length, "key")} on both sides: ${count("slower")} slower on B, ${count("faster")} faster, ${count("")} tied.`]), listing("keys, the slower first", ["key", "A", "B", "B / A", "95 % interval", "on B", "in the pick"], this.matched.map(one => el("tr", opens(() => this.set({ w: one.b.id, b: one.a.id }), `${one.said} ${keyText(one.a)}`), el("td", keyText(one.a)), numberCells([nanoseconds(one.a.best.ns), nanoseconds(one.b.best.ns), ...ratioCells(one)]), el("td.wide", one.changed || "the same"))), 6))
	}

	tipOf(one, i) {
		const { a, b } = this
		const pair = one.pairs[i]
		return [configText(a.ds.config(pair.rows[0])), ["A", nanoseconds(a.ds.usable[pair.rows[0]])], ["B", nanoseconds(b.ds.usable[pair.rows[1]])], [this.head, ratioCells(pair).join(", ")]]
	}

	csv() {
		if (!this.pairs) return
		const { a, b } = this
		saveCsv([["config", "a_ns", "b_ns", "ratio", "low", "high", "verdict"], ...this.pairs.map(one => [configText(a.ds.config(one.rows[0])), a.ds.usable[one.rows[0]], b.ds.usable[one.rows[1]], one.mid, one.low, one.high, one.said])], "compare.csv")
	}
}
