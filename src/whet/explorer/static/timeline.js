// A run as it went, lane by lane.

import { SMALL_FONT, Surface, fitText, ticks } from "./canvas.js"
import { SERIES, inkOn, theme } from "./colors.js"
import { clamp, hideTip, save, saveCsv, showTip } from "./dom.js"
import { isMeasured, seconds, secondsTick, statusText, trialName } from "./format.js"

const LANE = 30
const NAME_ROOM = 92
const HEADER = 24

function laneOrder(a, b) {
	const weight = name => (name === "engine" ? 0 : name.startsWith("worker") ? 1 : 2)
	return weight(a) - weight(b) || a.localeCompare(b, "en", { numeric: true })
}

export function spanColumns(answer) {
	// 'look of 7 configs' and 'look of 9 configs' are the same kind of thing.
	const spans = (answer.spans || []).map(one => ({ ...one, name: one.name.replace(/ of \d+ configs?$/, "") }))
	const lanes = [...new Set(spans.map(one => one.lane))].sort(laneOrder)
	const names = [...new Set(spans.map(one => one.name))]
	return {
		lanes,
		names,
		count: spans.length,
		lane: Uint16Array.from(spans, one => lanes.indexOf(one.lane)),
		name: Uint16Array.from(spans, one => names.indexOf(one.name)),
		start: Float64Array.from(spans, one => one.start_s),
		end: Float64Array.from(spans, one => one.end_s),
		depth: Uint8Array.from(spans, one => one.depth || 0),
		row: Int32Array.from(spans, one => one.row ?? -1),
		status: spans.map(one => one.status || "")
	}
}

export function rangeStatistics(spans, low, high) {
	const byName = new Map()
	const byLane = new Map()
	const rows = new Set()
	let count = 0
	for (let i = 0; i < spans.count; i++) {
		const inside = Math.min(spans.end[i], high) - Math.max(spans.start[i], low)
		if (inside <= 0) continue
		const name = spans.names[spans.name[i]]
		const known = byName.get(name) || { count: 0, seconds: 0, longest: 0, depth: spans.depth[i] }
		known.count++
		known.seconds += inside
		known.longest = Math.max(known.longest, inside)
		byName.set(name, known)
		if (spans.depth[i]) continue
		count++
		const lane = spans.lanes[spans.lane[i]]
		byLane.set(lane, (byLane.get(lane) || 0) + inside)
		if (spans.row[i] >= 0) rows.add(spans.row[i])
	}
	return { byName, byLane, rows, count }
}

export class TimelineChart extends Surface {
	// Acts: `ranged(low, high)` after a drag, `zoomed(low, high)`, `picked(row)` on a click.
	constructor(parent, options) {
		super(parent, { label: "timeline; W and S zoom, A and D pan, drag selects a range", ...options })
		this.on({
			pointerdown: event => {
				this.drag = { from: this.at(event)[0] }
				this.hold(event)
			},
			pointermove: event => this.move(event),
			pointerup: event => this.release(event)
		})
	}

	update(input) {
		this.input = input
		this.draw()
	}

	px(at) {
		const { low, high } = this.input
		return NAME_ROOM + ((at - low) / (high - low)) * (this.wide - NAME_ROOM - 8)
	}

	time(x) {
		const { low, high } = this.input
		return low + ((x - NAME_ROOM) / (this.wide - NAME_ROOM - 8)) * (high - low)
	}

	color(name) {
		return SERIES[name % SERIES.length]
	}

	// There are more kinds of spans than colours that can be told apart: the next ones have gaps.
	gap(name) {
		return [0, 6, 3][Math.min(2, Math.floor(name / SERIES.length))]
	}

	ground(name) {
		const gap = this.gap(name)
		return gap ? `repeating-linear-gradient(90deg, ${this.color(name)} 0 ${gap - 1}px, transparent 0 ${gap}px)` : this.color(name)
	}

	draw() {
		const { spans } = this.input
		const pen = this.begin(HEADER + LANE * Math.max(1, spans.lanes.length) + 4)
		const { ink, soft, faint } = theme()
		pen.font = SMALL_FONT
		for (const at of ticks(this.input.low, this.input.high, 8)) {
			this.rect(faint, this.px(at), HEADER - 4, 1, this.high)
			if (this.px(at) < this.wide - 24) this.text(secondsTick(at), this.px(at), 9, soft)
		}
		spans.lanes.forEach((name, i) => this.text(fitText(pen, name, NAME_ROOM - 10), NAME_ROOM - 8, HEADER + LANE * (i + 0.5) - 2, ink, "right"))
		pen.save()
		pen.beginPath()
		pen.rect(NAME_ROOM, 0, this.wide, this.high)
		pen.clip()
		this.drawSpans(pen)
		this.drawRange()
		pen.restore()
	}

