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
			el("fieldset.choices", el("legend", "Who is there?"), choice("direct", "You and the agent", "It answers everything you say."), choice("group", "A group", "It listens, and answers when called.")),
			el("h3", "With whom?"),
			agents.map(card),
		);
	});
}

/** Hints in an empty conversation. */
export function emptyChat(thread, agent, say) {
	const name = agent?.name ?? "the agent";
	const isGroup = thread.kind === "group";
	let ideas = ["I'm Ana and I moved to Lisbon in May.", "I can't decide between Porto and Madrid for our offsite."];
	let text = "It talks with you, remembers what you tell it, uses your notes where they help, and comes back to what was left open.";
	if (isGroup) {
		ideas = [];
		text = `Speak as several people (“as”, beside the box) and let them talk past each other. Then call @${agent?.handles[0]}: it finds the messages that belong to the call, and shows which.`;
	} else if (agent?.grounding === "strict") {
		ideas = ["What do my notes say about leave?"];
		text = "It answers from your notes alone, with citations that are checked. When they don't hold the answer, it says so.";
	}
	return el(
		"div.empty",
		icon("spark"),
		el("h2", isGroup ? "Nobody has spoken yet" : `Say something to ${name}`),
		el("p", text),
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
			el("h1", "An agent that knows what you mean, shows what it rests on, and comes back."),
			el("p.intro", "Three things chat bots get wrong. Each takes one click to see, with a sample notebook and a sample group chat that you can remove again."),
			el(
				"ol.tries",
				card(1, "why", "It chimes in with the right context", "Five people, two topics, days of silence. Somebody calls it, and it picks the messages that belong to the call. See which, and why.", "Call it in the group", app.tryChime),
				card(2, "quote", "It answers from your notes, checked", "Every citation was looked up for this very answer and leads to its passage. When the notes don't hold the answer, it says so.", "Ask the notes", app.tryNotes),
				card(3, "next", "It follows up on its own", "Leave something open, and it plans to come back: you see when and why, and can postpone, cancel or mute it.", "Leave something open", app.tryFollowUp),
			),
			el("div.row", samples, button("Begin your own conversation", "quiet", app.begin, "plus")),
			state.session?.builtin && el("p.hint", "The built-in model answers now: it needs no key and knows little. ", button("Use a real one", "link", app.aboutModel)),
		);
	}

	return { root };
}

/** The model in use, and how to change it. */
export function aboutModel(session) {
	return dialog("What answers here", () =>
		el(
			"div.stack",
			el("p", session.builtin ? "The built-in model. It needs no key and no download, and so it knows little: enough to try everything here." : session.model),
			el("p", "Another one is a setting away, when the server starts:"),
			el("pre", "RAPPORT_MODEL=openai:gpt-5-mini OPENAI_API_KEY=…\nRAPPORT_MODEL=anthropic:claude-sonnet-4-5 ANTHROPIC_API_KEY=…\nRAPPORT_MODEL=ollama:qwen3"),
			el("p.hint", `“rapport doctor” says whether it works. This is version ${session.version}.`),
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
				problem.textContent = error.status === 401 ? "This key is not known here." : error.message;
				key.select();
			}
			go.disabled = false;
		};
		const hint = "Whoever runs this server makes one with “rapport keys create”. The browser keeps a session, in a cookie that no script can read.";
		const logo = el("img", { src: "/page/icon.svg", alt: "", width: 44 });
		fill(place, el("section.sign-in", { data: { panel: "sign-in" } }, form("stack", submit, logo, el("h1", "Sign in to Rapport"), field("Your key", key), problem, go, el("p.hint", hint))));
		key.focus();
	});
}
