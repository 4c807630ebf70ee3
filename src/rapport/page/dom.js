/** Building the document. Text goes in as text; only `showHtml` takes markup. */

import { PATHS } from "./icons.js";

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected", "open", "tabIndex", "textContent"]);
const SVG = "http://www.w3.org/2000/svg";

/** An element: its tag with classes (`p.hint`), properties, listeners (`onclick: …`) and `data: {…}` where it has some, and
 * children; empty children are left out. */
export function el(tag, ...rest) {
	const [name, ...classes] = tag.split(".");
	const node = document.createElement(name);
	if (classes.length) node.className = classes.join(" ");
	return addChildren(node, rest);
}

/** The same for SVG, without classes. */
export const svg = (tag, ...rest) => addChildren(document.createElementNS(SVG, tag), rest);

const isPlain = value => Boolean(value) && Object.getPrototypeOf(value) === Object.prototype;

function addChildren(node, children) {
	const props = isPlain(children[0]) ? children.shift() : {};
	for (const [name, value] of Object.entries(props)) {
		if (value === null || value === undefined || value === false) continue;
		if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
		else if (name === "data") Object.assign(node.dataset, value);
		else if (name === "class") node.setAttribute("class", value);
		else if (PROPERTIES.has(name) && name in node) node[name] = value;
		else node.setAttribute(name, value === true ? "" : value);
	}
	add(node, children);
	return node;
}

function add(node, children) {
	for (const child of children) {
		if (child === null || child === undefined || child === false || child === "") continue;
		if (Array.isArray(child)) add(node, child);
		else node.append(child);
	}
}

/** Replace the children. */
export function fill(node, ...children) {
	node.replaceChildren();
	add(node, children);
	return node;
}

/** Insert HTML that the server has sanitised. Nothing else inserts markup. */
export function showHtml(node, html) {
	node.innerHTML = html;
	return node;
}

/** A button. A `tool` shows its icon alone, and its label to screen readers. */
export function button(label, kind, onclick, picture = null, props = {}) {
	const isBare = /\btool\b/.test(kind);
	const names = isBare ? { "aria-label": label, title: label } : {};
	return el("button", { type: "button", class: kind, onclick, ...names, ...props }, picture && icon(picture), isBare ? null : el("span", label));
}

/** A line icon, hidden from screen readers. */
export function icon(name) {
	return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}

/** Run at most once a frame, with the last arguments. */
export function eachFrame(work) {
	let waiting = false;
	return () => {
		if (waiting) return;
		waiting = true;
		const run = () => {
			waiting = false;
			work();
		};
		if (document.hidden) setTimeout(run, 0);
		else requestAnimationFrame(run);
	};
}

/** True when the page shows one column. */
export const isNarrow = () => matchMedia("(max-width: 760px)").matches;
