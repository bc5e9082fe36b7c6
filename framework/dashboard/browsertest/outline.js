// What screen readers miss on a page, one a line.
(() => {
	const wrong = [];
	for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea")) if (!e.labels.length) wrong.push("no label: " + e.name);
	for (const e of document.querySelectorAll("a, button")) if (!e.innerText.trim()) wrong.push("no text: " + e.outerHTML);
	for (const e of document.querySelectorAll("[aria-describedby], [aria-labelledby]"))
		for (const id of (e.getAttribute("aria-describedby") || e.getAttribute("aria-labelledby")).split(" ")) if (!document.getElementById(id)) wrong.push("no element: " + id);
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	if (new Set(ids).size != ids.length) wrong.push("an id is used twice: " + ids);
	if (document.querySelectorAll("h1").length != 1) wrong.push("h1");
	let level = 0;
	for (const h of document.querySelectorAll("h1, h2, h3, h4")) { const now = +h.tagName[1]; if (now > level + 1) wrong.push("heading: " + h.innerText); level = now; }
	return wrong.join("\n");
})()
