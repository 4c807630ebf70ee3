/** The fields of an agent: their labels, their help, and how each is shown and read.
 *
 * `read` returns null for a field that has its default; the server is told so in a PATCH, and gets nothing in a POST.
 */

import { el } from "../dom.js";
import { STRATEGIES, TRIGGERS, triggerWords } from "../words.js";
import { createToolChoice } from "./tools.js";

const PROMPT_HELP = "What the model is told when this follow-up is due. Nobody in the conversation sees it.";
const SERVERS = "The server's setting";

const line = (path, label, help, more) => ({ path, label, help, kind: "line", ...more });
const area = (path, label, help, rows, more) => ({ path, label, help, kind: "area", rows, ...more });
const number = (path, label, help, more) => ({ path, label, help, kind: "number", ...more });
const toggle = (path, label, help, more) => ({ path, label, help, kind: "switch", ...more });
const choice = (path, label, help, options) => ({ path, label, help, kind: "choice", options });
const ready = (path, help, made) => ({ path, help, kind: "ready", made });
const ticks = (path, label, help, options) => ({ path, label, help, kind: "ticks", options });

/** The groups of the form. `isNew`: the agent is not stored; `isOperator`: who edits is one. */
export function groupsOf({ defaults, tools, isNew, model }) {
	const { is_operator: isOperator } = defaults;
	const { chosen, free } = createToolChoice(tools, isOperator);
	const only = isOperator ? "" : " Only an operator may add tools of servers.";
	return [
		{
			fields: [
				line("name", "Name", "Shown above each of its messages."),
				area("persona", "Persona", "Who it is and how it answers, in a few sentences. The model reads this before each answer.", 5, { example: "You are a patient chef. You answer in two sentences and name the amounts." }),
				line("description", "Description", "One sentence that helps people to choose it.", { isOptional: true }),
				area("greeting", "Greeting", "Shown in a conversation that is still empty.", 2, { isOptional: true }),
				line("model", "Model", "Empty: the server's model. Else provider:model, such as openai:gpt-5-mini, anthropic:claude-sonnet-4-5 or ollama:qwen3.", { example: model, isOptional: true }),
				choice("grounding", "Notes", "Whether it answers from the notes.", { blend: "Uses them where they help", strict: "Answers only from them, or says that they don't hold the answer", none: "Doesn't use them" }),
				toggle("memory", "Memory", "It keeps lasting facts about the person it talks with."),
				toggle("autonomy.enabled", "Follow-ups", "It may write first, about a matter that is still open."),
			],
		},
		{
			title: isNew ? "Id, handles, who may use it" : "Handles",
			fields: [
				isNew && line("id", "Id", "Its name in addresses and files: a-z, 0-9, - and _. Empty: made from the name. It can't be changed later."),
				line("handles", "Handles", "The names after an @ that call it in a group, with commas between them. Empty: its id.", { kind: "words", example: "chef, cook" }),
				isNew && isOperator && toggle("for_everyone", "For everyone", "Everyone on this server may use it. This can't be changed later."),
			],
		},
		{
			title: "Model options",
			fields: [
				line("fallback_model", "Fallback model", "Answers when the first model fails. Empty: none.", { example: "ollama:qwen3" }),
				number("model_options.temperature", "Temperature", "From 0 (the same each time) to 2 (varied). Empty: the model's own."),
				number("model_options.max_tokens", "Longest answer, in tokens", "A token is about four letters. Empty: the model's own limit."),
				isOperator && line("model_options.base_url", "Base URL", "The address of the model's server, if it is not the one of this server's settings.", { example: "http://127.0.0.1:8080/v1" }),
				isOperator && line("model_options.key_variable", "Key variable", "The name of the environment variable with the key for that address, never the key itself.", { example: "OTHER_API_KEY" }),
			],
		},
		{
			title: "Notes and refusals",
			fields: [
				area("guard_text", "Refusal", "What it says when it answers only from notes and they don't hold the answer.", 3, { example: defaults.guard_text }),
				number("min_similarity", "Required relevance", "From 0 to 1: how close a passage must be to the question. Empty: measured on the notes."),
			],
		},
		{
			title: "Follow-ups",
			fields: [
				ticks("autonomy.trigger_types", "It may follow up", "Without a tick it never follows up for that reason.", Object.fromEntries(TRIGGERS.map(name => [name, triggerWords(name)]))),
				number("autonomy.min_delay_seconds", "Shortest delay, in seconds", "The least silence before a follow-up."),
				number("autonomy.max_delay_seconds", "Longest delay, in seconds", "The most silence before a follow-up."),
				number("autonomy.max_consecutive", "Most in a row", "After so many without an answer it stays silent."),
				number("autonomy.min_gap_seconds", "Gap, in seconds", "The least time between two follow-ups."),
				number("autonomy.expiry_seconds", "Expiry, in seconds", "A follow-up that is later than this is dropped."),
				choice("reflection", "Look for open matters after a pause", "With a model call of its own.", { "": SERVERS, off: "Never", when_open: "When something seems open", always: "Always" }),
				...TRIGGERS.map(name => area(`autonomy.prompts.${name}`, `Prompt: ${triggerWords(name).toLowerCase()}`, PROMPT_HELP, 2, { kind: "prompt", example: defaults.prompts[name] })),
			],
		},
		{
			title: "Group chats and history",
			fields: [
				choice("context.strategy", "Choice of messages", "How the messages of a group are chosen for an answer.", { "": SERVERS, ...STRATEGIES }),
				number("context.lookback_limit", "Look-back, in messages", "How many messages of a group are looked at.", { example: SERVERS }),
				number("context.time_threshold_minutes", "Threshold, in minutes", "A silence that is longer ends a discussion.", { example: SERVERS }),
				number("context.max_tokens", "Context, in tokens", "The most that is given to the model from a group.", { example: SERVERS }),
				number("max_chat_history", "History, in messages", "How many messages the model gets word by word; older ones are summarized.", { example: SERVERS }),
			],
		},
		{
			title: "Tools",
			fields: [
				ready("tools", `What its model may do while it answers. Tools of other programs (MCP servers) stand here when they are configured.${only}`, chosen),
				ready("tools_without_approval", "It asks a person before each call of a tool that changes something outside, but not for these.", free),
			],
		},
	].map(group => ({ ...group, fields: group.fields.filter(Boolean) }));
}

