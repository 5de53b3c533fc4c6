// Horizontal bars.

import { Grid, SMALL_FONT, fitText } from "./canvas.js"
import { SERIES, theme } from "./colors.js"
import { saveCsv } from "./dom.js"

const BAR_STEP = 22
const MOST_NAMES = 150

export class Bars extends Grid {
	constructor(parent, { clicked, color = SERIES[0], ...rest }) {
		super(parent, { focus: Boolean(clicked), color, picked: (_, i) => clicked?.(this.list[i]), ...rest })
		this.list = []
	}

	get cells() {
		return [1, this.list.length]
	}

	cellUnder(event) {
		return this.within(0, Math.floor((this.at(event)[1] - 5) / BAR_STEP))
	}

	tip(_, i) {
		return [this.list[i].name, this.list[i].text]
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
			if (i !== this.cursor?.[1] || document.activeElement !== this.canvas) return
			pen.strokeStyle = accent
			pen.strokeRect(names - 1, y - 9, this.wide - names - 2, 18)
		})
	}

	csv(name) {
		saveCsv([["name", "value", "low", "high", "with_others"], ...this.list.map(one => [one.name, one.value, one.low, one.high, one.outer])], `${name}.csv`)
	}
}
