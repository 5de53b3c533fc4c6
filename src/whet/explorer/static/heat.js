// Two parameters, every cell the best or median config.

import { FONT, SMALL_FONT, Surface, fitText, roundBox } from "./canvas.js"
import { inkOn, rgb, theme, viridis } from "./colors.js"
import { heatCells } from "./dataset.js"
import { announce, clamp, hideTip, saveCsv, showTip } from "./dom.js"
import { configText, counted, digits, inUnit, nanoseconds, percent, statusGlyph, statusText } from "./format.js"

const TOP = 8
const BOTTOM = 38

export class HeatMap extends Surface {
	// Acts: `picked(xi, yi, row)` on a click, `boxed(xs, ys)` after a drag, `moved(dx, dy)` by arrow keys.
	constructor(parent, options) {
		super(parent, options)
		this.on({
			pointerdown: event => {
				const cell = this.cellAt(event)
				if (!cell) return
				this.drag = { from: cell, to: cell }
				this.hold(event)
			},
			pointermove: event => {
				const cell = this.cellAt(event)
				if (this.drag && cell) {
					this.drag.to = cell
					this.draw()
				}
				if (cell) this.tip(cell, event.clientX, event.clientY)
				else hideTip()
			},
			pointerup: () => this.release(),
			keydown: event => this.key(event)
		})
	}

	release() {
		const { drag } = this
		this.drag = null
		if (!drag) return
		const [[x0, y0], [x1, y1]] = [drag.from, drag.to]
		if (x0 === x1 && y0 === y1) this.pick(x0, y0)
		else if (this.boxed) this.boxed([Math.min(x0, x1), Math.max(x0, x1)], [Math.min(y0, y1), Math.max(y0, y1)])
		else this.draw()
	}

