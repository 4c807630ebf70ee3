/** The context of an answer: messages with reasons, memories, notes. */

import { el, fill, icon } from "./dom.js";
import { hue } from "./message.js";
import { emptyPanel, loader } from "./side.js";
import { clockTime, count, dayKey, dayName, fullTime, span } from "./times.js";
import { reasonWords, STRATEGIES, toolWords, triggerWords } from "./words.js";

const SILENCE = 3 * 3_600_000;
const CALLS = { read: "looked up", denied: "not allowed", expired: "nobody decided in time", unknown: "outcome not known" };

export const why = { id: "why", title: "Why", mount };

function mount(app) {
	const { api, store } = app;
	const { state } = store;
	const root = el("div");
	const load = loader(root);
	let subject = null;
	let strategy = "";

	store.watch(["replied", "thread", "older"], () => app.isShown("why") && !subject && show(null));

	function show(wanted) {
		if (wanted !== subject) strategy = "";
		subject = wanted;
		const { thread } = state;
		store.set({ lit: null });
		if (!thread || (!wanted && !state.messages.some(one => one.role === "assistant"))) return fill(root, nothing());
		const asked = new URLSearchParams({ include: "timeline", ...(wanted && { message_id: wanted }), ...(strategy && { strategy }) });
		load(() => api.get(`/api/threads/${thread}/context?${asked}`), context => {
			if (state.thread !== thread || !app.isShown("why")) return;
			draw(context);
			store.set({ lit: { about: context.reply_id, chosen: new Set(context.messages.map(one => one.id)) } });
		});
	}

	const nothing = () =>
		emptyPanel("why", "Why did it say that?", "“Why this answer?” under an answer shows what the agent was given: the messages are highlighted, each with the reason.");

	function draw(context) {
		const { timeline, memories } = context;
		const notes = context.notes.filter(one => one.given);
		const far = context.notes.filter(one => !one.given);
		const reply = state.messages.find(one => one.id === context.reply_id);
		const before = timeline.filter(one => !one.is_call);
		const chosen = before.filter(one => one.chosen).length;
		const used = [
			chosen && count(chosen, "message"),
			memories.length && count(memories.length, "memory", "memories"),
			notes.length && count(notes.length, "note"),
		].filter(Boolean);
		fill(
			root,
			// The guard replies without a model, so there is no context.
			!reply?.guardUsed && el(
				"p.lead",
				reply?.autonomous && `A follow-up: ${triggerWords(reply.trigger_type).toLowerCase()}. `,
				context.stored ? "The agent was given " : "The agent would be given ",
				el("b", used.join(", ").replace(/, ([^,]*)$/, " and $1") || "only the message itself"),
				before.length > 0 ? `. It searched ${count(before.length, "message")}.` : ".",
				context.summary_id && " Older messages came as a summary.",
				context.looked_up.length > 0 && ` Then it ${[...new Set(context.looked_up)].map(toolWords).join(", ")}.`,
			),
			reply?.guardUsed && el("p.mark.guard", icon("shield"), "No note was close enough to the question, so no model was asked."),
			reply?.fallbackUsed && el("p.mark.fallback", icon("warn"), context.problem?.text ?? "The model could not answer. The reply was built from the notes."),
			app.currentThread()?.kind === "group" && chooser(context),
			el("ol.timeline", { "aria-label": "Messages before the answer" }, entries(timeline)),
			context.usage && el("p.hint", describeUsage(context.usage)),
			context.tools.length > 0 && [el("h2", "Tools"), el("ul.past.why-tools", context.tools.map(toolItem))],
			memories.length + notes.length > 0 && el("h2", "Also given"),
			memories.map(one => usedItem("memory", one.text ?? "A deleted memory", one)),
			notes.map(noteItem),
			far.length > 0 && el("h2", "Not close enough to be given"),
			far.map(noteItem),
		);
	}

	/** What another strategy would choose. */
	function chooser(context) {
		const onchange = event => {
			strategy = event.target.value;
			const about = subject ?? context.reply_id;
			subject = about;
			show(about);
		};
		const option = ([name, label]) => el("option", { value: name, selected: name === context.strategy }, label);
		return el("label.field.inline", el("span", "Chosen by"), el("select", { onchange }, Object.entries(STRATEGIES).map(option)));
	}

	/** Chosen messages in full, others folded, with days and gaps. */
	function entries(line) {
		const shown = [];
		let passed = [];
		let last = null;
		const fold = () => {
			if (passed.length) shown.push(foldPassedOver(passed));
			passed = [];
		};
		for (const one of line) {
			if (!one.chosen && !one.is_call) {
				passed.push(one);
				continue;
			}
			fold();
			const gap = last ? Date.parse(one.created_at) - Date.parse(last.created_at) : 0;
			const isNewDay = !last || dayKey(last.created_at) !== dayKey(one.created_at);
			const when = [isNewDay && dayName(one.created_at), gap > SILENCE && `${span(gap / 1000)} later`].filter(Boolean);
			if (when.length) shown.push(el("li.when", when.join(" · ")));
			shown.push(entry(one));
			last = one;
		}
		fold();
		return shown;
	}

	function foldPassedOver(passed) {
		const who = [...new Set(passed.map(one => one.author))].slice(0, 3).join(", ");
		return el("li.passed", el("details", el("summary", `${count(passed.length, "message")} not chosen: ${who}`), el("ol", passed.map(entry))));
	}

	function entry({ id, author, role, text, created_at: at, is_call: isCall, chosen }) {
		const reasons = isCall ? [] : (chosen?.reasons ?? []);
		return el(
			"li",
			{ class: `entry ${isCall ? "call" : chosen ? "chosen" : ""}`, data: { messageId: id } },
			el(
				"button",
				{ type: "button", title: `${fullTime(at)}. Show it in the chat.`, onclick: () => app.reveal(id) },
				el("span.entry-head", el("b", { class: role === "assistant" ? "" : hue(author) }, author), el("time", { datetime: at }, clockTime(at)), isCall ? el("b", "the question") : chosen && meter(chosen.score)),
				el("span.entry-text", { dir: "auto" }, text),
				reasons.length > 0 && el("span.reasons", reasons.map(reason => el("span", reasonWords(reason)))),
			),
		);
	}

	const usedItem = (panel, text, { id, score }) =>
		el("button.used", { type: "button", onclick: () => app.go({ panel, subject: id }) }, icon(panel), el("span", { dir: "auto" }, text), meter(score));

	const noteItem = one => usedItem("notes", one.title ?? one.id, one);

	return { root, show, hide: () => store.set({ lit: null }) };
}

/** The cost of an answer: model calls and tokens. */
function describeUsage({ calls, tokens_in: read, tokens_out: written, estimated, model }) {
	const mark = estimated ? "≈ " : "";
	return `${count(calls, "model call")} (${model}): ${mark}${read.toLocaleString()} tokens in, ${mark}${written.toLocaleString()} out.`;
}

/** A tool, its server, and what became of the call. */
const toolItem = ({ name, server, state }) => el("li", el("span", el("b", name.replace(`${server}__`, "")), ` of the server ${server}: ${CALLS[state] ?? state}`));

/** A score as number and bar. */
function meter(score) {
	const share = Math.max(0, Math.min(1, score)).toFixed(2);
	const bar = el("i");
	bar.style.width = `${share * 100}%`;
	return el("span.meter", { role: "img", "aria-label": `score ${share} of 1` }, el("span", bar), share);
}
