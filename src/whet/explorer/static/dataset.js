// Trials as typed columns, and the passes over them.

import { isMeasured, statusText, valueText } from "./format.js"

const NUMBER_BINS = 40
const MOST_VALUES = 48

const CLASS_ENDS = [0.02, 0.1, 0.25, 0.5, 1]
export const CLASS_NAMES = ["best 2 %", "best 10 %", "best 25 %", "faster half", "slower half", "failed"]
export const FAILED_CLASS = 5
export const CLASSES = 6

const NUMBER_AXES = [
	["median_ns", "time", "ns"],
	["build_s", "build", "s"],
	["cost_s", "cost", "s"],
	["order", "order tried", ""],
	["at_s", "elapsed", "s"]
]

function sortedValues(values) {
	const numeric = values.every(value => typeof value === "number")
	return [...values].sort((a, b) => (numeric ? a - b : String(a) < String(b) ? -1 : 1))
}

// Rows with a time, the fastest first: bits of a positive float sort as the float does.
function fastestFirst(times) {
	const bits = new Uint32Array(times.buffer, times.byteOffset, times.length)
	let count = 0
	for (let i = 0; i < times.length; i++) if (times[i] >= 0) count++
	const span = 2 ** Math.ceil(Math.log2(Math.max(2, times.length)))
	const packed = new Float64Array(count)
	let at = 0
	for (let i = 0; i < times.length; i++) if (times[i] >= 0) packed[at++] = bits[i] * span + i
	packed.sort()
	const rows = new Uint32Array(count)
	for (let i = 0; i < count; i++) rows[i] = packed[i] % span
	return rows
}

function joined(a, b) {
	const Kind = a.BYTES_PER_ELEMENT >= b.BYTES_PER_ELEMENT ? a.constructor : b.constructor
	const made = new Kind(a.length + b.length)
	made.set(a)
	made.set(b, a.length)
	return made
}

function merged(known, fresh, sort) {
	const texts = new Set(known.map(value => JSON.stringify(value)))
	const extra = fresh.filter(value => !texts.has(JSON.stringify(value)))
	const union = [...known, ...extra]
	const values = sort && extra.length ? sortedValues(union) : union
	const places = new Map(values.map((value, i) => [JSON.stringify(value), i]))
	const place = value => places.get(JSON.stringify(value))
	return { values, old: extra.length ? known.map(place) : null, fresh: fresh.map(place) }
}

function recoded(codes, map, count) {
	if (!map) return codes
	const made = new (count > 65536 ? Uint32Array : count > 256 ? Uint16Array : Uint8Array)(codes.length)
	for (let i = 0; i < codes.length; i++) made[i] = map[codes[i]]
	return made
}

export class Dataset {
	constructor({ header, arrays }) {
		const { statuses, errors, rows } = header
		const parameters = header.parameters.map(one => ({ ...one }))
		Object.assign(this, { parameters, statuses, errors, rows, columns: { ...arrays } })
		this.point(header)
		this.derive()
	}

	point({ epoch, complete, runs, total_rows: total, best_row: bestRow, first_row: firstRow, equal_rows: equalRows = [] }) {
		Object.assign(this, { epoch, complete, runs, total, bestRow, firstRow, equalRows })
	}

	append(answers) {
		for (const one of answers) this.add(one)
		this.derive()
	}

	// More rows of the same workload; their codes are of their own header's lists.
	add({ header, arrays }) {
		this.point(header)
		if (!header.rows) return
		const fresh = { ...arrays }
		const remap = (column, known, now, sort) => {
			const answer = merged(known, now, sort)
			this.columns[column] = recoded(this.columns[column], answer.old, answer.values.length)
			fresh[column] = recoded(fresh[column], answer.fresh, answer.values.length)
			return answer.values
		}
		for (const one of this.parameters) {
			const now = header.parameters.find(other => other.name === one.name)
			if (now) one.values = remap(`p:${one.name}`, one.values, now.values, true)
		}
		for (const now of header.parameters) {
			if (this.parameters.some(one => one.name === now.name)) continue
			const lacks = now.values.indexOf(null)
			this.parameters.push({ ...now, values: lacks < 0 ? [...now.values, null] : now.values })
			this.columns[`p:${now.name}`] = new Uint16Array(this.rows).fill(lacks < 0 ? now.values.length : lacks)
		}
		this.statuses = remap("status", this.statuses, header.statuses)
		this.errors = remap("error", this.errors, header.errors)
		for (const name of Object.keys(this.columns)) {
			const more = fresh[name] || new this.columns[name].constructor(header.rows)
			if (!fresh[name] && more instanceof Float32Array) more.fill(NaN)
			this.columns[name] = joined(this.columns[name], more)
		}
		this.rows += header.rows
	}

