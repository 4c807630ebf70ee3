/** Statistics of the last hours: answers, steps, refusals, follow-ups. */

import { button, el, fill, svg } from "../dom.js";
import { emptyPanel, loader } from "../side.js";
import { count, millis, percent } from "../times.js";
import { phaseOrder, phaseWords, purposeWords, triggerWords } from "../words.js";

const RANGES = { 24: "24 hours", 168: "7 days", 720: "30 days" };
const STEPS = { 24: 3_600_000, 168: 6 * 3_600_000, 720: 86_400_000 };
const WIDTH = 320;
const HEIGHT = 72;
/** The share of a budget from which on it is marked. */
const NEARLY = 0.8;

export function createPanel(app, root) {
	const body = el("div");
	const ranges = el("div.segments", { role: "group", "aria-label": "Time range" });
	const load = loader(body);

	fill(root, ranges, body);

	const month = () => app.api.get("/api/usage?by=agent,purpose&limit=50");

	function show(hours) {
		const since = hours in RANGES ? hours : "24";
		const range = ([value, label]) => button(label, "small", () => app.go({ panel: "insight", subject: value }), null, { "aria-pressed": String(value === since) });
		fill(ranges, Object.entries(RANGES).map(range));
		load(() => Promise.all([app.api.get(`/api/insight?hours=${since}`), month()]), ([found, usage]) => draw(found, usage, since));
	}

	function draw({ turns, guard, fallbacks, phases, followups, variants }, usage, hours) {
		if (!turns.count && !phases.length && !usage.rows.length) {
			const text = "This panel shows how many answers there were, how long they took, how often the agent refused, and how many follow-ups were answered.";
			return fill(body, emptyPanel("insight", "No answers yet", text));
		}
		const figure = (value, label) => el("div.card", el("b", value), el("span", label));
		const share = one => (one.share === null ? "–" : percent(one.share));
		const made = followups.filter(one => one.fired);
		fill(
			body,
			el("div.figures", figure(turns.count.toLocaleString(), "answers"), figure(share(guard), "refused: no relevant note"), figure(share(fallbacks), "fallback: model failed")),
			el("h2", "Answers over time"),
			bars(sumHours(turns.by_hour, STEPS[hours]), hours),
			phases.length > 0 && [el("h2", "How long each step takes"), el("p.hint", "Dark: median. Pale: 95th percentile. Since the server started."), spans(phases)],
			made.length > 0 && [el("h2", "Follow-ups"), table(made)],
			variants.length > 0 && [el("h2", "Prompts of follow-ups"), el("p.hint", "Each wording with its answer rate: 95 % sure to lie in this range."), wordings(variants)],
			usage.rows.length + usage.budgets.length > 0 && [el("h2", "Model use this month"), costs(usage)],
		);
	}

	/** Hourly counts, summed into steps. */
	function sumHours(hours, step) {
		const sums = new Map();
		for (const { at, count: n } of hours) {
			const key = Math.floor(Date.parse(at) / step) * step;
			sums.set(key, (sums.get(key) ?? 0) + n);
		}
		return [...sums].map(([at, n]) => ({ at, n }));
	}

	function bars(points, hours) {
		const most = Math.max(1, ...points.map(one => one.n));
		const width = WIDTH / points.length;
		const name = new Intl.DateTimeFormat(undefined, hours === "24" ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" });
		const text = (words, x, y, anchor) => svg("text", { x, y, "text-anchor": anchor }, words);
		return svg(
			"svg",
			{ class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT + 16}`, role: "img", "aria-label": `Answers over time, at most ${most} at once` },
			svg("line", { x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
			points.map(({ at, n }, index) => {
				const height = (n / most) * (HEIGHT - 12);
				return svg("rect", { x: index * width + width * 0.12, y: HEIGHT - height, width: width * 0.76, height, rx: 2 }, svg("title", `${name.format(at)}: ${n}`));
			}),
			text(name.format(points[0].at), 0, HEIGHT + 13, "start"),
			text("now", WIDTH, HEIGHT + 13, "end"),
			text(`max: ${most}`, WIDTH, 9, "end"),
		);
	}

	function spans(phases) {
		const most = Math.max(...phases.map(one => one.p95_ms), 0.01);
		// Square root: a step of 2 ms stays visible beside one of 2 s.
		const bar = (ms, kind) => svg("rect", { width: Math.sqrt(ms / most) * 100, height: 6, class: kind });
		const item = ({ phase, count: n, p50_ms: half, p95_ms: slow }) => {
			const label = `half within ${millis(half)}, 95 % within ${millis(slow)}, of ${count(n, "time")}`;
			return el(
				"li",
				el("span", phaseWords(phase), el("small", `${millis(half)} · ${millis(slow)}`)),
				svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": label }, bar(slow, "pale"), bar(half, "full")),
			);
		};
		return el("ul.spans", phases.toSorted((a, b) => phaseOrder(a.phase) - phaseOrder(b.phase)).map(item));
	}

	function table(followups) {
		const row = one => {
			const cells = [one.delivered, one.held_back, one.answer_rate === null ? "–" : percent(one.answer_rate)];
			return el("tr", el("th", { scope: "row" }, triggerWords(one.trigger_type)), cells.map(cell => el("td", cell)));
		};
		const head = ["Reason", "sent", "held back", "answered"].map(name => el("th", { scope: "col" }, name));
		return el("table", el("thead", el("tr", head)), el("tbody", followups.map(row)));
	}

	/** One line for each variant of a prompt, with its rate in words: a table would be too wide for a phone. */
	function wordings(variants) {
		const item = one => el("li", el("span", `${triggerWords(one.trigger_type)}: ${one.variant}`, el("small", `${one.agent} · ${one.fired} due`)), el("p.hint", one.text));
		return el("ul.wordings", variants.map(item));
	}

	function costs({ rows, total, budgets }) {
		const amount = (n, one) => `${one.estimated ? "≈ " : ""}${n.toLocaleString()}`;
		const cells = one => [one.calls.toLocaleString(), amount(one.tokens_in, one), amount(one.tokens_out, one)].map(text => el("td", text));
		const row = one => el("tr", el("th", { scope: "row" }, one.agent, el("small", purposeWords(one.purpose))), cells(one));
		const head = ["Agent", "calls", "tokens in", "tokens out"].map(name => el("th", { scope: "col" }, name));
		const state = one => {
			const used = `${one.used.toLocaleString()} of ${one.limit.toLocaleString()} tokens used`;
			const end = one.spent ? `used up; it starts again on ${one.restarts_on} (UTC)` : percent(one.share);
			return el("p", { class: one.share >= NEARLY ? "mark fallback" : "hint" }, `Budget of ${one.kind === "owner" ? "user" : "agent"} ${one.id}: ${used} (${end}).`);
		};
		return [
			budgets.map(state),
			rows.length > 0 && el("table", el("thead", el("tr", head)), el("tbody", rows.map(row))),
			total.estimated && el("p.hint", "≈ The provider did not count all of these tokens; the rest is estimated."),
		];
	}

	return { show };
}
