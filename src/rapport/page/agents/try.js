/** One question to an agent as it stands in the form. Only the usage of its model is stored. */

import { field, form } from "../dialogs.js";
import { button, el, fill } from "../dom.js";

/** `path()` is the route, `changes()` what is unsaved; `onRefused(error)` shows what is wrong in the form. */
export function createTry(app, { path, changes, onRefused }) {
	const question = el("input", { type: "text", dir: "auto", autocomplete: "off", placeholder: "A question" });
	const answer = el("div.agent-answer", { role: "status" });
	const root = el(
		"section.card",
		{ "aria-label": "Try it" },
		el("h2", "Try it"),
		el("p.hint", "One answer with what stands in the form, saved or not. Nothing is kept, and tools that change something are not used."),
		form("stack", ask, field("Your question", question), el("div.row", button("Try it", "small", null, "play", { type: "submit" }))),
		answer,
	);
	let latest = 0;

	async function ask() {
		const content = question.value.trim();
		if (!content) return question.focus();
		const mine = (latest += 1);
		fill(answer, el("p.hint", "It answers…"));
		const agent = changes();
		try {
			const reply = await app.api.post(path(), { content, ...(agent && { agent }) });
			if (mine === latest) show(reply);
		} catch (error) {
			if (mine !== latest) return;
			fill(answer, el("p.field-error", "It was not tried: see the form."));
			onRefused(error);
		}
	}

	function show({ content, guardUsed, fallbackUsed }) {
		fill(
			answer,
			el("p.agent-said", { dir: "auto" }, content),
			guardUsed && el("p.hint", "It refused: the notes don't hold the answer."),
			fallbackUsed && el("p.hint", "The model could not answer. This is the reply for that case."),
		);
	}

	return { root };
}
