// Runs before the first paint, so that a chosen theme never flashes.
(() => {
	let chosen = null;
	try {
		chosen = JSON.parse(localStorage.getItem("rapport.theme"));
	} catch { /* storage is off: follow the system */ }
	if (chosen) document.documentElement.dataset.theme = chosen;
})();
