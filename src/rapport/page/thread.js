/** The open conversation. Every message is kept by its id, whether history, the live stream or a request brings it.
 *
 * In the store: `messages` (in order), `older` (where the page before begins; null: nowhere), `turns`
 * (answers being written), `pending` (own messages on their way), `questions` (rises with each change of one).
 */

import { eventsOf } from "./api.js";
import { follow } from "./live.js";
import { kept } from "./store.js";
import { textOf } from "./words.js";

const PAGE = 50;
const FAR = 500;
const HELLO = 400; // for so long the history waits for the stream, so that nothing is said between the two
const LATE = 1_500; // after this a message that the stream should have brought is fetched

const place = message => (message ? message.created_at.replace("Z", "") + message.id : "");

/** The initial state of a conversation. */
export const nothingOpen = () => ({
	thread: null, messages: [], older: undefined, loading: false, turns: [], pending: [], people: null, lit: null, replyTo: null, timers: null, questions: 0, problem: null,
});

export function createThread({ store, api, onSaid, onTimers, onMemory, onGone }) {
	const { state, set } = store;
	let stream = null;
	let settled = new Set();

	const has = id => state.messages.some(one => one.id === id);
	const turnOf = messageId => state.turns.find(one => one.messageId === messageId);

	/** Show another conversation, or none. */
	async function open(id) {
		if (state.thread === id) return;
		stream?.stop();
		stream = null;
		settled = new Set();
		const unsent = (id && kept.get(`unsent.${id}`)) || [];
		set({ ...nothingOpen(), thread: id, loading: id !== null, pending: unsent });
		if (id === null) return;
		let isGreeted = false;
		const greeted = new Promise(resolve => {
			stream = follow(api, `/api/threads/${id}/events`, {
				onGone: () => state.thread === id && onGone(id),
				onWait: retryAt => set({ lost: { retryAt } }),
				onEvent(event) {
					if (state.thread !== id) return;
					if (event.name !== "hello") return onEvent(event);
					isGreeted = true;
					resolve();
				},
			});
		});
		await Promise.race([greeted, new Promise(resolve => setTimeout(resolve, HELLO))]);
		const isCertain = isGreeted;
		await page(id);
		if (!isCertain) greeted.then(() => page(id));
		// What was written meanwhile is on its way already.
		for (const { key } of unsent) {
			const one = state.pending.find(other => other.key === key && !other.id);
			if (one && one.state !== "failed") deliver(one);
		}
	}

	async function page(id, before = null, limit = PAGE) {
		if (state.thread !== id) return;
		set({ loading: true });
		try {
			const found = await api.get(`/api/threads/${id}/history?render=html&limit=${limit}${before ? `&before=${before}` : ""}`);
			if (state.thread !== id) return;
			merge(found.messages);
			if (before || state.older === undefined) set({ older: found.next });
		} finally {
			if (state.thread === id) set({ loading: false });
		}
	}

	/** Add or replace messages, in order; end the turns that they answer. */
	function merge(messages) {
		const all = new Map(state.messages.map(one => [one.id, one]));
		const isLast = messages.length === 1 && !all.has(messages[0].id) && place(messages[0]) > place(state.messages.at(-1));
		for (const one of messages) all.set(one.id, { ...all.get(one.id), ...one });
		const sorted = [...all.values()];
		if (!isLast) sorted.sort((a, b) => (place(a) < place(b) ? -1 : 1));
		set({ messages: sorted, pending: state.pending.filter(one => !all.has(one.id)) });
		for (const one of messages) if (one.role === "assistant" && !one.autonomous) settled.add(one.reply_to_id);
		const isOver = one => settled.has(one.messageId) || all.has(one.replyId); // one that goes on has its own id
		if (state.turns.some(isOver)) set({ turns: state.turns.filter(one => !isOver(one)) });
	}

	/** One event of the live stream. */
	function onEvent({ name, data }) {
		if (name === "message") onMessage(data);
		else if (name === "started") begin(data.message_id, "stream");
		else if (name === "token") grow(data.message_id, data.text, "stream");
		else if (name === "ended") onEnd(data.message_id, data.reply_id);
		else if (name === "timers") onTimers();
		else if (name === "approvals") set({ questions: state.questions + 1 });
		else if (name.startsWith("memory.")) onMemory(name.slice(7), data);
	}

	function onMessage(message) {
		const isNew = !has(message.id);
		if (isNew && message.role === "user") claim(message);
		merge([message]);
		if (isNew) onSaid(message);
	}

	/** The stream may deliver our message before the request that sent it is answered. */
	function claim(message) {
		const own = state.pending.find(one => !one.id && one.state === "sending" && one.text === textOf(message));
		if (own) change(own, { id: message.id });
	}

	/** A reply is complete: keep its text until the message arrives. */
	function onEnd(messageId, replyId) {
		if (!replyId || has(replyId)) return end(messageId);
		setTurn(messageId, { replyId });
		fetchLate(replyId);
	}

	function begin(messageId, source) {
		if (settled.has(messageId)) return;
		const turn = turnOf(messageId);
		if (!turn) set({ turns: [...state.turns, { messageId, source, text: "" }] });
		// A new connection repeats the answer from its first word.
		else if (turn.source === source || source === "request") setTurn(messageId, { source, text: "" });
	}

	function grow(messageId, text, source) {
		if (settled.has(messageId)) return;
		if (!turnOf(messageId)) begin(messageId, source);
		const turn = turnOf(messageId);
		if (turn.source === source) setTurn(messageId, { text: turn.text + text });
	}

	const setTurn = (messageId, patch) => set({ turns: state.turns.map(one => (one.messageId === messageId ? { ...one, ...patch } : one)) });

	function end(messageId) {
		settled.add(messageId);
		set({ turns: state.turns.filter(one => one.messageId !== messageId) });
	}

	/** Send a message: shown at once, and sent again under the same key until the server has it or refuses it. */
	function send(text, { author = null, replyTo = null } = {}) {
		const key = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
		const one = { key, thread: state.thread, text, author, replyTo, state: "sending", id: null, problem: null, attempt: 0, at: new Date().toISOString() };
		set({ pending: [...state.pending, one] });
		remember();
		return deliver(one);
	}

	async function deliver(given) {
		const one = change(given, { state: "sending", problem: null });
		const { thread } = one;
		const body = { content: one.text, client_message_id: one.key, ...(one.author && { author: one.author }), ...(one.replyTo && { reply_to_id: one.replyTo }) };
		let messageId = null;
		try {
			const response = await api.open("POST", `/chat/conversations/${thread}/messages`, { body });
			if (response.status === 202) return onAccepted(one, (await response.json()).id);
			messageId = response.headers.get("X-Message-Id");
			onAccepted(one, messageId);
			await answer(thread, messageId, response);
		} catch (error) {
			// Once accepted, the answer comes by the live stream.
			if (!messageId) onRefused(one, error);
			else if (state.thread === thread) setTurn(messageId, { source: "stream" });
		}
	}

	async function answer(thread, messageId, response) {
		if (state.thread === thread) begin(messageId, "request");
		for await (const { name, data } of eventsOf(response)) {
			if (state.thread !== thread) return;
			if (name === "token") grow(messageId, data.token, "request");
			else if (name === "error") {
				end(messageId);
				set({ problem: data.detail ?? "It could not answer." });
			} else onEnd(messageId, data.id);
		}
	}

	function fetchLate(id) {
		const { thread } = state;
		setTimeout(async () => {
			if (state.thread !== thread || has(id)) return;
			const message = await api.get(`/api/threads/${thread}/messages/${id}?render=html`).catch(() => null); // the stream brings it later
			if (message && state.thread === thread) onMessage(message);
		}, LATE);
	}

	function onAccepted(one, id) {
		change(one, { id, state: "sent" });
		if (has(id)) discard(one);
		else if (state.thread === one.thread) fetchLate(id);
		remember();
	}

	function onRefused(one, error) {
		if (!error.isPassing) {
			change(one, { state: "failed", problem: error.message });
			return remember();
		}
		change(one, { state: "waiting", attempt: one.attempt + 1 });
		setTimeout(() => {
			const still = state.pending.find(other => other.key === one.key);
			if (still?.state === "waiting") deliver(still);
		}, Math.max(error.retryAfter * 1000, Math.min(15_000, 800 * 2 ** one.attempt)));
	}

	function change(one, patch) {
		const changed = { ...(state.pending.find(other => other.key === one.key) ?? one), ...patch };
		set({ pending: state.pending.map(other => (other.key === one.key ? changed : other)) });
		return changed;
	}

	function discard(one) {
		set({ pending: state.pending.filter(other => other.key !== one.key) });
		remember();
	}

	/** Keep unsent messages across reloads. */
	function remember() {
		const unsent = state.pending.filter(one => !one.id);
		kept.put(`unsent.${state.thread}`, unsent.length ? unsent : null);
	}

	/** Load pages back to a message; false if missing. */
	async function reach(id) {
		const { thread } = state;
		while (state.thread === thread && !has(id)) {
			if (!state.older) return false;
			await page(thread, state.older, FAR);
		}
		return state.thread === thread;
	}

	/** Send the message of a reply again, as a new one. */
	async function askAgain({ reply_to_id: id }) {
		if (!(await reach(id))) return;
		const { content, author, reply_to_id: replyTo } = state.messages.find(one => one.id === id);
		send(content, { author, replyTo });
	}

	return {
		open,
		send,
		askAgain,
		discard,
		reach,
		retry: deliver,
		stop: () => api.post(`/chat/conversations/${state.thread}/cancel`),
		/** Forget old pages; scrolling back loads them again. */
		trim() {
			const messages = state.messages.slice(-2 * PAGE);
			if (state.messages.length > FAR) set({ messages, older: messages[0].id });
		},
		hurry: () => stream?.hurry(),
		loadOlder: async () => state.older && !state.loading && page(state.thread, state.older),
	};
}