	derive() {
		const { status, median_ns: times } = this.columns
		this.measured = this.statuses.map(isMeasured)
		this.findStanding()
		const { standing } = this
		const ok = this.statuses.indexOf("ok")
		const usable = new Float32Array(this.rows)
		for (let i = 0; i < this.rows; i++) usable[i] = standing[i] && this.measured[status[i]] && times[i] >= 0 ? times[i] : NaN
		this.usable = usable
		this.finished = status.map(code => Number(code === ok))
		this.fastest = fastestFirst(usable)
		// One stopped early is known to be slower, whatever its few samples say.
		this.quickest = this.fastest.find(row => this.finished[row]) ?? -1
		// The pick, which was compared side by side, need not have the lowest median.
		this.best = usable[this.bestRow] >= 0 ? this.bestRow : this.quickest
		if (this.quickest < 0) this.quickest = this.fastest[0] ?? -1
		this.classify()
		this.axes = new Map()
		for (const one of this.parameters) {
			one.labels = one.values.map(valueText)
			one.codes = this.columns[`p:${one.name}`]
			this.axes.set(one.name, this.parameterAxis(one))
		}
		this.axes.set("status", this.statusAxis())
		for (const [column, label, unit] of NUMBER_AXES) {
			const axis = this.columns[column] && !this.axes.has(column) && this.numberAxis(column, label, unit, this.columns[column])
			if (axis) this.axes.set(column, axis)
		}
		this.ties = this.findTies()
		this.places = null
		this.kept = new Map()
	}

	// What counts: tried, and not replaced by a later trial of the same config.
	findStanding() {
		const { status, replaces } = this.columns
		const untried = this.statuses.indexOf("untried")
		const latest = new Uint32Array(this.rows).map((_, i) => i)
		for (let i = this.rows - 1; replaces && i >= 0; i--) if (replaces[i]) latest[replaces[i] - 1] = latest[i]
		this.latest = latest
		this.standing = status.map((code, i) => Number(code !== untried && latest[i] === i))
		this.count = this.standing.reduce((all, one) => all + one, 0)
		this.columns.order = latest.map((_, i) => i + 1)
	}

	classify() {
		const classes = new Uint8Array(this.rows).fill(FAILED_CLASS)
		const ends = CLASS_ENDS.map(share => Math.max(1, Math.round(share * this.fastest.length)))
		let kind = 0
		for (let i = 0; i < this.fastest.length; i++) {
			while (i >= ends[kind]) kind++
			classes[this.fastest[i]] = kind
		}
		this.classes = classes
	}

	parameterAxis(one) {
		if (one.values.length > MOST_VALUES && one.kind !== "str" && one.kind !== "bool") {
			const numbers = one.values.map(Number)
			const values = Float32Array.from(one.codes, code => numbers[code])
			const axis = this.numberAxis(one.name, one.name, "", values)
			if (axis) return axis
		}
		const { name, codes } = one
		const labels = one.labels.slice(0, 250)
		const last = labels.length - 1
		const bins = () => (one.labels.length > 250 ? Uint8Array.from(codes, code => Math.min(code, last)) : codes)
		return { name, label: name, kind: "values", keys: labels, labels, count: labels.length, bins }
	}

	statusAxis() {
		const { status } = this.columns
		const counts = this.statusCounts(this.standing)
		const keys = this.statuses.filter((_, i) => counts[i])
		const places = Uint8Array.from(this.statuses, one => Math.max(0, keys.indexOf(one)))
		let bins = null
		return { name: "status", label: "outcome", kind: "values", keys, labels: keys.map(statusText), count: keys.length, bins: () => (bins ||= status.map(code => places[code])) }
	}

	numberAxis(name, label, unit, values) {
		const [low, high] = extent(values)
		if (!(high > low)) return null
		const cache = {}
		const logarithmic = low > 0
		const lacking = values.some((value, i) => value !== value && this.standing[i])
		const bins = log => (cache[log && logarithmic] ||= binned(values, low, high, log && logarithmic))
		return { name, label, unit, kind: "numbers", low, high, logarithmic, lacking, values, count: NUMBER_BINS + 1, bins }
	}

	findTies() {
		const ties = new Uint8Array(this.rows)
		for (const row of [...this.equalRows, ...(this.best < 0 ? [] : [this.best])]) ties[row] = 1
		return ties
	}

	// The fastest there is.
	get peak() {
		return this.usable[this.quickest]
	}

	// Whether the pick is not the fastest seen.
	get disputed() {
		return this.best >= 0 && this.usable[this.best] > this.peak
	}

	get failures() {
		return this.axes.get("status").keys.filter(status => !isMeasured(status))
	}

	// What a row is among the others, if it is anything.
	standingText(row) {
		if (row === this.best) return "the pick"
		if (row === this.quickest && this.disputed) return "the fastest seen"
		return this.ties[row] ? "tied with the pick" : ""
	}

