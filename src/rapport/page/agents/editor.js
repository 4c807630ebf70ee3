/** The editor of one agent: its fields, a try of the unsaved changes, and its versions. */

import { form } from "../dialogs.js";
import { button, el, fill } from "../dom.js";
import { fieldOf, groupsOf, isSame, setAt, valueAt } from "./fields.js";
import { createTry } from "./try.js";
import { createVersions } from "./versions.js";

/** `detail` is the agent as the server has it, null for a new one. */
export function createEditor(app, { defaults, tools, detail, leave, talk, refresh, back, onSaved }) {
	const { api } = app;
	const heading = el("h2", { tabIndex: -1 });
	const version = el("span.hint");
	const groups = el("div.stack");
	const alert = el("div.agent-alert", { role: "alert" });
	const status = el("span.hint", { role: "status" });
	const submit = button("Save", "primary small", null, "check", { type: "submit", title: "Ctrl + Enter" });
	const both = button("Save and talk", "small", async () => (await save()) && talk(detail.id));
	const discard = button("Discard changes", "small quiet", forget);
	const path = () => `/api/agents/${encodeURIComponent(detail.id)}`;
	const fields = new Map();
	const stored = new Map(); // what each field read when it showed the stored agent
	const readAll = () => new Map([...fields].map(([name, field]) => [name, field.read()]));
	const listChanges = () => [...readAll()].filter(([name, value]) => !isSame(value, stored.get(name)));
	/** The changes as the server takes them: null restores a default, and a new agent leaves it out. */
	const makePatch = () => listChanges().filter(([, value]) => detail || value !== null).reduce((body, [name, value]) => setAt(body, name, value), {});
	const makeTrial = () => (detail && !self.isChanged() ? null : makePatch());
	const trying = createTry(app, { path: () => (detail ? `${path()}/try` : "/api/agents/try"), changes: makeTrial, onRefused: showRefusal });
	const versions = createVersions(app, { detail: () => detail, onRestored });
	const fieldsForm = form("agent-form", save, groups, alert, el("footer", submit, both, discard, status));
	const self = {
		root: el("div.agent-editor", el("header", back(), heading, version), el("div.agent-columns", fieldsForm, el("div.agent-beside", trying.root, versions.root))),
		isChanged: () => listChanges().length > 0,
		focus: () => setTimeout(() => fields.get("name").focus()),
	};
	let isSaving = false;

	fieldsForm.noValidate = true;
	fieldsForm.addEventListener("keydown", event => (event.ctrlKey || event.metaKey) && event.key === "Enter" && save());
	fieldsForm.addEventListener("input", event => {
		fields.get(event.target.closest("[data-field]")?.dataset.field)?.complain(null);
		status.textContent = "";
	});
	build();

	/** Make the form. A stored agent has fewer fields than a new one. */
	function build() {
		fields.clear();
		const made = groupsOf({ defaults, tools, isNew: !detail, model: app.store.state.session?.model });
		fill(
			groups,
			made.map(({ title, fields: specs }) => {
				const shown = specs.map(spec => {
					const field = fieldOf(spec, valueAt(defaults.document, spec.path));
					fields.set(spec.path, field);
					return field.root;
				});
				return title ? el("details", el("summary", title), shown) : el("div.stack", shown);
			}),
		);
		show(new Map());
	}

	/** Show the stored agent, but these values where somebody has typed others. */
	function show(typed) {
		heading.textContent = detail ? `Edit ${detail.name}` : "New agent";
		version.textContent = detail ? `version ${detail.version}` : "not saved yet";
		versions.root.hidden = !detail;
		for (const [path, field] of fields) {
			const value = valueAt(detail, path);
			field.put(value === undefined || isSame(value, valueAt(defaults.document, path)) ? null : value);
			stored.set(path, field.read());
			if (typed.has(path)) field.put(typed.get(path));
			field.complain(null);
		}
		fill(alert);
	}

	async function save() {
		if (isSaving) return false;
		if (detail && !self.isChanged()) {
			status.textContent = "Nothing has changed.";
			return true;
		}
		isSaving = true;
		for (const field of fields.values()) field.complain(null);
		fill(alert);
		status.textContent = "Saving…";
		const sent = readAll();
		try {
			const saved = detail ? await api.patch(`${path()}?version=${detail.version}`, makePatch()) : await api.post("/api/agents", makePatch());
			adopt(saved, [...readAll()].filter(([path, value]) => !isSame(value, sent.get(path))));
			status.textContent = `Saved as version ${saved.version}.`;
			onSaved(self, saved.id);
			refresh().catch(app.tell);
			return true;
		} catch (error) {
			status.textContent = "Not saved.";
			showRefusal(error);
			return false;
		} finally {
			isSaving = false;
		}
	}

	/** Take over what the server has now; `typed` stays in the form. */
	function adopt(found, typed) {
		const isFirst = !detail;
		const where = document.activeElement?.closest?.("[data-field]")?.dataset.field;
		detail = found;
		if (isFirst) build();
		show(new Map(typed));
		if (isFirst && where) (fields.get(where) ?? fields.get("name")).focus();
		versions.refresh();
	}

	function onRestored(found) {
		adopt(found, listChanges());
		status.textContent = self.isChanged() ? "Your unsaved changes are still in the form." : "";
		refresh().catch(app.tell);
	}

	function forget() {
		const isNew = !detail;
		show(new Map());
		status.textContent = "Your changes were discarded.";
		if (isNew) leave();
	}

	/** Say what is wrong at the field that each sentence names, and go to the first one. */
	function showRefusal(error) {
		const first = [];
		const others = [];
		for (const sentence of error.message.split(/(?<=\.) (?=`|The field `|There is no field `)/)) {
			const field = findField(sentence);
			if (!field) others.push(sentence);
			else if (!first.includes(field)) {
				field.complain(sentence.replace(/^(`[^`]*`: )+/, "").replaceAll("`", ""));
				first.push(field);
			}
		}
		const isOutdated = error.status === 409 && detail && !first.length;
		fill(alert, others.length > 0 && el("p.field-error", others.join(" ")), isOutdated && button("Load it, and keep my changes", "small", rebase));
		if (first.length) first[0].focus();
		else if (isOutdated) alert.querySelector("button").focus();
	}

	/** The field that a sentence names in backquotes, such as `handles.0`. */
	function findField(sentence) {
		const paths = [...fields.keys()];
		for (const [, name] of sentence.matchAll(/`([^`]+)`/g)) {
			const found = paths.find(one => name === one || name.startsWith(`${one}.`)) ?? paths.find(one => one.endsWith(`.${name}`));
			if (found) return fields.get(found);
		}
		return null;
	}

	/** Somebody else has saved a version meanwhile: show it, with what was typed here. */
	async function rebase() {
		try {
			adopt(await api.get(path()), listChanges());
			status.textContent = `Version ${detail.version}, with your changes. Look at it, then save.`;
			submit.focus();
		} catch (error) {
			app.tell(error);
		}
	}

	return self;
}
