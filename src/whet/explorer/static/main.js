// Starts the page.

import { App } from "./app.js"
import { CompareView } from "./compare.js"
import { CostView } from "./cost.js"
import { note } from "./dom.js"
import { FrontierView } from "./frontier.js"
import { JourneyView } from "./journey.js"
import { LiveView } from "./live.js"
import { SearchView } from "./search.js"
import { openSource } from "./source.js"
import { SizesView } from "./sizes.js"
import { SpaceView } from "./space.js"
import { timings } from "./timings.js"
import { Tour } from "./tour.js"
import { TrialView } from "./trial.js"
import { WorkloadsView } from "./workloads.js"

const VIEW_CLASSES = {
	Workloads: WorkloadsView,
	Space: SpaceView,
	Search: SearchView,
	Cost: CostView,
	Frontier: FrontierView,
	Compare: CompareView,
	Sizes: SizesView,
	Trial: TrialView,
	Live: LiveView,
	Journey: JourneyView
}

function begin(source) {
	const linked = location.hash.length > 1
	const app = new App(source, Object.fromEntries(Object.entries(VIEW_CLASSES).map(([title, View]) => [title.toLowerCase(), { title, View }])))
	const tour = new Tour(app)
	app.tour = () => tour.go(0)
	app.started = () => app.about.sample && !linked && app.firstVisit() && tour.go(0)
	timings.app = app
	return app.start()
}

openSource().then(begin, error => document.getElementById("main").append(note(`The data of this page cannot be read: ${error.message}`, "bad")))
