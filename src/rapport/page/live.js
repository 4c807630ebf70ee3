/** An event stream that reconnects after the last event read. */

import { eventsOf } from "./api.js";

const SILENCE = 40_000; // the server says something every 15 s: after this the line is dead
const LONGEST_WAIT = 15_000;

/** Follow `path` until `stop`. `onEvent` gets each event once, in order; `onGone`: it was deleted. */
export function follow(api, path, { onEvent, onGone, onWait }) {
	let lastId = null;
	let stopped = false;
	let attempt = 0;
	let wake = () => {};
	let line = new AbortController();

	async function read() {
		line = new AbortController();
		const headers = lastId === null ? {} : { "Last-Event-ID": lastId };
		let watchdog;
		const beat = () => {
			clearTimeout(watchdog);
			watchdog = setTimeout(() => line.abort(), SILENCE);
		};
		beat();
		try {
			const response = await api.open("GET", path, { signal: line.signal, headers });
			for await (const event of eventsOf(response, beat)) {
				attempt = 0;
				if (stopped) return;
				if (event.id !== null) lastId = event.id;
				onEvent(event);
			}
		} finally {
			clearTimeout(watchdog);
		}
	}

	async function run() {
		while (!stopped) {
			let wait = 0;
			try {
				await read();
			} catch (error) {
				if (stopped) return;
				if (error.status === 404) return onGone();
				if (error.status === 401) return;
				wait = (error.retryAfter ?? 0) * 1000;
			}
			if (stopped) return;
			// All pages lose a restarted server at once: spread the reconnects.
			wait = Math.max(wait, Math.min(LONGEST_WAIT, 400 * 2 ** attempt) * (0.6 + 0.4 * Math.random()));
			if (attempt > 0) onWait(Date.now() + wait);
			attempt += 1;
			await new Promise(resolve => {
				wake = resolve;
				setTimeout(resolve, wait);
			});
		}
	}

	run();
	return {
		stop() {
			stopped = true;
			line.abort();
			wake();
		},
		/** Try at once. */
		hurry: () => wake(),
	};
}
