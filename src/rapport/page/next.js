/** Reminders, whose code is loaded with the panel, and follow-ups: waiting, past, and quiet hours. */

import { field, form } from "./dialogs.js";
import { button, el, fill, icon } from "./dom.js";
import { emptyPanel } from "./side.js";
import { countdown, momentName } from "./times.js";
import { outcomeWords, TRIGGERS, triggerWords } from "./words.js";

const HOUR = 3_600;
const tomorrowAt = hour => (new Date().setHours(hour + 24, 0, 0, 0) - Date.now()) / 1000;
const LATER = [["in 15 minutes", () => HOUR / 4], ["in 1 hour", () => HOUR], ["in 3 hours", () => 3 * HOUR], ["tomorrow at 9", () => tomorrowAt(9)]];

export const next = { id: "next", title: "Next", mount };

function mount(app) {
	const { api, store } = app;
	const { state } = store;
	const root = el("div.follow-ups");
	const above = el("div.reminders");
	let reminders = null;
	let ticking;
	let clocks = [];
	let isSetting = false;
	let drawnFor;

	// An update must not discard what somebody is typing.
	store.watch(["timers", "thread", "preferences"], () => app.isShown("next") && !root.querySelector("form :is(input, select):focus") && draw());
	store.watch(["threads"], () => app.isShown("next") && app.currentThread()?.id !== drawnFor && draw());
	store.watch(["timers", "thread", "preferences"], () => app.isShown("next") && reminders?.show());

	function show() {
		draw();
		if (reminders) reminders.show();
		else {
			import("./reminders/section.js")
				.then(loaded => (reminders ??= loaded.createReminders(app, above)).show())
				.catch(() => fill(above, el("p.hint", "The reminders could not be loaded. Open this panel again.")));
		}
		app.loadTimers();
		app.loadPreferences();
		clearInterval(ticking);
		ticking = setInterval(tick, 1_000);
	}

	const change = work => work.catch(app.tell).then(app.loadTimers);
	const path = timer => `/api/threads/${state.thread}/timers${timer ? `/${encodeURIComponent(timer.id)}` : ""}`;
	const postpone = (timer, seconds) => change(api.patch(path(timer), { delay_seconds: seconds }));
	const mute = body => change(api.put(`/api/threads/${state.thread}/mute`, body));

	function draw() {
		const thread = app.currentThread();
		const { timers } = state;
		clocks = [];
		drawnFor = thread?.id;
		if (!thread) return fill(root, emptyPanel("next", "Follow-ups", "Open a conversation to see which follow-ups are planned."), quiet());
		if (!timers) return fill(root, el("p.hint", "Loading…"));
		const agent = app.agentOf(thread);
		const isOn = timers.autonomy ?? thread.kind === "direct";
		const isSilent = agent?.follows_up === false;
		fill(root, waiting(timers, isOn, isSilent && agent.name), !isSilent && permission(thread, timers, isOn), quiet(), past(timers.past));
		tick();
	}

	function waiting({ timers, muted_until: mutedUntil }, isOn, silent) {
		const open = isOpen => {
			isSetting = isOpen;
			draw();
		};
		const setter = silent ? null : isSetting ? setting(() => open(false)) : button("Set one", "quiet small", () => open(true), "plus");
		if (timers.length) return el("section", { "aria-label": "Planned follow-ups" }, el("h2", "Planned"), timers.map(card), setter);
		let text = "After an answer the agent may plan a follow-up on an open question, task or decision. It is listed here before it is sent.";
		if (silent) text = `${silent} doesn't follow up. The companion does.`;
		else if (!isOn) text = "Follow-ups are off here. You can turn them on below.";
		else if (mutedUntil) text = "This conversation is muted, so no follow-ups are planned.";
		return el("section", emptyPanel("next", "No follow-up is planned", text, setter));
	}

	function card(timer) {
		const clock = el("span.clock");
		clocks.push({ clock, at: Date.parse(timer.due_at) });
		const later = el(
			"select.small",
			{ "aria-label": "Postpone", onchange: event => postpone(timer, LATER[event.target.value][1]()) },
			el("option", { selected: true, disabled: true }, "Postpone…"),
			LATER.map(([label], index) => el("option", { value: index }, label)),
		);
		return el(
			"article.card.timer",
			{ data: { timerId: timer.id } },
			el("header", clock, el("span", momentName(timer.due_at))),
			el("h3", triggerWords(timer.trigger_type)),
			timer.reason && el("p", { dir: "auto" }, timer.reason),
			el("p.hint", `${timer.origin === "planner" ? "Planned by the agent" : "Set by you"}. It is cancelled when you write a message.`),
			el("div.row", button("Send now", "small primary", () => postpone(timer, 1)), later, button("Cancel", "small quiet", () => change(api.delete(path(timer))))),
		);
	}

	function setting(close) {
		const type = el("select", TRIGGERS.map(name => el("option", { value: name }, triggerWords(name))));
		const minutes = el("input", { type: "number", min: 1, max: 43_200, value: 10, required: true });
		const set = () => {
			close();
			change(api.post(path(), { trigger_type: type.value, delay_seconds: minutes.value * 60 }));
		};
		return form(
			"stack card",
			set,
			field("Reason", type),
			field("Minutes from now, if nobody writes", minutes),
			el("div.row.end", button("Cancel", "quiet small", close), button("Set it", "primary small", null, null, { type: "submit" })),
		);
	}

	/** Allow or mute follow-ups here. */
	function permission(thread, { muted_until: until, held_reminders: held }, isOn) {
		const silence = until
			? [`Muted ${until.startsWith("9999") ? "forever" : `until ${momentName(until)}`}`, button("Unmute", "small", () => mute({ until: null }))]
			: [
					"Mute",
					button("1 hour", "small quiet", () => mute({ seconds: HOUR })),
					button("1 day", "small quiet", () => mute({ seconds: 24 * HOUR })),
					button("forever", "small quiet", () => mute({ until: "forever" })),
				];
		return el(
			"section",
			el("h2", "In this conversation"),
			el(
				"label.switch",
				el("input", { type: "checkbox", role: "switch", checked: isOn, onchange: event => mute({ autonomy: event.target.checked }) }),
				thread.kind === "group" ? "Allow follow-ups in this group" : "Allow follow-ups",
			),
			(isOn || until) && el("div.row", { role: "group", "aria-label": "Mute" }, icon("mute"), silence),
			held > 0 && el("p.hint", `${held === 1 ? "1 reminder waits" : `${held} reminders wait`} until ${until.startsWith("9999") ? "you unmute it" : "then"}.`),
		);
	}

	/** Hours without follow-ups, in your time zone. */
	function quiet() {
		if (!state.preferences) return null;
		const { quiet_from: from, quiet_to: to, time_zone: saved } = state.preferences;
		const here = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
		const zones = new Set([from ? saved : here, here, "UTC", ...(Intl.supportedValuesOf?.("timeZone") ?? [])]);
		const save = body => app.savePreferences(body).then(draw);
		const clock = (label, value) => el("input", { type: "time", value, required: true, "aria-label": label });
		const begin = clock("Quiet from", from ?? "22:00");
		const end = clock("Quiet to", to ?? "08:00");
		const zone = el("select", { "aria-label": "Time zone" }, [...zones].map(name => el("option", { value: name }, name.replaceAll("_", " "))));
		return form(
			"section quiet-hours",
			() => save({ quiet_from: begin.value, quiet_to: end.value, time_zone: zone.value }),
			el("h2", "Quiet hours"),
			el("p.hint", from ? `No follow-ups from ${from} to ${to}, ${saved.replaceAll("_", " ")}.` : "Not set. During quiet hours no follow-ups are sent."),
			el("div.row", begin, "to", end),
			el("div.row", zone),
			el("div.row", button(from ? "Change" : "Set quiet hours", "small", null, null, { type: "submit" }), from && button("Remove", "small quiet", () => save({ quiet_from: null, quiet_to: null }))),
		);
	}

	function past(timers) {
		const item = timer => {
			const isSaid = timer.state === "delivered" || timer.state === "fired";
			return el(
				"li",
				{ class: isSaid ? "said" : "" },
				icon(isSaid ? "check" : "mute"),
				el("span", el("b", triggerWords(timer.trigger_type)), el("span", outcomeWords(timer)), el("small", momentName(timer.ended_at ?? timer.due_at), timer.reason && ` · ${timer.reason}`)),
				timer.message_id && button("Show", "link", () => app.reveal(timer.message_id)),
			);
		};
		return timers.length > 0 && el("section", { "aria-label": "Earlier follow-ups" }, el("h2", "Earlier"), el("ul.past", timers.map(item)));
	}

	function tick() {
		for (const { clock, at } of clocks) clock.textContent = at > Date.now() ? countdown((at - Date.now()) / 1000) : "now";
	}

	return { root: el("div.next", above, root), show, hide: () => clearInterval(ticking) };
}
