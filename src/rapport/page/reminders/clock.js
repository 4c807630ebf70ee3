/** Times on the person's own clock, which may be another than the browser's. */

const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const DAY = 86_400_000;

export function createClock(zone) {
	const make = how => new Intl.DateTimeFormat(undefined, { timeZone: zone, ...how });
	const time = make({ hour: "2-digit", minute: "2-digit" });
	const long = make({ weekday: "long", day: "numeric", month: "long" });
	const dated = make({ weekday: "long", day: "numeric", month: "long", year: "numeric" });
	const key = new Intl.DateTimeFormat("en-CA", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit" });
	const hour = new Intl.DateTimeFormat("en-GB", { timeZone: zone, hour: "2-digit", minute: "2-digit" });

	const dayOf = moment => key.format(new Date(moment));
	/** Noon of a day: the next day is 24 hours later, whatever the clock does in its nights. */
	const noon = day => Date.parse(`${day}T12:00:00Z`);
	const daysAhead = moment => Math.round((noon(dayOf(moment)) - noon(dayOf(Date.now()))) / DAY);
	const dayName = moment =>
		["Today", "Tomorrow"][daysAhead(moment)] ?? (dayOf(moment).slice(0, 4) === dayOf(Date.now()).slice(0, 4) ? long : dated).format(new Date(moment));

	return {
		zone,
		isElsewhere: zone !== HERE,
		dayOf,
		dayName,
		timeOf: moment => time.format(new Date(moment)),
		momentOf: moment => `${daysAhead(moment) === 0 ? "today" : dayName(moment)}, ${time.format(new Date(moment))}`,
		/** The day after a moment, as a date field has it. */
		dayAfter: moment => new Date(noon(dayOf(moment)) + DAY).toISOString().slice(0, 10),
		/** The time of a moment, as a time field has it. */
		fieldTime: moment => hour.format(new Date(moment)),
	};
}
