/** Times and amounts as text, in the browser's time zone and language. */

const makeFormat = how => new Intl.DateTimeFormat(undefined, how);
const TIME = makeFormat({ hour: "2-digit", minute: "2-digit" });
const FULL = makeFormat({ dateStyle: "full", timeStyle: "medium" });
const WEEKDAY = makeFormat({ weekday: "long" });
const LONG = makeFormat({ weekday: "long", day: "numeric", month: "long" });
const SHORT = makeFormat({ day: "numeric", month: "short" });
const DATED = makeFormat({ day: "numeric", month: "short", year: "numeric" });

const midnight = at => new Date(at.getFullYear(), at.getMonth(), at.getDate()).getTime();
const daysAgo = at => Math.round((midnight(new Date()) - midnight(at)) / 86_400_000);
const formatDate = (at, form) => (at.getFullYear() === new Date().getFullYear() ? form : DATED).format(at);

export const clockTime = iso => TIME.format(new Date(iso));
export const fullTime = iso => FULL.format(new Date(iso));
export const dayKey = iso => midnight(new Date(iso));

/** The heading of a day. */
export function dayName(iso) {
	const at = new Date(iso);
	return ["Today", "Yesterday"][daysAgo(at)] ?? formatDate(at, LONG);
}

/** Short: a time today, a weekday this week, else a date. */
export function shortTime(iso) {
	const at = new Date(iso);
	const days = daysAgo(at);
	if (days <= 0) return TIME.format(at);
	return days < 7 ? WEEKDAY.format(at) : formatDate(at, SHORT);
}

/** A time, with its day if not today. */
export function momentName(iso) {
	const at = new Date(iso);
	const day = { "-1": "tomorrow, ", 0: "", 1: "yesterday, " }[daysAgo(at)] ?? `${formatDate(at, SHORT)}, `;
	return day + TIME.format(at);
}

/** Remaining time, with seconds when short. */
export function countdown(seconds) {
	const left = Math.max(0, Math.ceil(seconds));
	const [d, h, m] = [Math.floor(left / 86_400), Math.floor(left / 3_600) % 24, Math.floor(left / 60) % 60];
	if (d) return `${d} d ${h} h`;
	return h ? `${h} h ${m} min` : `${m}:${String(left % 60).padStart(2, "0")}`;
}

/** A duration in words: "3 days". */
export function span(seconds) {
	for (const [size, name] of [[86_400, "day"], [3_600, "hour"]]) {
		if (seconds >= size * 0.95) return count(Math.round(seconds / size), name);
	}
	return count(Math.round(seconds / 60), "minute");
}

export const count = (n, one, many = `${one}s`) => `${n.toLocaleString()} ${n === 1 ? one : many}`;
export const percent = share => `${Math.round(100 * share)} %`;
export const bytes = n => (n < 1e6 ? `${Math.ceil(n / 1e3)} kB` : `${(n / 1e6).toFixed(1)} MB`);
export const millis = ms => (ms < 1_000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`);
