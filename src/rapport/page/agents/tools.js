/** The tools of an agent: those of Rapport, those of each server, and which of them it uses without asking. */

import { el, fill } from "../dom.js";
import { count } from "../times.js";

const OWN = {
	upsert_memory: "Save a memory",
	follow_up: "Plan a follow-up",
	set_reminder: "Set a reminder",
	get_smart_context: "In a group: load the discussion around a message",
	get_conversation_history: "In a group: load older messages",
	get_message: "In a group: look up a message",
	search_conversation: "In a group: search the chat",
	search_notes: "Search the notes once more",
	search_memories: "Search what it remembers",
	current_time: "Look at the clock",
};
const FEW = 8; // the tools of a server that has more are folded
const serverOf = name => (name.includes("__") ? name.slice(0, name.indexOf("__")) : "");
const isAll = name => name.endsWith("__*");

/** Two controls, as `fieldOf` takes them: `chosen` for `tools`, `free` for `tools_without_approval`. */
export function createToolChoice({ tools, servers }, isOperator) {
	const known = new Map(tools.map(tool => [tool.name, tool]));
	const defaults = tools.filter(tool => tool.is_default).map(tool => tool.name);
	const chosen = { names: new Set(), order: [] };
	const free = { names: new Set(), order: [] };
	const list = el("div.stack");
	const freeList = el("div");
	let rows = [];

	const has = name => chosen.names.has(name) || chosen.names.has(`${serverOf(name)}__*`);
	const asks = name => isAll(name) || (serverOf(name) && known.get(name)?.only_reads !== true);
	const labelOf = name => (isAll(name) ? "All its tools, also later ones" : (OWN[name] ?? name.slice(serverOf(name) && serverOf(name).length + 2)));

	/** The boxes, once for each stored agent: ticking one only changes what hangs on it. */
	function draw() {
		const names = new Set([...known.keys(), ...chosen.order, ...free.order]);
		const groups = new Map([["", new Set()]]);
		const join = (server, name) => groups.set(server, (groups.get(server) ?? new Set()).add(name));
		for (const server of [...servers.map(one => one.name), ...tools.map(tool => tool.server).filter(Boolean)]) join(server, `${server}__*`);
		for (const name of names) join(serverOf(name), name);
		rows = [];
		fill(list, [...groups].map(([server, members]) => (server ? serverGroup(server, [...members]) : el("div", [...members].map(row)))));
		follow();
	}

	function serverGroup(server, members) {
		const found = servers.find(one => one.name === server);
		const isThere = members.some(name => known.has(name));
		const told = found?.problem ? `not connected: ${found.problem}` : found?.state === "connecting" ? "being connected" : isThere || found ? "" : "not connected";
		const title = el("summary", el("b", server), " ", el("small", { data: { server } }));
		return el("details.tool-server", { open: members.length <= FEW || Boolean(told) }, title, told && el("p.field-error", `This server is ${told}.`), members.map(row));
	}

	function row(name) {
		const tool = known.get(name);
		const box = el("input", { type: "checkbox", value: name, onchange: () => tick(box) });
		rows.push({ name, box, isFixed: Boolean(serverOf(name)) && !isOperator && !chosen.order.includes(name) });
		const isMissing = serverOf(name) && !tool && !isAll(name);
		const help = isMissing ? "Not there now. The agent keeps it." : serverOf(name) && tool?.description;
		return el("label.tick", box, el("span", labelOf(name), OWN[name] && [" ", el("code", name)], tool && asks(name) && el("i", " changes something"), help && el("small.tool-help", { dir: "auto", title: help }, help)));
	}

	function tick({ value, checked }) {
		if (checked) chosen.names.add(value);
		else chosen.names.delete(value);
		for (const name of free.names) if (!has(name)) free.names.delete(name);
		follow();
	}

	/** Bring everything in line with what is chosen. */
	function follow() {
		for (const { name, box, isFixed } of rows) {
			const isCovered = !isAll(name) && serverOf(name) && chosen.names.has(`${serverOf(name)}__*`);
			box.checked = has(name);
			box.disabled = isFixed || isCovered;
		}
		for (const place of list.querySelectorAll("[data-server]")) {
			const members = rows.filter(one => serverOf(one.name) === place.dataset.server && !isAll(one.name));
			place.textContent = members.length === 0 ? "" : `${members.filter(one => one.box.checked).length} of ${count(members.length, "tool")} chosen`;
		}
		drawFree();
	}

	function drawFree() {
		const names = [...new Set([...rows.map(one => one.name), ...free.order])].filter(name => serverOf(name) && asks(name) && has(name));
		fill(freeList, names.length ? names.map(freeRow) : el("p.hint", "None of its tools changes something outside, so it never has to ask."));
	}

	function freeRow(name) {
		const isCovered = !isAll(name) && free.names.has(`${serverOf(name)}__*`);
		const onchange = ({ target }) => {
			if (target.checked) free.names.add(name);
			else free.names.delete(name);
			if (!isAll(name)) return;
			drawFree();
			[...freeList.querySelectorAll("input")].find(one => one.value === name).focus();
		};
		const isFixed = !isOperator && !free.order.includes(name);
		const box = el("input", { type: "checkbox", value: name, checked: isCovered || free.names.has(name), disabled: isCovered || isFixed, onchange });
		return el("label.tick", box, el("span", isAll(name) ? `All tools of ${serverOf(name)}` : name));
	}

	const control = (legend, place) => el("fieldset", el("legend", legend), place);
	const listNames = ({ names, order }) => [...new Set([...order, ...known.keys(), ...names])].filter(name => names.has(name));
	const isDefault = names => names.length === defaults.length && names.every(name => defaults.includes(name));
	const keep = (choice, value) => Object.assign(choice, { names: new Set(value), order: value });

	return {
		chosen: {
			control: control("It may use", list),
			read: () => (isDefault(listNames(chosen)) ? null : listNames(chosen)),
			put(value) {
				keep(chosen, value ?? defaults);
				draw();
			},
		},
		free: {
			control: control("Without asking", freeList),
			read: () => (free.names.size ? listNames(free) : null),
			put(value) {
				keep(free, value ?? []);
				draw();
			},
		},
	};
}
