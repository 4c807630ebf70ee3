/** Snooze a reminder: in its list, and below the message that it became. */

import { toast } from "../dialogs.js";
import { el } from "../dom.js";
import { createClock } from "./clock.js";

const CHOICES = [
	["10 minutes", () => ({ minutes: 10 })],
	["1 hour", () => ({ minutes: 60 })],
	["tomorrow at 9", zone => ({ until: `${createClock(zone).dayAfter(Date.now())}T09:00` })], // on the person's own clock
];

await new Promise(resolve => {
	document.head.append(el("link", { rel: "stylesheet", href: "/page/reminders/reminders.css", onload: resolve, onerror: resolve }));
});

/** A choice of delays. `onDone` is called with the snoozed reminder. */
export function snoozeChoice(app, { id }, onDone) {
	async function snooze(event) {
		const [, make] = CHOICES[event.target.value];
		event.target.selectedIndex = 0;
		try {
			const { time_zone: zone } = await app.api.get("/api/preferences");
			const snoozed = await app.api.post(`/api/reminders/${encodeURIComponent(id)}/snooze`, make(zone));
			toast(`Snoozed until ${createClock(zone).momentOf(snoozed.due_at)}.`);
			onDone(snoozed);
		} catch (error) {
			app.tell(error);
		}
	}

	return el(
		"select.small",
		{ "aria-label": "Snooze", onchange: snooze, data: { act: "snooze" } },
		el("option", { selected: true, disabled: true }, "Snooze…"),
		CHOICES.map(([label], index) => el("option", { value: index }, label)),
	);
}
