/** The page: wires its parts and follows the address. */

import { createApi } from "./api.js";
import { aboutModel, chooseAgent, createStart, emptyChat, signIn } from "./beginning.js";
import { createChat } from "./chat.js";
import { createComposer } from "./composer.js";
import { createConversations } from "./conversations.js";
import { askText, toast, undoable } from "./dialogs.js";
import { button, el, fill, icon, isNarrow } from "./dom.js";
import { PANELS } from "./panels.js";
import { hashOf, routeOf } from "./route.js";
import { createSide } from "./side.js";
import { createStore, kept } from "./store.js";
import { createThread, nothingOpen } from "./thread.js";
import { createTries } from "./trying.js";
import { textOf, threadName } from "./words.js";

const POLL = 20_000;
const POLL_LOST = 3_000;
const notLoaded = [];
const part = id => document.getElementById(id);

const store = createStore({
	session: null, agents: [], threads: notLoaded, hiddenThreads: new Set(), query: "", samples: null, busy: false, preferences: null,
	side: false, lost: null, trouble: null, replied: null, theme: document.documentElement.dataset.theme ?? null, ...nothingOpen(),
});
const { state, set } = store;

const api = createApi({
	onLost: () => set({ lost: state.lost ?? { retryAt: null } }),
	onFound() {
		if (!state.lost) return;
		set({ lost: null });
		thread.hurry();
	},
	onSignedOut: () => showSignIn(),
});

const thread = createThread({
	store,
	api,
	onSaid: noteReply,
	onTimers: loadTimers,
	onMemory: (what, memory) => side.panels.memory.showChange(what, memory),
	onGone(id) {
		toast("This conversation was not found.");
		set({ threads: state.threads.filter(one => one.id !== id) });
		leave();
	},
});

const currentThread = () => state.threads.find(one => one.id === state.thread) ?? null;
const agentOf = one => state.agents.find(agent => agent.id === one?.agent) ?? null;
const tell = error => error.status !== 401 && toast(error.message, { kind: "bad" });
const isDark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
let side = null;

const app = {
	store, api, thread, go, toast, tell, askText, copy, agentOf, currentThread, notLoaded, isDark, loadThreads, loadTimers, loadPreferences,
	savePreferences, begin, beginWith, rename, remove, reveal, waitForHistory, switchTheme, signOut, closeSide,
	say: (text, how) => composer.say(text, how),
	isShown: name => side?.isFor(name) ?? false,
	aboutModel: () => aboutModel(state.session),
	emptyChat: one => emptyChat(one, agentOf(one), app.say),
	toggleSide: () => (state.side ? closeSide() : go({ panel: kept.get("panel") ?? "why" })),
	onSending(text) {
		name(text);
		chat.toEnd();
	},
};
Object.assign(app, createTries(app));

const composer = createComposer(app);
const chat = createChat(app, composer);
const start = createStart(app);
const conversations = createConversations(app);
side = createSide(app, PANELS);

/* Routing */

let route = routeOf("");
let applied = null;

/** Change the address; parts not named stay. A new panel has no subject. */
function go(wanted) {
	const next = { ...route, ...("panel" in wanted && { subject: null }), ...wanted, isStart: wanted.isStart ?? (route.isStart && !wanted.thread && !wanted.panel) };
	const hash = hashOf(next);
	if (hash === location.hash) applied = null;
	else if (route.panel && next.panel && route.thread === next.thread) history.replaceState(null, "", hash);
	else history.pushState(null, "", hash);
	apply();
}

const leave = () => go({ thread: null, panel: null });

function apply() {
	if (location.hash === applied || part("app").dataset.view === "sign-in") return;
	applied = location.hash;
	route = routeOf(location.hash);
	const { thread: id } = route;
	const isOther = state.thread !== id;
	const shown = id ? chat.root : start.root;
	part("app").dataset.view = id ? "chat" : route.isStart ? "start" : "list";
	if (part("main").firstChild !== shown) fill(part("main"), shown);
	if (isOther) {
		thread.open(id).catch(error => error.status !== 404 && tell(error));
		if (id) loadAround(id);
	}
	const panel = panelWanted();
	part("app").dataset.side = panel ? "open" : "closed";
	side.show(panel, route.subject);
	if (route.panel) {
		kept.put("panel", route.panel);
		kept.put("side", true);
	}
	part("skip").hidden = !id;
	if (isNarrow() && panel) part("side-panel").focus({ preventScroll: true });
	else if (isOther && id && !isNarrow()) composer.focus();
}

/** The panel of the address; on wide screens else the last one, unless closed. */
function panelWanted() {
	const isRoomy = matchMedia("(min-width: 1180px)").matches;
	return route.panel ?? (route.thread && isRoomy && kept.get("side") !== false ? (kept.get("panel") ?? "why") : null);
}

function closeSide() {
	kept.put("side", false);
	go({ panel: null });
	if (route.thread && !isNarrow()) composer.focus();
}

