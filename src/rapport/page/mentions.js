/** Complete an @name in a text box from a list. */

import { el, fill } from "./dom.js";
import { avatar } from "./message.js";

const MOST = 6;

/** Watch `box`; `names()` returns `[{name, isAgent}]`. `keydown` returns true if it used the key. */
export function createMentions(box, names) {
	const list = el("ul.mentions", { role: "listbox", id: "mentions", "aria-label": "People to mention", hidden: true });
	let found = [];
	let at = 0;

	function onType() {
		const begun = /(?:^|\s)@([\p{L}\p{N}_.-]{0,30})$/u.exec(box.value.slice(0, box.selectionStart))?.[1].toLowerCase();
		found = begun === undefined ? [] : names().filter(one => one.name.toLowerCase().startsWith(begun) && one.name.toLowerCase() !== begun);
		found.length = Math.min(found.length, MOST);
		at = 0;
		draw();
	}

	function draw() {
		list.hidden = found.length === 0;
		box.setAttribute("aria-activedescendant", list.hidden ? "" : `mention-${at}`);
		fill(list, found.map(option));
	}

	function option(one, index) {
		const onmousedown = event => {
			event.preventDefault();
			take(one);
		};
		return el(
			"li",
			{ role: "option", id: `mention-${index}`, "aria-selected": String(index === at), onmousedown },
			avatar(one.name, one.isAgent),
			el("b", `@${one.name}`),
			one.isAgent && el("small", "the agent answers"),
		);
	}

	function take(one) {
		const end = box.selectionStart;
		box.setRangeText(`@${one.name} `, box.value.lastIndexOf("@", end - 1), end, "end");
		box.dispatchEvent(new Event("input"));
	}

	function keydown(event) {
		if (list.hidden) return false;
		const step = { ArrowDown: 1, ArrowUp: found.length - 1 }[event.key];
		if (step) at = (at + step) % found.length;
		else if (event.key === "Enter" || event.key === "Tab") take(found[at]);
		else if (event.key === "Escape") found = [];
		else return false;
		draw();
		event.preventDefault();
		event.stopPropagation();
		return true;
	}

	return { list, onType, keydown };
}
