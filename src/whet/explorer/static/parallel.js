// Parallel coordinates. Parameters have few values, so rows are counted between pairs of axes and
// drawn as ribbons: drawing takes as long as there are values, not rows.

import { FONT, SMALL_FONT, Surface, fitText, logTicks, ticks } from "./canvas.js"
import { rgb, theme, viridis } from "./colors.js"
import { CLASSES, FAILED_CLASS, brushEnds } from "./dataset.js"
import { button, clamp, el, fill, saveCsv } from "./dom.js"
import { digits, timeTick } from "./format.js"

const HEAD = 60
const FOOT = 20
const SIDE = 56
const CLASS_SHARES = [1, 0.82, 0.62, 0.42, 0.15]
const CLASS_ALPHAS = [0.95, 0.85, 0.75, 0.6, 0.32, 0.7]

export const classColor = kind =>
	kind === FAILED_CLASS ? theme().soft : rgb(viridis(CLASS_SHARES[kind]))

export const axisName = entry => entry.replace(/^!/, "")

export class Parallel extends Surface {
	// Acts: `brushed(name, labels or null, draft)`, `ordered(axes)`: entries starting with ! are inverted.
	constructor(parent, options) {
		const holder = el("div.parallel")
		super(holder, { label: "parallel coordinates", focus: false, ...options })
		this.heads = el("div.axis-heads")
		holder.append(this.heads)
		parent.append(holder)
		this.ground = document.createElement("canvas")
		this.on({
			pointerdown: event => this.press(event),
			pointermove: event => this.move(event),
			pointerup: event => this.release(event)
		})
	}

	update(input) {
		this.input = input
		this.axes = input.entries
			.map(entry => ({ entry, inverted: entry.startsWith("!"), axis: input.ds.axes.get(axisName(entry)) }))
			.filter(one => one.axis)
		this.draw()
		if (!this.carrying) this.drawHeads()
	}

	get narrowest() {
		return Math.max(120, 84 * this.axes.length)
	}

	x(index) {
		const count = this.axes.length
		return count < 2 ? this.wide / 2 : SIDE + (index * (this.wide - 2 * SIDE)) / (count - 1)
	}

	get floor() {
		return this.high - FOOT
	}

	y(one, share) {
		const up = one.inverted ? 1 - share : share
		return this.floor - up * (this.floor - HEAD)
	}

	logs(axis) {
		return this.input.log && axis.logarithmic
	}

	shareOf(axis, value) {
		if (this.logs(axis)) return Math.log(value / axis.low) / Math.log(axis.high / axis.low)
		return (value - axis.low) / (axis.high - axis.low)
	}

	valueOf(axis, share) {
		if (this.logs(axis)) return axis.low * (axis.high / axis.low) ** share
		return axis.low + share * (axis.high - axis.low)
	}

	slot(one, bin) {
		const { axis } = one
		if (axis.kind === "numbers") {
			// Rows without a value have a lane of their own beyond the high end: a failure is not fast.
			if (bin === 0) return [one.inverted ? this.floor + 8 : HEAD - 22, 8]
			const high = (this.floor - HEAD) / (axis.count - 1)
			return [this.y(one, (bin - 0.5) / (axis.count - 1)) - high / 2, high]
		}
		const room = (this.floor - HEAD) / axis.count
		const high = Math.min(room * 0.78, 44)
		return [this.y(one, (bin + 0.5) / axis.count) - high / 2, high]
	}

	draw() {
		const pen = this.begin()
		if (!this.axes.length) return
		const { ds, mask, count, log } = this.input
		const selective = count < ds.count
		if (selective) pen.drawImage(this.prepared(), 0, 0, this.wide, this.high)
		// The first brush should not be the one that waits.
		else setTimeout(() => this.prepared(), 50)
		this.between((a, b, i) => this.ribbons(pen, i, selective ? ds.pairs(a, b, mask, log) : ds.allPairs(a, b, log), false))
		this.axes.forEach((one, i) => this.drawAxis(pen, one, i))
	}

	between(act) {
		this.axes.slice(1).forEach((one, i) => act(this.axes[i].axis, one.axis, i))
	}

