/** The part of the address after `#`: conversation, panel, subject. */

import { PANELS } from "./panels.js";

/** `#/`, `#/start`, `#/notes`, `#/c/ID`, `#/c/ID/why`, `#/c/ID/why/MESSAGE`. Anything else is `#/`. */
export function routeOf(hash) {
	const parts = hash.replace(/^#\/?/, "").split("/").map(readable);
	const thread = parts[0] === "c" && /^[0-9A-Za-z]{26}$/.test(parts[1] ?? "") ? parts[1] : null;
	const [id, subject] = thread ? parts.slice(2) : parts;
	const panel = PANELS.some(one => one.id === id) ? id : null;
	return { thread, isStart: parts[0] === "start", panel, subject: (panel && subject) || null };
}

function readable(part) {
	try {
		return decodeURIComponent(part);
	} catch {
		return "";
	}
}

export function hashOf({ thread, isStart, panel, subject }) {
	const parts = thread ? ["c", thread] : isStart ? ["start"] : [];
	if (panel && !isStart) parts.push(panel, ...(subject ? [subject] : []));
	return `#/${parts.map(encodeURIComponent).join("/")}`;
}
