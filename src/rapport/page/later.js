/** Panels whose code is loaded when they are first opened. */

import { el } from "./dom.js";
import { loader } from "./side.js";

const later = (id, title, icon, fetched) => ({ id, title, icon, mount: app => mount(app, id, fetched) });

export const agents = later("agents", "Agents", "spark", () => import("./agents/panel.js"));
export const insight = later("insight", "Insight", "insight", () => import("./insight/panel.js"));

function mount(app, id, fetched) {
	const root = el(`div.${id}`);
	const load = loader(root);
	let panel = null;

	function show(subject) {
		if (panel) return panel.show(subject);
		load(fetched, loaded => {
			panel ??= loaded.createPanel(app, root);
			panel.show(subject);
		});
	}

	return { root, show };
}
