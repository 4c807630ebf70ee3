/** Requests, streams, uploads, and their errors in words. */

/** A refused request. `status` is 0 when the server can't be reached. */
export class Problem extends Error {
	constructor(status, detail, retryAfter = 0) {
		super(detail);
		this.status = status;
		this.retryAfter = retryAfter;
	}

	/** The same request may succeed later. */
	get isPassing() {
		return [0, 502, 503, 504].includes(this.status);
	}
}

/** The server's API. `onLost`, `onFound`: the server is unreachable, or back; `onSignedOut`: it wants a key. */
export function createApi({ onLost, onFound, onSignedOut }) {
	async function ask(method, path, { body, accept = "application/json", headers, ...more } = {}) {
		let response;
		try {
			response = await fetch(path, {
				method,
				...more,
				// A page of another site can't send X-Rapport.
				headers: { "X-Rapport": "page", Accept: accept, ...(body && { "Content-Type": "application/json" }), ...headers },
				body: body && JSON.stringify(body),
			});
		} catch (error) {
			if (error.name === "AbortError") throw error;
			onLost();
			throw new Problem(0, navigator.onLine ? "The server can't be reached." : "You are offline.");
		}
		onFound();
		if (response.ok) return response;
		const problem = problemOf(response.status, await response.text(), response.headers.get("Retry-After"));
		if (problem.status === 401 && path !== "/api/session") onSignedOut();
		throw problem;
	}

	async function json(method, path, options) {
		const response = await ask(method, path, options);
		return response.status === 204 ? null : response.json();
	}

	return {
		get: path => json("GET", path),
		post: (path, body) => json("POST", path, { body }),
		put: (path, body) => json("PUT", path, { body }),
		patch: (path, body) => json("PATCH", path, { body }),
		delete: (path, options) => json("DELETE", path, options),
		/** The response itself, for streams. */
		open: (method, path, options) => ask(method, path, { accept: "text/event-stream", ...options }),
		upload,
	};
}

/** The text of an error, with when to retry. */
function problemOf(status, text, header) {
	let said = {};
	try {
		said = JSON.parse(text);
	} catch { /* a proxy's own page, or nothing */ }
	const wait = Math.ceil(Number(said.retryAfter ?? header) || 0);
	let detail = said.detail ?? (status >= 500 ? "The server has a problem." : `The server refused (${status}).`);
	if (status === 429) detail = `Too many messages. Try again in ${wait || 1} s.`;
	if (status === 413) detail = said.detail ?? "The request is too large.";
	return new Problem(status, detail, wait);
}

/** Yield the events of a stream: `{name, data, id}`. Calls `onBeat` for every chunk. */
export async function* eventsOf(response, onBeat = () => {}) {
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	try {
		for (;;) {
			const { done, value } = await reader.read();
			if (done) return;
			onBeat();
			rest += value.replaceAll("\r", "");
			let end;
			while ((end = rest.indexOf("\n\n")) >= 0) {
				const event = eventIn(rest.slice(0, end));
				rest = rest.slice(end + 2);
				if (event) yield event;
			}
		}
	} finally {
		reader.cancel().catch(() => {});
	}
}

function eventIn(block) {
	const fields = { event: "message", data: "", id: null };
	for (const line of block.split("\n")) {
		const [, name, value] = /^(event|data|id): ?(.*)$/s.exec(line) ?? [];
		if (name) fields[name] = value;
	}
	return fields.data && { name: fields.event, data: JSON.parse(fields.data), id: fields.id };
}

/** Send a file; `onProgress` gets the share sent, then 1 while the server indexes it. */
function upload(path, file, onProgress) {
	return new Promise((resolve, reject) => {
		const form = new FormData();
		form.append("file", file, file.name);
		const request = new XMLHttpRequest(); // fetch doesn't tell how much has left
		request.open("POST", path);
		request.setRequestHeader("X-Rapport", "page");
		request.upload.onprogress = event => event.lengthComputable && onProgress(event.loaded / event.total);
		request.upload.onload = () => onProgress(1);
		request.onerror = () => reject(new Problem(0, "The connection broke during the upload."));
		request.onload = () => {
			const { status, responseText: text } = request;
			if (status >= 200 && status < 300) resolve(JSON.parse(text));
			else reject(problemOf(status, text, request.getResponseHeader("Retry-After")));
		};
		request.send(form);
	});
}
