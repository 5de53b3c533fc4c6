// Where data comes from: a server, or a block inside a report.

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array }

export class Missing extends Error {}

// Columns as they travel: u32 header length, JSON header, then arrays aligned to 8 bytes.
export function decodeColumns(buffer) {
	const length = new DataView(buffer).getUint32(0, true)
	const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)))
	return { header, arrays: arraysOf(header, buffer, Math.ceil((4 + length) / 8) * 8) }
}

function arraysOf(header, buffer, start) {
	const arrays = {}
	for (const { name, dtype, offset, length } of header.columns) {
		arrays[name] = new ARRAYS[dtype](buffer, start + offset, length)
	}
	return arrays
}

const ofWorkload = (id, rest) => `workloads/${encodeURIComponent(id)}/${rest}`

class HttpSource {
	token = new URLSearchParams(location.search).get("token")

	about = () => this.json("about")
	workloads = () => this.json("workloads")
	strategies = () => this.json("strategies")
	runs = id => this.json(ofWorkload(id, "runs"))
	importance = id => this.json(ofWorkload(id, "importance"))
	trial = (id, row) => this.json(ofWorkload(id, `trials/${row}`))
	journey = async (id, theme) => this.url(`workloads/${id}/journey?theme=${theme}`)
	facts = id => this.json(ofWorkload(id, "facts"))
	timeline = run => this.json(`runs/${encodeURIComponent(run)}/timeline`)
	search = (id, query) => this.json(ofWorkload(id, `search?${new URLSearchParams(query)}`))
	frontier = (id, query) => this.json(`frontier/${encodeURIComponent(id)}?${new URLSearchParams(query)}`)
	telling = () => 0

	url(path) {
		const token = this.token ? `${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(this.token)}` : ""
		return `api/${path}${token}`
	}

	async answer(path) {
		let response
		try {
			response = await fetch(this.url(path))
		} catch {
			throw new Error("The explorer's server does not answer. Start it again with: whet explore")
		}
		if (response.ok) return response
		const told = await response.json().catch(() => null)
		const sentence = told?.error || `The server answered ${response.status} for ${path}.`
		throw response.status === 404 ? new Missing(sentence) : new Error(sentence)
	}

	async json(path) {
		return (await this.answer(path)).json()
	}

	async columns(id, from = 0) {
		const response = await this.answer(ofWorkload(id, `columns${from ? `?from=${from}` : ""}`))
		return decodeColumns(await response.arrayBuffer())
	}

	async ir(id, row, stage) {
		const path = ofWorkload(id, `trials/${row}/ir/${encodeURIComponent(stage)}`)
		return (await this.answer(path)).text()
	}

	live(told, state) {
		const events = new EventSource(this.url("live"))
		events.onmessage = event => told(JSON.parse(event.data))
		events.onopen = () => state(true)
		events.onerror = () => state(false)
	}
}

class EmbeddedSource {
	embedded = true

	constructor(data) {
		this.data = data
	}

	part(kind, key) {
		const all = this.data[kind]
		const found = key === undefined ? all : all?.[key]
		if (found == null) throw new Missing("This is not part of the report; 'whet explore' shows it.")
		return found
	}

	// Only those that were simulated for the report.
	strategies = async id => (this.data.strategies || []).filter(one => this.searched(`${id}|${one.name}|`))
	searched = start => Object.keys(this.data.searches || {}).find(key => key.startsWith(start))
	// Better to begin with than others.
	telling = id => (this.searched(`${id}|`) ? 1 : 0)

	about = async () => this.part("about")
	workloads = async () => this.part("workloads")
	runs = async id => this.data.runs?.[id] || []
	importance = async id => this.part("importance", id)
	// A frame shows nothing but what has an address.
	journey = async (id, theme) => `data:text/html;charset=utf-8,${encodeURIComponent(this.part("journeys", id).replace("<html", `<html data-theme="${theme}"`))}`
	facts = async id => this.part("facts", id)
	timeline = async run => this.part("timelines", run)
	frontier = async id => this.part("frontier", id)
	trial = async (id, row) => this.part("trials", id)[row] || this.part("trials", `${id}|${row}`)
	ir = async (id, row, stage) => this.part("ir", `${id}|${row}|${stage}`)

	async search(id, query) {
		if (query.run !== undefined) return this.part("searches", `${id}|run|${query.run}`)
		return this.part("searches", this.searched(`${id}|${query.strategy}|${query.seed}|`))
	}

	async columns(id) {
		const { header, body } = this.part("columns", id)
		return { header, arrays: arraysOf(header, bytesOf(body).buffer, 0) }
	}

	live() {}
}

function bytesOf(base64) {
	const text = atob(base64.trim())
	const bytes = new Uint8Array(text.length)
	for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i)
	return bytes
}

export async function openSource() {
	const block = document.getElementById("whet-data")
	if (!block) return new HttpSource()
	const packed = new Blob([bytesOf(block.textContent)]).stream()
	const data = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).json()
	return new EmbeddedSource(data)
}
