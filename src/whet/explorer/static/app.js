// The application: one workload's data, the selection, the view.

import { drawAnswers } from "./answers.js"
import { forgetTheme } from "./colors.js"
import { Dataset } from "./dataset.js"
import { button, clamp, el, fill, glossary, hideTip, note, select, sheet } from "./dom.js"
import { configText, counted, kernelText, keyText, percent, workloadText } from "./format.js"
import { legendOf, savePng, saveSvg } from "./picture.js"
import { RowTable } from "./rows.js"
import { sizesOf } from "./sizes.js"
import { Missing } from "./source.js"
import { State } from "./state.js"
import { mark, timed } from "./timings.js"
import { COMMANDS, EMPTY, any } from "./view.js"

const WITHOUT_TABLE = ["workloads", "frontier", "sizes", "journey"]
const FOLLOWING = ["workloads", "space", "live"]
const LAZY_MS = 5000
const THEMES = ["auto", "light", "dark"]
const DARK = matchMedia("(prefers-color-scheme: dark)")

export class App {
	constructor(source, views) {
		Object.assign(this, { source, views, made: {}, workloads: [], workload: null, ds: null, followers: [], news: [] })
		this.state = new State()
		this.places = Object.fromEntries(["tabs", "tools", "chooser", "progress", "answers", "main", "table", "foot", "state", "lost"].map(id => [id, document.getElementById(id)]))
		Object.assign(sheet, { told: () => this.told(), keep: { png: savePng, svg: saveSvg, legend: legendOf } })
		this.table = new RowTable(this, this.places.table)
		this.state.listen(changed => this.changed(changed))
	}

	async start() {
		this.setTheme(stored("whet-theme") || "auto")
		this.drawTabs()
		addEventListener("keydown", event => this.key(event))
		let waiting = 0
		addEventListener("resize", () => {
			clearTimeout(waiting)
			waiting = setTimeout(() => this.render(new Set(["size"])), 100)
		})
		DARK.addEventListener("change", () => this.repaint())
		for (const when of ["beforeprint", "afterprint"]) addEventListener(when, () => this.repaint(when === "beforeprint"))
		try {
			[this.about, this.workloads] = await Promise.all([this.source.about(), this.source.workloads()])
		} catch (error) {
			this.tell(error.message, "bad")
			return
		}
		nameKeys(this.workloads)
		Object.assign(glossary, this.about.glossary)
		if (!this.about.sample) this.tour = null
		else if (location.hash.length < 2) this.state.now.view = "space"
		this.setTheme(this.theme)
		const where = this.source.embedded ? "A report; everything is in this file." : this.about.store ? `Store: ${this.about.store}` : ""
		this.places.foot.textContent = [`whet ${this.about.version || ""}`, where, "Keys: 1 to 9 and 0 views, B best k %, L log, U undo, C clear, M best or median, ? words"].filter(Boolean).join(" · ")
		this.follow()
		await this.open(this.state.now.w)
		mark("started", performance.now())
		if (this.started) this.started()
	}

	async open(id) {
		const found = this.workloads.find(one => one.id === id)
		if (id && !found && this.workloads.length) this.say("The workload of this link is not in the store; showing another.")
		const chosen = found || this.mostTelling()
		Object.assign(this, { workload: chosen, ds: null, failed: "", masked: null, importance: null, learned: 0, searched: null })
		this.drawChooser()
		this.drawTabs()
		if (chosen) this.state.now.w = chosen.id
		this.state.write(false)
		this.render(null)
		if (chosen) await this.read(chosen)
	}

	// First: what a report tells most of, what was tuned last, or the largest.
	mostTelling() {
		const worth = w => [this.source.telling(w.id), !this.about.sample && w.last_seen, w.flops, w.rows]
		const order = (a, b) => worth(a).map((value, i) => (worth(b)[i] || 0) - (value || 0)).find(Boolean) || 0
		return [...this.workloads].sort(order)[0] || null
	}

