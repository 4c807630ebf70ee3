/** Texts for the server's terms. */

const known = words => term => words[term] ?? String(term ?? "").replaceAll("_", " ");

/** Why a message of the chat was chosen. */
export const reasonWords = known({
	trigger: "the call itself",
	anchor: "what the call is about",
	reply_chain: "linked by replies",
	session: "part of the same talk",
	topic: "about the same thing",
	addressed: "said to somebody in this talk",
	semantic: "similar in meaning",
	neighbour: "said right beside it",
	recent: "said lately",
});

/** Context strategies. */
export const STRATEGIES = {
	relevant: "What belongs to the call",
	time_gap: "The talk since the last silence",
	thread: "The chain of replies",
	recent: "The latest messages",
};

/** What a follow-up is for. */
const TRIGGER_WORDS = {
	check_in: "To pick up the conversation",
	question_unanswered: "A question is still open",
	task_incomplete: "Something is still to be done",
	waiting_for_decision: "A decision is still open",
};
export const triggerWords = known(TRIGGER_WORDS);
export const TRIGGERS = Object.keys(TRIGGER_WORDS);

const gateWords = known({
	server: "follow-ups are switched off on this server",
	agent: "this agent doesn't follow up",
	unreachable: "the chat can't be reached any more",
	conversation: "follow-ups are switched off in this conversation",
	muted: "this conversation was muted",
	resting: "the model was resting after several failures",
	consecutive: "it had already followed up three times without an answer",
	too_soon: "it had followed up just before",
	quiet_hours: "it was within your quiet hours",
	too_frequent: "it had followed up less than an hour before, and nobody had answered",
	daily_limit: "it had followed up twice within a day",
	repeated: "it had brought this up before",
});

const outcomes = known({
	delivered: "Said",
	fired: "Being written",
	superseded: "Not needed: somebody spoke first",
	leaked: "Held back: the words were not good enough to send",
	failed: "Held back: the model could not be reached",
	expired: "Dropped: its time passed while the server was off",
});

/** The outcome of a follow-up, and why it was held back. */
export const outcomeWords = timer => (timer.state === "suppressed" ? `Held back: ${gateWords(timer.gate)}` : outcomes(timer.state));

/** How the agent came to remember something. */
export const originWords = known({ user: "you wrote it down", agent: "it chose to remember this", extracted: "from what you said" });

/** The steps of an answer, in their order. */
const PHASES = {
	load: "Looking up the conversation",
	context: "Choosing what belongs to it",
	memory: "Looking into memory",
	retrieval: "Looking into the notes",
	model: "Writing the answer",
	summary: "Summing up",
	commit: "Storing",
};
export const phaseWords = known(PHASES);
export const phaseOrder = phase => Object.keys(PHASES).indexOf(phase);

export const toolWords = known({
	get_smart_context: "asked for more of the talk",
	get_conversation_history: "looked further back",
	get_message: "looked a message up",
	search_conversation: "searched the chat",
});

/** The traits of an agent. */
export const agentTraits = agent => [
	agent.grounding === "strict" ? "Answers from your notes alone, or says that they don't hold it" : "Talks freely, and uses your notes where they help",
	agent.remembers ? "Remembers what you tell it" : "Remembers nothing beyond the conversation",
	agent.follows_up ? "Comes back to what was left open" : "Speaks only when spoken to",
];

/** The name of a conversation, titled or not. */
export const threadName = thread =>
	thread.title || (thread.kind === "group" ? "Group chat" : thread.last_message?.text.slice(0, 60) || "New conversation");

/** The text of a message, whatever its blocks. */
export function textOf({ content }) {
	if (typeof content === "string") return content;
	return (content ?? []).map(block => (block.type === "text" ? block.text : "[image]")).join("\n");
}
