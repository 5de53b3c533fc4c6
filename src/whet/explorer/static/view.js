// What every view has: the application, and short ways to what is looked at.

export class View {
	constructor(app, root) {
		this.app = app
		this.root = root
	}

	get ds() {
		return this.app.ds
	}
	get workload() {
		return this.app.workload
	}
	get workloads() {
		return this.app.workloads
	}
	get importance() {
		return this.app.importance
	}
	get source() {
		return this.app.source
	}
	get now() {
		return this.app.state.now
	}
	// The selected rows.
	get chosen() {
		return this.app.selection()
	}
	set(patch) {
		this.app.state.set(patch)
	}
	// Opens a trial.
	open(row) {
		this.set({ row, view: "trial" })
	}
}
