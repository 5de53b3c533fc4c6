// Searches: convergence, and a replay over the heat map.

import { SERIES } from "./colors.js"
import { extent } from "./dataset.js"
import { button, clamp, el, figure, fill, labelled, note, select, swatch } from "./dom.js"
import { counted, digits, nanoseconds, percent, seconds, secondsTick, statusText, unitOf } from "./format.js"
import { HeatMap } from "./heat.js"
import { Plot } from "./plot.js"
import { heatAxes } from "./space.js"
import { View, any } from "./view.js"

const SPEEDS = [1, 5, 20, 100].map(n => [String(n), `${n} a second`])
const FIRST_LANES = ["auto", "gp", "random", "grid"]
const MOST_LANES = 6
// One seed is luck; so many tell a strategy from another.
const SEEDS = 20

// A lane is a simulated search, 'random:3' with its seed, or a run that took place, 'run:ID'.
function laneQuery(lane, budget) {
	if (lane.startsWith("run:")) return { run: lane.slice(4) }
	const [strategy, seed] = lane.split(":")
	return { strategy, seed: Number(seed) || 0, budget }
}

export class SearchView extends View {
	constructor(app, root) {
		super(app, root)
		this.answers = new Map()
		this.strategies = []
		this.runs = []
		this.playing = false
		this.speed = 5
		this.lanes = []
		this.replay = figure({
			id: "replay",
			title: "Replay",
			line: "Every search walks over the same heat map: bright is fast, faint is not tried yet, the ring is where it is now, the diamond the best it has found, the star the pick."
		})
		this.grid = el("div.lanes")
		this.replay.body.append(this.grid)
		this.curve = figure({
			id: "convergence",
			title: "Convergence",
			chart: body => new Plot(body, {
				height: 250,
				label: "convergence of searches",
				tip: (one, i) => this.tipOf(one, i),
				clicked: (one, i) => this.clicked(one, i),
				ranged: (low, high) => this.ranged(low, high)
			})
		})
		this.claims = figure({
			id: "claims",
			title: "Does it hold here?",
			line: "What is often said of such spaces, checked on these measurements."
		})
		root.append(this.replay.root, this.curve.root, this.claims.root)
	}

	budget() {
		return clamp(this.now.budget || 100, 1, Math.min(2000, this.ds.count))
	}

	lanesWanted() {
		const known = this.strategies.map(one => one.name)
		const isKnown = lane => (lane.startsWith("run:") ? this.runs.some(one => `run:${one.id}` === lane) : known.includes(lane.split(":")[0]))
		const asked = this.now.lanes.filter(isKnown)
		if (asked.length) return asked.slice(0, MOST_LANES)
		const runs = this.runs.slice(-1).map(one => `run:${one.id}`)
		return [...runs, ...FIRST_LANES.filter(name => known.includes(name))].slice(0, 4).map(one => (one.includes(":") ? one : `${one}:0`))
	}

	render(changed) {
		if (!this.ds?.parameters.length) return
		this.shown?.()
		if (any(changed, "w") || this.of !== this.workload.id) this.prepare()
		else if (any(changed, "lanes budget data")) this.load()
		else this.draw()
	}

	async prepare() {
		const { workload } = this
		if (this.of !== workload.id) this.answers = new Map()
		this.of = workload.id
		this.left()
		const quiet = promise => promise.catch(() => [])
		const [strategies, runs] = await Promise.all([quiet(this.source.strategies(workload.id)), quiet(this.source.runs(workload.id))])
		if (this.workload !== workload) return
		this.strategies = strategies
		this.runs = runs
		this.drawClaims()
		await this.load()
	}

	async load() {
		const { workload } = this
		const budget = this.budget()
		const wanted = this.lanesWanted()
		this.names = wanted
		this.drawControls()
		const asked = wanted.map(lane => this.answer(lane, budget))
		fill(this.grid, wanted.map(lane => note(`Simulating ${lane}…`)))
		this.curve.chart.canvas.hidden = !this.lanes.length
		const answers = await Promise.all(asked)
		if (this.workload !== workload || this.names !== wanted || !this.ds) return
		this.lanes = wanted.map((lane, i) => this.course(lane, answers[i]))
		this.buildLanes()
		this.draw()
		this.repeat()
	}

