/** The conversation: header, messages, scroll position. */

import { button, eachFrame, el, fill, icon } from "./dom.js";
import { draftItem, messageItem, pendingItem } from "./message.js";
import { dayKey, dayName } from "./times.js";
import { textOf, threadName } from "./words.js";

const NEAR = 60; // pixels from the end that still count as the end
const BREATH = 5 * 60_000; // after this the speaker is named again

export function createChat(app, composer) {
	const { store, thread, currentThread } = app;
	const { state } = store;
	const nodes = new Map();
	let isAtEnd = true;
	let isAtTop = false;
	let lastTop = 0;
	let unread = 0;
	let laidOut = {};
	let drawn = "";
	let cards = null;

	const list = el("ol.messages", { "aria-label": "Messages" });
	const sentinel = el("div.older", { role: "status" });
	const empty = el("div.empty-chat");
	const scroller = el("div.scroller", { tabIndex: 0, role: "region", "aria-label": "Message history", onscroll }, sentinel, empty, list);
	const jump = button("Latest", "jump", () => toEnd(thread.trim()), "down", { hidden: true });
	const header = el("header.top");
	const problem = el("div.problem", { role: "alert" });
	const root = el("section.chat", { "aria-label": "Chat" }, header, scroller, el("div.dock", jump, problem, composer.root));

	const actions = {
		reveal,
		reply: composer.replyTo,
		why: message => app.go({ panel: "why", subject: message.id }),
		showSource: (messageId, note) => app.go({ panel: "sources", subject: `${messageId}.${note}` }),
		addNotes: () => app.go({ panel: "notes" }),
		copy: app.copy,
		retry: thread.retry,
		askAgain: message => thread.askAgain(message).catch(app.tell),
		/** The cards of a reply that asks; their code is loaded with the first. */
		questions(message) {
			const place = el("div");
			cards ??= import("./approvals/cards.js").then(loaded => loaded.createCards(app));
			cards.then(made => made.show(place, message)).catch(() => (cards = null));
			return place;
		},
		/** The choice below a reminder; its code is loaded with the first. */
		snooze(message) {
			const place = el("div.reminder-snooze");
			import("./reminders/snooze.js").then(({ snoozeChoice }) => fill(place, snoozeChoice(app, { id: message.reminder_id }, app.loadTimers))).catch(() => {}); // the panel has it, too
			return place;
		},
		takeBack(one) {
			thread.discard(one);
			composer.put(one.text);
		},
	};

	list.addEventListener("click", event => {
		const chip = event.target.closest("a.source");
		if (!chip) return;
		event.preventDefault();
		actions.showSource(chip.closest("[data-message-id]").dataset.messageId, chip.dataset.note);
	});

	const agentName = () => app.agentOf(currentThread())?.name ?? "The agent";
	const render = eachFrame(draw);
	const grow = eachFrame(() => state.turns.forEach(turn => nodes.get(`turn:${turn.messageId}`)?.draft.show(turn.text)));
	const drawnAs = () => [state.thread, currentThread()?.kind, agentName(), app.agentOf(currentThread())?.greeting].join();
	store.watch(["thread"], () => {
		isAtEnd = true;
		unread = 0;
	});
	store.watch(["messages", "pending"], render);
	store.watch(["thread", "threads", "agents"], () => drawnAs() !== drawn && render());
	store.watch(["turns"], () => {
		// While only a draft grows, skip the rest.
		const isSame = state.turns.every(turn => nodes.has(`turn:${turn.messageId}`)) && list.getElementsByClassName("draft").length === state.turns.length;
		(isSame ? grow : render)();
	});
	store.watch(["threads", "thread", "agents", "timers", "side"], drawHeader);
	store.watch(["lit"], light);
	store.watch(["loading", "older"], () => {
		sentinel.textContent = state.loading ? "Loading…" : state.older === null && state.messages.length ? "The beginning" : "";
		render();
		if (!state.loading) setTimeout(older, 200); // who scrolls fast is at the top again by now
	});
	store.watch(["problem"], () => {
		problem.hidden = !state.problem;
		fill(problem, icon("warn"), el("span", state.problem ?? ""), button("Close", "tool", () => store.set({ problem: null }), "close"));
	});
	new IntersectionObserver(seen => older((isAtTop = seen.at(-1).isIntersecting)), { root: scroller, rootMargin: "600px 0px 0px" }).observe(sentinel);
	const resized = new ResizeObserver(() => isAtEnd && toEnd());
	resized.observe(list);
	resized.observe(scroller);

	/** Update the list; change only what is new and keep the scroll position. */
	function draw() {
		if (drawnAs() !== drawn) {
			drawn = drawnAs();
			laidOut = {};
			nodes.clear();
			list.replaceChildren();
		}
		const shown = items();
		const before = isAtEnd ? null : topmost();
		list.classList.toggle("pair", currentThread()?.kind === "direct");
		const keys = new Set(shown.map(one => one.key));
		for (const [key, node] of nodes) {
			if (keys.has(key)) continue;
			node.el.remove();
			nodes.delete(key);
		}
		let last = null;
		for (const item of shown) {
			const node = nodeOf(item).el;
			const next = last ? last.nextSibling : list.firstChild;
			if (node !== next) list.insertBefore(node, next);
			last = node;
		}
		if (isAtEnd) toEnd();
		else if (before?.el.isConnected) scroller.scrollTop += before.el.getBoundingClientRect().top - before.top;
		drawEmpty(shown.length);
	}

	/** The item at the top of the view, to keep it there. */
	function topmost() {
		const edge = scroller.getBoundingClientRect().top;
		const { children } = list;
		let [low, high] = [0, children.length - 1];
		while (low < high) {
			const middle = (low + high) >> 1;
			if (children[middle].getBoundingClientRect().bottom > edge) high = middle;
			else low = middle + 1;
		}
		return children[low] && { el: children[low], top: children[low].getBoundingClientRect().top };
	}

	/** The items of the list: days, messages, drafts, unsent messages. */
	function items() {
		const own = one => ({ key: one.key, pending: one });
		return [
			...listMessages(),
			...state.pending.filter(one => one.id).map(own),
			...state.turns.map(turn => ({ key: `turn:${turn.messageId}`, turn })),
			...state.pending.filter(one => !one.id).map(own),
		];
	}

	function listMessages() {
		if (laidOut.messages === state.messages) return laidOut.shown;
		const known = new Map(state.messages.map(one => [one.id, one]));
		const speaker = one => `${one.role}:${one.author?.id}`;
		const shown = [];
		let last = null;
		for (const message of state.messages) {
			const isNewDay = !last || dayKey(last.created_at) !== dayKey(message.created_at);
			if (isNewDay) shown.push({ key: `day:${dayKey(message.created_at)}`, day: message.created_at });
			const isNew = isNewDay || speaker(last) !== speaker(message) || Date.parse(message.created_at) - Date.parse(last.created_at) > BREATH;
			shown.push({ key: message.id, message, head: isNew || message.autonomous || Boolean(message.reminder_id), quoted: quotedBy(message, last, known) });
			last = message;
		}
		laidOut = { messages: state.messages, shown };
		return shown;
	}

	function quotedBy(message, last, known) {
		const { reply_to_id: id, context_snapshot: told } = message;
		if (!(id || told) || (message.role === "assistant" && [last?.id, last?.reply_to_id].includes(id))) return null;
		const parent = known.get(id);
		if (!parent) return { id, name: told?.author?.name ?? told?.author ?? "Earlier", text: told?.text ?? "Show the original message" };
		const isAgent = parent.role === "assistant";
		return { id, isAgent, name: isAgent ? agentName() : (parent.author?.name ?? "You"), text: textOf(parent) };
	}

	function nodeOf(item) {
		const old = nodes.get(item.key);
		if (old && isSame(old.item, item)) {
			old.draft?.show(item.turn.text);
			return old;
		}
		const node = makeItem(item);
		nodes.set(item.key, node);
		enlighten(item.key, node.el);
		if (old) {
			const hadFocus = old.el.contains(document.activeElement);
			old.el.replaceWith(node.el);
			if (hadFocus) node.el.focus({ preventScroll: true });
		}
		return node;
	}

	const isSame = (a, b) => Boolean(a.turn && b.turn) || (a.message === b.message && a.head === b.head && a.pending === b.pending && a.quoted?.text === b.quoted?.text);

	function makeItem(item) {
		if (item.day) return { item, el: el("li.day", dayName(item.day)) };
		if (item.pending) return { item, el: pendingItem(item.pending, actions) };
		if (item.message) return { item, el: messageItem(item.message, { ...item, agentName: agentName(), actions }) };
		const draft = draftItem(agentName());
		draft.show(item.turn.text);
		return { item, draft, el: draft.item };
	}

	function drawHeader() {
		const one = currentThread();
		if (!one) return;
		const agent = app.agentOf(one);
		const looks = [one.id, threadName(one), agent?.name, state.timers?.timers.length, state.side].join();
		if (header.dataset.looks === looks) return; // whoever stands on one of its buttons stays there
		header.dataset.looks = looks;
		const isGroup = one.kind === "group";
		const waits = state.timers?.timers.length ?? 0;
		fill(
			header,
			button("Back to the conversations", "tool back", () => app.go({ thread: null, panel: null }), "back"),
			el(
				"div.title",
				el("h1", button(threadName(one), "plain-title", () => app.rename(one), null, { title: "Rename" })),
				el("p", icon(isGroup ? "group" : "person"), agent?.name ?? one.agent, isGroup && ` in a group: mention @${agent?.handles[0]}`, one.channel === "telegram" && " · Telegram"),
			),
			waits > 0 && button(waits === 1 ? "1 follow-up planned" : `${waits} planned`, "pill unasked", () => app.go({ panel: "next" }), "next"),
			button("Delete this conversation", "tool", () => app.remove(one), "trash"),
			button(state.side ? "Hide the details" : "Show the details", "tool", app.toggleSide, "side", { "aria-expanded": String(state.side) }),
		);
	}

	function drawEmpty(isFilled) {
		const one = currentThread();
		empty.hidden = Boolean(isFilled) || !one || state.loading || state.older === undefined;
		if (!empty.hidden) fill(empty, app.emptyChat(one));
	}

	/** Highlight the messages that the Why panel lists. */
	function light() {
		list.classList.toggle("dimmed", Boolean(state.lit));
		for (const [key, node] of nodes) enlighten(key, node.el);
	}

	function enlighten(key, node) {
		node.classList.toggle("lit", Boolean(state.lit?.chosen.has(key)));
		node.classList.toggle("about", state.lit?.about === key);
	}

	function onscroll() {
		const wasAtEnd = isAtEnd;
		const top = scroller.scrollTop;
		// Only scrolling up leaves the end: content that grows also moves the position.
		if (scroller.scrollHeight - top - scroller.clientHeight < NEAR) isAtEnd = true;
		else if (top < lastTop) isAtEnd = false;
		lastTop = top;
		if (isAtEnd !== wasAtEnd) drawJump();
	}

	function drawJump() {
		if (isAtEnd) unread = 0;
		jump.hidden = isAtEnd;
		jump.lastChild.textContent = unread ? `${unread} new` : "Latest";
	}

	function toEnd() {
		isAtEnd = true;
		drawJump();
		scroller.scrollTop = scroller.scrollHeight;
		lastTop = scroller.scrollTop;
	}

	function older() {
		if (isAtTop) thread.loadOlder().catch(app.tell);
	}

	/** Scroll to a message, loading older pages if needed. */
	async function reveal(id) {
		if (!(await thread.reach(id))) return app.toast("This message was not found.");
		isAtEnd = false;
		draw();
		const node = nodes.get(id).el;
		node.scrollIntoView({ block: "center" });
		// Heights outside the view are estimates: scroll again once they are known.
		requestAnimationFrame(() => {
			node.scrollIntoView({ block: "center" });
			node.focus({ preventScroll: true });
			node.classList.add("found");
			setTimeout(() => node.classList.remove("found"), 2_000);
		});
	}

	return {
		root,
		reveal,
		toEnd: () => toEnd(thread.trim()),
		/** Count a new message for those who have scrolled up. */
		countUnread() {
			unread += 1;
			drawJump();
		},
	};
}
