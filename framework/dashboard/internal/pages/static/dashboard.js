// Everything here is a convenience: each page works without it. Texts are set by textContent and
// attributes by name, never as HTML.

const $ = (id) => document.getElementById(id);

// Live figures ------------------------------------------------------------------------------

const attributes = ["class", "points", "datetime", "title", "value"];
const patience = 25_000; // the server is never quiet for longer than 10 s
const address = document.body.dataset.source;
let seen = new Date();
let sign = 0; // a timer
let watch = 0;

const clock = (time) => time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const broken = (why) => {
  $("broken").textContent = `${why}, figures of ${clock(seen)}`;
  $("broken").hidden = false;
};

const heard = () => {
  clearTimeout(sign);
  sign = 0;
  $("broken").hidden = true;
  clearTimeout(watch);
  watch = setTimeout(() => broken("Disconnected"), patience);
};

const show = (figures) => {
  if (figures.problem) return broken(figures.problem);
  seen = new Date();
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
  more(figures.rows);
};

// more says how many rows there are that the reader does not see: they never move by themselves.
const more = (rows) => {
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
    heard();
    show(JSON.parse(event.data));
  });
  source.addEventListener("quiet", heard);
  source.onerror = () => {
    sign ||= setTimeout(() => broken("Disconnected"), 3_000);
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5_000); // refused
  };
  addEventListener("pagehide", () => source.close(), { once: true });
};

if (address) connect();
addEventListener("pageshow", (event) => {
  if (event.persisted && address) connect();
});

document.querySelector("header [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }); // a phone has no room for all

// Keys --------------------------------------------------------------------------------------

const typing = "input, textarea, select, [contenteditable]";
let going = 0; // when g was pressed

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
  if ($("keys").open) return; // Escape closes it by itself
  if (event.timeStamp - going < 1_500 && going) {
    going = 0;
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
      going = event.timeStamp;
      break;
  }
});
