/** The cards of a reply that asks before a tool changes something: each call with its arguments, and what became of it. */

import { button, el, fill, icon } from "../dom.js";
import { count, countdown } from "../times.js";

const AGAIN = 5_000; // an expired question is looked up again, until the server says so too
const LONG = 600; // characters or, in lines of 60, a value that scrolls
const OUTCOMES = {
	allowed: ["next", "Allowed. It will be done in a moment."],
	running: ["next", "Allowed. It is being done."],
	done: ["check", "Allowed and done."],
	failed: ["warn", "Allowed, but it failed: the tool reported an error, or it could not be used."],
	denied: ["close", "Not allowed, so it was not done."],
	expired: ["close", "Nobody decided in time, so it was not done. Ask again if you still want it."],
	unknown: ["warn", "Allowed, but it gave no answer: it may be done or not. It is not repeated. Check before you ask for it again."],
	forgotten: ["close", "This question is too old: what became of it is not kept."],
};
// Characters that show nothing, or turn the text around them.
const HIDDEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

await new Promise(resolve => {
	document.head.append(el("link", { rel: "stylesheet", href: "/page/approvals/cards.css", onload: resolve, onerror: resolve }));
});

export function createCards({ api, store }) {
	const { state } = store;
	const known = new Map(); // the questions, by id
	let cards = [];
	let timer = null;
	let checkedAt = 0;

	store.watch(["questions"], () => cards.length && look());
	setInterval(tick, 1_000);

	/** Show the cards of a message. */
	function show(place, message) {
		const added = message.approvals.map(id => createCard(id, state.thread, message));
		cards = [...cards.filter(one => one.root.isConnected), ...added];
		fill(place, added.map(one => one.root));
		if (message.approvals.every(id => known.has(id))) added.forEach(draw);
		else look();
	}

	/** Ask for the states, once for all changes of this moment. */
	function look() {
		timer ??= setTimeout(async () => {
			const { thread } = state;
			try {
				const found = thread ? (await api.get(`/api/threads/${thread}/approvals`)).approvals : [];
				for (const one of found) known.set(one.id, one);
				for (const { id } of cards.filter(one => one.thread === thread)) if (!known.has(id)) known.set(id, { id, state: "forgotten" });
				cards.forEach(draw);
			} catch { /* asked again when the connection is back */ } finally {
				timer = null;
			}
		});
	}

	function tick() {
		const waiting = cards.filter(one => one.root.isConnected && known.get(one.id)?.state === "asked");
		waiting.forEach(showTime);
		const isLate = waiting.some(one => left(one) <= 0);
		if (!isLate || document.hidden || Date.now() - checkedAt < AGAIN) return;
		checkedAt = Date.now();
		look();
	}

	const left = card => (Date.parse(known.get(card.id).expires_at) - Date.now()) / 1_000;

	function showTime(card) {
		const seconds = left(card);
		card.clock.textContent = seconds > 0 ? `${countdown(seconds)} left to decide` : "The time to decide is over…";
	}

	function createCard(id, thread, message) {
		const card = { id, thread, message, looks: null };
		card.allow = button("Allow", "primary", () => decide(card, "allow"), "check");
		card.deny = button("Don't allow", "", () => decide(card, "deny"));
		card.clock = el("small");
		card.body = el("div");
		card.choice = el("div.row", { hidden: true }, card.allow, card.deny, card.clock);
		card.outcome = el("p", { role: "status" });
		card.problem = el("p.approval-problem", { role: "alert" });
		card.root = el("section.approval", { tabIndex: -1, data: { approval: id } }, card.body, card.choice, card.outcome, card.problem);
		return card;
	}

	function draw(card) {
		const one = known.get(card.id);
		if (!one) return;
		const siblings = card.message.approvals.map(id => known.get(id));
		const waits = one.state === "allowed" && siblings.some(other => other?.state === "asked");
		const looks = one.state + waits;
		if (looks === card.looks) return;
		if (card.looks === null && one.tool) describe(card, one);
		card.looks = looks;
		card.root.dataset.state = one.state;
		const isOpen = one.state === "asked";
		const hadFocus = card.choice.contains(document.activeElement);
		card.choice.hidden = !isOpen;
		for (const given of card.body.querySelectorAll("details")) given.open = isOpen;
		if (isOpen) return showTime(card);
		const [picture, text] = OUTCOMES[one.state];
		fill(card.outcome, icon(picture), el("span", waits ? "Allowed. It waits for the other decisions." : text));
		if (hadFocus) card.root.focus({ preventScroll: true });
	}

	/** Send a decision. The same one again changes nothing, so it may be repeated after an error. */
	async function decide(card, decision) {
		if (card.isSending) return;
		card.isSending = true; // the buttons stay enabled: a disabled one would lose the focus
		card.problem.textContent = "";
		try {
			known.set(card.id, await api.post(`/api/threads/${card.thread}/approvals/${card.id}`, { decision }));
			cards.forEach(draw);
		} catch (error) {
			card.problem.textContent = error.message;
			look();
		} finally {
			card.isSending = false;
		}
	}

	return { show };
}

/** The question: the tool, its server and all arguments, as text. */
function describe(card, { tool, server, arguments: given }) {
	const name = visible(tool.replace(`${server}__`, ""));
	const entries = Object.entries(given);
	card.root.setAttribute("aria-label", `May I use ${name} of the server ${server}?`);
	fill(
		card.body,
		el("h3", icon("shield"), el("span", "May I use ", el("code", name), " of the server ", el("code", server), "?")),
		entries.length ? el("details", el("summary", "Arguments"), el("dl", entries.map(([key, value]) => [el("dt", visible(key)), valueOf(key, value)]))) : el("p.hint", "Without any arguments."),
	);
	cut(card);
}

function valueOf(key, value) {
	const text = visible(typeof value === "string" ? value : JSON.stringify(value, null, 2));
	const isLong = text.length > LONG || text.split("\n").length > LONG / 60;
	return el("dd", { dir: "auto" }, isLong ? longValue(key, text) : text || el("i", "empty"));
}

/** A box that scrolls. If it does not show all of the text, a line under it says so. */
function longValue(key, text) {
	const box = el("div.long", { tabIndex: 0, role: "group", "aria-label": visible(key) }, text);
	const more = el("small.more", { hidden: true }, `There is more: scroll in this box to read all ${count([...text].length, "character")}.`);
	new ResizeObserver(() => { more.hidden = box.scrollHeight <= box.clientHeight; }).observe(box);
	return [box, more];
}

const visible = text => text.replace(HIDDEN, one => `\\u{${one.codePointAt(0).toString(16)}}`);

/** Take the question out of the reply's text, which other channels show: the card says it in full. */
function cut({ root, message }) {
	const words = root.closest("article")?.querySelector(".words");
	if (!words || words.dataset.cut) return;
	words.dataset.cut = true;
	for (const _ of message.approvals) {
		const last = words.lastElementChild;
		const asked = last?.tagName === "OL" ? last.lastElementChild : last;
		if (!/^\s*(\d+\. )?May I use /.test(asked?.textContent)) break;
		asked.remove();
		if (last.childElementCount === 0 && last.tagName === "OL") last.remove();
	}
	words.closest(".bubble").hidden = !words.textContent.trim();
}