	drawSpans(pen) {
		const { spans, low, high, clicked } = this.input
		// Narrower than half a pixel behind its neighbour: not drawn again.
		const reached = new Float64Array(spans.lanes.length * 2).fill(-10)
		for (let i = 0; i < spans.count; i++) {
			if (spans.end[i] < low || spans.start[i] > high) continue
			const slot = spans.lane[i] * 2 + Math.min(1, spans.depth[i])
			const left = this.px(spans.start[i])
			const right = this.px(spans.end[i])
			if (right < reached[slot] + 0.5) continue
			reached[slot] = right
			const [y, tall] = this.slot(i)
			const wide = Math.max(0.7, right - left - (right - left > 3 ? 1 : 0))
			const failed = spans.status[i] && !isMeasured(spans.status[i])
			this.rect(this.color(spans.name[i]), left, y, wide, tall, failed ? 0.45 : 1)
			const label = wide > 34 ? fitText(pen, spans.names[spans.name[i]], wide - 8) : ""
			const gap = this.gap(spans.name[i])
			// Beside its name, which has to be read.
			for (let at = label ? pen.measureText(label).width + 8 : gap - 1; gap && at < wide - 1; at += gap) this.rect(theme().panel, left + at, y, 1, tall)
			if (failed && wide > 2) this.rect(theme().bad, left, y + tall - 2, wide, 2)
			if (clicked !== null && spans.row[i] === clicked) {
				pen.strokeStyle = theme().ink
				pen.lineWidth = 2
				pen.strokeRect(left, y, wide, tall)
			}
			if (label) this.text(label, left + 4, y + tall / 2, failed ? theme().ink : inkOn(this.color(spans.name[i])), "left")
		}
	}

	slot(i) {
		const { spans } = this.input
		const top = HEADER + LANE * spans.lane[i]
		return spans.depth[i] ? [top + 15, 10] : [top + 1, 13]
	}

	drawRange() {
		const ends = this.drag?.to !== undefined ? [this.time(this.drag.from), this.time(this.drag.to)] : this.input.range
		if (!ends) return
		const [a, b] = [...ends].sort((p, q) => p - q).map(at => this.px(at))
		const { accent } = theme()
		this.rect(accent, a, HEADER - 6, Math.max(1, b - a), this.high, 0.16)
		for (const at of [a, b]) this.rect(accent, at, HEADER - 6, 1, this.high)
	}

	under(x, y) {
		const { spans } = this.input
		const lane = Math.floor((y - HEADER) / LANE)
		const at = this.time(x)
		const slack = (this.input.high - this.input.low) / this.wide
		let found = -1
		for (let i = 0; i < spans.count; i++) {
			if (spans.lane[i] !== lane || spans.start[i] > at + slack || spans.end[i] < at - slack) continue
			const [top, tall] = this.slot(i)
			if (y >= top - 1 && y <= top + tall + 1) found = i
		}
		return found
	}

	move(event) {
		if (!this.input) return
		const [x, y] = this.at(event)
		if (this.drag) {
			this.drag.to = x
			this.draw()
			return
		}
		const i = this.under(x, y)
		if (i < 0) {
			hideTip()
			return
		}
		const { spans } = this.input
		showTip(event.clientX, event.clientY, [
			`${spans.names[spans.name[i]]} on ${spans.lanes[spans.lane[i]]}`,
			["took", seconds(spans.end[i] - spans.start[i])],
			["from", `${seconds(spans.start[i])} to ${seconds(spans.end[i])}`],
			spans.status[i] && ["outcome", statusText(spans.status[i])],
			spans.row[i] >= 0 && ["", `${trialName(spans.row[i])}; click to open`]
		])
	}

	release(event) {
		const { drag } = this
		this.drag = null
		if (!drag || !this.input) return
		const [x, y] = this.at(event)
		if (Math.abs(x - drag.from) > 4) {
			const ends = [this.time(drag.from), this.time(x)].sort((a, b) => a - b)
			this.ranged(Math.max(0, ends[0]), ends[1])
			return
		}
		const i = this.under(x, y)
		if (i >= 0 && this.input.spans.row[i] >= 0) this.picked(this.input.spans.row[i])
		else this.ranged(null)
	}

	zoom(factor, x = (NAME_ROOM + this.wide) / 2) {
		const at = this.time(x)
		const { low, high, whole } = this.input
		const wide = clamp((high - low) * factor, 1e-5, whole)
		const start = clamp(at - ((at - low) / (high - low)) * wide, 0, whole - wide)
		this.zoomed(start, start + wide)
	}

	pan(share) {
		const { low, high, whole } = this.input
		const start = clamp(low + share * (high - low), 0, whole - high + low)
		this.zoomed(start, start + high - low)
	}

	key(event) {
		const acts = { w: () => this.zoom(0.7), s: () => this.zoom(1.43), a: () => this.pan(-0.15), d: () => this.pan(0.15), 0: () => this.zoomed(0, this.input.whole) }
		return acts[event.key]
	}

	csv(name) {
		const { spans } = this.input
		const rows = [["lane", "name", "depth", "start_s", "end_s", "row", "outcome"]]
		for (let i = 0; i < spans.count; i++) {
			rows.push([spans.lanes[spans.lane[i]], spans.names[spans.name[i]], spans.depth[i], spans.start[i], spans.end[i], spans.row[i] >= 0 ? spans.row[i] : "", spans.status[i]])
		}
		saveCsv(rows, `${name}.csv`)
	}

	trace(name) {
		const { spans } = this.input
		const events = spans.lanes.map((lane, i) => ({ ph: "M", pid: 1, tid: i + 1, name: "thread_name", args: { name: lane } }))
		for (let i = 0; i < spans.count; i++) {
			events.push({
				ph: "X", pid: 1, tid: spans.lane[i] + 1, name: spans.names[spans.name[i]],
				ts: spans.start[i] * 1e6, dur: (spans.end[i] - spans.start[i]) * 1e6,
				args: { row: spans.row[i] >= 0 ? spans.row[i] : undefined, outcome: spans.status[i] || undefined }
			})
		}
		save(new Blob([JSON.stringify({ traceEvents: events, displayTimeUnit: "ms" })], { type: "application/json" }), `${name}.json`)
	}
}
