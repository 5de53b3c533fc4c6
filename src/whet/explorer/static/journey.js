// The doctor's report of a model, in a frame where nothing runs.

import { el, fill, note } from "./dom.js"
import { View } from "./view.js"

export class JourneyView extends View {
	async render() {
		const { id, journey } = this.workload || {}
		const { theme } = document.documentElement.dataset
		const key = journey ? `${id} ${theme}` : ""
		if (key === this.key0) return
		this.key0 = key
		const waiting = note(journey ? "Reading the journey…" : "No journey was kept: run whet doctor with --report.")
		fill(this.root, waiting)
		if (!journey) return
		const src = await this.source.journey(id, theme).catch(error => fill(this.root, note(error.message, "bad")) && null)
		if (src && this.key0 === key) this.root.append(el("iframe", { sandbox: "", title: "journey", src, onload: () => waiting.remove() }))
	}
}
