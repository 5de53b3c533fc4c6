// Starts the page.

import { App, measuring } from "./app.js";
import { CompareView } from "./compare.js";
import { CostView } from "./cost.js";
import { note } from "./dom.js";
import { FrontierView } from "./frontier.js";
import { LiveView } from "./live.js";
import { SearchView } from "./search.js";
import { openSource } from "./source.js";
import { SpaceView } from "./space.js";
import { Tour } from "./tour.js";
import { TrialView } from "./trial.js";
import { WorkloadsView } from "./workloads.js";

const VIEW_CLASSES = {
	workloads: { title: "Workloads", View: WorkloadsView },
	space: { title: "Space", View: SpaceView },
	search: { title: "Search", View: SearchView },
	cost: { title: "Cost", View: CostView },
	frontier: { title: "Frontier", View: FrontierView },
	compare: { title: "Compare", View: CompareView },
	trial: { title: "Trial", View: TrialView },
	live: { title: "Live", View: LiveView }
}

function begin(source) {
	const linked = location.hash.length > 1
	const app = new App(source, VIEW_CLASSES)
	const tour = new Tour(app)
	app.tour = () => tour.go(0)
	app.started = () => app.about.sample && !linked && app.firstVisit() && tour.go(0)
	measuring(app)
	return app.start()
}

openSource().then(begin, error => document.getElementById("main").append(note(`The data of this page cannot be read: ${error.message}`, "bad")))