	key(event) {
		const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key]
		if (step && this.moved) {
			event.preventDefault()
			this.moved(...step)
			announce(this.lines(this.input.current))
		} else if ((event.key === "Enter" || event.key === " ") && this.picked && this.input.current) {
			event.preventDefault()
			this.pick(...this.input.current)
		}
	}

	pick(x, y) {
		if (!this.picked) return
		this.picked(x, y, this.rowAt(y * this.cells.wide + x))
	}

	rowAt(cell) {
		const { row, failedRow } = this.cells
		return row[cell] >= 0 ? row[cell] : failedRow[cell]
	}

	update(input) {
		this.input = input
		this.cells = heatCells(input.ds, input)
		this.across = input.ds.parameter(input.x)
		this.down = input.ds.parameter(input.y)
		const { ns } = this.scaleCells(input)
		const worths = Array.from(ns).filter(one => one >= 0).map(one => input.unit.of(one, input.workload))
		this.least = Math.min(...worths)
		this.most = Math.max(...worths)
		this.draw()
	}

	// Colours mean the same whatever is selected: the scale is that of all rows.
	scaleCells(input) {
		const key = JSON.stringify([input.x, input.y, input.fixed, input.reduce, input.ds.rows])
		if (!input.mask) this.whole = { key, ds: input.ds, cells: this.cells }
		else if (!this.whole || this.whole.key !== key || this.whole.ds !== input.ds) {
			this.whole = { key, ds: input.ds, cells: heatCells(input.ds, { ...input, mask: null }) }
		}
		return this.whole.cells
	}

	share(ns) {
		const { unit, workload } = this.input
		const { least, most } = this
		if (!(most > least)) return 1
		return unit.more ? (unit.of(ns, workload) - least) / (most - least) : 1 - Math.log(ns / least) / Math.log(most / least)
	}

	// The first row of values is at the bottom, as on any chart.
	box(x, y) {
		const { left, stepX, stepY } = this
		return [left + x * stepX + 1, TOP + (this.cells.high - 1 - y) * stepY + 1, stepX - 2, stepY - 2]
	}

	cellAt(event) {
		if (!this.cells) return null
		const [px, py] = this.at(event)
		const x = Math.floor((px - this.left) / this.stepX)
		const y = this.cells.high - 1 - Math.floor((py - TOP) / this.stepY)
		const inside = x >= 0 && y >= 0 && x < this.cells.wide && y < this.cells.high
		return inside ? [x, y] : null
	}

	draw() {
		if (!this.cells) return
		const pen = this.begin()
		const { wide, high } = this.cells
		pen.font = SMALL_FONT
		const labels = this.down.labels.map(text => pen.measureText(text).width)
		this.left = this.small ? clamp(Math.max(...labels) + 26, 40, 70) : clamp(Math.max(...labels) + 34, 52, 120)
		this.stepX = (this.wide - this.left - 4) / wide
		this.stepY = (this.high - TOP - BOTTOM) / high
		for (let y = 0; y < high; y++) for (let x = 0; x < wide; x++) this.drawCell(pen, x, y)
		this.drawLabels(pen)
		this.drawMarkers(pen)
		if (this.drag) this.drawDrag()
	}

	drawCell(pen, x, y) {
		const { cells, input } = this
		const cell = y * cells.wide + x
		const box = this.box(x, y)
		const walk = input.walk
		const ns = walk ? walk.ns[cell] : cells.ns[cell]
		if (walk && !walk.tried[cell]) this.drawGhost(pen, cell, box)
		else if (ns >= 0) {
			const color = viridis(this.share(ns))
			this.fillCell(pen, box, rgb(color))
			this.drawValue(pen, inUnit(ns, input.unit, input.workload, false), box, inkOn(color))
			if (!walk && cells.tie[cell]) this.drawTie(pen, box, inkOn(color))
		} else if (walk || cells.failed[cell] >= 0) {
			const status = walk ? walk.failed[cell] : cells.failed[cell]
			this.drawFailed(pen, input.ds.statuses[status], box)
		} else this.drawUnmeasured(pen, box, cells.hidden[cell])
	}

	// What the search has not visited yet: the table shines through faintly.
	drawGhost(pen, cell, box) {
		const ns = this.cells.ns[cell]
		this.fillCell(pen, box, ns >= 0 ? rgb(viridis(this.share(ns)), theme().dark ? 0.22 : 0.16) : theme().faint)
	}

	drawValue(pen, text, [x, y, w, h], ink) {
		pen.font = h > 26 && w > 52 && !this.small ? FONT : SMALL_FONT
		if (h > 12 && pen.measureText(text).width < w - 3) this.text(text, x + w / 2, y + h / 2 + 0.5, ink)
	}

	drawTie(pen, box, ink) {
		pen.setLineDash([3, 2])
		this.outline(pen, box, ink, 1.5, 3)
		pen.setLineDash([])
	}

	drawFailed(pen, status, [x, y, w, h]) {
		const colors = theme()
		pen.save()
		this.fillCell(pen, [x, y, w, h], colors.faint)
		pen.clip()
		pen.strokeStyle = colors.bad
		pen.globalAlpha = 0.35
		pen.lineWidth = 1
		pen.beginPath()
		const leaning = statusGlyph(status).charCodeAt(0) % 2 === 0
		for (let at = -h; at < w; at += 7) {
			pen.moveTo(x + at, leaning ? y + h : y)
			pen.lineTo(x + at + h, leaning ? y : y + h)
		}
		pen.stroke()
		pen.restore()
		if (w < 12 || h < 12) return
		pen.font = `600 ${this.small ? SMALL_FONT : FONT}`
		this.text(statusGlyph(status), x + w / 2, y + h / 2 + 0.5, colors.bad)
	}

	drawUnmeasured(pen, box, hidden) {
		const { faint, edge } = theme()
		pen.setLineDash(hidden ? [] : [2, 3])
		this.outline(pen, box, edge, 1, 0.5)
		pen.setLineDash([])
		if (hidden) this.fillCell(pen, box, faint)
	}

	fillCell(pen, box, color) {
		roundBox(pen, ...box, 3)
		pen.fillStyle = color
		pen.fill()
	}

	drawLabels(pen) {
		const { soft, ink } = theme()
		const { wide, high } = this.cells
		const { stepX, stepY, left } = this
		const floor = TOP + high * stepY
		pen.font = SMALL_FONT
		const every = Math.ceil(28 / stepX)
		for (let x = 0; x < wide; x += every) {
			this.text(fitText(pen, this.across.labels[x], stepX * every - 2), left + (x + 0.5) * stepX, floor + 10, soft)
		}
		const everyRow = Math.ceil(12 / stepY)
		for (let y = 0; y < high; y += everyRow) {
			this.text(fitText(pen, this.down.labels[y], left - 22), left - 6, floor - (y + 0.5) * stepY, soft, "right")
		}
		pen.font = `600 ${SMALL_FONT}`
		this.text(this.across.name, left + (wide * stepX) / 2, floor + 27, ink)
		this.upright(this.down.name, 9, (TOP + floor) / 2, floor)
	}

	place(row) {
		return this.box(this.across.codes[row], this.down.codes[row])
	}

	drawMarkers(pen) {
		const { ds, current, clicked, searchBest } = this.input
		if (isRow(ds, clicked)) {
			this.outline(pen, this.place(clicked), "#ffffff", 5, 1)
			this.outline(pen, this.place(clicked), theme().accent, 3, 0)
		}
		if (current) {
			this.outline(pen, this.box(...current), "#ffffff", 3, 2.5)
			this.outline(pen, this.box(...current), "#10151c", 1.5, 2.5)
		}
		if (isRow(ds, searchBest)) drawSign(pen, 4, 1, ...corner(this.place(searchBest), 1), this.small ? 5 : 6, "#e69f00")
		if (ds.best >= 0) drawSign(pen, 10, 0.45, ...corner(this.place(ds.best), 0), this.small ? 6 : 8, "#ffffff")
		if (ds.disputed) drawSign(pen, 3, 1, ...corner(this.place(ds.quickest), 0), this.small ? 6 : 8, "#ffffff")
	}

	outline(pen, [x, y, w, h], color, width, inset) {
		pen.strokeStyle = color
		pen.lineWidth = width
		roundBox(pen, x + inset, y + inset, w - 2 * inset, h - 2 * inset, 3)
		pen.stroke()
	}

	drawDrag() {
		const [[x0, y0], [x1, y1]] = [this.drag.from, this.drag.to]
		const a = this.box(Math.min(x0, x1), Math.max(y0, y1))
		const b = this.box(Math.max(x0, x1), Math.min(y0, y1))
		this.rect(theme().accent, a[0], a[1], b[0] + b[2] - a[0], b[1] + b[3] - a[1], 0.25)
	}

	tip(cell, px, py) {
		showTip(px, py, this.lines(cell))
	}

	lines([x, y]) {
		const { cells, input } = this
		const { ds, workload } = input
		const cell = y * cells.wide + x
		const row = this.rowAt(cell)
		const head = `${this.across.name} = ${this.across.labels[x]}, ${this.down.name} = ${this.down.labels[y]}`
		if (row < 0) {
			return [head, ["", cells.hidden[cell] ? "outside the selection" : "never measured"]]
		}
		return [head, ...rowTip(ds, workload, row), ["configs in this cell", `${counted(cells.measured[cell])} of ${counted(cells.tried[cell])} measured`]]
	}

	csv(name) {
		const { input, cells } = this
		const rows = [[input.x, input.y, "trial", "time_ns", input.unit.label, "outcome", "configs", "tied_with_best"]]
		for (let y = 0; y < cells.high; y++) {
			for (let x = 0; x < cells.wide; x++) {
				const cell = y * cells.wide + x
				const hidden = cells.hidden[cell]
				const ns = (hidden ? this.whole.cells : cells).ns[cell]
				const outcome = hidden ? "outside the selection" : ns >= 0 ? "ok" : cells.failed[cell] >= 0 ? input.ds.statuses[cells.failed[cell]] : "unmeasured"
				rows.push([
					this.across.labels[x], this.down.labels[y], cells.row[cell] >= 0 ? cells.row[cell] + 1 : "", ns,
					ns >= 0 ? input.unit.of(ns, input.workload) : NaN, outcome, cells.tried[cell], cells.tie[cell]
				])
			}
		}
		saveCsv(rows, `${name}.csv`)
	}
}

