/** The column on the right: one panel at a time, chosen by tabs. */

import { button, el, fill, icon } from "./dom.js";

export function createSide(app, registered) {
	const panels = Object.fromEntries(registered.map(one => [one.id, one.mount(app)]));
	const tabs = registered.map(({ id, title, icon: picture = id }) =>
		el(
			"button",
			{ type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "side-panel", data: { tab: id }, onclick: () => app.go({ panel: id }) },
			icon(picture),
			title,
		),
	);
	const body = el("div.panel", { id: "side-panel", role: "tabpanel", tabIndex: 0 });
	const strip = el("div.tabs", { role: "tablist", "aria-label": "Details", onkeydown: walk }, tabs);
	const root = el("div.side", el("header", strip, button("Close the details", "tool", app.closeSide, "close")), body);
	let shown = null;

	/** Arrow keys move along the tabs. */
	function walk(event) {
		const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		if (!step) return;
		const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
		next.focus();
		next.click();
	}

	/** Show a panel, or none: calls `show(subject)` of the new one and `hide()` of the old one. */
	function show(id, subject) {
		const panel = panels[id] ?? null;
		if (shown !== panel) {
			shown?.hide?.();
			for (const tab of tabs) {
				const isOn = tab.dataset.tab === id;
				tab.setAttribute("aria-selected", String(isOn));
				tab.tabIndex = isOn ? 0 : -1;
			}
			body.setAttribute("aria-labelledby", `tab-${id}`);
			body.dataset.panel = id;
			fill(body, panel?.root);
			body.scrollTop = 0;
		}
		shown = panel;
		panel?.show(subject);
		app.store.set({ side: panel !== null });
	}

	return { root, panels, show, isFor: id => shown === panels[id] };
}

/** An empty or failed panel. */
export const emptyPanel = (picture, title, text, ...more) => el("div.empty", icon(picture), el("h2", title), el("p", text), more);

/** Fetch and show; drop late answers, show errors in place. */
export function loader(root) {
	let latest = 0;
	return async (fetching, draw, isQuiet = false) => {
		const mine = (latest += 1);
		if (!isQuiet) fill(root, el("p.hint", { role: "status" }, "Loading…"));
		try {
			const found = await fetching();
			if (mine === latest) draw(found);
		} catch (error) {
			if (mine === latest && !isQuiet) fill(root, emptyPanel("warn", "That didn't work", error.message));
		}
	};
}