	// Whether its time says how fast it is: not the few samples of one stopped early that no later
	// one bears out.
	telling(row) {
		return this.finished[row] ? this.usable[row] >= 0 : this.usable[row] > this.peak
	}

	// Of the speed of the fastest there is.
	share(ns) {
		return Math.min(1, this.peak / ns)
	}

	parameter(name) {
		return this.parameters.find(one => one.name === name)
	}

	config(row) {
		return Object.fromEntries(this.parameters.map(one => [one.name, one.values[one.codes[row]]]))
	}

	status(row) {
		return this.statuses[this.columns.status[row]]
	}

	error(row) {
		return (this.columns.error && this.errors[this.columns.error[row]]) || ""
	}

	value(row, column) {
		return this.columns[column] ? this.columns[column][row] : NaN
	}

	// 1 for the fastest; NaN for what was not measured to the end.
	rank(row) {
		if (!this.places) {
			this.places = new Uint32Array(this.rows)
			let place = 0
			for (const one of this.fastest) if (this.finished[one]) this.places[one] = ++place
		}
		return this.places[row] || NaN
	}

	// One byte a row, and how many are in. A brush is a list of labels or two ends 'low..high'.
	mask(brush) {
		const mask = this.standing.slice()
		for (const [name, wanted] of Object.entries(brush)) {
			const axis = this.axes.get(name)
			if (axis) this.narrow(mask, axis, wanted)
		}
		let count = 0
		for (let i = 0; i < mask.length; i++) count += mask[i]
		return { mask, count }
	}

	narrow(mask, axis, wanted) {
		if (axis.kind === "numbers") {
			const [low, high] = brushEnds(wanted)
			const values = axis.values
			for (let i = 0; i < mask.length; i++) if (!(values[i] >= low && values[i] <= high)) mask[i] = 0
			return
		}
		const { keys } = axis
		const allowed = new Uint8Array(256)
		for (const one of wanted) if (keys.includes(one)) allowed[keys.indexOf(one)] = 1
		const bins = axis.bins()
		for (let i = 0; i < mask.length; i++) mask[i] &= allowed[bins[i]]
	}

	allPairs(a, b, log) {
		const key = JSON.stringify([a.name, b.name, Boolean(log)])
		if (!this.kept.has(key)) this.kept.set(key, this.pairs(a, b, this.standing, log))
		return this.kept.get(key)
	}

	pairs(a, b, mask, log) {
		const from = a.bins(log)
		const to = b.bins(log)
		const wide = b.count
		const counts = new Uint32Array(a.count * wide * CLASSES)
		const classes = this.classes
		for (let i = 0; i < mask.length; i++) {
			if (mask[i]) counts[(from[i] * wide + to[i]) * CLASSES + classes[i]]++
		}
		return counts
	}

	// The first `most` selected rows by a column, or by time; what has no value comes last.
	top(mask, most, column, descending) {
		if (!column || column === "median_ns") return this.topByTime(mask, most, descending)
		const values = this.columns[column] || this.parameter(column).codes
		const sign = descending ? -1 : 1
		const rows = []
		const keys = []
		for (let i = 0; i < this.rows; i++) {
			if (!mask[i]) continue
			let one = sign * values[i]
			if (Number.isNaN(one)) one = Infinity
			if (rows.length === most && one >= keys[most - 1]) continue
			const after = keys.findLastIndex(known => known <= one) + 1
			keys.splice(after, 0, one)
			rows.splice(after, 0, i)
			keys.length = rows.length = Math.min(most, rows.length)
		}
		return rows
	}

	topByTime(mask, most, descending) {
		const rows = []
		const count = this.fastest.length
		for (let i = 0; i < count && rows.length < most; i++) {
			const row = this.fastest[descending ? count - 1 - i : i]
			if (mask[row]) rows.push(row)
		}
		for (let i = 0; i < this.rows && rows.length < most; i++) {
			if (mask[i] && !(this.usable[i] >= 0)) rows.push(i)
		}
		return rows
	}

	statusCounts(mask) {
		const counts = new Array(this.statuses.length).fill(0)
		const { status } = this.columns
		for (let i = 0; i < this.rows; i++) if (mask[i]) counts[status[i]]++
		return counts
	}

	timeAt(share) {
		return this.usable[this.fastest[Math.max(0, Math.ceil(share * this.fastest.length) - 1)]]
	}
}

// The trials of one run alone, as if there were no others; `origins` are their rows.
export function ofRun(ds, run) {
	const { columns, runs } = ds
	const code = runs.indexOf(run)
	const origins = [...columns.run.keys()].filter(row => columns.run[row] === code)
	const places = new Map(origins.map((row, i) => [row, i]))
	const arrays = Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values.constructor.from(origins, row => (name === "replaces" ? (places.get(values[row] - 1) ?? -1) + 1 : values[row]))]))
	return Object.assign(new Dataset({ header: { ...ds, rows: origins.length, best_row: -1 }, arrays }), { origins })
}

