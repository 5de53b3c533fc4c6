// Starts the page: which views there are, in the order of their tabs.

import { App, measuring } from "./app.js";
import { openSource } from "./source.js";
import { SpaceView } from "./space.js";
import { WorkloadsView } from "./workloads.js";

const views = {
  workloads: { title: "Workloads", View: WorkloadsView },
  space: { title: "Space", View: SpaceView },
};

const app = new App(openSource(), views);
measuring(app);
app.start();