async function loadAround(id) {
	loadTimers();
	const isKnown = () => state.threads.some(one => one.id === id);
	const found = isKnown() ? null : await api.get(`/chat/conversations/${id}`).catch(() => null); // the stream says so too
	if (found && !isKnown()) set({ threads: [...state.threads, found] });
	const people = await api.get(`/api/threads/${id}/people`).catch(() => null); // completion goes without
	if (state.thread === id) set({ people });
}

/** Wait for the history, at most 5 s. */
async function waitForHistory() {
	for (let i = 0; i < 50 && state.older === undefined; i += 1) await new Promise(resolve => setTimeout(resolve, 100));
}

/** Show a message of any conversation. */
async function reveal(messageId, threadId = state.thread) {
	const beside = isNarrow() ? { panel: null } : {};
	if (threadId !== state.thread || isNarrow()) go({ thread: threadId, ...beside });
	await waitForHistory();
	await chat.reveal(messageId).catch(tell);
}

/* Conversations */

async function loadThreads({ q = state.query, isQuiet = false } = {}) {
	set({ query: q });
	try {
		const { threads, next } = await api.get(`/api/threads?limit=100${q ? `&q=${encodeURIComponent(q)}` : ""}`);
		if (q !== state.query) return;
		const open = currentThread();
		const isListed = !open || threads.some(one => one.id === open.id);
		set({ threads: isListed ? threads : [...threads, open], hasMore: next });
	} catch (error) {
		if (!isQuiet) tell(error);
	}
}

async function loadAgents() {
	set({ agents: (await api.get("/api/agents")).agents });
}

async function begin() {
	await loadAgents().catch(() => {}); // the known ones can be chosen
	const chosen = await chooseAgent(state.agents);
	if (chosen?.isNew) go({ panel: "agents", subject: "+" });
	else if (chosen) await beginWith(chosen);
}

async function beginWith(chosen) {
	try {
		const made = await api.post("/api/threads", chosen);
		set({ threads: [made, ...state.threads] });
		go({ thread: made.id, panel: null });
	} catch (error) {
		tell(error);
	}
}

async function retitled(one, title) {
	const changed = await api.patch(`/api/threads/${one.id}`, { title });
	set({ threads: state.threads.map(other => (other.id === one.id ? { ...other, title: changed.title } : other)) });
}

async function rename(one) {
	const title = await askText({ title: "Rename", label: "Title", value: one.title ?? "" });
	if (title !== null) await retitled(one, title.trim() || null).catch(tell);
}

/** Title an untitled conversation by its first message. */
function name(text) {
	const one = currentThread();
	if (!one || one.title || one.kind === "group" || state.messages.length) return;
	const words = text.replace(/\s+/g, " ");
	retitled(one, words.length > 48 ? `${words.slice(0, 47).replace(/\s\S*$/, "")}…` : words).catch(() => {});
}

function remove(one) {
	const hidden = set => new Set([...state.hiddenThreads, one.id].filter(id => set || id !== one.id));
	undoable(`“${threadName(one)}” deleted, with all that was said in it.`, {
		hide() {
			set({ hiddenThreads: hidden(true) });
			if (state.thread === one.id) leave();
		},
		restore: () => set({ hiddenThreads: hidden(false) }),
		async commit(options) {
			await api.delete(`/chat/conversations/${one.id}`, options);
			set({ threads: state.threads.filter(other => other.id !== one.id) });
			app.lookAtSamples().catch(() => {});
		},
	});
}

/* Events */

let unseen = 0;

/** A message arrived in the open conversation. */
function noteReply(message) {
	const one = currentThread();
	const text = textOf(message).replace(/\s+/g, " ");
	const { author, role, created_at: at } = message;
	if (role === "system-summary") return;
	if (one) {
		const last = { author: author?.name ?? null, role, text: text.slice(0, 120), created_at: at };
		set({ threads: [{ ...one, last_message: last, last_at: at }, ...state.threads.filter(other => other !== one)] });
	}
	chat.countUnread();
	const people = state.people?.people;
	if (role === "user" && author && people && !people.some(other => other.id === author.id)) set({ people: { ...state.people, people: [author, ...people] } });
	if (role !== "assistant") return;
	part("announcer").textContent = `${agentOf(one)?.name ?? "The agent"}: ${text.slice(0, 400)}`;
	if (document.hidden) unseen += 1;
	set({ replied: message.id, trouble: message.fallbackUsed || message.guardUsed ? (message.problem ?? state.trouble) : null });
	loadTimers();
}

store.watch(["threads", "thread", "replied"], () => {
	const one = currentThread();
	document.title = `${unseen ? `(${unseen}) ` : ""}${one ? `${threadName(one)} · ` : ""}Rapport`;
});

async function loadTimers() {
	const { thread: id } = state;
	const timers = id && (await api.get(`/api/threads/${id}/timers`).catch(() => null)); // asked again when something happens
	if (timers && state.thread === id) set({ timers });
}

