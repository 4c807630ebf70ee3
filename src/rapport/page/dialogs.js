/** Toasts, undo, and dialogs. */

import { button, el } from "./dom.js";

const UNDO = 7_000;

/** Show a text for a few seconds. */
export function toast(text, { kind = "", action = null, seconds = 5_000 } = {}) {
	const place = document.getElementById("toasts");
	const node = el("div", { class: `toast ${kind}` }, el("span", text), action, button("Close", "tool", () => node.remove(), "close"));
	place.append(node);
	while (place.children.length > 3) place.firstChild.remove();
	setTimeout(() => node.remove(), seconds);
	return node;
}

const unfinished = new Set();
addEventListener("pagehide", () => unfinished.forEach(finish => finish({ keepalive: true })));

/** Offer undo. `hide` and `restore` change the view, `commit` does it. */
export function undoable(text, { hide, restore, commit }) {
	hide();
	const settle = () => {
		clearTimeout(timer);
		return unfinished.delete(finish);
	};
	const finish = async options => {
		if (!settle()) return;
		try {
			await commit(options);
		} catch (error) {
			if (error.status === 404) return;
			restore();
			toast(error.message, { kind: "bad" });
		}
	};
	const undo = () => {
		if (settle()) restore();
		node.remove();
	};
	unfinished.add(finish);
	const timer = setTimeout(finish, UNDO);
	const node = toast(text, { action: button("Undo", "link", undo), seconds: UNDO });
}

/** A dialog; resolves with what `close(value)` was given, null when dismissed. */
export function dialog(title, build) {
	return new Promise(resolve => {
		let value = null;
		const close = (given = null) => {
			value = given;
			box.close();
		};
		const onClose = () => {
			box.remove();
			resolve(value);
		};
		const box = el(
			"dialog",
			{ "aria-label": title, onclose: onClose, onclick: event => event.target === box && close() },
			el("div.sheet", el("header", el("h2", title), button("Close", "tool", () => close(), "close")), build(close)),
		);
		document.body.append(box);
		box.showModal();
		box.querySelector("[autofocus]")?.focus();
	});
}

/** A form that does not leave the page. */
export function form(kind, work, ...children) {
	const onsubmit = event => {
		event.preventDefault();
		work();
	};
	return el("form", { class: kind, onsubmit }, children);
}

export const field = (label, input) => el("label.field", el("span", label), input);

/** Ask for a line of text; null when dismissed. */
export function askText({ title, hint, label, value = "", action = "Save" }) {
	return dialog(title, close => {
		const input = el("input", { type: "text", value, maxlength: 200, autofocus: true });
		const submit = button(action, "primary", null, null, { type: "submit" });
		return form("stack", () => close(input.value), hint && el("p.hint", hint), field(label, input), el("div.row.end", submit));
	});
}