	// The same strategies with other seeds, one after another: a machine that tunes is not kept from it.
	async repeat() {
		const { lanes, workload } = this
		const budget = this.budget()
		const simulated = workload.running ? [] : lanes.filter(one => !one.absent && !one.lane.startsWith("run:"))
		for (let seed = 0; seed < SEEDS; seed++) {
			for (const one of [...simulated]) {
				const lane = `${one.lane.split(":")[0]}:${seed}`
				const answer = await this.answer(lane, budget)
				if (this.root.hidden) await new Promise(shown => (this.shown = shown))
				if (this.lanes !== lanes || this.workload !== workload || !this.ds) return
				const course = answer.absent ? null : this.course(lane, answer)
				if (!course || String(course.rows) === String(one.again[0]?.rows)) simulated.splice(simulated.indexOf(one), 1)
				else one.again.push(course)
			}
			if ([4, 9, SEEDS - 1].includes(seed)) this.drawCurve()
		}
	}

	answer(lane, budget) {
		const key = `${lane}|${lane.startsWith("run:") ? this.ds.rows : budget}`
		if (!this.answers.has(key)) {
			const promise = this.source.search(this.workload.id, laneQuery(lane, budget)).catch(error => ({ absent: error.message }))
			this.answers.set(key, promise)
		}
		return this.answers.get(key)
	}

	course(lane, answer) {
		const { ds } = this
		const [name, seed] = lane.split(":")
		const title = answer.label || answer.strategy || name
		const course = {
			lane,
			title: name === "run" ? `${title}, the run` : seed > 0 ? `${title}, seed ${seed}` : title,
			line: answer.line,
			absent: answer.absent || (answer.rows && !answer.rows.length ? "Nothing was tried in it." : ""),
			// A config that was tried again is worth what its last trial says.
			rows: (answer.rows || []).map(row => ds.latest[row] ?? row),
			seconds: answer.seconds || [],
			best: [],
			bestRows: [],
			again: []
		}
		let best = -1
		for (const row of course.rows) {
			if (row !== null && ds.telling(row) && !(best >= 0 && ds.usable[best] <= ds.usable[row])) best = row
			course.bestRows.push(best)
			course.best.push(best < 0 ? NaN : ds.share(ds.usable[best]))
		}
		return course
	}

	steps() {
		return Math.max(0, ...this.lanes.map(one => one.rows.length))
	}

	step() {
		return clamp(this.now.step ?? Infinity, 0, this.steps())
	}

	drawControls() {
		const { ds, source } = this
		// Other seeds are in a line's band.
		const options = [["", "Add a search…"], ...this.strategies.filter(({ name }) => !this.names.some(lane => lane.startsWith(`${name}:`))).map(({ name, label = name }) => [`${name}:0`, label])]
		for (const run of this.runs) if (!this.names.includes(`run:${run.id}`)) options.push([`run:${run.id}`, `run: ${run.search}, ${counted(run.tried)} tried`])
		this.playButton = button(this.playing ? "⏸ Pause" : "▶ Play", "Play or pause (space)", () => this.toggle(), { id: "play", class: "primary", disabled: !this.steps() })
		this.slider = el("input#step", { type: "range", min: 0, max: this.steps(), value: this.step(), "aria-label": "step", oninput: event => this.go(Number(event.target.value)) })
		this.counter = el("span#step-count.soft")
		fill(
			this.replay.tools,
			this.playButton,
			this.slider,
			this.counter,
			select("speed", SPEEDS, String(this.speed), value => (this.speed = Number(value)), { id: "speed" }),
			!source.embedded && labelled("evaluations", el("input#budget", { type: "number", min: 1, max: Math.min(2000, ds.count), value: this.budget(), "aria-label": "evaluations", onchange: event => this.set({ budget: Number(event.target.value) || null, step: null }) })),
			options.length > 1 && select("add a search", options, "", lane => lane && this.set({ lanes: [...this.names, lane] }), { id: "add-lane" })
		)
	}

