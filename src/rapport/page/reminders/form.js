/** Ask what to be reminded of, and when. */

import { dialog, field, form } from "../dialogs.js";
import { button, el } from "../dom.js";
import { createClock } from "./clock.js";

const HOUR = 3_600_000;
const REPEATS = [
	["", "Never"],
	["FREQ=DAILY", "Every day"],
	["FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "Every weekday"],
	["FREQ=WEEKLY", "Every week"],
	["FREQ=MONTHLY", "Every month"],
];

/** Set a reminder, or edit `reminder`. Resolves with what the server has stored; null when dismissed. */
export function askReminder({ api }, { reminder, conversation, zone }) {
	const clock = createClock(zone);
	const soon = Math.ceil((Date.now() + HOUR / 2) / HOUR) * HOUR;
	const [day, time] = reminder ? [reminder.at.slice(0, 10), reminder.at.slice(11, 16)] : [clock.dayOf(soon), clock.fieldTime(soon)];
	const before = reminder?.rrule ?? "";
	const isOther = !REPEATS.some(([rule]) => rule === before);
	const repeats = isOther ? [...REPEATS, [before, `As it is: ${reminder.recurrence}`]] : REPEATS;
	const shownZone = reminder?.zone ?? zone;

	return dialog(reminder ? "Edit the reminder" : "Set a reminder", close => {
		const text = el("textarea", { rows: 2, maxlength: 2_000, required: true, autofocus: true, dir: "auto", placeholder: "Call the dentist", value: reminder?.text ?? "", onkeydown: sendOnEnter });
		const date = el("input", { type: "date", value: day, required: true });
		const hour = el("input", { type: "time", value: time, required: true });
		const repeat = el("select", repeats.map(([rule, label]) => el("option", { value: rule, selected: rule === before }, label)));
		const problem = el("p.reminder-problem", { role: "alert" });
		let isSending = false;

		async function save() {
			if (isSending) return;
			isSending = true;
			problem.textContent = "";
			const at = `${date.value}T${hour.value}`;
			try {
				close(reminder ? await edit(at) : await api.post("/api/reminders", { conversation_id: conversation, text: text.value, at, ...(repeat.value && { rrule: repeat.value }) }));
			} catch (error) {
				problem.textContent = error.message.replaceAll("`at`", "The time");
			} finally {
				isSending = false;
			}
		}

		/** Only what was changed is sent: a snooze stays where nobody changes the time. */
		function edit(at) {
			const isMoved = at !== `${day}T${time}`;
			const body = { ...(text.value !== reminder.text && { text: text.value }), ...(isMoved && { at }), ...(repeat.value !== before && { rrule: repeat.value }) };
			return Object.keys(body).length ? api.patch(`/api/reminders/${encodeURIComponent(reminder.id)}`, body) : reminder;
		}

		function sendOnEnter(event) {
			if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
			event.preventDefault();
			event.target.form.requestSubmit();
		}

		return form(
			"stack reminder-form",
			save,
			field("Remind me of", text),
			el("div.reminder-when", field("Date", date), field("Time", hour), field("Repeat", repeat)),
			shownZone !== Intl.DateTimeFormat().resolvedOptions().timeZone && el("p.hint", `The time is on the clock of ${shownZone.replaceAll("_", " ")}.`),
			problem,
			el("div.row.end", button("Discard", "quiet", () => close()), button(reminder ? "Save" : "Set it", "primary", null, null, { type: "submit" })),
		);
	});
}
