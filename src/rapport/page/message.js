/** One message, as an item of the list. */

import { button, el, icon, showHtml } from "./dom.js";
import { clockTime, fullTime } from "./times.js";
import { textOf, triggerWords } from "./words.js";

/** A stable colour for each person. */
export function hue(name) {
	let sum = 0;
	for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 9973;
	return `hue-${sum % 8}`;
}

/** An avatar: initials, or the sign of the agent. */
export function avatar(name, isAgent = false, picture = "spark") {
	if (isAgent) return el("span.avatar.agent", { "aria-hidden": "true" }, icon(picture));
	const letters = name.split(/\s+/).slice(0, 2).map(part => [...part][0] ?? "");
	return el("span", { class: `avatar ${hue(name)}`, "aria-hidden": "true" }, letters.join("").toUpperCase());
}

const heading = (name, isAgent, at, badge) =>
	el("header", el("b", { class: isAgent ? "name" : `name ${hue(name)}` }, name), badge, at && el("time", { datetime: at, title: fullTime(at) }, clockTime(at)));

/** A message. `head`: show the author; `quoted`: the message it replies to. */
export function messageItem(message, { head, quoted, agentName, actions }) {
	if (message.role === "system-summary") return summaryItem(message);
	const isAgent = message.role === "assistant";
	const name = isAgent ? agentName : (message.author?.name ?? "You");
	const kinds = [isAgent ? "agent" : "person", head && "head", message.autonomous && "unasked", message.guardUsed && "guard"];
	const badge = message.autonomous && el("span.badge.unasked", { title: triggerWords(message.trigger_type) }, icon("next"), "on its own");
	return el(
		"li",
		{ class: `message ${kinds.filter(Boolean).join(" ")}`, data: { messageId: message.id, role: message.role }, tabIndex: -1 },
		head && avatar(name, isAgent),
		el(
			"article",
			{ "aria-label": `${name}, ${fullTime(message.created_at)}` },
			head && heading(name, isAgent, message.created_at, badge),
			isAgent && remark(message, actions),
			el("div.bubble", quoted && quoteLine(quoted, actions), bodyOf(message)),
			isAgent && message.sources.length > 0 && chips(message, actions),
			message.approvals.length > 0 && actions.questions(message),
			message.reminder_id && actions.snooze(message),
			el(
				"div.tools",
				{ role: "group", "aria-label": "This message" },
				isAgent && !message.reminder_id && button("Why this answer?", "wordy", () => actions.why(message), "why"),
				button("Reply", "tool", () => actions.reply(message), "reply"),
				button("Copy", "tool", () => actions.copy(textOf(message)), "copy"),
			),
		),
	);
}

function bodyOf(message) {
	const body = el("div.words", { dir: "auto" });
	if (typeof message.html === "string") {
		showHtml(body, message.html);
		if (message.sources.length) numberCitations(body, message.sources);
	} else {
		body.classList.add("plain");
		body.textContent = textOf(message);
	}
	// Only inline images: nothing is fetched from other servers.
	const pictures = Array.isArray(message.content) ? message.content.map(block => block.image_url?.url ?? block.image_url) : [];
	for (const src of pictures) if (String(src).startsWith("data:image/")) body.append(el("img", { src, alt: "A picture" }));
	return body;
}

/** Number the citations; drop the closing line "Sources: a, b", which the chips repeat. */
function numberCitations(body, sources) {
	const last = body.lastElementChild;
	if (last?.tagName === "P" && /^\s*Sources:/.test(last.textContent)) last.remove();
	for (const link of body.querySelectorAll("a.source")) {
		const at = sources.findIndex(source => source.id === link.dataset.note) + 1;
		link.title = `Source ${at}: ${link.dataset.note}`;
		link.setAttribute("aria-label", link.title);
		link.textContent = at;
	}
}

/** Labels above a reply. */
function remark(message, actions) {
	if (message.guardUsed) {
		const add = button("Add a note", "link", actions.addNotes);
		return el("p.mark.guard", icon("shield"), el("span", "No note is close enough to the question. ", add));
	}
	if (message.fallbackUsed) {
		const told = message.problem?.text ?? `The model could not answer.${message.sources.length ? " These are passages of your notes." : ""}`;
		return el("p.mark.fallback", icon("warn"), el("span", told, " ", button("Ask again", "link", () => actions.askAgain(message))));
	}
	return message.cancelled && el("p.mark", icon("stop"), "You stopped this answer.");
}

function quoteLine(quoted, actions) {
	return el(
		"button.quote",
		{ type: "button", title: "Show the original message", onclick: () => quoted.id && actions.reveal(quoted.id) },
		el("b", { class: quoted.isAgent ? "" : hue(quoted.name) }, quoted.name),
		el("span", { dir: "auto" }, quoted.text.replace(/\s+/g, " ").slice(0, 140)),
	);
}

function chips(message, actions) {
	const chip = ({ id, text }, index) =>
		el("li", button(`${index + 1}  ${id}`, "chip", () => actions.showSource(message.id, id), "quote", { title: text, data: { note: id } }));
	return el("ul.chips", { "aria-label": "Sources of this answer" }, message.sources.map(chip));
}

function summaryItem(message) {
	const title = el("summary", "Summary for the model; all messages are kept");
	return el("li.summary", { data: { messageId: message.id } }, el("details", title, el("p", { dir: "auto" }, textOf(message))));
}

/** A message being sent. */
export function pendingItem(one, actions) {
	const name = one.author?.name ?? "You";
	const isFailed = one.state === "failed";
	const note = { sending: "Sending…", waiting: "Waiting for the server. It will be sent.", failed: one.problem }[one.state];
	return el(
		"li",
		{ class: `message person head pending ${one.state}`, data: { pending: one.key } },
		avatar(name),
		el(
			"article",
			{ "aria-label": name },
			heading(name, false, one.at),
			el("div.bubble", el("div.words.plain", { dir: "auto" }, textOf({ content: one.text }))),
			note && el("p.state", { role: isFailed ? "alert" : null }, note),
			isFailed && el("div.row", button("Send again", "small", () => actions.retry(one), "retry"), button("Edit", "small quiet", () => actions.takeBack(one))),
		),
	);
}

/** A reply being written: plain text, at most one update a frame. */
export function draftItem(agentName) {
	const words = document.createTextNode("");
	const dots = el("div.dots", { role: "img", "aria-label": "Writing an answer" }, el("i"), el("i"), el("i"));
	const bubble = el("div.bubble", dots, el("div.words.plain", { dir: "auto" }, words));
	return {
		item: el("li.message.agent.head.draft", { "aria-busy": "true" }, avatar(agentName, true), el("article", heading(agentName, true), bubble)),
		show(text) {
			if (text.length < words.length) words.data = text;
			else words.appendData(text.slice(words.length));
			dots.hidden = text.length > 0;
		},
	};
}
