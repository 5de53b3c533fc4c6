// The doctor's report of a model, in a frame where nothing runs.

import { el, fill, note } from "./dom.js";
import { View } from "./view.js";

export class JourneyView extends View {
	render() {
		const { id, journey } = this.workload || {}
		if (this.shown === id) return
		this.shown = id
		fill(this.root, journey ? el("iframe", { sandbox: "", title: "journey", src: this.source.url(`workloads/${id}/journey`) }) : note("No journey was kept: run whet doctor with --report."))
	}
}