	buildLanes() {
		fill(this.grid, this.lanes.map((one, i) => {
			const remove = () => this.set({ lanes: this.names.filter(name => name !== one.lane) })
			const head = el("header", el("h3", swatch(SERIES[i % SERIES.length], one.title)), this.lanes.length > 1 && button("✕", `Remove ${one.title}`, remove, { class: "quiet" }))
			one.holder = el("div", one.absent && note(one.absent))
			one.status = el("p.lane-status", { "data-lane-status": one.lane })
			return el("div.lane", { "data-lane": one.lane }, head, el("p.line", one.line), one.holder, one.status)
		}))
		for (const one of this.lanes) {
			if (!one.absent) one.map = new HeatMap(one.holder, { height: 168, small: true, label: `heat map of ${one.title}`, picked: (x, y, row) => row >= 0 && this.open(row) })
		}
		this.drawControls()
	}

	draw() {
		if (!this.lanes.length) return
		const step = this.step()
		for (const one of this.lanes) if (one.map) this.drawLane(one, step)
		this.slider.max = this.steps()
		this.slider.value = step
		this.counter.textContent = `${counted(step)} of ${counted(this.steps())}`
		const first = this.lanes.find(one => one.bestRows.length)
		const at = first && Math.min(step, first.bestRows.length) - 1
		this.app.searched = first && at >= 0 && first.bestRows[at] >= 0 ? first.bestRows[at] : null
		this.drawCurve()
	}

	drawLane(course, step) {
		const { ds, workload, now } = this
		const { x, y } = heatAxes(this.app)
		const across = ds.parameter(x)
		const down = ds.parameter(y)
		const size = across.values.length * down.values.length
		const walk = { tried: new Uint32Array(size), ns: new Float32Array(size).fill(NaN), failed: new Int16Array(size).fill(-1) }
		const done = Math.min(step, course.rows.length)
		for (let i = 0; i < done; i++) {
			const row = course.rows[i]
			if (row === null || row >= ds.rows) continue
			const cell = down.codes[row] * across.values.length + across.codes[row]
			walk.tried[cell]++
			const ns = ds.usable[row]
			if (ns >= 0) {
				if (!(walk.ns[cell] <= ns)) walk.ns[cell] = ns
			} else if (walk.failed[cell] < 0) walk.failed[cell] = ds.columns.status[row]
		}
		const last = done ? course.rows[done - 1] : null
		const best = done ? course.bestRows[done - 1] : -1
		course.map.update({
			ds, workload, unit: unitOf(now.unit, workload), x, y, fixed: {}, reduce: "best", mask: null,
			current: last == null ? null : [across.codes[last], down.codes[last]],
			clicked: null,
			searchBest: best,
			walk
		})
		const current = last == null ? "" : ds.usable[last] >= 0 ? nanoseconds(ds.usable[last]) : statusText(ds.status(last))
		const spent = done && Number.isFinite(course.seconds[done - 1]) ? `, ${seconds(course.seconds[done - 1])} spent` : ""
		course.status.textContent = done ? `${counted(done)} tried${spent}; now ${current}; best ${best >= 0 ? `${nanoseconds(ds.usable[best])}, ${percent(ds.share(ds.usable[best]))} of the best` : "–"}` : "Not started."
	}

