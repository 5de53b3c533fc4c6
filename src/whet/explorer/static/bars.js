// Horizontal bars.

import { SMALL_FONT, Surface, fitText } from "./canvas.js"
import { SERIES, theme } from "./colors.js"
import { announce, clamp, hideTip, saveCsv, showTip } from "./dom.js"

const BAR_STEP = 22
const MOST_NAMES = 150

export class Bars extends Surface {
	constructor(parent, { clicked, color = SERIES[0], ...rest }) {
		super(parent, { focus: Boolean(clicked), color, ...rest })
		this.list = []
		this.chosen = -1
		const under = event => this.list[Math.floor((this.at(event)[1] - 5) / BAR_STEP)]
		this.on({
			click: event => clicked && under(event) && clicked(under(event)),
			pointermove: event => {
				const one = under(event)
				if (one) showTip(event.clientX, event.clientY, [one.name, ["", one.text]])
				else hideTip()
			},
			keydown: event => {
				const step = { ArrowUp: -1, ArrowDown: 1 }[event.key]
				if (step) {
					event.preventDefault()
					this.chosen = clamp(this.chosen + step, 0, this.list.length - 1)
					this.draw()
					if (this.list[this.chosen]) announce([this.list[this.chosen].name, this.list[this.chosen].text])
				} else if (event.key === "Enter" && clicked && this.list[this.chosen]) clicked(this.list[this.chosen])
			}
		})
	}

	// `list`: [{name, value, low, high, outer, text}]; `outer` is drawn faintly around it.
	update(list) {
		this.list = list
		this.draw()
	}

	draw() {
		const { list } = this
		const pen = this.begin(12 + BAR_STEP * Math.max(1, list.length))
		const { ink, accent } = theme()
		pen.font = SMALL_FONT
		const names = Math.min(MOST_NAMES, 0.32 * this.wide)
		const texts = Math.min(0.42 * this.wide, Math.max(40, ...list.map(one => pen.measureText(one.text).width)))
		const reached = one => Math.max(one.value, one.high || 0, one.outer || 0)
		const most = Math.max(...list.map(reached), 1e-12)
		const long = value => ((this.wide - names - texts - 16) * Math.max(0, value)) / most
		list.forEach((one, i) => {
			const y = 16 + BAR_STEP * i
			this.text(fitText(pen, one.name, names - 12), names - 8, y, ink, "right")
			if (one.outer > 0) this.rect(this.color, names, y - 7, long(one.outer), 14, 0.3)
			this.rect(this.color, names, y - 7, Math.max(1, long(one.value)), 14)
			if (Number.isFinite(one.low) && Number.isFinite(one.high)) {
				const [low, high] = [names + long(one.low), names + long(one.high)]
				this.line(ink, 1.5, [low, y], [high, y])
				for (const end of [low, high]) this.line(ink, 1.5, [end, y - 4], [end, y + 4])
			}
			this.text(fitText(pen, one.text, texts + 2), names + long(reached(one)) + 8, y, ink, "left")
			if (i !== this.chosen || document.activeElement !== this.canvas) return
			pen.strokeStyle = accent
			pen.strokeRect(names - 1, y - 9, this.wide - names - 2, 18)
		})
	}

	csv(name) {
		saveCsv([["name", "value", "low", "high"], ...this.list.map(one => [one.name, one.value, one.low, one.high])], `${name}.csv`)
	}
}
