// Each page works without this script. It sets texts with textContent and attributes by name, never
// HTML.

const $ = (id) => document.getElementById(id);

// Live figures ------------------------------------------------------------------------------

const attributes = ["class", "points", "datetime", "title", "value"];
const least = 2_000; // between two looks; if the server takes long, ten times as long, up to the most
const most = 20_000;
const patience = 25_000;
let updated = new Date();

const clock = (time) => time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const showProblem = (why) => {
  $("broken").textContent = `${why}, figures of ${clock(updated)}`;
  $("broken").hidden = false;
};

// Takes over the figures of the page as the server shows it now.
const show = (page) => {
  updated = new Date();
  $("broken").hidden = true;
  document.title = page.title;
  const figures = new Map();
  for (const figure of page.querySelectorAll("[data-live]")) figures.set(figure.dataset.live, figure);
  for (const element of document.querySelectorAll("[data-live]")) {
    const figure = figures.get(element.dataset.live);
    if (!figure) continue;
    if (element.childElementCount === 0 && element.textContent !== figure.textContent) element.textContent = figure.textContent;
    for (const attribute of attributes) {
      const value = figure.getAttribute(attribute);
      if (value !== null) element.setAttribute(attribute, value);
    }
  }
  const rows = namesOfRows(page);
  const lasting = document.querySelector("[data-until]");
  if (lasting && !rows.has(lasting.dataset.row)) return location.reload();
  showChangedRows(rows);
};

const namesOfRows = (page) => new Set([...page.querySelectorAll("[data-row]")].map((row) => row.dataset.row));

// Shows how many rows are new or gone, with a link to reload. Rows never move on their own.
const showChangedRows = (now) => {
  const shown = namesOfRows(document);
  const added = [...now].filter((row) => !shown.has(row)).length;
  const gone = [...shown].filter((row) => !now.has(row)).length;
  const link = $("more").querySelector("a");
  link.href = location.href;
  link.textContent = [added && `${added} new`, gone && `${gone} gone`].filter(Boolean).join(", ") + ", show";
  $("more").hidden = added + gone === 0;
};

// Reads the page again at intervals. An XMLHttpRequest returns a document, in which no script runs.
const look = () => {
  const began = Date.now();
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  request.responseType = "document";
  request.timeout = patience;
  request.onload = () => {
    if (request.status === 200 && request.response) show(request.response);
    else showProblem(request.response?.querySelector("h1")?.textContent || "Disconnected");
  };
  request.onerror = request.ontimeout = () => showProblem("Disconnected");
  request.onloadend = () => setTimeout(look, Math.min(Math.max(least, 10 * (Date.now() - began)), most));
  request.send();
};

if ("livePage" in document.body.dataset) setTimeout(look, least);

document.querySelector("header [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }); // a phone does not show all links

// Selecting all -----------------------------------------------------------------------------

for (const all of document.querySelectorAll("[data-all]")) {
  const boxes = () => [...all.form.elements].filter((box) => box.name === all.dataset.all && box.type === "checkbox");
  all.closest("[hidden]")?.removeAttribute("hidden");
  all.addEventListener("change", () => boxes().forEach((box) => (box.checked = all.checked)));
  all.form.addEventListener("change", () => (all.checked = boxes().every((box) => box.checked)));
}

// Keys --------------------------------------------------------------------------------------

const typing = "input, textarea, select, [contenteditable]";
let gPressed = 0; // when the key g was pressed

const rows = () => [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a[href]")).filter(Boolean);

const move = (by) => {
  const links = rows();
  const row = document.activeElement?.closest("tr");
  const at = links.findIndex((link) => link.closest("tr") === row);
  const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1);
  links[next]?.focus();
};

const go = (key) => {
  document.querySelector(`nav a[data-key="${CSS.escape(key)}"]`)?.click();
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest?.(typing)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if ($("keys").open) return; // the browser closes it with Escape
  if (event.timeStamp - gPressed < 1_500 && gPressed) {
    gPressed = 0;
    return go(event.key);
  }
  switch (event.key) {
    case "/":
      event.preventDefault();
      $("find").focus();
      $("find").select();
      break;
    case "?":
      $("keys").showModal();
      break;
    case "j":
      move(1);
      break;
    case "k":
      move(-1);
      break;
    case "g":
      gPressed = event.timeStamp;
      break;
  }
});
