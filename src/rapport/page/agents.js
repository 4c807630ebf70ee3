/** Agents: the list and the editor. Their code is loaded when they are first opened. */

import { el } from "./dom.js";
import { loader } from "./side.js";

export const agents = { id: "agents", title: "Agents", icon: "spark", mount };

function mount(app) {
	const root = el("div.agents");
	const load = loader(root);
	let panel = null;

	function show(subject) {
		if (panel) return panel.show(subject);
		load(() => import("./agents/panel.js"), loaded => {
			panel ??= loaded.createPanel(app, root);
			panel.show(subject);
		});
	}

	return { root, show };
}
