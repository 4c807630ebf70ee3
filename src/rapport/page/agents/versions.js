/** The versions of an agent: who changed what, and back to an earlier one. */

import { button, el, fill } from "../dom.js";
import { loader } from "../side.js";
import { fullTime, momentName } from "../times.js";
import { isSame } from "./fields.js";

const LONGEST = 240;

const isPart = value => value !== null && typeof value === "object" && !Array.isArray(value);

/** The changed leaves of a change: `[path, before, after]`. */
function leavesOf(path, before, after) {
	if (!isPart(before) && !isPart(after)) return isSame(before, after) ? [] : [[path, before, after]];
	const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
	return [...names].flatMap(name => leavesOf(`${path}.${name}`, before?.[name], after?.[name]));
}

function words(value) {
	if (value === null || value === undefined || value === "") return "default";
	if (typeof value === "boolean") return value ? "on" : "off";
	if (Array.isArray(value)) return value.map(one => (isPart(one) ? one.text : one)).join(", ") || "none";
	return String(value);
}

const short = text => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);
const nameField = path => path.replaceAll("_", " ").replaceAll(".", ": ");

/** `detail()` is the agent; `onRestored(agent)` gets it after a restore. */
export function createVersions(app, { detail, onRestored }) {
	const list = el("div");
	const root = el("details.card", { ontoggle: () => root.open && load() }, el("summary", "Versions"), list);
	const fetchInto = loader(list);
	let versions = [];

	const path = () => `/api/agents/${encodeURIComponent(detail().id)}/versions`;

	function load(before = null) {
		fetchInto(
			() => app.api.get(`${path()}${before ? `?before=${before}` : ""}`),
			found => {
				versions = before ? [...versions, ...found.versions] : found.versions;
				draw(found.next);
			},
			before !== null,
		);
	}

	function draw(next) {
		fill(list, el("ol.agent-versions", versions.map(item)), next && button("Show older ones", "small quiet", () => load(next)));
	}

	function item({ version, author, created_at: at, changes }) {
		const isNewest = version === detail().version;
		const leaves = Object.entries(changes).flatMap(([name, { before, after }]) => leavesOf(name, before, after));
		const who = author === app.store.state.session?.user ? "you" : author;
		return el(
			"li",
			{ data: { version } },
			el("div.row", el("b", `Version ${version}`), isNewest ? el("span.badge", "now") : button("Restore", "small", () => restore(version), null, { "aria-label": `Restore version ${version}` })),
			el("p.hint", `by ${who}, `, el("time", { datetime: at, title: fullTime(at) }, momentName(at))),
			leaves.length
				? el("dl", leaves.map(([name, before, after]) => [el("dt", nameField(name)), el("dd", el("del", short(words(before))), " → ", el("ins", short(words(after))))]))
				: el("p.hint", version === 1 ? "The first version." : "Nothing changed."),
		);
	}

	async function restore(version) {
		try {
			const restored = await app.api.post(`${path()}/${version}/restore`);
			onRestored(restored);
			app.toast(`Version ${version} is restored as version ${restored.version}.`);
			root.querySelector("summary").focus();
		} catch (error) {
			app.tell(error);
		}
	}

	return { root, refresh: () => root.open && load() };
}