	async read(workload) {
		const current = () => this.workload === workload
		const began = performance.now()
		const since = () => performance.now() - began
		this.reading = true
		try {
			this.take(new Dataset(await this.source.columns(workload.id)), current)
			mark("first-draw", since())
			this.learn()
			let drawn = since()
			let pause = 50
			const waiting = []
			while (current() && !this.ds.complete) {
				const { ds } = this
				const has = ds.rows + waiting.reduce((all, one) => all + one.header.rows, 0)
				this.say(`Read ${counted(has)} of ${counted(ds.total)} trials (${percent(has / ds.total, 2)})`)
				const answer = await this.source.columns(workload.id, has)
				waiting.push(answer)
				// Drawing takes longer the more there is.
				if (answer.header.complete || since() - drawn > pause) {
					await this.extend(ds, waiting.splice(0), current)
					drawn = since()
					pause *= 1.6
				} else if (!answer.header.rows) await new Promise(resolve => setTimeout(resolve, 200))
			}
			if (!current()) return
			this.reading = false
			this.say("")
			mark("complete", since())
		} catch (error) {
			if (current()) {
				this.say("")
				this.failed = error.message
				this.render(new Set(["data"]))
			}
			if (!(error instanceof Missing)) console.warn(error)
		}
	}

	// During a run most is drawn only now and then: the run wants the machine.
	take(ds, current) {
		if (!current()) return
		this.ds = ds
		this.masked = null
		const now = performance.now()
		const wait = this.reading ? 0 : this.whole + LAZY_MS - now
		clearTimeout(this.later)
		if (wait > 0) this.later = setTimeout(() => this.take(ds, () => this.ds === ds), wait)
		else this.whole = now
		this.render(new Set([wait > 0 ? "grown" : "data"]))
	}

	// From the start where row numbers no longer mean the same.
	async extend(ds, answers, current) {
		if (answers.some(one => one.header.epoch !== ds.epoch)) ds = new Dataset(await this.source.columns(this.workload.id))
		else ds.append(answers)
		this.take(ds, current)
	}

	async grow() {
		const { ds, workload, reading } = this
		if (!ds || reading) return
		const current = () => this.ds === ds
		do await this.extend(ds, [await this.source.columns(workload.id, ds.rows)], current)
		while (current() && !ds.complete)
		this.learn()
	}

	// What matters, anew where there is a quarter more to learn from or the run has ended.
	async learn() {
		const { ds, workload } = this
		if (!ds || ds.total === this.learned || (workload.running && ds.total < 1.25 * this.learned)) return
		this.learned = ds.total
		const list = await this.source.importance(workload.id).catch(() => [])
		if (this.workload?.id !== workload.id) return
		this.importance = list
		this.render(new Set(["importance"]))
	}

	selection() {
		const key = JSON.stringify(this.state.now.brush)
		if (!this.masked || this.masked.key !== key || this.masked.ds !== this.ds) {
			this.masked = { key, ds: this.ds, ...timed("mask", () => this.ds.mask(this.state.now.brush)) }
		}
		return this.masked
	}

	brush(name, wanted, draft = false) {
		const brush = { ...this.state.now.brush }
		if (wanted) brush[name] = wanted
		else delete brush[name]
		this.state.set({ brush }, draft)
	}

	searchBest() {
		const { ds, searched } = this
		const runs = ds.columns.run
		return searched ?? ds.fastest.find(row => runs[row] === runs[ds.rows - 1])
	}

	changed(changed) {
		const { w } = this.state.now
		if (w !== this.workload?.id) {
			this.open(w)
			return
		}
		const began = performance.now()
		this.render(changed)
		for (const kind of ["brush", "axes", "fix"]) if (changed.has(kind)) mark(kind, performance.now() - began)
	}

