/** Load and remove the samples; three things to try with one click. */

import { isNarrow } from "./dom.js";

const QUESTION = "How many days of leave do I have?";
const OPEN_MATTER = "I can't decide between the flat in Porto and the one in Lisbon. I have to tell the landlord by Friday.";
/** Calls in the sample chat, with author and reply. */
const CALLS = [
	{ as: "Maya", text: "@bot what do you think?" },
	{ as: "Jonas", text: "@bot what would you do?", about: "So: do I roll 2.4 back" },
	{ as: "Aiko", text: "@bot how much may a hotel cost?" },
];

export function createTries(app) {
	const { api, store } = app;
	const { state, set } = store;

	/** Run one action at a time; show errors. */
	const busily = work => async () => {
		if (state.busy) return;
		set({ busy: true });
		await work().catch(app.tell);
		set({ busy: false });
	};

	const lookAtSamples = async () => set({ samples: await api.get("/api/samples") });
	const lookAgain = () => Promise.all([lookAtSamples(), app.loadThreads({ isQuiet: true })]);

	async function haveSamples() {
		if (!state.samples?.loaded) {
			await api.post("/api/samples");
			await lookAgain();
		}
	}

	/** Open a conversation, with a panel if there is room. */
	const open = (thread, panel) => app.go({ thread, panel: isNarrow() ? null : panel });

	async function talk(agent, title, text, panel) {
		const made = await api.post("/api/threads", { agent, title });
		set({ threads: [made, ...state.threads] });
		open(made.id, panel);
		app.say(text);
	}

	/** Send a call as a participant, in reply to a loaded message. */
	const callOf = ({ as, text, about }) => ({
		text,
		label: `${as}: ${text}`,
		author: state.people?.people.find(one => one.name === as) ?? { id: as.toLowerCase(), name: as },
		replyTo: about ? (state.messages.find(one => String(one.content).startsWith(about))?.id ?? null) : null,
	});

	return {
		lookAtSamples,
		/** The actions for a conversation. */
		ideasFor(thread) {
			if (!thread || !state.samples?.loaded) return [];
			if (thread.id === state.samples.thread_id) return CALLS.map(callOf);
			const isAsking = app.agentOf(thread)?.grounding === "strict" && state.messages.length && state.messages.length < 6;
			const isNew = idea => !state.messages.some(one => one.content === idea.text);
			return isAsking ? [{ text: "What does a hotel room cost at most?" }, { text: "Who was Napoleon?" }].filter(isNew) : [];
		},
		loadSamples: busily(async () => {
			await haveSamples();
			open(state.samples.thread_id, "why");
		}),
		removeSamples: busily(async () => {
			const { thread_id: thread } = state.samples;
			await api.delete("/api/samples");
			if (state.thread === thread) app.go({ thread: null, isStart: true, panel: null });
			await lookAgain();
			app.toast("The samples were removed.");
		}),
		tryChime: busily(async () => {
			await haveSamples();
			open(state.samples.thread_id, "why");
			await app.waitForHistory();
			const call = callOf(CALLS.find(one => !state.messages.some(({ content }) => content === one.text)) ?? CALLS[0]);
			app.say(call.text, call);
		}),
		tryNotes: busily(async () => {
			await haveSamples();
			await talk("librarian", "Ask the notes", QUESTION, "sources");
		}),
		tryFollowUp: busily(() => talk("companion", "Something left open", OPEN_MATTER, "next")),
	};
}
