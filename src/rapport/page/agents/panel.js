/** The agents that you may use: talk with them, make, change, copy, reset and delete them. */

import { dialog } from "../dialogs.js";
import { button, el, fill, icon } from "../dom.js";
import { emptyPanel, loader } from "../side.js";
import { createEditor } from "./editor.js";

export const NEW = "+"; // no agent has this id

await new Promise(resolve => {
	document.head.append(el("link", { rel: "stylesheet", href: "/page/agents/agents.css", onload: resolve, onerror: resolve }));
});

export function createPanel(app, root) {
	const { api, store } = app;
	const { state } = store;
	const load = loader(root);
	const editors = new Map(); // those with unsaved changes stay, by the agent's id
	let defaults = null;
	let tools = null;
	let shown = null;

	store.watch(["agents"], () => shown === "" && app.isShown("agents") && draw());

	async function show(subject) {
		const wanted = subject ?? "";
		if (wanted && wanted === shown) return;
		const left = shown;
		const before = editors.get(left);
		if (before && !before.isChanged()) editors.delete(shown);
		shown = wanted;
		if (!wanted) {
			draw(before && `Edit-${left}`);
			await refresh().catch(app.tell);
		} else if (editors.has(wanted)) put(editors.get(wanted));
		else load(() => fetchFor(wanted), detail => wanted === shown && edit(wanted, detail));
	}

	const refresh = async () => store.set({ agents: (await api.get("/api/agents")).agents });

	async function fetchFor(id) {
		[defaults, tools] = await Promise.all([defaults ?? api.get("/api/agent-defaults"), api.get("/api/tools")]);
		return id === NEW ? null : api.get(`/api/agents/${encodeURIComponent(id)}`);
	}

	function edit(id, detail) {
		if (detail && !detail.may_edit) {
			const text = `${detail.description} Only an operator may change this agent.${detail.may_copy ? " You can copy it." : ""}`;
			return fill(root, back(), emptyPanel("spark", detail.name, text, el("div.row", talkButton(detail), detail.may_copy && copyButton(detail))));
		}
		const editor = createEditor(app, { defaults, tools, detail, leave, talk, refresh, back, onSaved });
		editors.set(id, editor);
		put(editor);
	}

	function put(editor) {
		fill(root, editor.root);
		editor.focus();
	}

	/** A new agent was stored: it is edited under its own address from now on. */
	function onSaved(editor, id) {
		if (shown === id) return;
		editors.delete(shown);
		editors.set(id, editor);
		shown = id;
		app.go({ panel: "agents", subject: id });
	}

	const leave = () => open(null);
	const open = subject => app.go({ panel: "agents", subject });
	const back = () => button("All agents", "link", leave, "back");

	async function talk(id) {
		await app.beginWith({ agent: id, kind: "direct" });
		document.getElementById("composer")?.focus();
	}

	/* The list */

	function draw(wanted = null) {
		const focused = wanted ?? (root.contains(document.activeElement) && document.activeElement.dataset.act);
		const isEmpty = !state.agents.length;
		const make = button("New agent", "primary small", () => open(NEW), "plus", { data: { act: "new" } });
		fill(
			root,
			el("p.lead", "An agent has a character, a model and rules of its own. Each change is kept as a version."),
			el("div.row", make, editors.has(NEW) && el("small", "Not saved yet: your new agent.")),
			isEmpty ? el("p.hint", "Loading…") : el("ul.agent-list", { "aria-label": "Agents" }, state.agents.map(item)),
		);
		if (focused && !document.querySelector("dialog")) (root.querySelector(`[data-act="${focused}"]`) ?? make).focus({ preventScroll: true });
		else if (root.contains(document.activeElement) || document.activeElement === document.body) make.focus({ preventScroll: true });
	}

	const act = (agent, label, kind, work, picture) =>
		button(label, kind, work, picture, { "aria-label": `${label} ${label === "Talk" ? "with " : ""}${agent.name}`, data: { act: `${label}-${agent.id}` } });
	const talkButton = agent => act(agent, "Talk", "small primary", () => talk(agent.id));
	const copyButton = agent => act(agent, "Copy", "small quiet", () => copy(agent));

	function item(agent) {
		const { id, name, description, model, version, is_shipped: isShipped, may_edit: mayEdit, may_copy: mayCopy } = agent;
		return el(
			"li.card",
			{ data: { agentId: id } },
			el("h3", { dir: "auto" }, name),
			description && el("p", { dir: "auto" }, description),
			el(
				"p.hint",
				`${model || "The server's model"} · version ${version}`,
				isShipped ? " · ships with Rapport" : agent.for_everyone ? " · for everyone" : "",
				editors.get(id)?.isChanged() && el("b", " · unsaved changes"),
			),
			el(
				"div.row",
				talkButton(agent),
				mayEdit && act(agent, "Edit", "small", () => open(id)),
				mayCopy && copyButton(agent),
				mayEdit && isShipped && version > 1 && act(agent, "Reset", "small quiet", () => reset(agent)),
				mayEdit && !isShipped && act(agent, "Delete", "small quiet", () => remove(agent)),
			),
		);
	}

	async function copy({ id, name }) {
		const names = new Set(state.agents.map(one => one.name));
		let wanted = `${name} (copy)`;
		for (let i = 2; names.has(wanted); i += 1) wanted = `${name} (copy ${i})`;
		try {
			const made = await api.post(`/api/agents/${encodeURIComponent(id)}/copy`, { name: [...wanted].slice(0, 80).join("") });
			app.toast(`“${made.name}” is a copy of “${name}”.`);
			open(made.id);
		} catch (error) {
			app.tell(error);
		}
	}

	async function reset({ id, name }) {
		try {
			await api.post(`/api/agents/${encodeURIComponent(id)}/reset`);
			editors.delete(id);
			await refresh();
			app.toast(`“${name}” is as it ships. What it was before is under Versions.`);
		} catch (error) {
			app.tell(error);
		}
	}

	async function remove({ id, name }) {
		const isSure = await dialog(`Delete “${name}”?`, close =>
			el(
				"div.stack",
				el("p", "Its versions and what it remembers are deleted too. Its conversations stay, and the Companion answers there."),
				el("div.row.end", button("Keep it", "quiet", () => close(), null, { autofocus: true }), button("Delete it", "primary", () => close(true), "trash")),
			),
		);
		if (!isSure) return;
		try {
			await api.delete(`/api/agents/${encodeURIComponent(id)}`);
			editors.delete(id);
			await refresh();
			app.toast(`“${name}” was deleted.`);
		} catch (error) {
			app.tell(error);
		}
	}

	root.addEventListener("keydown", event => {
		if (event.key !== "Escape" || event.defaultPrevented || !shown) return;
		event.preventDefault();
		leave();
	});

	return { show };
}
