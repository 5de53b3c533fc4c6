// What is looked at, and how: all of it in the address, so a link and a reload bring it back.

const PAIRS = new Set(["fix", "brush"])
const LISTS = new Set(["axes", "lanes"])
const NUMBERS_KEPT = new Set(["row", "vs", "step", "budget"])

export const VIEWS = ["workloads", "space", "search", "cost", "frontier", "compare", "trial", "live"]

const DEFAULTS = {
	view: "workloads",
	w: null,
	x: null,
	y: null,
	fix: {},
	reduce: "best",
	unit: null,
	at: null,
	axes: [],
	brush: {},
	log: null,
	sort: null,
	row: null,
	lanes: [],
	budget: null,
	step: null,
	by: null,
	run: null,
	range: null,
	zoom: null,
	b: null,
	vs: null,
	ir: null,
	knobs: null
}

const pack = encodeURIComponent
const unpackText = text => {
	try {
		return decodeURIComponent(text)
	} catch {
		return text
	}
}

function packValue(key, value) {
	if (PAIRS.has(key)) {
		return Object.entries(value)
			.map(([name, one]) => `${pack(name)}:${[].concat(one).map(pack).join("|")}`)
			.join(",")
	}
	if (LISTS.has(key)) return value.map(pack).join(",")
	return pack(value)
}

function unpackValue(key, text) {
	if (PAIRS.has(key)) {
		const pairs = {}
		for (const part of text.split(",").filter(Boolean)) {
			const [name, values = ""] = part.split(":")
			const list = values.split("|").map(unpackText)
			pairs[unpackText(name)] = key === "brush" ? list : list[0]
		}
		return pairs
	}
	if (LISTS.has(key)) return text.split(",").filter(Boolean).map(unpackText)
	if (NUMBERS_KEPT.has(key)) return Number.isFinite(Number(text)) ? Number(text) : null
	return unpackText(text)
}

const isEmpty = value =>
	value == null || value === "" ||
	(typeof value === "object" && Object.keys(value).length === 0)

export function packState(state) {
	const parts = []
	for (const key of Object.keys(DEFAULTS)) {
		if (key === "view" || isEmpty(state[key]) || state[key] === DEFAULTS[key]) continue
		parts.push(`${key}=${packValue(key, state[key])}`)
	}
	return `#${state.view}${parts.length ? "?" : ""}${parts.join("&")}`
}

export function unpackState(hash) {
	const [view, query = ""] = hash.replace(/^#/, "").split("?")
	const state = { ...DEFAULTS, view: VIEWS.includes(view) ? view : DEFAULTS.view }
	for (const part of query.split("&")) {
		const at = part.indexOf("=")
		if (at > 0 && part.slice(0, at) in DEFAULTS) state[part.slice(0, at)] = unpackValue(part.slice(0, at), part.slice(at + 1))
	}
	return state
}

const UNDOABLE = ["brush", "axes", "log"]
const SELECTION = { fix: {}, at: null, x: null, y: null, axes: [], brush: {}, row: null, vs: null, run: null, range: null, zoom: null, step: null, sort: null, log: null }

export class State {
	constructor() {
		this.now = unpackState(location.hash)
		this.listeners = []
		this.past = []
		this.drafting = false
		addEventListener("hashchange", () => {
			const next = unpackState(location.hash)
			if (packState(next) === packState(this.now)) return
			this.now = next
			this.tell(new Set(Object.keys(DEFAULTS)))
		})
	}

	listen(told) {
		this.listeners.push(told)
	}

	// `push` makes it a step for the browser's Back; drafts of a drag are undone as one.
	set(patch, push = false, draft = false) {
		const next = { ...this.now, ...patch }
		if ("w" in patch && patch.w !== this.now.w) {
			Object.assign(next, SELECTION, patch)
			this.past = []
		}
		const changed = new Set(
			Object.keys(DEFAULTS).filter(key => JSON.stringify(next[key]) !== JSON.stringify(this.now[key]))
		)
		if (!changed.size) {
			this.drafting = draft && this.drafting
			return
		}
		if (!this.drafting && UNDOABLE.some(key => changed.has(key)) && !changed.has("w")) {
			this.past.push(Object.fromEntries(UNDOABLE.map(key => [key, this.now[key]])))
			if (this.past.length > 100) this.past.shift()
		}
		this.drafting = draft
		this.now = next
		this.write(push || changed.has("view") || changed.has("w"))
		this.tell(changed)
	}

	undo() {
		const before = this.past.pop()
		if (!before) return
		this.now = { ...this.now, ...before }
		this.write(false)
		this.tell(new Set(UNDOABLE))
	}

	write(push) {
		const hash = packState(this.now)
		try {
			history[push ? "pushState" : "replaceState"](null, "", hash)
		} catch {
			location.hash = hash
		}
	}

	tell(changed) {
		for (const told of this.listeners) told(changed, this.now)
	}

	link(patch) {
		const next = { ...this.now, ...patch }
		if ("w" in patch && patch.w !== this.now.w) Object.assign(next, SELECTION, patch)
		return packState(next)
	}
}