	prepared() {
		const { ds, log } = this.input
		const { canvas, wide, high } = this
		const key = [ds.rows, wide, high, log, theme().dark, this.input.workload, ...this.axes.map(one => one.entry)].join("\n")
		if (key !== this.groundKey) {
			this.groundKey = key
			this.ground.width = canvas.width
			this.ground.height = canvas.height
			const below = this.ground.getContext("2d", { willReadFrequently: true })
			below.setTransform(canvas.width / wide, 0, 0, canvas.height / high, 0, 0)
			this.between((a, b, i) => this.ribbons(below, i, ds.allPairs(a, b, log), true))
		}
		return this.ground
	}

	ribbons(pen, index, counts, grey) {
		const [a, b] = [this.axes[index], this.axes[index + 1]]
		const [na, nb] = [a.axis.count, b.axis.count]
		const outs = new Float64Array(na)
		const ins = new Float64Array(nb)
		counts.forEach((n, at) => {
			const pair = Math.floor(at / CLASSES)
			outs[Math.floor(pair / nb)] += n
			ins[pair % nb] += n
		})
		const x0 = this.x(index) + 5
		const x1 = this.x(index + 1) - 5
		const flat = grey ? theme().line : null
		const fromY = stackStarts(a, outs, this)
		const toY = stackStarts(b, ins, this)
		const bend = (x1 - x0) * 0.42
		// The slow first, so that the best lie on top.
		for (const c of [5, 4, 3, 2, 1, 0]) {
			pen.fillStyle = flat || classColor(c)
			pen.globalAlpha = grey ? 0.5 : CLASS_ALPHAS[c]
			for (let i = 0; i < na; i++) {
				for (let j = 0; j < nb; j++) {
					const n = counts[(i * nb + j) * CLASSES + c]
					if (!n) continue
					const [ya, yb] = [fromY.at[i], toY.at[j]]
					const [da, db] = [n * fromY.unit[i], n * toY.unit[j]]
					const [ha, hb] = [Math.max(da, 0.35), Math.max(db, 0.35)]
					pen.beginPath()
					if (c === FAILED_CLASS) {
						// Dashed, so that no eye has to tell its colour.
						const [ma, mb] = [ya + ha / 2, yb + hb / 2]
						pen.strokeStyle = flat || classColor(c)
						pen.lineWidth = Math.max(0.7, (ha + hb) / 2)
						pen.setLineDash([5, 4])
						pen.moveTo(x0, ma)
						pen.bezierCurveTo(x0 + bend, ma, x1 - bend, mb, x1, mb)
						pen.stroke()
						pen.setLineDash([])
					} else {
						pen.moveTo(x0, ya)
						pen.bezierCurveTo(x0 + bend, ya, x1 - bend, yb, x1, yb)
						pen.lineTo(x1, yb + hb)
						pen.bezierCurveTo(x1 - bend, yb + hb, x0 + bend, ya + ha, x0, ya + ha)
						pen.fill()
					}
					fromY.at[i] += da
					toY.at[j] += db
				}
			}
		}
		pen.globalAlpha = 1
	}

	drawAxis(pen, one, index) {
		const { ink, accent } = theme()
		const { axis } = one
		const x = this.x(index)
		const brush = this.input.brush[axis.name]
		this.line(ink, 1.5, [x, HEAD - 4], [x, this.floor + 2])
		pen.font = SMALL_FONT
		if (axis.kind === "values") this.drawValues(pen, one, x, brush)
		else this.drawScale(pen, one, x, brush)
		pen.font = `600 ${FONT}`
		const wide = this.axes.length > 1 ? this.x(1) - this.x(0) - 8 : 200
		this.text(fitText(pen, `${axis.label}${one.inverted ? " ↓" : ""}`, wide), x, 14, brush ? accent : ink)
	}

	drawValues(pen, one, x, brush) {
		const { axis } = one
		const keys = axis.keys
		const every = Math.ceil(13 / ((this.floor - HEAD) / axis.count))
		for (let bin = 0; bin < axis.count; bin++) {
			const [y, high] = this.slot(one, bin)
			const on = !brush || brush.includes(keys[bin])
			this.rect(on ? theme().ink : theme().soft, x - 4, y, 8, high, on ? 1 : 0.3)
			if (bin % every === 0) this.tag(pen, fitText(pen, axis.labels[bin], 96), x, y + high / 2, on)
		}
	}