	render(changed) {
		const { view } = this.state.now
		hideTip()
		if (any(changed, "view") || !this.shown) this.show(view)
		this.drawState(view)
		if (changed?.has("view")) changed = null
		if (!changed?.has("grown") || FOLLOWING.includes(view)) this.made[view].render(changed)
		// After the canvases, which ask how wide they are.
		if (any(changed, "data grown w importance unit list")) drawAnswers(this, this.places.answers)
		this.places.table.hidden = WITHOUT_TABLE.includes(view) || !this.ds
		if (!this.places.table.hidden && any(changed, `data w brush sort row ${view === "live" ? "grown" : ""}`)) this.table.update()
	}

	// Instead of a view that has nothing to show: why, and what fills it.
	drawState(view) {
		const { ds, workload } = this
		const bare = ["space", "search"].includes(view) && ds && !ds.parameters.length
		const text = !workload ? EMPTY
			: this.failed || (!ds ? "Reading the trials…"
				: !ds.rows ? "No config of this kernel was tried yet. 'whet tune' tries them, and they appear here as they end."
					: bare && "This kernel has no parameters, so there is no space to look at.")
		this.made[view].root.hidden = Boolean(text) && !["workloads", "live", "journey"].includes(view)
		this.tell(this.made[view].root.hidden ? text : "", this.failed ? "bad" : "empty")
	}

	tell(text, kind) {
		fill(this.places.state, text && note(text, kind), text === EMPTY && el("pre", COMMANDS))
	}

	show(view) {
		if (!this.made[view]) {
			const root = el("div.view", { id: `view-${view}` })
			this.places.main.append(root)
			this.made[view] = new this.views[view].View(this, root)
		}
		for (const [name, one] of Object.entries(this.made)) {
			one.root.hidden = name !== view
			if (name !== view && one.left) one.left()
		}
		this.shown = view
		document.title = `whet: ${this.views[view].title}`
		this.drawTabs()
	}

	get names() {
		const without = [this.source.embedded && "live", !this.workload?.journey && "journey", !(this.workload && sizesOf(this.workloads, this.workload).length > 1) && "sizes"]
		return Object.keys(this.views).filter(name => !without.includes(name))
	}

	drawTabs() {
		const { view } = this.state.now
		fill(this.places.tabs, this.names.map((name, i) => {
			const { title } = this.views[name]
			const go = event => {
				event.preventDefault()
				this.state.set({ view: name })
			}
			return el("a", { href: this.state.link({ view: name }), "aria-current": name === view && "page", "data-view": name, title: `${title} (key ${(i + 1) % 10})`, onclick: go }, title)
		}))
	}

	drawChooser() {
		const { workloads, workload } = this
		fill(this.places.chooser, workload && select("workload", workloads.map(one => [one.id, workloadText(one)]), workload.id, w => this.state.set({ w }), { id: "workload" }))
	}

	setTheme(wanted) {
		this.theme = THEMES.includes(wanted) ? wanted : "auto"
		stored("whet-theme", this.theme)
		const next = THEMES[(THEMES.indexOf(this.theme) + 1) % THEMES.length]
		fill(
			this.places.tools,
			this.tour && button("Tour", "A tour of two minutes", () => this.tour(), { id: "tour-button" }),
			button("?", "What the words mean (key ?)", () => this.explain(), { id: "words" }),
			button({ auto: "◐", light: "☀", dark: "☾" }[this.theme], `Colours: ${this.theme}; click for ${next}`, () => this.setTheme(next), { id: "theme" })
		)
		this.repaint()
	}

	explain() {
		let box = document.getElementById("glossary")
		if (!box) document.body.append((box = el("dialog#glossary", button("Close", "Close the list of words", () => box.close()), el("h2", "What the words mean"), el("dl", Object.entries(glossary).map(([word, text]) => [el("dt", word), el("dd", text)])))))
		box.showModal()
	}

	// Paper is light.
	repaint(printed = false) {
		const auto = DARK.matches ? "dark" : "light"
		document.documentElement.dataset.theme = printed ? "light" : this.theme === "auto" ? auto : this.theme
		forgetTheme()
		if (this.shown) this.render(new Set(["theme", "data"]))
	}

