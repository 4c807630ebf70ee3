/** The notes that answers may cite: add by dropping files, read, collect, share, delete. */

import { field, form, toast, undoable } from "./dialogs.js";
import { button, el, fill, icon } from "./dom.js";
import { emptyPanel, loader } from "./side.js";
import { bytes, count, shortTime } from "./times.js";

const KINDS = ".txt,.md,.markdown,.html,.htm,.pdf,.docx";
const AT_ONCE = 2;

export const notes = { id: "notes", title: "Notes", mount };

function mount(app) {
	const { api, store } = app;
	const uploads = el("ul.uploads", { "aria-label": "Uploads", "aria-live": "polite" });
	const list = el("div.note-list");
	const reading = el("div.reading");
	const picker = el("input.unseen", { type: "file", multiple: true, accept: KINDS, "aria-label": "Files to add", tabIndex: -1, onchange: () => take(picker.files) });
	const drop = el(
		"div.drop",
		icon("upload"),
		el("p", el("b", "Drop files here"), " or ", button("choose files", "link", () => picker.click())),
		el("p.hint", "Text, Markdown, HTML, PDF, Word. They stay on this server."),
		picker,
	);
	const filter = el("div.chips", { role: "group", "aria-label": "Collection" });
	const overview = el("div", drop, uploads, filter, list);
	const root = el("div", overview, reading);
	const load = loader(list);
	const loadNote = loader(reading);
	const gone = new Set();
	const queue = [];
	let notes = [];
	let collections = [];
	let collection = null;
	let isMore = false;
	let running = 0;
	let depth = 0;

	// Files may be dropped anywhere: outside the panel the browser would leave the page.
	const onDrag = (name, work) =>
		addEventListener(name, event => {
			if (!event.dataTransfer?.types.includes("Files")) return;
			event.preventDefault();
			work(event.dataTransfer.files);
			drop.classList.toggle("over", depth > 0);
		});
	onDrag("dragenter", () => (depth += 1) === 1 && app.go({ panel: "notes" }));
	onDrag("dragleave", () => (depth -= 1));
	onDrag("dragover", () => {});
	onDrag("drop", files => {
		depth = 0;
		take(files);
	});

	function show(subject) {
		reading.hidden = !subject;
		overview.hidden = Boolean(subject);
		if (subject) read(subject);
		else refresh(notes.length > 0);
	}

	const refresh = isQuiet =>
		load(() => Promise.all([api.get(`/api/notes?limit=500${collection ? `&collection=${collection}` : ""}`), api.get("/api/collections")]), ([found, all]) => {
			notes = found.notes;
			collections = all.collections;
			isMore = Boolean(found.next);
			draw();
		}, isQuiet);

	function draw() {
		const shown = notes.filter(one => !gone.has(one.id));
		const choice = (name, label) =>
			button(label, "chip", () => refresh(true, (collection = name)), null, { "aria-pressed": String(collection === name) });
		const held = document.activeElement?.closest(".chips") === filter && document.activeElement.textContent;
		const names = collections.map(one => choice(one.name, `${one.name} ${one.notes}`));
		fill(filter, (names.length > 0 || collection) && [choice(null, "All"), names]);
		if (held) [...filter.children].find(one => one.textContent === held)?.focus();
		if (!shown.length && collection) return fill(list, el("p.hint", `No note is in “${collection}” now.`));
		const text = "Add a handbook or meeting notes. Then ask the librarian: it answers from them, shows the passage, and says if they don't contain the answer.";
		if (!shown.length) return fill(list, emptyPanel("notes", "No notes yet", text));
		fill(list, el("h2", count(shown.length, "note"), isMore && " (the latest)"), el("ul", shown.map(item)));
	}

	function item(note) {
		const about = `${count(note.characters, "character")} · ${count(note.chunks, "passage")} · ${shortTime(note.updated_at)}`;
		const open = () => app.go({ panel: "notes", subject: note.id });
		return el(
			"li",
			{ data: { noteId: note.id } },
			el("button.note-item", { type: "button", onclick: open }, icon("notes"), el("span", el("b", { dir: "auto" }, note.title || note.id), el("small", about), marks(note))),
			note.is_own && button(`Delete ${note.title || note.id}`, "tool", () => remove(note), "trash"),
		);
	}

	const marks = note => {
		const sharing = note.is_own ? note.shared_with !== "owner" && `shared with ${audience(note.shared_with)}` : `shared by ${note.owner}`;
		return (sharing || note.collections.length > 0) && el("span.reasons", [...note.collections, sharing].map(one => one && el("span", one)));
	};

	const audience = id => (id === "everyone" ? id : (store.state.threads.find(one => one.id === id)?.title ?? "a group"));

	/** Collections and sharing of an own note. */
	function settings(note) {
		const names = el("input", { type: "text", value: note.collections.join(", "), placeholder: "handbook, travel" });
		const groups = store.state.threads.filter(one => one.kind === "group").map(one => [one.id, `Members of “${one.title ?? "a group"}”`]);
		const choices = new Map([[note.shared_with, "A group"], ["owner", "Only me"], ...groups]);
		if (note.shared_with === "everyone" || store.state.session.role === "operator") choices.set("everyone", "Everyone on this server");
		const sharing = el("select", [...choices].map(([value, label]) => el("option", { value, selected: value === note.shared_with }, label)));
		const save = async () => {
			try {
				const body = { collections: names.value.split(/[\s,]+/).filter(Boolean), shared_with: sharing.value };
				names.value = (await api.patch(`/api/notes/${note.id}`, body)).collections.join(", ");
				toast("Saved. It counts from the next answer on.");
			} catch (error) {
				toast(error.message, { kind: "bad" });
			}
		};
		return form("section stack", save, field("Collections", names), field("Shared with", sharing), button("Save", "quiet", null, null, { type: "submit" }));
	}

	function read(id) {
		loadNote(() => api.get(`/api/notes/${encodeURIComponent(id)}`), note => {
			fill(
				reading,
				button("All notes", "quiet small", () => app.go({ panel: "notes" }), "back"),
				el("h2", { dir: "auto" }, note.title || note.id),
				el("p.hint", el("code", note.id), note.file_name && ` · ${note.file_name}`, ` · ${count(note.chunks, "passage")}`),
				note.is_own ? settings(note) : [marks(note), el("p.hint", "Only its owner can change it.")],
				el("div.note-text.whole", { dir: "auto", tabIndex: 0 }, note.text),
			);
		});
	}

	function remove(note) {
		undoable(`“${note.title || note.id}” deleted.`, {
			hide: () => draw(gone.add(note.id)),
			restore: () => draw(gone.delete(note.id)),
			commit: options => api.delete(`/api/notes/${encodeURIComponent(note.id)}`, options),
		});
	}

	function take(files) {
		for (const file of files) queue.push({ file, ...uploadItem(file) });
		picker.value = "";
		for (let i = 0; i < AT_ONCE; i += 1) work();
	}

	function uploadItem(file) {
		const bar = el("progress", { max: 1, value: 0, "aria-label": `Sending ${file.name}` });
		const said = el("small", "Waiting…");
		const node = el("li", el("span", el("b", { dir: "auto" }, file.name), el("small", bytes(file.size))), bar, said);
		uploads.append(node);
		return { node, bar, said };
	}

	/** Upload the queue, a few at a time. */
	async function work() {
		if (running >= AT_ONCE || !queue.length) return;
		const { file, node, bar, said } = queue.shift();
		running += 1;
		try {
			const note = await api.upload("/api/notes", file, share => {
				if (share < 1) bar.value = share;
				else bar.removeAttribute("value");
				said.textContent = share < 1 ? `Sending, ${Math.round(share * 100)} %` : "Reading and indexing…";
			});
			said.textContent = note.unchanged ? "Already added, unchanged." : `Ready: ${count(note.chunks, "passage")}.`;
			node.classList.add("done");
			setTimeout(() => node.remove(), 6_000);
			refresh(true);
		} catch (error) {
			const again = () => {
				node.remove();
				take([file]);
			};
			said.textContent = error.message;
			node.classList.add("bad");
			node.append(button("Send again", "link", again), button("Close", "tool", () => node.remove(), "close"));
		}
		bar.remove();
		running -= 1;
		work();
	}

	return { root, show };
}