	drawScale(pen, one, x, brush) {
		const { axis } = one
		for (const value of this.logs(axis) ? logTicks(axis.low, axis.high) : ticks(axis.low, axis.high, 5)) {
			const y = this.y(one, this.shareOf(axis, value))
			this.rect(theme().ink, x - 4, y - 0.5, 8, 1)
			this.tag(pen, axis.unit === "ns" ? timeTick(value) : digits(value), x, y, true)
		}
		if (axis.lacking) {
			const [y, high] = this.slot(one, 0)
			pen.setLineDash([3, 2])
			this.line(theme().ink, 1.5, [x, y - 2], [x, y + high + 2])
			pen.setLineDash([])
			this.tag(pen, axis.unit === "ns" ? "failed" : "none", x, y + high / 2, true)
		}
		if (!brush) return
		const [low, high] = brushEnds(brush)
		const top = this.y(one, this.shareOf(axis, Math.min(high, axis.high)))
		const bottom = this.y(one, this.shareOf(axis, Math.max(low, axis.low)))
		this.rect(theme().accent, x - 7, Math.min(top, bottom), 14, Math.max(3, Math.abs(bottom - top)), 0.35)
	}

	tag(pen, text, x, y, on) {
		this.rect(theme().panel, x + 7, y - 7, pen.measureText(text).width + 6, 14, 0.82)
		this.text(text, x + 10, y, on ? theme().ink : theme().soft, "left")
	}

	// Over the drawn titles: what the keyboard and a dragging pointer take hold of.
	drawHeads() {
		const focused = document.activeElement?.dataset?.axis
		fill(this.heads, this.axes.map((one, i) => this.head(one, i)))
		if (focused) [...this.heads.children].find(head => head.dataset.axis === focused)?.focus()
	}

	head({ axis }, index) {
		const title = `${axis.label}: drag to move, double-click or I to invert, arrow keys to move and to brush, Escape to clear`
		const shift = by => (made.style.left = `${this.x(index) - 46 + by}px`)
		const made = button("", title, null, {
			class: "axis-head",
			"data-axis": axis.name,
			ondblclick: () => this.invert(index),
			onpointerdown: event => {
				this.carrying = { from: event.clientX }
				made.setPointerCapture(event.pointerId)
			},
			onpointermove: event => this.carrying && shift(event.clientX - this.carrying.from),
			onpointerup: event => {
				const step = this.axes.length > 1 ? this.x(1) - this.x(0) : 1
				const moved = Math.round((event.clientX - this.carrying.from) / step)
				this.carrying = null
				shift(0)
				if (moved) this.reorder(index, index + moved)
			},
			onkeydown: event => this.headKey(event, index)
		})
		shift(0)
		return made
	}

	headKey(event, index) {
		const acts = {
			ArrowLeft: () => this.reorder(index, index - 1),
			ArrowRight: () => this.reorder(index, index + 1),
			ArrowUp: () => this.shift(index, 1),
			ArrowDown: () => this.shift(index, -1),
			i: () => this.invert(index),
			Escape: () => this.brushed(this.axes[index].axis.name, null)
		}
		const act = acts[event.key]
		if (!act) return
		event.preventDefault()
		event.stopPropagation()
		act()
	}

	entries() {
		return this.axes.map(one => one.entry)
	}

	invert(index) {
		const entries = this.entries()
		entries[index] = entries[index].startsWith("!") ? axisName(entries[index]) : `!${entries[index]}`
		this.ordered(entries)
	}

	reorder(from, to) {
		const entries = this.entries()
		const [moved] = entries.splice(from, 1)
		entries.splice(clamp(to, 0, entries.length), 0, moved)
		this.ordered(entries)
	}

	// By keyboard: one value at a time, or a tenth of a scale.
	shift(index, by) {
		const { axis, inverted } = this.axes[index]
		const step = inverted ? -by : by
		const brush = this.input.brush[axis.name]
		if (axis.kind === "values") {
			const keys = axis.keys
			const at = brush ? keys.indexOf(brush[0]) + step : step > 0 ? 0 : keys.length - 1
			this.brushed(axis.name, [keys[clamp(at, 0, keys.length - 1)]])
			return
		}
		const centre = brush ? this.shareOf(axis, Math.max(axis.low, brushEnds(brush)[0])) + step / 10 : -step
		const low = clamp(centre, 0, 0.9)
		this.brushed(axis.name, [`${tidy(this.valueOf(axis, low))}..${tidy(this.valueOf(axis, low + 0.1))}`])
	}