	drawCurve() {
		this.curve.chart.canvas.hidden = false
		const by = this.now.by === "seconds"
		const step = this.step()
		const shown = this.lanes.filter(one => !one.absent)
		const lines = (count, more) => shown.map(one => ({
			name: one.title,
			course: one,
			color: SERIES[this.lanes.indexOf(one) % SERIES.length],
			kind: "steps",
			...spreadOf(one, count, by),
			...more
		}))
		const series = lines(Math.max(step, 1)).map(({ upper, lower, ...one }) => one)
		const all = lines(Infinity, { faint: true, alpha: 0.25, width: 1.2 })
		const [least] = extent(all.flatMap(one => one.y))
		this.curve.chart.update({
			series: [...all, ...series],
			x: { label: by ? "seconds of tuning" : "evaluations", log: by, show: by ? secondsTick : digits },
			y: { label: "share of the best speed", show: value => percent(value, 3), low: Math.max(0, Math.min(0.9, least - 0.05)) || 0, high: 1.02 },
			rules: [{ side: "y", at: 1, text: "the fastest there is" }, { side: "y", at: 0.95, text: "95 %", dy: 9 }],
			cursor: by ? NaN : Math.max(1, step)
		})
		this.curve.caption.textContent = `The best speed each search has found after so many ${by ? "seconds of building and measuring" : "evaluations"}: higher and further left is better. ${this.repeatedText(shown)}${this.reached()}`
		fill(
			this.curve.tools,
			select("by", [["evaluations", "by evaluations"], ["seconds", "by seconds"]], by ? "seconds" : "evaluations", value => this.set({ by: value }), { id: "by" }),
			el("div.legend.inline", series.map(one => swatch(one.color, one.name)))
		)
	}

	repeatedText(shown) {
		const most = Math.max(0, ...shown.map(one => one.again.length))
		return most > 1 ? `A line is the median of ${counted(most)} seeds, its band the middle half of them; grid and runs are one course. ` : ""
	}

	reached() {
		const texts = this.lanes.filter(one => !one.absent).map(one => {
			const { x, y } = spreadOf(one, Infinity, true)
			const at = y.findIndex(share => share >= 0.95)
			return at < 0 ? `${one.title} does not get to 95 %` : `${one.title} gets to 95 % after ${counted(at + 1)} (${seconds(x[at])})`
		})
		return texts.length ? `${texts.join("; ")}.` : ""
	}

	tipOf(one, i) {
		const { course } = one
		const { again } = course
		const time = again.length < 2 && course.bestRows[i] >= 0 && ["time", nanoseconds(this.ds.usable[course.bestRows[i]])]
		return [one.name, ["evaluation", counted(i + 1)], [again.length > 1 ? `median of ${again.length} seeds` : "share of the best", percent(one.y[i])], ["spent", seconds(course.seconds[i])], time]
	}

	clicked(one, i) {
		const row = one.course.bestRows[i]
		if (row >= 0) this.open(row)
	}

	// A dragged range of a run selects what was tried within it; of a simulation, it goes there.
	ranged(low, high) {
		const course = this.lanes.find(one => !one.absent)
		const moment = k => (this.now.by === "seconds" ? course.seconds[k] : k + 1)
		const inside = course.rows.filter((_, k) => moment(k) >= low && moment(k) <= high)
		if (!course.lane.startsWith("run:")) this.go(course.rows.filter((_, k) => moment(k) <= high).length)
		else if (inside.length) this.app.brush("order", [`${inside[0] + 1}..${inside.at(-1) + 1}`])
	}

	key(event) {
		// A focused button is pressed with the space bar.
		return event.key === " " && event.target.tagName !== "BUTTON" && (() => this.toggle())
	}

	go(step) {
		this.set({ step: clamp(step, 0, this.steps()) })
	}

	toggle() {
		if (this.playing) this.left()
		else this.play()
	}

	play() {
		if (!this.steps()) return
		if (this.step() >= this.steps()) this.go(0)
		this.playing = true
		this.playButton.textContent = "⏸ Pause"
		let last = performance.now()
		let owed = 1
		const frame = now => {
			if (!this.playing) return
			owed += ((now - last) / 1000) * this.speed
			last = now
			const whole = Math.floor(owed)
			if (whole) {
				owed -= whole
				this.go(this.step() + whole)
			}
			if (this.step() >= this.steps()) this.left()
			else requestAnimationFrame(frame)
		}
		requestAnimationFrame(frame)
	}

