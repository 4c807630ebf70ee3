/** Texts for the server's terms. */

const translate = words => term => words[term] ?? String(term ?? "").replaceAll("_", " ");

/** Why a message of the chat was chosen. */
export const reasonWords = translate({
	trigger: "the question itself",
	anchor: "what the question is about",
	reply_chain: "linked by replies",
	session: "part of the same discussion",
	topic: "about the same topic",
	addressed: "addressed to a participant",
	semantic: "similar in meaning",
	neighbour: "next to it in the chat",
	recent: "recent",
});

/** Context strategies. */
export const STRATEGIES = {
	relevant: "Relevance",
	time_gap: "Messages since the last silence",
	thread: "The reply chain",
	recent: "The latest messages",
};

/** What a follow-up is for. */
const TRIGGER_WORDS = {
	check_in: "To pick up the conversation",
	question_unanswered: "A question is still open",
	task_incomplete: "A task is still open",
	waiting_for_decision: "A decision is still open",
};
export const triggerWords = translate(TRIGGER_WORDS);
export const TRIGGERS = Object.keys(TRIGGER_WORDS);

const gateWords = translate({
	server: "follow-ups are switched off on this server",
	agent: "this agent doesn't follow up",
	unreachable: "the chat can no longer be reached",
	conversation: "follow-ups are switched off in this conversation",
	muted: "this conversation was muted",
	resting: "the model was paused after several failures",
	consecutive: "it had already followed up three times without an answer",
	too_soon: "it had followed up just before",
	quiet_hours: "it was within your quiet hours",
	too_frequent: "it had followed up less than an hour before, and nobody had answered",
	daily_limit: "it had followed up twice within a day",
	repeated: "it had asked about this before",
	budget: "this month's budget of tokens was used up",
});

const outcomes = translate({
	delivered: "Sent",
	fired: "Being written",
	superseded: "Not needed: somebody wrote first",
	leaked: "Held back: the text did not pass the check",
	failed: "Held back: the model could not be reached",
	expired: "Dropped: the server was off when it was due",
});

/** What a model was called for. */
export const purposeWords = translate({
	answer: "answers",
	follow_up: "follow-ups",
	leak_retry: "second drafts of follow-ups",
	summary: "summaries",
	reflection: "reflections",
	try: "trials",
});

/** The outcome of a follow-up, and why it was held back. */
export const outcomeWords = timer => (timer.state === "suppressed" ? `Held back: ${gateWords(timer.gate)}` : outcomes(timer.state));

/** How the agent came to remember something. */
export const originWords = translate({ user: "added by you", agent: "saved by the agent", extracted: "from your message" });

/** The steps of an answer, in their order. */
const PHASES = {
	load: "Loading the conversation",
	context: "Choosing the context",
	memory: "Searching memory",
	retrieval: "Searching the notes",
	model: "Writing the answer",
	summary: "Summarizing",
	commit: "Storing the answer",
};
export const phaseWords = translate(PHASES);
export const phaseOrder = phase => Object.keys(PHASES).indexOf(phase);

export const toolWords = translate({
	get_smart_context: "loaded more context",
	get_conversation_history: "loaded older messages",
	get_message: "looked up a message",
	search_conversation: "searched the chat",
});

const GROUNDINGS = {
	strict: "Answers only from your notes, or says that they don't contain the answer",
	blend: "Talks freely and uses your notes where they help",
	none: "Talks freely, without your notes",
};

/** The traits of an agent. */
export const agentTraits = agent => [
	GROUNDINGS[agent.grounding],
	agent.remembers ? "Remembers what you tell it" : "Keeps no memories",
	agent.follows_up ? "Follows up on what is left open" : "Writes only when asked",
];

/** The name of a conversation, titled or not. */
export const threadName = thread =>
	thread.title || (thread.kind === "group" ? "Group chat" : thread.last_message?.text.slice(0, 60) || "New conversation");

/** The text of a message, whatever its blocks. */
export function textOf({ content }) {
	if (typeof content === "string") return content;
	return (content ?? []).map(block => (block.type === "text" ? block.text : "[image]")).join("\n");
}
