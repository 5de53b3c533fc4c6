// Canvases, ticks, and pictures of them.

import { rgb, theme, viridis } from "./colors.js"
import { announce, clamp, el, hideTip, showTip } from "./dom.js"
import { plainly } from "./format.js"

export const FONT = '12px ui-sans-serif, system-ui, "Segoe UI", sans-serif'
export const SMALL_FONT = '11px ui-sans-serif, system-ui, "Segoe UI", sans-serif'

// A chart draws its `input`; `acts` are what it calls when somebody acts on it.
export class Surface {
	constructor(parent, { height = 100, label, focus = true, ...acts }) {
		// What acts on keys takes them from whoever reads the page aloud.
		this.canvas = el("canvas", { role: focus ? "application" : "img", "aria-label": label, tabindex: focus ? 0 : null })
		this.parent = parent
		this.high = height
		Object.assign(this, acts)
		parent.append(this.canvas)
		// A canvas whose pixels are read back and repainted often is quicker in memory.
		this.pen = this.canvas.getContext("2d", { willReadFrequently: true })
		this.on({ pointerleave: hideTip, blur: hideTip })
	}

	on(heard) {
		for (const [name, act] of Object.entries(heard)) this.canvas.addEventListener(name, act, { passive: false })
	}

	hold(event) {
		this.canvas.setPointerCapture(event.pointerId)
	}

	rect(color, x, y, wide, high, alpha = 1) {
		const { pen } = this
		pen.globalAlpha = alpha
		pen.fillStyle = color
		pen.fillRect(x, y, wide, high)
		pen.globalAlpha = 1
	}

	text(text, x, y, color = theme().ink, align = "center") {
		this.pen.fillStyle = color
		this.pen.textAlign = align
		this.pen.fillText(plainly(text), x, y)
	}

	upright(text, x, y, room) {
		const { pen } = this
		pen.save()
		pen.translate(x, y)
		pen.rotate(-Math.PI / 2)
		this.text(fitText(pen, text, room), 0, 0)
		pen.restore()
	}

	line(color, wide, ...points) {
		this.path(color, wide, points)
	}

	// A list, as there may be more points than a call can have arguments.
	path(color, wide, points) {
		const { pen } = this
		pen.strokeStyle = color
		pen.lineWidth = wide
		pen.beginPath()
		points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)))
		pen.stroke()
	}

	// As narrow as it can still be read.
	get narrowest() {
		return 120
	}

	begin(height = this.high) {
		const wide = Math.max(this.narrowest, Math.floor(this.parent.clientWidth))
		const ratio = Math.min(3, window.devicePixelRatio || 1)
		this.wide = wide
		this.high = height
		if (!this.lent) this.size(wide, height, ratio)
		this.pen.fillStyle = theme().panel
		this.pen.fillRect(0, 0, wide, height)
		this.pen.font = FONT
		this.pen.textBaseline = "middle"
		return this.pen
	}

	size(wide, height, ratio) {
		const w = Math.round(wide * ratio)
		const h = Math.round(height * ratio)
		if (this.canvas.width !== w || this.canvas.height !== h) {
			this.canvas.width = w
			this.canvas.height = h
			this.canvas.style.width = `${wide}px`
			this.canvas.style.height = `${height}px`
		}
		this.pen.setTransform(ratio, 0, 0, ratio, 0, 0)
	}

	// Draws with another pen, which has its own place and scale.
	drawWith(pen) {
		const own = this.pen
		Object.assign(this, { pen, lent: true })
		try {
			this.draw()
		} finally {
			Object.assign(this, { pen: own, lent: false })
		}
	}

	at(event) {
		const box = this.canvas.getBoundingClientRect()
		return [event.clientX - box.left, event.clientY - box.top]
	}

	outside(x, y) {
		const box = this.canvas.getBoundingClientRect()
		return [box.left + x, box.top + y]
	}
}

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }

// A grid of what can be pointed at and opened. A chart has `cells`, columns and rows, `cellUnder(event)`,
// `tip(x, y)` and `picked(x, y)`.
export class Grid extends Surface {
	constructor(parent, options) {
		super(parent, options)
		this.on({
			pointermove: event => {
				const cell = this.cellUnder(event)
				if (cell) showTip(event.clientX, event.clientY, this.tip(...cell))
				else hideTip()
			},
			click: event => this.pick(this.cellUnder(event)),
			keydown: event => this.key(event)
		})
	}

	within(x, y) {
		const [wide, high] = this.cells
		return x >= 0 && y >= 0 && x < wide && y < high ? [x, y] : null
	}

	pick(cell) {
		if (cell && this.picked) this.picked(...cell)
	}

	key(event) {
		const move = MOVES[event.key]
		if (event.key === "Enter") this.pick(this.cursor)
		if (!move) return
		event.preventDefault()
		const [x, y] = this.cursor || move.map(by => -by)
		const [wide, high] = this.cells
		this.cursor = [clamp(x + move[0], 0, wide - 1), clamp(y + move[1], 0, high - 1)]
		this.draw()
		announce(this.tip(...this.cursor))
	}
}

// The scale of colours, for a legend.
export function gradient() {
	const bar = el("i.gradient")
	bar.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(s => rgb(viridis(s))).join(",")})`
	return bar
}

export function ticks(low, high, wanted = 5) {
	if (!(high > low)) return [low]
	const rough = (high - low) / wanted
	const power = 10 ** Math.floor(Math.log10(rough))
	const step = [1, 2, 5, 10].map(m => m * power).find(one => one >= rough * 0.999)
	const made = []
	for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); at++) made.push(at * step || 0)
	return made
}

export function logTicks(low, high) {
	const powers = []
	for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) powers.push(10 ** power)
	const within = one => one >= low * 0.999 && one <= high * 1.001
	const made = powers.flatMap(one => [one, 2 * one, 5 * one]).filter(within)
	const decades = powers.filter(within)
	return made.length > 8 && decades.length > 1 ? decades : made.length ? made : [low, high]
}

export function fitText(pen, text, wide) {
	if (pen.measureText(text).width <= wide) return text
	// Names of one kernel often begin alike, so that the end has to stay.
	const cut = count => `${text.slice(0, Math.ceil(count / 2))}…${text.slice(text.length - Math.floor(count / 2))}`
	let count = Math.max(1, Math.floor((text.length * wide) / pen.measureText(text).width))
	while (count > 1 && pen.measureText(cut(count)).width > wide) count--
	return cut(count)
}

export function roundBox(pen, x, y, w, h, r) {
	pen.beginPath()
	pen.roundRect(x, y, Math.max(0, w), Math.max(0, h), r)
}
