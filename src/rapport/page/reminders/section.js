/** The reminders in the panel *next*: what people asked to be told, by day. */

import { toast, undoable } from "../dialogs.js";
import { button, el, fill, icon } from "../dom.js";
import { count } from "../times.js";
import { threadName } from "../words.js";
import { createClock } from "./clock.js";
import { askReminder } from "./form.js";
import { snoozeChoice } from "./snooze.js";

const LATE = 120_000;
const REFRESH = 30_000; // a reminder of another conversation has no event here
const PAST = 50;

export function createReminders(app, root) {
	const { api, store } = app;
	const { state } = store;
	let isAll = false;
	let isPastOpen = false;
	let found = null; // what the server said last
	let latest = 0;
	let shown = null; // of which conversation, or of all
	let drawn = null;
	const hidden = new Set();

	const heading = el("div");
	const body = el("div");
	fill(root, el("section", { "aria-label": "Reminders" }, heading, body));
	setInterval(() => app.isShown("next") && !document.hidden && load(), REFRESH);

	store.watch(["threads"], () => app.isShown("next") && draw()); // their names

	const everywhere = () => isAll || !state.thread;
	const path = (reminder, more = "") => `/api/reminders/${encodeURIComponent(reminder.id)}${more}`;
	const change = work => work.catch(app.tell).then(load);

	async function load() {
		const mine = (latest += 1);
		const where = everywhere() ? "" : `&conversation_id=${encodeURIComponent(state.thread)}`;
		try {
			const waiting = await api.get(`/api/reminders?limit=1000${where}`);
			const past = isPastOpen ? (await api.get(`/api/reminders?past=true&limit=${PAST}${where}`)).reminders : null;
			if (mine !== latest) return;
			found = { ...waiting, past };
			draw();
		} catch (error) {
			if (mine === latest && !found) fill(body, el("p.hint", { role: "alert" }, error.message));
		}
	}

	function show() {
		const wanted = `${state.thread} ${everywhere()}`;
		if (wanted !== shown) {
			shown = wanted;
			found = drawn = null;
			drawHeading();
			fill(body, el("p.hint", "Loading…"));
		}
		load();
	}

	function drawHeading() {
		const choose = (label, wanted) => {
			const pick = () => {
				isAll = wanted;
				show();
				heading.querySelector("[aria-pressed='true']")?.focus();
			};
			return button(label, "", pick, null, { "aria-pressed": String(isAll === wanted) });
		};
		fill(
			heading,
			el("header.reminders-head", el("h2", "Reminders"), state.thread && button("Set a reminder", "small", () => ask(), "plus")),
			state.thread && el("div.segments", { role: "group", "aria-label": "Reminders of" }, choose("This conversation", false), choose("All conversations", true)),
		);
	}

	/** Draw if something has changed: a redraw closes a choice that is open. */
	function draw() {
		if (!found) return;
		const clock = createClock(found.time_zone);
		const waiting = found.reminders.filter(one => !hidden.has(one.id)).sort((a, b) => (a.due_at < b.due_at ? -1 : 1));
		const looks = JSON.stringify([waiting, found.past, waiting.map(one => [trouble(one), titleOf(one)]), clock.zone, clock.dayOf(Date.now())]);
		if (looks === drawn) return;
		drawn = looks;
		const kept = focusIn(body);
		const days = new Map();
		for (const one of waiting) days.set(clock.dayOf(one.due_at), [...(days.get(clock.dayOf(one.due_at)) ?? []), one]);
		fill(
			body,
			waiting.length ? [...days.values()].map(ones => day(ones, clock)) : el("p.hint", emptyText()),
			waiting.length > 0 && el("p.hint.reminders-foot", clock.isElsewhere && `Times are ${clock.zone.replaceAll("_", " ")}. `, el("a", { href: "/api/reminders.ics", download: "reminders.ics" }, "Save all as a calendar file")),
			past(clock),
		);
		if (kept) (body.querySelector(kept) ?? heading.querySelector("button"))?.focus({ preventScroll: true });
	}

	function emptyText() {
		if (!everywhere()) return "None here. Set one, and it is said at its time whatever is written meanwhile.";
		return `No reminder waits.${state.thread ? "" : " Open a conversation to set one."}`;
	}

	const day = (ones, clock) =>
		el("div.reminder-day", el("h3", clock.dayName(ones[0].due_at)), el("ul", ones.map(one => item(one, clock))));

	function item(one, clock) {
		const zone = one.zone && one.zone !== clock.zone ? `${one.at.slice(11, 16)} in ${one.zone.replaceAll("_", " ")}` : null;
		const notes = [one.recurrence, zone, everywhere() && nameOf(one), one.author_name && `${one.personal ? "for" : "asked for by"} ${one.author_name}`];
		return el(
			"li.card.reminder",
			{ data: { reminderId: one.id, state: one.state } },
			el("time", { datetime: one.due_at, title: one.when }, clock.timeOf(one.due_at)),
			el(
				"div",
				el("p", { dir: "auto" }, one.text),
				notes.some(Boolean) && el("small", notes.filter(Boolean).map((note, index) => [index > 0 && " · ", note])),
				trouble(one) && el("p.reminder-trouble", icon("warn"), el("span", trouble(one))),
			),
			el(
				"div.row",
				snoozeChoice(app, one, load),
				button("Edit", "small quiet", () => ask(one), null, { data: { act: "edit" } }),
				one.rrule && button("Skip once", "small quiet", () => skip(one), null, { title: "Leave out this time only", data: { act: "skip" } }),
				button("Cancel", "small quiet", () => cancel(one), null, { data: { act: "cancel" } }),
			),
		);
	}

	/** Why it is not said at its time; null: it is. */
	function trouble(one) {
		const isMuted = Boolean(state.timers?.muted_until);
		const isHere = one.conversation_id === state.thread;
		if (one.state === "held") return isHere && isMuted ? "Held back: this conversation is muted." : "Held back until its conversation is no longer muted and can be reached.";
		return Date.now() - Date.parse(one.due_at) > LATE ? "Late. It is said as soon as possible." : null;
	}

	function titleOf(one) {
		const thread = state.threads.find(other => other.id === one.conversation_id);
		return thread ? threadName(thread) : "Its conversation";
	}

	const nameOf = one => button(titleOf(one), "link", () => app.go({ thread: one.conversation_id, panel: "next" }));

	async function ask(one = null) {
		const zone = found?.time_zone ?? (await api.get("/api/preferences").catch(() => null))?.time_zone ?? "UTC";
		const saved = await askReminder(app, { reminder: one, conversation: state.thread, zone });
		if (!saved) return;
		toast(`${saved.text.length > 60 ? `${saved.text.slice(0, 59)}…` : saved.text}: ${saved.when}`);
		load();
	}

	const skip = one => change(api.post(path(one, "/skip"), {}).then(left => toast(left.state === "cancelled" ? "That was the last one." : `Skipped. Next: ${left.when}`)));

	function cancel(one) {
		const set = isHidden => {
			hidden[isHidden ? "add" : "delete"](one.id);
			draw();
		};
		undoable(one.rrule ? "Reminder cancelled, with all its times." : "Reminder cancelled.", {
			hide: () => set(true),
			restore: () => set(false),
			commit: async options => {
				await api.delete(path(one), options);
				await load();
			},
		});
	}

	function past(clock) {
		const row = one => {
			const isSaid = one.message_id !== null;
			const when = isSaid ? `Said ${clock.momentOf(one.sent_at)}` : "Cancelled";
			const again = isSaid && button("Show", "link", () => app.reveal(one.message_id, one.conversation_id));
			return el("li", { class: isSaid ? "said" : "" }, icon(isSaid ? "check" : "close"), el("span", el("span", { dir: "auto" }, one.text), el("small", when)), again);
		};
		const toggle = event => {
			if (event.target.open === isPastOpen) return;
			isPastOpen = event.target.open;
			if (isPastOpen) load();
		};
		const list = found.past && (found.past.length ? el("ul.past", found.past.map(row)) : el("p.hint", "None yet."));
		return el("details.reminders-past", { open: isPastOpen, ontoggle: toggle }, el("summary", found.past?.length ? `Earlier: ${count(found.past.length, "reminder")}` : "Earlier reminders"), list);
	}

	return { show, load };
}

/** A selector of the control that has the focus, to find it again after a redraw. */
function focusIn(root) {
	const focused = root.contains(document.activeElement) ? document.activeElement : null;
	const id = focused?.closest("[data-reminder-id]")?.dataset.reminderId;
	if (focused?.tagName === "SUMMARY") return ".reminders-past summary";
	return id && `[data-reminder-id="${CSS.escape(id)}"] ${focused.dataset.act ? `[data-act="${focused.dataset.act}"]` : focused.tagName}`;
}
