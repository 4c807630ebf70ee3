/** The message box: drafts, author, reply, stop. */

import { form } from "./dialogs.js";
import { button, el, fill, icon } from "./dom.js";
import { createMentions } from "./mentions.js";
import { kept } from "./store.js";
import { textOf } from "./words.js";

const OTHER = "+";

export function createComposer(app) {
	const { store, thread, currentThread } = app;
	const { state } = store;
	let guests = [];
	let voice = "";

	const box = el("textarea", {
		id: "composer", rows: 1, "aria-label": "Message", "aria-controls": "mentions", "aria-haspopup": "listbox",
		"aria-autocomplete": "list", maxlength: 32_000, oninput: onType, onkeydown: keydown,
	});
	const mentions = createMentions(box, () => callable());
	const speak = el("select.voice", { "aria-label": "Speak as", title: "Speak as", onchange: chooseVoice });
	const as = el("label.as", "as", speak);
	const quote = el("div.replying");
	const ideas = el("div.ideas", { role: "group", "aria-label": "Things to try" });
	const send = button("Send", "send tool", null, "send", { type: "submit" });
	const stop = button("Stop", "send tool stop", halt, "stop", { hidden: true });
	const root = form("composer", submit, ideas, mentions.list, quote, el("div.box", as, box, stop, send));

	const isGroup = () => currentThread()?.kind === "group";
	const agent = () => app.agentOf(currentThread());
	const everybody = () => {
		const people = state.people?.people ?? [];
		return [...people, ...guests.filter(one => !people.some(other => other.id === one.id))];
	};

	store.watch(["thread"], () => {
		box.value = kept.get(`draft.${state.thread}`) ?? "";
		guests = kept.get(`guests.${state.thread}`) ?? [];
		voice = "";
		requestAnimationFrame(fit);
	});
	store.watch(["thread", "threads", "people", "agents"], drawVoices);
	store.watch(["turns"], fitButtons);
	store.watch(["replyTo", "messages"], drawQuote);
	store.watch(["thread", "threads", "samples", "messages", "turns", "pending"], drawIdeas);

	/** Names to complete: the agent, then recent authors. */
	function callable() {
		if (!isGroup()) return [];
		const handles = state.people?.agent.handles ?? agent()?.handles ?? [];
		return [...handles.map(name => ({ name, isAgent: true })), ...everybody().map(one => ({ name: one.name.replace(/\s+/g, "") }))];
	}

	function drawVoices() {
		as.hidden = !isGroup();
		box.placeholder = isGroup() ? `Write, or mention @${agent()?.handles[0]}` : `Write to ${agent()?.name ?? "the agent"}`;
		const option = (value, name) => el("option", { value }, name);
		fill(speak, option("", "You"), everybody().map(one => option(one.id, one.name)), option(OTHER, "Somebody else…"));
		speak.value = voice;
	}

	async function chooseVoice() {
		const isOther = speak.value === OTHER;
		if (!isOther) voice = speak.value;
		speak.value = voice;
		if (!isOther) return;
		const hint = "Try how the agent follows a discussion among several people.";
		const name = (await app.askText({ title: "Speak as somebody else", hint, label: "Name", action: "Speak as them" }))?.trim();
		if (!name) return;
		voice = `guest-${name.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-")}`;
		guests = [...guests.filter(one => one.id !== voice), { id: voice, name }];
		kept.put(`guests.${state.thread}`, guests);
		drawVoices();
		box.focus();
	}

	function drawQuote() {
		const message = state.messages.find(one => one.id === state.replyTo);
		quote.hidden = !message;
		if (!message) return;
		const name = message.role === "assistant" ? agent()?.name : (message.author?.name ?? "You");
		fill(
			quote,
			icon("reply"),
			el("span", el("b", `Replying to ${name}`), el("span", { dir: "auto" }, textOf(message).replace(/\s+/g, " ").slice(0, 160))),
			button("Cancel the reply", "tool", () => store.set({ replyTo: null }), "close"),
		);
	}

	function drawIdeas() {
		const found = state.turns.length || state.pending.length ? [] : app.ideasFor(currentThread());
		ideas.hidden = !found.length;
		fill(ideas, el("span", "Try"), found.map(idea => button(idea.label ?? idea.text, "chip", () => say(idea.text, idea))));
	}

	function onType() {
		kept.put(`draft.${state.thread}`, box.value);
		fit();
		mentions.onType();
	}

	function keydown(event) {
		if (event.isComposing || mentions.keydown(event)) return;
		const isTouch = matchMedia("(pointer: coarse)").matches;
		if (event.key === "Enter" && !event.shiftKey && !isTouch) {
			event.preventDefault();
			submit();
		} else if (event.key === "Escape" && (state.replyTo || state.turns.length)) {
			event.preventDefault();
			if (state.replyTo) store.set({ replyTo: null });
			else halt();
		}
	}

	function halt() {
		thread.stop().catch(app.tell);
	}

	function submit() {
		const text = box.value.trim();
		if (!text || !state.thread) return;
		const author = isGroup() ? everybody().find(one => one.id === voice) : null;
		const { replyTo } = state;
		store.set({ replyTo: null, problem: null });
		put("");
		say(text, { author, replyTo });
	}

	function say(text, how) {
		app.onSending(text);
		return thread.send(text, how);
	}

	function put(text) {
		box.value = text;
		onType();
		box.focus();
	}

	function fit() {
		box.style.height = "auto";
		box.style.height = `${Math.min(200, box.scrollHeight)}px`;
		fitButtons();
	}

	function fitButtons() {
		stop.hidden = state.turns.length === 0;
		send.disabled = box.value.trim() === "";
		send.hidden = send.disabled && !stop.hidden;
	}

	return {
		root,
		say,
		put,
		focus: () => box.focus(),
		replyTo(message) {
			store.set({ replyTo: message.id });
			box.focus();
		},
	};
}