	// What a picture says it is of.
	told() {
		const w = this.workload
		if (!w) return { lines: [] }
		const date = w.recorded || (w.last_seen && new Date(1000 * w.last_seen).toISOString().slice(0, 10))
		return { name: `${kernelText(w)} ${keyText(w)}`, lines: [[kernelText(w), keyText(w), w.device, date && `tuned ${date}`, "whet"].filter(Boolean).join(" · ")] }
	}

	firstVisit() {
		const first = !stored("whet-visited")
		stored("whet-visited", "yes")
		return first
	}

	say(text) {
		this.places.progress.textContent = text
	}

	key(event) {
		const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)
		if (typing || event.defaultPrevented) return
		if (event.ctrlKey && event.key === "z") this.state.undo()
		if (event.ctrlKey || event.altKey || event.metaKey) return
		const chosen = /^\d$/.test(event.key) && this.names[(Number(event.key) + 9) % 10]
		const view = this.made[this.state.now.view]
		const act = event.key === "?" ? () => this.explain() : chosen ? () => this.state.set({ view: chosen }) : this.ds && view?.key?.(event)
		if (!act) return
		event.preventDefault()
		act()
	}

	follow() {
		document.addEventListener("visibilitychange", () => this.live(null))
		this.source.live(
			event => this.live(event),
			connected => {
				const { lost } = this.places
				lost.hidden = connected
				if (!connected) lost.textContent = "The explorer's server does not answer, so nothing here is new. Start it again with: whet explore"
				// What was missed meanwhile.
				else if (this.connected === false) this.live({ workload: this.workload?.id })
				this.connected = connected
				for (const told of this.followers) told(null)
			}
		)
	}

	// A trial is on the page within a second; not while hidden.
	live(event) {
		if (event) this.news.push(event)
		if (this.catching || !this.news.length || document.hidden) return
		this.catching = true
		const began = performance.now()
		this.catchUp(this.news.splice(0))
			.catch(error => this.say(error.message))
			.finally(() => {
				const rest = clamp(2 * (performance.now() - began), 100, 300)
				setTimeout(() => {
					this.catching = false
					this.live(null)
				}, rest)
			})
	}

	async catchUp(news) {
		const known = this.workloads.length
		this.workloads = await this.source.workloads()
		nameKeys(this.workloads)
		const { workload, workloads } = this
		if (workload) this.workload = workloads.find(one => one.id === workload.id) || workload
		else await this.open(null)
		if (workloads.length !== known) this.drawChooser()
		for (const event of news) for (const told of this.followers) told(event)
		if (workload && news.some(event => event.workload === workload.id)) await this.grow()
		else this.render(new Set(["list"]))
	}
}

// A key is shown without what all keys of the kernel share.
function nameKeys(workloads) {
	const seen = new Map()
	for (const w of workloads) {
		const values = seen.get(w.kernel) || {}
		for (const [name, value] of Object.entries(w.key || {})) (values[name] ||= new Set()).add(JSON.stringify(value))
		seen.set(w.kernel, values)
	}
	for (const w of workloads) {
		if (w.key_text) continue
		const told = Object.entries(w.key || {}).filter(([name]) => seen.get(w.kernel)[name].size > 1)
		w.key_text = configText(told.length ? Object.fromEntries(told) : w.key)
	}
	// Versions of one kernel have nothing else to tell them apart.
	for (const same of Map.groupBy(workloads, workloadText).values()) {
		const alike = new Set(same.map(w => w.fingerprint)).size < same.length
		if (same.length > 1) for (const w of same) w.version = w.place || alike && w.source_where ? w.place || w.source_where : `version ${(w.fingerprint || w.id).slice(0, 6)}`
	}
}

// Private windows may refuse.
function stored(name, value) {
	try {
		return value ? localStorage.setItem(name, value) : localStorage.getItem(name)
	} catch {
		return null
	}
}