export async function readWhole(source, id) {
	const ds = new Dataset(await source.columns(id))
	while (!ds.complete) ds.append([await source.columns(id, ds.rows)])
	return ds
}

export function extent(values) {
	let [low, high] = [Infinity, -Infinity]
	for (const one of values) {
		if (one < low) low = one
		if (one > high) high = one
	}
	return [low, high]
}

export function brushEnds(wanted) {
	const [low, high] = String(wanted[0]).split("..")
	return [low ? Number(low) : -Infinity, high ? Number(high) : Infinity]
}

// Bin 0 is for rows without a value.
function binned(values, low, high, log) {
	const made = new Uint8Array(values.length)
	const start = log ? Math.log(low) : low
	const scale = NUMBER_BINS / ((log ? Math.log(high) : high) - start)
	for (let i = 0; i < values.length; i++) {
		const one = log ? Math.log(values[i]) : values[i]
		made[i] = one === one ? 1 + Math.min(NUMBER_BINS - 1, ((one - start) * scale) | 0) : 0
	}
	return made
}

export function heatCells(ds, { x, y, fixed, reduce, mask }) {
	const across = ds.parameter(x)
	const down = ds.parameter(y)
	const wide = across.values.length
	const size = wide * down.values.length
	const cells = {
		wide,
		high: down.values.length,
		row: new Int32Array(size).fill(-1),
		ns: new Float32Array(size).fill(NaN),
		tried: new Uint32Array(size),
		measured: new Uint32Array(size),
		failedRow: new Int32Array(size).fill(-1),
		failed: new Int16Array(size).fill(-1),
		tie: new Uint8Array(size),
		hidden: new Uint8Array(size)
	}
	const fits = ds.standing.slice()
	for (const { name, codes, labels } of ds.parameters) {
		if (name === x || name === y || !(name in fixed)) continue
		const code = labels.indexOf(fixed[name])
		for (let i = 0; i < fits.length; i++) if (codes[i] !== code) fits[i] = 0
	}
	const { status } = ds.columns
	const kinds = ds.statuses.length
	const reasons = new Uint32Array(size * kinds)
	const everTried = new Uint8Array(size)
	for (let i = 0; i < fits.length; i++) {
		if (!fits[i]) continue
		const cell = down.codes[i] * wide + across.codes[i]
		everTried[cell] = 1
		if (mask && !mask[i]) continue
		cells.tried[cell]++
		if (ds.usable[i] >= 0) cells.measured[cell]++
		else {
			reasons[cell * kinds + status[i]]++
			if (cells.failedRow[cell] < 0) cells.failedRow[cell] = i
		}
	}
	if (reduce === "median") medianCells(ds, cells, fits, mask, across.codes, down.codes)
	else bestCells(ds, cells, fits, mask, across.codes, down.codes)
	for (let cell = 0; cell < size; cell++) {
		if (everTried[cell] && !cells.tried[cell]) cells.hidden[cell] = 1
		if (cells.row[cell] >= 0) continue
		const counts = reasons.subarray(cell * kinds, (cell + 1) * kinds)
		const most = Math.max(...counts)
		if (most) cells.failed[cell] = counts.indexOf(most)
	}
	return cells
}

// Measured to the end goes before stopped early.
function bestCells({ usable, ties, finished }, cells, fits, mask, across, down) {
	const { wide, ns, row } = cells
	for (let i = 0; i < fits.length; i++) {
		if (!fits[i] || !(usable[i] >= 0) || (mask && !mask[i])) continue
		const cell = down[i] * wide + across[i]
		const known = row[cell]
		if (known < 0 || finished[i] > finished[known] || (usable[i] < ns[cell] && finished[i] === finished[known])) {
			ns[cell] = usable[i]
			row[cell] = i
		}
	}
	for (let cell = 0; cell < row.length; cell++) if (row[cell] >= 0) cells.tie[cell] = ties[row[cell]]
}

// The lower of the two in the middle, so that it is a config.
function medianCells(ds, cells, fits, mask, across, down) {
	const seen = new Uint32Array(cells.row.length)
	for (let i = 0; i < ds.fastest.length; i++) {
		const row = ds.fastest[i]
		if (!fits[row] || (mask && !mask[row])) continue
		const cell = down[row] * cells.wide + across[row]
		if (seen[cell]++ !== (cells.measured[cell] - 1) >> 1) continue
		cells.row[cell] = row
		cells.ns[cell] = ds.usable[row]
		cells.tie[cell] = ds.ties[row]
	}
}