/** The value at a path such as `autonomy.enabled`. */
export const valueAt = (document, path) => path.split(".").reduce((part, name) => part?.[name], document);

/** Set the value at a path. */
export function setAt(document, path, value) {
	const names = path.split(".");
	const last = names.pop();
	let part = document;
	for (const name of names) part = part[name] ??= {};
	part[last] = value;
	return document;
}

export const isSame = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

const numberOf = text => (Number.isFinite(Number(text)) ? Number(text) : text); // the server says what it must be

/** A control with its label, its help and a place for its error: `{root, control, path, read, put, complain}`. */
export function fieldOf(spec, base) {
	const { path, label, help, kind, isOptional } = spec;
	const id = `agent-${path.replaceAll(".", "-")}`;
	const { control, read, put } = MAKERS[kind](spec, base, id);
	const error = el("p.field-error", { id: `${id}-error`, role: "alert", hidden: true });
	const hint = el("small", { id: `${id}-help` }, help);
	const isGroup = kind === "ticks" || kind === "ready";
	const target = () => (isGroup && control.querySelector("input:enabled")) || control;
	control.setAttribute("aria-describedby", `${id}-help ${id}-error`);
	const name = isGroup ? null : el("label", { for: id }, label, isOptional && el("i", " (optional)"));
	const root = el("div", { class: kind === "switch" ? "agent-field switched" : "agent-field", data: { field: path } }, name, control, hint, error);
	return {
		root, path, read, put,
		/** Show what is wrong with it, or nothing. */
		complain(text) {
			error.hidden = !text;
			error.textContent = text ?? "";
			if (!isGroup) control.setAttribute("aria-invalid", String(Boolean(text)));
			const group = root.closest("details");
			if (text && group) group.open = true;
		},
		focus: () => target().focus(),
	};
}

const texts = (tag, props, spec, id, show, read) => {
	const control = el(tag, { id, dir: "auto", autocomplete: "off", placeholder: spec.example, ...props });
	return {
		control,
		read: () => (control.value.trim() === "" ? null : read(control.value)),
		put(value) {
			control.value = value === null || value === undefined ? "" : show(value);
		},
	};
};

const MAKERS = {
	ready: ({ made }) => made,
	line: (spec, _, id) => texts("input", { type: "text" }, spec, id, String, text => text.trim()),
	area: (spec, _, id) => texts("textarea", { rows: spec.rows }, spec, id, String, text => text),
	words: (spec, _, id) => texts("input", { type: "text" }, spec, id, list => list.join(", "), text => text.split(/[\s,]+/).filter(Boolean)),
	number: (spec, base, id) => {
		const example = spec.example ?? (base === null || base === undefined ? null : String(base));
		return texts("input", { type: "text", inputmode: "decimal", placeholder: example }, spec, id, String, text => numberOf(text.trim()));
	},
	switch(_, base, id) {
		const control = el("input", { type: "checkbox", role: "switch", id });
		return {
			control,
			read: () => (control.checked === Boolean(base) ? null : control.checked),
			put: value => (control.checked = Boolean(value ?? base)),
		};
	},
	choice({ options }, base, id) {
		const control = el("select", { id }, Object.entries(options).map(([value, name]) => el("option", { value }, name)));
		return {
			control,
			read: () => (control.value === (base ?? "") ? null : control.value),
			put: value => (control.value = value ?? base ?? ""),
		};
	},
	ticks({ label, options }, _, id) {
		const boxes = Object.keys(options).map(value => el("input", { type: "checkbox", value, id: `${id}-${value}` }));
		const control = el("fieldset", el("legend", label), boxes.map(box => el("label.tick", box, options[box.value])));
		const readChosen = () => boxes.filter(box => box.checked).map(box => box.value);
		return {
			control,
			read: () => (boxes.every(box => box.checked) ? null : readChosen()),
			put: value => boxes.forEach(box => (box.checked = !value || value.includes(box.value))),
		};
	},
	/** A prompt: a plain text here. Several variants stay as they are. */
	prompt(spec, base, id) {
		const plain = texts("textarea", { rows: spec.rows }, spec, id, String, text => text);
		let variants = [];
		return {
			control: plain.control,
			read() {
				const text = plain.read();
				if (variants.length > 1) return variants;
				return variants.length && text !== null ? [{ ...variants[0], text }] : text;
			},
			put(value) {
				variants = typeof value === "string" ? [] : (value ?? []);
				const isSeveral = variants.length > 1;
				plain.put(isSeveral ? "" : typeof value === "string" ? value : variants[0]?.text);
				plain.control.disabled = isSeveral;
				if (isSeveral) plain.control.placeholder = `It has ${variants.length} variants: ${variants.map(one => one.name).join(", ")}. They stay as they are.`;
			},
		};
	},
};
