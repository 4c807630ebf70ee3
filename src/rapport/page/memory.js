/** Memories about you: see, change and delete them. */

import { form, undoable } from "./dialogs.js";
import { button, el, fill } from "./dom.js";
import { emptyPanel, loader } from "./side.js";
import { count, fullTime, shortTime } from "./times.js";
import { originWords } from "./words.js";

const LONGEST = 8_192;

export const memory = { id: "memory", title: "Memory", mount };

function mount(app) {
	const { api, store } = app;
	const list = el("div");
	const about = el("p.lead");
	const told = el("input", { type: "text", maxlength: LONGEST, placeholder: "Something to remember", "aria-label": "Something to remember", required: true });
	const adder = form("adder", add, told, button("Remember", "small primary", null, null, { type: "submit" }));
	const root = el("div.memory", about, list, adder);
	const load = loader(list);
	const gone = new Set();
	let memories = [];
	let isMore = false;
	let wanted = null;
	let editing = null;

	/** The agent of the conversation if it has memory, else the one that does. */
	function agent() {
		const own = app.agentOf(app.currentThread());
		return own?.remembers ? own : store.state.agents.find(one => one.remembers);
	}
	const path = (rest = "", more = "") => `/api/memories${rest}?agent=${encodeURIComponent(agent()?.id ?? "companion")}${more}`;

	function show(subject) {
		wanted = subject;
		load(() => api.get(path("", "&limit=500")), found => {
			memories = found.memories;
			isMore = Boolean(found.next);
			draw();
		});
	}

	async function add() {
		try {
			showChange("created", await api.post(path(), { content: told.value.trim() }));
			told.value = "";
		} catch (error) {
			app.tell(error);
		}
	}

	/** A memory changed, here or elsewhere. */
	function showChange(what, memory) {
		const others = memories.filter(one => one.id !== memory.id);
		memories = what === "deleted" || memory.agent !== agent()?.id ? others : [memory, ...others];
		if (app.isShown("memory") && !editing) draw();
	}

	function draw() {
		about.textContent = `What ${agent()?.name ?? "the agent"} remembers about you, and its origin.`;
		const shown = memories.filter(one => !gone.has(one.id));
		if (!shown.length) {
			const text = "Tell the agent a lasting fact in a conversation (“I moved to Lisbon in May”). It appears here with a link to your message.";
			return fill(list, emptyPanel("memory", "No memories yet", text));
		}
		fill(list, el("p.hint", count(shown.length, "memory", "memories"), isMore && " (the latest)"), shown.map(one => (editing === one.id ? editor(one) : item(one))));
		list.querySelector(".wanted")?.scrollIntoView({ block: "nearest" });
	}

	function edit(id) {
		editing = id;
		draw();
		list.querySelector("textarea")?.focus();
	}

	function item(memory) {
		const { id, content, created_at: at, origin, message_id: said, conversation_id: where } = memory;
		return el(
			"article",
			{ class: `card memory-item ${id === wanted ? "wanted" : ""}`, data: { memoryId: id } },
			el("p", { dir: "auto" }, content),
			el(
				"footer",
				el("time", { datetime: at, title: fullTime(at) }, shortTime(at)),
				el("span", originWords(origin)),
				said && button("Show", "link", () => app.reveal(said, where), null, { title: "Show the message it comes from" }),
				el("span.row.end", button("Edit", "tool", () => edit(id), "edit"), button("Forget", "tool", () => forget(id), "trash")),
			),
		);
	}

	function editor({ id, content }) {
		const text = el("textarea", { rows: 3, maxlength: LONGEST, value: content, "aria-label": "What it remembers" });
		const save = async () => {
			try {
				const edited = await api.patch(path(`/${id}`), { content: text.value.trim() });
				memories = memories.map(one => (one.id === id ? edited : one));
				edit(null);
			} catch (error) {
				app.tell(error);
			}
		};
		return form("card stack", save, text, el("div.row.end", button("Cancel", "quiet small", () => edit(null)), button("Save", "primary small", null, null, { type: "submit" })));
	}

	function forget(id) {
		const where = path(`/${id}`);
		undoable("Forgotten.", {
			hide: () => draw(gone.add(id)),
			restore: () => draw(gone.delete(id)),
			commit: options => api.delete(where, options),
		});
	}

	return { root, show, showChange };
}
