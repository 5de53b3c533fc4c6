// What is looked at: all of it in the address.

const PAIRS = ["fix", "brush"]
const LISTS = ["axes", "lanes", "open"]
const WHOLE = ["row", "vs", "step", "budget"]
const TEXTS = ["w", "x", "y", "unit", "at", "log", "sort", "by", "run", "range", "zoom", "b", "c", "diff", "ir", "knobs", "find", "order", "metric", "within"]

const VIEWS = ["workloads", "space", "search", "cost", "frontier", "compare", "sizes", "trial", "live", "journey"]

const each = (keys, make) => Object.fromEntries(keys.map(key => [key, make()]))
const DEFAULTS = { view: "workloads", ...each([...TEXTS, ...WHOLE], () => null), ...each(PAIRS, () => ({})), ...each(LISTS, () => []), reduce: "best" }

const pack = encodeURIComponent
const unpackText = text => {
	try {
		return decodeURIComponent(text)
	} catch {
		return text
	}
}

function packValue(key, value) {
	if (PAIRS.includes(key)) {
		return Object.entries(value).map(([name, one]) => `${pack(name)}:${[].concat(one).map(pack).join("|")}`).join(",")
	}
	if (LISTS.includes(key)) return value.map(pack).join(",")
	return pack(value)
}

function unpackValue(key, text) {
	if (PAIRS.includes(key)) {
		const pairs = {}
		for (const part of text.split(",").filter(Boolean)) {
			const [name, values = ""] = part.split(":")
			const list = values.split("|").map(unpackText)
			pairs[unpackText(name)] = key === "brush" ? list : list[0]
		}
		return pairs
	}
	if (LISTS.includes(key)) return text.split(",").filter(Boolean).map(unpackText)
	if (WHOLE.includes(key)) return Number.isFinite(Number(text)) ? Number(text) : null
	return unpackText(text)
}

const differs = (a, b) => JSON.stringify(a) !== JSON.stringify(b)

function packState(state) {
	const told = Object.keys(DEFAULTS).filter(key => key !== "view" && differs(state[key], DEFAULTS[key]))
	const parts = told.map(key => `${key}=${packValue(key, state[key])}`)
	return `#${state.view}${parts.length ? "?" : ""}${parts.join("&")}`
}

function unpackState(hash) {
	const [view, query = ""] = hash.replace(/^#/, "").split("?")
	const state = { ...DEFAULTS, view: VIEWS.includes(view) ? view : DEFAULTS.view }
	for (const part of query.split("&")) {
		const [key, ...rest] = part.split("=")
		if (key in DEFAULTS) state[key] = unpackValue(key, rest.join("="))
	}
	return state
}

const UNDOABLE = ["brush", "axes", "log"]
// Steps for the browser's Back; a step of a replay, a cursor or a letter of a filter is none.
const STEPS = [...UNDOABLE, "view", "w", "x", "y", "fix", "reduce", "unit", "row", "vs", "sort", "order", "open", "lanes", "b", "c", "range", "metric", "within"]
// What makes sense for any workload; the rest is of the one that was looked at.
const LASTING = ["view", "w", "reduce", "unit", "lanes", "budget", "by", "b", "c", "diff", "ir", "knobs", "find", "order", "open", "within"]

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
			// What Back has undone needs no undoing.
			if (this.past.length && !UNDOABLE.some(key => differs(this.past.at(-1)[key], next[key]))) this.past.pop()
			this.tell(new Set(Object.keys(DEFAULTS)))
		})
	}

	listen(told) {
		this.listeners.push(told)
	}

	next(patch) {
		const next = { ...this.now, ...patch }
		if (next.w === this.now.w) return next
		return { ...DEFAULTS, ...Object.fromEntries(LASTING.map(key => [key, next[key]])), ...patch }
	}

	// Drafts of a drag are undone as one.
	set(patch, draft = false) {
		const next = this.next(patch)
		const changed = new Set(Object.keys(DEFAULTS).filter(key => differs(next[key], this.now[key])))
		if (changed.has("w")) this.past = []
		else if (!this.drafting && UNDOABLE.some(key => changed.has(key))) {
			this.past.push(Object.fromEntries(UNDOABLE.map(key => [key, this.now[key]])))
		}
		const step = !this.drafting && STEPS.some(key => changed.has(key))
		this.drafting = draft && (this.drafting || changed.size > 0)
		if (!changed.size) return
		this.now = next
		this.write(step)
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
		return packState(this.next(patch))
	}
}
