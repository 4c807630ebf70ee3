/** New conversations, the start page, and signing in. */

import { dialog, field, form } from "./dialogs.js";
import { button, el, fill, icon } from "./dom.js";
import { avatar } from "./message.js";
import { agentTraits } from "./words.js";

/** Choose an agent and a kind of chat; resolves with `{agent, kind}` or null. */
export function chooseAgent(agents) {
	return dialog("New conversation", close => {
		let kind = "direct";
		const choice = (value, label, text) =>
			el(
				"label.choice",
				el("input", { type: "radio", name: "kind", checked: value === kind, onchange: () => (kind = value) }),
				el("span", el("b", label), el("small", text)),
			);
		const card = agent =>
			el(
				"button.agent-card",
				{ type: "button", data: { agent: agent.id }, onclick: () => close({ agent: agent.id, kind }) },
				avatar(agent.name, true),
				el("span", el("b", agent.name), el("span", agent.description), agentTraits(agent).map(trait => el("small", icon("check"), trait))),
			);
		return el(
			"div.stack",
			el("fieldset.choices", el("legend", "Kind of chat"), choice("direct", "You and the agent", "It answers every message."), choice("group", "A group", "It reads every message and answers when mentioned.")),
			el("h3", "Agent"),
			agents.map(card),
			el("div.row", button("Make another agent", "link", () => close({ isNew: true }))),
		);
	});
}

/** Hints in an empty conversation. */
export function emptyChat(thread, agent, say) {
	const name = agent?.name ?? "the agent";
	const isGroup = thread.kind === "group";
	const greeting = agent?.greeting && el("p.greeting", { dir: "auto" }, agent.greeting);
	let ideas = ["I'm Ana and I moved to Lisbon in May.", "I can't decide between Porto and Madrid for our offsite."];
	let text = "It remembers what you tell it, uses your notes where they help, and follows up on what is left open.";
	if (isGroup) {
		ideas = [];
		text = `Write as several people (“as”, beside the message box) about different topics. Then mention @${agent?.handles[0]}: it finds the messages that belong to your question, and shows which.`;
	} else if (agent?.grounding === "strict") {
		ideas = ["What do my notes say about leave?"];
		text = "It answers only from your notes, with checked citations. If they don't contain the answer, it says so.";
	}
	if (!isGroup && agent?.is_shipped === false) {
		ideas = [];
		text = greeting ? "" : agent.description || `${agentTraits(agent).join(". ")}.`;
	}
	return el(
		"div.empty",
		icon("spark"),
		el("h2", isGroup ? "No messages yet" : `Write to ${name}`),
		greeting,
		text && el("p", { dir: "auto" }, text),
		el("div.ideas", ideas.map(idea => button(idea, "chip", () => say(idea)))),
	);
}

/** The start page: features to try with one click. */
export function createStart(app) {
	const { state, watch } = app.store;
	const root = el("section.start", { data: { panel: "start" }, "aria-label": "What it can do" });
	watch(["samples", "session", "busy"], draw);

	const card = (number, picture, title, text, action, work) =>
		el("li.try", el("span.try-icon", icon(picture)), el("h2", title), el("p", text), button(action, "primary", work, "play", { disabled: state.busy, data: { try: number } }));

	function draw() {
		const samples = state.samples?.loaded
			? button("Remove the samples", "quiet", app.removeSamples, "trash", { disabled: state.busy })
			: button("Load the samples", "quiet", app.loadSamples, "notes", { disabled: state.busy });
		fill(
			root,
			button("Back to the conversations", "tool back", () => app.go({ isStart: false, thread: null, panel: null }), "back"),
			el("h1", "An agent that finds the right context, shows its sources, and follows up."),
			el("p.intro", "Try each with one click. This loads sample notes and a sample group chat, which you can remove again."),
			el(
				"ol.tries",
				card(1, "why", "It chimes in with the right context", "Five people, two topics, days of silence. Somebody mentions the agent, and it picks the messages that belong to the question. See which, and why.", "Call it in the group", app.tryChime),
				card(2, "quote", "It answers from your notes, checked", "Every citation is checked and links to its passage. If the notes don't contain the answer, it says so.", "Ask the notes", app.tryNotes),
				card(3, "next", "It follows up on its own", "Leave a decision open, and it plans a follow-up. You see when and why, and can postpone, cancel or mute it.", "Leave something open", app.tryFollowUp),
			),
			el("div.row", samples, button("Begin your own conversation", "quiet", app.begin, "plus")),
			state.session?.builtin && el("p.hint", "The built-in model is in use. It needs no key and knows little. ", button("Use another model", "link", app.aboutModel)),
		);
	}

	return { root };
}

/** The model in use, and how to change it. */
export function aboutModel(session) {
	return dialog("Model", () =>
		el(
			"div.stack",
			el("p", session.builtin ? "The built-in model. It needs no key and no download. It knows little, but enough to try everything here." : session.model),
			el("p", "To use another model, set it when you start the server:"),
			el("pre", "RAPPORT_MODEL=openai:gpt-5-mini OPENAI_API_KEY=…\nRAPPORT_MODEL=anthropic:claude-sonnet-4-5 ANTHROPIC_API_KEY=…\nRAPPORT_MODEL=ollama:qwen3"),
			el("p.hint", `“rapport doctor” checks whether it works. This is version ${session.version}.`),
		),
	);
}

/** Ask for a key; resolves after signing in. */
export function signIn(place, api) {
	return new Promise(resolve => {
		const key = el("input", { type: "password", autocomplete: "current-password", required: true });
		const problem = el("p.mark.fallback", { role: "alert", hidden: true });
		const go = button("Sign in", "primary", null, null, { type: "submit" });
		const submit = async () => {
			go.disabled = true;
			try {
				await api.post("/api/session", { key: key.value.trim() });
				resolve();
			} catch (error) {
				problem.hidden = false;
				problem.textContent = error.status === 401 ? "This key is not valid." : error.message;
				key.select();
			}
			go.disabled = false;
		};
		const hint = "The operator of this server makes keys with “rapport keys create”. The browser keeps the session in a cookie that no script can read.";
		const logo = el("img", { src: "/page/icon.svg", alt: "", width: 44 });
		fill(place, el("section.sign-in", { data: { panel: "sign-in" } }, form("stack", submit, logo, el("h1", "Sign in to Rapport"), field("Your key", key), problem, go, el("p.hint", hint))));
		key.focus();
	});
}
