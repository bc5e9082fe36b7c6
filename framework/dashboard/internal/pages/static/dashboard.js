// Each page works without this script. It sets texts with textContent and attributes by name, never
// HTML.

const $ = (id) => document.getElementById(id);

// Live figures ------------------------------------------------------------------------------

const attributes = ["class", "points", "datetime", "title", "value"];
const maxSilence = 25_000; // the server sends something at least every 10 s
const address = document.body.dataset.source;
let updated = new Date();
let errorTimer = 0;
let silenceTimer = 0;

const clock = (time) => time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const showProblem = (why) => {
  $("broken").textContent = `${why}, figures of ${clock(updated)}`;
  $("broken").hidden = false;
};

const received = () => {
  clearTimeout(errorTimer);
  errorTimer = 0;
  $("broken").hidden = true;
  clearTimeout(silenceTimer);
  silenceTimer = setTimeout(() => showProblem("Disconnected"), maxSilence);
};

const show = (figures) => {
  if (figures.problem) return showProblem(figures.problem);
  updated = new Date();
  const title = figures.title?.trim();
  if (title) document.title = title;
  const marked = new Map();
  for (const element of document.querySelectorAll("[data-live]")) marked.set(element.dataset.live, element);
  for (const [name, figure] of Object.entries(figures.values ?? {})) {
    const element = marked.get(name);
    if (!element) continue;
    if (element.childElementCount === 0 && element.textContent !== figure.text) element.textContent = figure.text;
    for (const attribute of attributes) {
      const value = figure.attributes?.[attribute];
      if (value !== undefined) element.setAttribute(attribute, value);
    }
  }
  if (!figures.rows) return;
  const lasting = document.querySelector("[data-until]");
  if (lasting && !figures.rows.includes(lasting.dataset.row)) return location.reload();
  showChangedRows(figures.rows);
};

// Shows how many rows are new or gone, with a link to reload. Rows never move on their own.
const showChangedRows = (rows) => {
  const shown = new Set([...document.querySelectorAll("[data-row]")].map((row) => row.dataset.row));
  const now = new Set(rows);
  const added = [...now].filter((row) => !shown.has(row)).length;
  const gone = [...shown].filter((row) => !now.has(row)).length;
  const link = $("more").querySelector("a");
  link.href = location.href;
  link.textContent = [added && `${added} new`, gone && `${gone} gone`].filter(Boolean).join(", ") + ", show";
  $("more").hidden = added + gone === 0;
};

const connect = () => {
  const source = new EventSource(address);
  source.addEventListener("figures", (event) => {
    received();
    show(JSON.parse(event.data));
  });
  source.addEventListener("quiet", received);
  source.onerror = () => {
    errorTimer ||= setTimeout(() => showProblem("Disconnected"), 3_000);
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5_000); // the server refused the connection
  };
  addEventListener("pagehide", () => source.close(), { once: true });
};

if (address) connect();
addEventListener("pageshow", (event) => {
  if (event.persisted && address) connect();
});

document.querySelector("header [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }); // a phone does not show all links

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
