/** The state of the page in one place. */

/** A store. `set` takes a patch; watchers run once after each task. */
export function createStore(state) {
	const watchers = [];
	let changed = new Set();

	function tell() {
		const now = changed;
		changed = new Set();
		for (const watcher of watchers) {
			if (watcher.keys.some(key => now.has(key))) watcher.work(state);
		}
	}

	return {
		state,
		set(patch) {
			for (const [key, value] of Object.entries(patch)) {
				if (state[key] === value) continue;
				state[key] = value;
				if (changed.size === 0) queueMicrotask(tell);
				changed.add(key);
			}
		},
		/** Run `work` soon, and when one of `keys` changes. */
		watch(keys, work) {
			watchers.push({ keys, work });
			queueMicrotask(() => work(state));
		},
	};
}

/** Drafts and choices in the browser's storage, if enabled; never a key. */
export const kept = {
	get(name) {
		try {
			return JSON.parse(localStorage.getItem(`rapport.${name}`));
		} catch {
			return null;
		}
	},
	put(name, value) {
		try {
			if (value === null || value === "") localStorage.removeItem(`rapport.${name}`);
			else localStorage.setItem(`rapport.${name}`, JSON.stringify(value));
		} catch { /* storage is off or full */ }
	},
};