const corner = ([x, y, w, h], right) => [right ? x + w - Math.min(10, w / 2) : x + Math.min(10, w / 2), y + Math.min(10, h / 2)]

const isRow = (ds, row) => Number.isInteger(row) && row >= 0 && row < ds.rows

function drawSign(pen, points, inner, x, y, r, color) {
	pen.beginPath()
	for (let i = 0; i < points; i++) {
		const size = i % 2 ? r * inner : r
		const turn = (2 * Math.PI * i) / points - Math.PI / 2
		pen.lineTo(x + size * Math.cos(turn), y + size * Math.sin(turn))
	}
	pen.closePath()
	pen.fillStyle = color
	pen.strokeStyle = "#10151c"
	pen.lineWidth = 1.5
	pen.fill()
	pen.stroke()
}

export function rowTip(ds, workload, row) {
	const ns = ds.value(row, "median_ns")
	const low = ds.value(row, "low_ns")
	return [
		["config", configText(ds.config(row))],
		["outcome", statusText(ds.status(row))],
		...(ns >= 0 ? [
			["time", nanoseconds(ns, 4)],
			low >= 0 && ["95 % interval", `${nanoseconds(low, 4)} to ${nanoseconds(ds.value(row, "high_ns"), 4)}`],
			workload.flops && ["TFLOP/s", digits(workload.flops / ns / 1e3)],
			workload.bytes && ["GB/s", digits(workload.bytes / ns)],
			["of the fastest", percent(ds.share(ns))],
			workload.roofline_ns && ["of the roofline", percent(workload.roofline_ns / ns)],
			["", ds.standingText(row)]
		] : []),
		ds.error(row) && ["error", ds.error(row).slice(0, 160)],
		["cost", `${digits(ds.value(row, "cost_s"))} s`]
	]
}
