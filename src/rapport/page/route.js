/** The part of the address after `#`: conversation, panel, subject. */

const PANELS = new Set(["sources", "why", "next", "memory", "notes", "insight"]);

/** `#/`, `#/start`, `#/notes`, `#/c/ID`, `#/c/ID/why`, `#/c/ID/why/MESSAGE`. What can't be read is the beginning. */
export function routeOf(hash) {
	const parts = hash.replace(/^#\/?/, "").split("/").map(readable);
	const thread = parts[0] === "c" && /^[0-9A-Za-z]{26}$/.test(parts[1] ?? "") ? parts[1] : null;
	const [panel, subject] = thread ? parts.slice(2) : parts;
	return { thread, isStart: parts[0] === "start", panel: PANELS.has(panel) ? panel : null, subject: PANELS.has(panel) && subject ? subject : null };
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
