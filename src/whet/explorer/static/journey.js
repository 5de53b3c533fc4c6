// The doctor's report of a model, in a frame where nothing runs.

import { el, fill, note } from "./dom.js"
import { View } from "./view.js"

export class JourneyView extends View {
	render() {
		const { id, journey } = this.workload || {}
		const path = journey && `workloads/${id}/journey?theme=${document.documentElement.dataset.theme}`
		if (path && path === this.path) return
		this.path = path
		fill(this.root, path ? el("iframe", { sandbox: "", title: "journey", src: this.source.url(path) }) : note("No journey was kept: run whet doctor with --report."))
	}
}