async function loadPreferences() {
	await api.get("/api/preferences").then(preferences => set({ preferences })).catch(tell);
}

async function savePreferences(body) {
	try {
		set({ preferences: await api.put("/api/preferences", body) });
		toast(body.quiet_from ? `Quiet from ${body.quiet_from} to ${body.quiet_to}.` : "No quiet hours.");
	} catch (error) {
		tell(error);
	}
}

async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		// The clipboard API needs https; fall back to execCommand.
		const box = el("textarea.unseen", { value: text });
		document.body.append(box);
		box.select();
		document.execCommand("copy");
		box.remove();
	}
	toast("Copied.");
}

function switchTheme() {
	const theme = isDark() ? "light" : "dark";
	document.documentElement.dataset.theme = theme;
	kept.put("theme", theme);
	set({ theme });
}

/* Connection */

store.watch(["lost", "trouble"], drawBanner);
setInterval(() => state.lost && drawBanner(), 1_000);

function drawBanner() {
	const banner = part("banner");
	banner.hidden = !(state.lost ?? state.trouble);
	if (banner.hidden) return;
	if (!state.lost) return fill(banner, icon("warn"), el("span", state.trouble.text), button("Close", "link", () => set({ trouble: null })));
	const left = Math.ceil(((state.lost.retryAt ?? 0) - Date.now()) / 1000);
	const what = navigator.onLine ? "The server can't be reached." : "You are offline.";
	const when = el("span", { "aria-hidden": "true" }, left > 0 ? `Next try in ${left} s.` : "Trying…");
	fill(banner, icon("warn"), el("span", `${what} Your messages are kept and sent later.`), when, button("Try now", "link", hurry));
}

function hurry() {
	thread.hurry();
	loadThreads({ isQuiet: true });
}

async function poll() {
	if (!document.hidden) await loadThreads({ isQuiet: true });
	setTimeout(poll, state.lost ? POLL_LOST : POLL);
}

/* Signing in and starting */

async function showSignIn() {
	const { dataset } = part("app");
	if (dataset.view === "sign-in") return;
	Object.assign(dataset, { view: "sign-in", side: "closed" });
	await signIn(part("main"), api);
	const session = await api.get("/api/session").catch(() => null);
	if (!session?.user || session.user !== state.session?.user) return location.reload();
	// The same person: what they have typed stays.
	dataset.view = "";
	applied = null;
	set({ session });
	apply();
	hurry();
}

async function signOut() {
	await api.delete("/api/session").catch(tell);
	location.reload();
}

function listen() {
	addEventListener("popstate", apply);
	addEventListener("online", hurry);
	addEventListener("offline", () => set({ lost: { retryAt: null } }));
	addEventListener("resize", () => {
		if (Boolean(panelWanted()) === state.side) return;
		applied = null;
		apply();
	});
	document.addEventListener("visibilitychange", () => {
		if (document.hidden) return;
		unseen = 0;
		hurry();
	});
	addEventListener("keydown", event => {
		if ((event.ctrlKey || event.metaKey) && event.key === "k") {
			event.preventDefault();
			conversations.focusSearch();
		} else if (event.key === "Escape" && !event.defaultPrevented && route.panel && !document.querySelector("dialog")) closeSide();
	});
	part("skip").addEventListener("click", event => {
		event.preventDefault();
		composer.focus();
	});
}

/** Save the browser's time zone if none is set. */
async function tellZone() {
	const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
	const { time_zone: known, quiet_from: isQuiet } = await api.get("/api/preferences");
	if (known === "UTC" && !isQuiet && timeZone) await api.put("/api/preferences", { time_zone: timeZone });
}

/** What the operator is told of a budget that is nearly used up. */
function warnOfBudget(budget) {
	const part = budget && (budget.spent ? "used up" : `used to ${Math.floor(budget.share * 100)} %`);
	return part && { text: `This month's token budget of ${budget.kind === "owner" ? "user" : "agent"} ${budget.id} is ${part}. Insight shows all budgets.` };
}

async function boot() {
	try {
		const session = await api.get("/api/session");
		set({ session, trouble: session.problem ?? warnOfBudget(session.budgets[0]) });
	} catch {
		return setTimeout(boot, POLL_LOST);
	}
	if (state.session.needs_key && !state.session.signed_in) return showSignIn();
	fill(part("conversations"), conversations.root);
	fill(part("side"), side.root);
	listen();
	tellZone().catch(() => {}); // the agent goes by UTC then
	const loading = [loadAgents(), loadThreads(), app.lookAtSamples()];
	apply();
	await Promise.all(loading).catch(tell);
	// A first visit opens the start page, on a phone too.
	if (isNarrow() && location.hash.length < 3 && !state.threads.length) go({ isStart: true });
	setTimeout(poll, POLL);
}

boot();