	nearest(px) {
		return this.axes.findIndex((_, i) => Math.abs(this.x(i) - px) < 34)
	}

	press(event) {
		const [px, py] = this.at(event)
		const index = this.nearest(px)
		if (index < 0) return
		if (this.isFailed(this.axes[index], py)) {
			const { brush, ds } = this.input
			this.brushed("status", String(brush.status) === String(ds.failures) ? null : ds.failures)
			return
		}
		if (py < HEAD - 8) return
		this.drag = { index, from: py, to: py, add: event.shiftKey, before: this.input.brush[this.axes[index].axis.name] }
		this.hold(event)
	}

	isFailed(one, py) {
		const [y, high] = this.slot(one, 0)
		return one.axis.name === "median_ns" && one.axis.lacking && py > y - 6 && py < y + high + 6
	}

	move(event) {
		if (!this.drag) return
		this.drag.to = this.at(event)[1]
		if (this.drag.asked) return
		// One redraw a frame, however fast the pointer reports.
		this.drag.asked = true
		requestAnimationFrame(() => {
			if (!this.drag) return
			this.drag.asked = false
			if (Math.abs(this.drag.to - this.drag.from) > 3) this.tell(true)
		})
	}

	release(event) {
		if (!this.drag) return
		this.drag.to = this.at(event)[1]
		this.tell(false, Math.abs(this.drag.to - this.drag.from) <= 3)
		this.drag = null
	}

	// A click takes one value, or clears the brush.
	tell(draft, click = false) {
		const { index, from, to, add, before } = this.drag
		const one = this.axes[index]
		const { axis } = one
		const slack = click ? 2 : 0
		const [top, bottom] = [Math.min(from, to) - slack, Math.max(from, to) + slack]
		if (axis.kind === "values") {
			const within = axis.keys.filter((_, bin) => {
				const [y, high] = this.slot(one, bin)
				return y + high > top && y < bottom
			})
			const same = click && before && String(before) === String(within)
			const all = add && before ? [...new Set([...before, ...within])] : within
			this.brushed(axis.name, all.length && !same ? all : null, draft)
			return
		}
		const share = y => {
			const up = (this.floor - y) / (this.floor - HEAD)
			return clamp(one.inverted ? 1 - up : up, 0, 1)
		}
		const ends = [share(from), share(to)].sort((p, q) => p - q)
		const low = ends[0] <= 0 ? "" : tidy(this.valueOf(axis, ends[0]))
		const high = ends[1] >= 1 ? "" : tidy(this.valueOf(axis, ends[1]))
		this.brushed(axis.name, click ? null : [`${low}..${high}`], draft)
	}

	csv(name) {
		const { ds, mask, log } = this.input
		const rows = [["axis", "value", "next_axis", "next_value", "rows"]]
		const label = (axis, bin) => {
			if (axis.kind === "values") return axis.labels[bin]
			return bin === 0 ? "none" : String(tidy(this.valueOf(axis, (bin - 0.5) / (axis.count - 1))))
		}
		this.between((a, b) => {
			const counts = ds.pairs(a, b, mask, log)
			for (let p = 0; p < a.count; p++) {
				for (let q = 0; q < b.count; q++) {
					let n = 0
					for (let c = 0; c < CLASSES; c++) n += counts[(p * b.count + q) * CLASSES + c]
					if (n) rows.push([a.name, label(a, p), b.name, label(b, q), n])
				}
			}
		})
		saveCsv(rows, `${name}.csv`)
	}
}

const tidy = value => Number(value.toPrecision(4))

function stackStarts(one, sums, chart) {
	const at = new Float64Array(sums.length)
	const unit = new Float64Array(sums.length)
	const most = Math.max(...sums) || 1
	for (let bin = 0; bin < sums.length; bin++) {
		if (!sums[bin]) continue
		const [y, high] = chart.slot(one, bin)
		const share = sums[bin] / most
		// On a scale the square root keeps rare values visible.
		const tall = one.axis.kind === "numbers" ? Math.max(0.6, high * 1.6 * Math.sqrt(share)) : Math.max(1, high * share)
		at[bin] = y + (high - tall) / 2
		unit[bin] = tall / sums[bin]
	}
	return { at, unit }
}