	left() {
		this.playing = false
		if (this.playButton) this.playButton.textContent = "▶ Play"
	}

	drawClaims() {
		const claims = checkClaims(this.ds)
		this.claims.root.hidden = !claims.length
		fill(this.claims.body, el("ul.claims", claims.map(one => el("li", el("b", one.holds ? "✓ " : "✗ "), el("span", one.text)))))
	}
}

// What is drawn of a search: its own course, or the median of its seeds and the middle half of them.
function spreadOf(course, count, by) {
	const key = `${course.again.length}|${by}`
	if (course.spreadKey !== key) Object.assign(course, { spreadKey: key, spread: wholeSpread(course, by) })
	return Object.fromEntries(Object.entries(course.spread).map(([name, list]) => [name, list.slice(0, count)]))
}

function wholeSpread({ rows, best, seconds: spent, again }, by) {
	const x = rows.map((_, k) => (by ? spent[k] : k + 1))
	if (again.length < 2) return { x, y: best }
	const at = (list, k) => list[Math.min(k, list.length - 1)] || 0
	const quantile = (name, share) => x.map((_, k) => {
		const sorted = again.map(one => at(one[name], k)).sort((p, q) => p - q)
		return sorted[Math.round(share * (sorted.length - 1))]
	})
	return { x: by ? quantile("seconds", 0.5) : x, y: quantile("best", 0.5), upper: quantile("best", 0.75), lower: quantile("best", 0.25) }
}

function bestByValue(ds, one) {
	const best = new Float64Array(one.values.length).fill(Infinity)
	for (const row of ds.fastest) if (ds.telling(row)) best[one.codes[row]] = Math.min(best[one.codes[row]], ds.usable[row])
	return best
}

function checkClaims(ds) {
	if (ds.quickest < 0) return []
	const claims = []
	const top = ds.peak
	const numeric = ds.parameters.filter(one => one.kind === "int" && one.values.length > 2)
	for (const one of numeric.filter(p => /block|tile/i.test(p.name)).slice(0, 3)) {
		const best = bestByValue(ds, one)
		const at = best.indexOf(Math.min(...best))
		const ends = [best[0], best.at(-1)].map(ns => percent(top / ns))
		const holds = at > 0 && at < best.length - 1
		claims.push({ holds, text: `Medium tiles win: the best ${one.name} is ${one.labels[at]}; the smallest (${one.labels[0]}) reaches ${ends[0]} and the largest (${one.labels.at(-1)}) ${ends[1]} of the best.` })
	}
	const stages = numeric.find(p => /stage/i.test(p.name))
	if (stages) {
		const best = Array.from(bestByValue(ds, stages)).filter(Number.isFinite)
		const loss = 1 - Math.min(...best) / Math.max(...best)
		claims.push({ holds: loss < 0.1, text: `Stages matter little: the worst choice of ${stages.name} loses ${percent(loss)} if all else is chosen well.` })
	}
	const warps = ds.parameter("num_warps")
	const tiles = ds.parameters.filter(p => /block.*[mn]$|tile.*[mn]$/i.test(p.name))
	if (warps?.values.length > 1 && tiles.length >= 2) {
		const area = row => tiles.slice(0, 2).reduce((all, p) => all * Number(p.values[p.codes[row]]), 1)
		const areas = new Map()
		for (const row of ds.fastest) if (!areas.has(area(row))) areas.set(area(row), warps.values[warps.codes[row]])
		const pairs = [...areas].sort((a, b) => a[0] - b[0])
		const rising = pairs.every(([, w], i) => !i || w >= pairs[i - 1][1])
		claims.push({ holds: rising && pairs.length > 1 && pairs[0][1] < pairs.at(-1)[1], text: `Warps follow the tile: the best num_warps by tile area is ${pairs.map(([a, w]) => `${w} at ${counted(a)}`).join(", ")}.` })
	}
	return claims
}
