/** The list of conversations, and links to general panels. */

import { button, el, fill, icon } from "./dom.js";
import { avatar } from "./message.js";
import { fullTime, shortTime } from "./times.js";
import { threadName } from "./words.js";

export function createConversations(app) {
	const { store } = app;
	const { state } = store;
	let typing;

	function onSearch() {
		clearTimeout(typing);
		typing = setTimeout(() => app.loadThreads({ q: search.value.trim() }), 250);
	}

	const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations", oninput: onSearch });
	const list = el("ul.threads", { data: { panel: "conversations" } });
	const foot = el("footer");
	const brand = el("a.brand", { href: "#/start", title: "What it can do" }, el("img", { src: "/page/icon.svg", alt: "", width: 28 }), "Rapport");
	const root = el(
		"div.rail",
		el("header", brand, button("New conversation", "primary new", app.begin, "plus", { "aria-label": "New conversation" })),
		el("div.searching", icon("search"), search),
		list,
		foot,
	);

	store.watch(["threads", "thread", "agents", "hiddenThreads", "query"], draw);
	store.watch(["session", "theme"], drawFoot);

	function draw() {
		const shown = state.threads.filter(one => !state.hiddenThreads.has(one.id));
		const nothing = () => {
			if (state.threads === app.notLoaded) return "Loading…";
			return state.query ? `Nothing found for “${state.query}”.` : "No conversations yet. Begin one, or try the examples under Start.";
		};
		const focused = document.activeElement?.dataset.threadId;
		fill(list, shown.length ? shown.map(item) : el("li.hint", nothing()), state.hasMore && el("li.hint", "Use the search to find older ones."));
		if (focused) list.querySelector(`[data-thread-id="${focused}"]`)?.focus({ preventScroll: true });
	}

	function item(thread) {
		const last = thread.last_message;
		const agent = app.agentOf(thread)?.name ?? "";
		const who = last?.role === "assistant" ? agent : last?.author;
		return el(
			"li",
			el(
				"a",
				{ href: `#/c/${thread.id}`, "aria-current": thread.id === state.thread ? "page" : null, data: { threadId: thread.id } },
				avatar("", true, thread.kind === "group" ? "group" : "spark"),
				el("b", { dir: "auto" }, threadName(thread)),
				el("time", { datetime: thread.last_at, title: fullTime(thread.last_at) }, shortTime(thread.last_at)),
				el("span", { dir: "auto" }, last ? (who ? `${who}: ` : "") + last.text : "No messages yet"),
			),
		);
	}

	function drawFoot() {
		const { session } = state;
		const isDark = app.isDark();
		const place = (name, label, picture) => el("a.place", { href: `#/${name}` }, icon(picture), label);
		fill(
			foot,
			el("div.places", place("start", "Start", "play"), place("notes", "Notes", "notes"), place("memory", "Memory", "memory"), place("agents", "Agents", "spark"), place("insight", "Insight", "insight")),
			session && button(session.builtin ? "Built-in model" : session.model, "model", app.aboutModel, null, { title: "Model" }),
			button(isDark ? "Light colours" : "Dark colours", "tool", app.switchTheme, isDark ? "sun" : "moon"),
			session?.needs_key && button("Sign out", "tool", app.signOut, "out"),
		);
	}

	return { root, focusSearch: () => search.focus() };
}
