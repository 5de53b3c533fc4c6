// Lines, steps and points over two scales.

import { SMALL_FONT, Surface, logTicks, ticks } from "./canvas.js"
import { theme } from "./colors.js"
import { extent } from "./dataset.js"
import { announce, clamp, hideTip, saveCsv, showTip } from "./dom.js"

const PAD = { left: 62, right: 14, top: 10, bottom: 34 }

export class Plot extends Surface {
	// Acts: `clicked(series, index)`, `ranged(low, high)` after a drag along x, `tip(series, index)` lines.
	constructor(parent, options) {
		super(parent, { ...options, label: `${options.label}; arrow keys read values` })
		this.on({
			pointermove: event => this.move(event),
			pointerleave: () => this.leave(),
			blur: () => this.leave(),
			pointerdown: event => {
				this.drag = this.ranged ? { from: this.at(event)[0] } : null
				if (this.drag) this.hold(event)
			},
			pointerup: event => this.release(event),
			keydown: event => this.key(event)
		})
	}

	update(input) {
		this.input = input
		this.scale("x")
		this.scale("y")
		this.draw()
	}

	scale(side) {
		const axis = this.input[side]
		const shown = value => Number.isFinite(value) && (!axis.log || value > 0)
		let [low, high] = extent(this.input.series.flatMap(one => (side === "y" && one.lows ? [...one[side], ...one.lows, ...one.highs] : [...one[side]]).filter(shown)))
		low = axis.low ?? low
		high = axis.high ?? high
		if (!(high > low)) [low, high] = Number.isFinite(low) ? [low * 0.9, low * 1.1 || 1] : axis.log ? [1, 10] : [0, 1]
		else if (axis.log) [low, high] = [low / 1.04, high * 1.04]
		else if (side === "y" && axis.low === undefined) [low, high] = [low - (high - low) * 0.06, high + (high - low) * 0.06]
		axis.ends = [low, high]
	}

	share(side, value) {
		const { log, ends } = this.input[side]
		return log ? Math.log(value / ends[0]) / Math.log(ends[1] / ends[0]) : (value - ends[0]) / (ends[1] - ends[0])
	}

	px(value) {
		return PAD.left + this.share("x", value) * (this.wide - PAD.left - PAD.right)
	}

	py(value) {
		return this.floor - this.share("y", value) * this.tall
	}

	inverse(x) {
		const { log, ends } = this.input.x
		const share = clamp((x - PAD.left) / (this.wide - PAD.left - PAD.right), 0, 1)
		return log ? ends[0] * (ends[1] / ends[0]) ** share : ends[0] + share * (ends[1] - ends[0])
	}

	draw() {
		const pen = this.begin()
		const { cursor, rules = [], series } = this.input
		this.drawGrid(pen)
		for (const rule of rules) this.drawRule(pen, rule)
		for (const one of series) if (one.upper) this.drawBand(pen, one)
		for (const one of series) this.drawSeries(pen, one)
		if (Number.isFinite(cursor)) this.drawRule(pen, { side: "x", at: cursor, color: theme().accent, solid: true })
		if (this.hover) this.drawHover(pen)
		const { drag } = this
		if (drag?.to !== undefined) this.rect(theme().accent, Math.min(drag.from, drag.to), PAD.top, Math.abs(drag.to - drag.from), this.tall, 0.2)
	}

	get floor() {
		return this.high - PAD.bottom
	}

	get tall() {
		return this.floor - PAD.top
	}

	across(side, at) {
		return side === "x" ? [[at, PAD.top], [at, this.floor]] : [[PAD.left, at], [this.wide - PAD.right, at]]
	}

	drawGrid(pen) {
		const { faint, soft, line } = theme()
		const { x, y } = this.input
		pen.font = SMALL_FONT
		for (const [side, axis] of [["x", x], ["y", y]]) {
			let last = -100
			const taken = []
			for (const value of axis.marks || (axis.log ? logTicks(...axis.ends) : ticks(...axis.ends, side === "x" ? 7 : 5))) {
				const at = side === "x" ? this.px(value) : this.py(value)
				this.line(faint, 1, ...this.across(side, at))
				const text = axis.show(value)
				if (side === "y") {
					if (taken.some(one => Math.abs(one - at) < 12)) continue
					this.text(text, PAD.left - 6, at, soft, "right")
					taken.push(at)
					continue
				}
				const half = pen.measureText(text).width / 2
				if (at - half < last + 6) continue
				last = at + half
				this.text(text, Math.min(at, this.wide - half - 2), this.floor + 11, soft)
			}
		}
		pen.strokeStyle = line
		pen.strokeRect(PAD.left + 0.5, PAD.top + 0.5, this.wide - PAD.left - PAD.right, this.tall)
		this.text(x.label, (PAD.left + this.wide) / 2, this.high - 8)
		this.upright(y.label, 9, this.floor / 2, this.floor)
	}

	drawRule(pen, { side, at, color = theme().soft, text, solid, dy = -8 }) {
		if (!Number.isFinite(at)) return
		const place = side === "x" ? this.px(at) : this.py(at)
		pen.setLineDash(solid ? [] : [5, 4])
		this.line(color, solid ? 2 : 1, ...this.across(side, place))
		pen.setLineDash([])
		pen.font = SMALL_FONT
		if (text) this.text(text, this.wide - PAD.right - 4, place + dy, color, "right")
	}

