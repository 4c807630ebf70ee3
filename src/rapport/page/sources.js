/** The passages that an answer cites, and their notes. */

import { button, el, fill, icon } from "./dom.js";
import { emptyPanel, loader } from "./side.js";
import { count } from "./times.js";

export const sources = { id: "sources", title: "Sources", icon: "quote", mount };

function mount(app) {
	const { api, store } = app;
	const { state } = store;
	const root = el("div");
	const load = loader(root);
	let subject = null;

	store.watch(["messages", "thread"], () => app.isShown("sources") && !subject && show(null));

	/** `subject` is `message.note`; without one, the latest answer that cites something. */
	function show(wanted) {
		subject = wanted;
		const [messageId, noteId] = (wanted ?? "").split(".");
		const message = messageId ? state.messages.find(one => one.id === messageId) : state.messages.findLast(one => one.sources?.length);
		if (!message?.sources?.length) return fill(root, nothing());
		const noteOf = ({ id }) => api.get(`/api/notes/${id}?thread=${state.thread}`).catch(error => (error.status === 404 ? null : Promise.reject(error)));
		load(() => Promise.all(message.sources.map(noteOf)), notes => draw(message, notes, noteId ?? message.sources[0].id));
	}

	const nothing = () =>
		emptyPanel(
			"quote",
			"No sources yet",
			"When an answer cites your notes, the passages are shown here. Invalid citations are removed.",
			button("Add notes", "quiet", () => app.go({ panel: "notes" }), "notes"),
		);

	function draw(message, notes, wantedId) {
		const { sources } = message;
		fill(
			root,
			el("p.lead", `This answer cites ${count(sources.length, "passage")} of notes. `, button("Show the answer", "link", () => app.reveal(message.id))),
			sources.map((source, index) => passage(source, index + 1, notes[index], source.id === wantedId)),
		);
		root.querySelector("details[open] mark")?.scrollIntoView({ block: "nearest" });
	}

	function passage(source, number, note, isOpen) {
		return el(
			"article",
			{ class: `card passage ${isOpen ? "wanted" : ""}`, data: { note: source.id } },
			el("header", el("span.number", number), el("b", { dir: "auto" }, note?.title ?? source.id), el("code", source.id), note?.is_own === false && el("small", `shared by ${note.owner}`)),
			el("blockquote", { dir: "auto" }, source.text),
			note
				? el("details", { open: isOpen }, el("summary", "In the note"), el("div.note-text", { dir: "auto", tabIndex: 0 }, markPassage(note.text, source.text)))
				: el("p.hint", "This note was deleted or is no longer shared."),
		);
	}

	return { root, show };
}

/** The text with the passage marked, if found. */
function markPassage(text, passage) {
	const words = passage.replace(/(…|\.\.\.)$/, "").trim().split(/\s+/);
	const found = new RegExp(words.map(word => word.replace(/[^\p{L}\p{N}]/gu, "\\$&")).join("\\s+")).exec(text);
	if (!found?.[0]) return text;
	return [text.slice(0, found.index), el("mark", found[0]), text.slice(found.index + found[0].length)];
}