	clip(pen) {
		pen.save()
		pen.beginPath()
		pen.rect(PAD.left, PAD.top, this.wide - PAD.left - PAD.right, this.tall)
		pen.clip()
	}

	// Between `upper` and `lower`.
	drawBand(pen, one) {
		this.clip(pen)
		const edge = y => this.points({ ...one, y })
		pen.fillStyle = one.color
		pen.globalAlpha = 0.18
		pen.beginPath()
		for (const point of [...edge(one.upper), ...edge(one.lower).reverse()]) pen.lineTo(...point)
		pen.fill()
		pen.restore()
	}

	drawSeries(pen, one) {
		this.clip(pen)
		pen.globalAlpha = one.alpha ?? 1
		if (one.kind === "points") {
			pen.fillStyle = one.color
			for (let i = 0; i < one.x.length; i++) {
				if (!Number.isFinite(one.y[i])) continue
				if (one.cross) {
					this.text("✕", this.px(one.x[i]), this.py(one.y[i]), one.color)
					continue
				}
				pen.beginPath()
				pen.arc(this.px(one.x[i]), this.py(one.y[i]), one.size || 2.5, 0, 7)
				pen.fill()
				if (one.lows?.[i] >= 0) this.drawInterval(one, i)
			}
		} else {
			pen.setLineDash(one.dash || [])
			this.path(one.color, one.width || 2, this.points(one))
		}
		pen.restore()
	}

	drawInterval({ x, lows, highs, color }, i) {
		const [at, low, high] = [this.px(x[i]), this.py(lows[i]), this.py(highs[i])]
		this.line(color, 1.5, [at, low], [at, high])
		for (const end of [low, high]) this.line(color, 1.5, [at - 5, end], [at + 5, end])
	}

	points(one) {
		const points = []
		for (let i = 0; i < one.x.length; i++) {
			if (!Number.isFinite(one.y[i])) continue
			const steps = one.kind === "steps" && points.length
			if (steps && one.y[i] === one.y[i - 1] && i < one.x.length - 1) continue
			const x = this.px(one.x[i])
			if (steps) points.push([x, points.at(-1)[1]])
			points.push([x, this.py(one.y[i])])
		}
		if (points.length && one.until) points.push([this.px(one.until), points.at(-1)[1]])
		return points
	}

	nearest(x, y) {
		let found = null
		let least = 26 * 26
		this.input.series.forEach((one, s) => {
			if (one.faint) return
			for (let i = 0; i < one.x.length; i++) {
				if (!Number.isFinite(one.y[i])) continue
				const far = (this.px(one.x[i]) - x) ** 2 + (this.py(one.y[i]) - y) ** 2
				if (far < least) {
					least = far
					found = [s, i]
				}
			}
		})
		return found
	}

	move(event) {
		if (!this.input) return
		const [x, y] = this.at(event)
		if (this.drag) this.drag.to = x
		this.hover = this.nearest(x, y)
		this.draw()
		if (this.hover) this.showHover(event.clientX, event.clientY)
		else hideTip()
	}

	showHover(x, y) {
		const [s, i] = this.hover
		showTip(x, y, this.tip(this.input.series[s], i))
	}

	leave() {
		hideTip()
		if (!this.hover) return
		this.hover = null
		this.draw()
	}

	release(event) {
		const { drag } = this
		this.drag = null
		const [x, y] = this.at(event)
		if (drag && Math.abs(x - drag.from) > 5) {
			this.ranged(...[this.inverse(drag.from), this.inverse(x)].sort((a, b) => a - b))
			this.draw()
			return
		}
		const found = this.input && this.nearest(x, y)
		if (found && this.clicked) this.clicked(this.input.series[found[0]], found[1])
	}

	key(event) {
		const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: 0, ArrowDown: 0 }[event.key]
		const { series } = this.input || { series: [] }
		if (event.key === "Enter" && this.hover && this.clicked) this.clicked(series[this.hover[0]], this.hover[1])
		const solid = series.map((_, s) => s).filter(s => !series[s].faint && series[s].x.length)
		if (step === undefined || !solid.length) return
		event.preventDefault()
		let at = Math.max(0, solid.indexOf(this.hover ? this.hover[0] : -1))
		if (!step) at = (at + (event.key === "ArrowUp" ? 1 : solid.length - 1)) % solid.length
		const one = series[solid[at]]
		const i = this.hover ? clamp(this.hover[1] + step, 0, one.x.length - 1) : 0
		this.hover = [solid[at], i]
		this.draw()
		announce(this.tip(one, i))
		if (Number.isFinite(one.y[i])) this.showHover(...this.outside(this.px(one.x[i]), this.py(one.y[i])))
	}

	drawHover(pen) {
		const [s, i] = this.hover
		const one = this.input.series[s]
		if (!one || !Number.isFinite(one.y[i])) return
		pen.strokeStyle = theme().ink
		pen.lineWidth = 2
		pen.beginPath()
		pen.arc(this.px(one.x[i]), this.py(one.y[i]), 5, 0, 7)
		pen.stroke()
	}

	csv(name) {
		const rows = [["series", this.input.x.label, this.input.y.label]]
		for (const one of this.input.series) for (let i = 0; i < one.x.length; i++) rows.push([one.name, one.x[i], one.y[i]])
		saveCsv(rows, `${name}.csv`)
	}
}

