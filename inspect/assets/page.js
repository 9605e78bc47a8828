"use strict";
// The page of package inspect. It reads the API beneath it (README.md) and writes nothing. Names that a cluster's users have chosen
// reach the document as text only, never as markup.

const byId = (id) => document.getElementById(id);

// make builds an element: fields are properties, data-* and aria-* attributes; children are elements or texts.
function make(tag, fields = {}, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(fields)) {
    if (value === undefined || value === false) continue;
    if (key.includes("-") || key === "role") el.setAttribute(key, value);
    else el[key] = value;
  }
  el.append(...children.filter((c) => c !== undefined && c !== null && c !== ""));
  return el;
}

const count = (n) => n.toLocaleString("en");
const percent = (thousandths) => Math.round(thousandths / 10) + "%";

// amount shows a quantity of a dimension in the units that people use: cores, GiB. It leaves out the word "cores".
function amount(value, unit) {
  const digits = (x) => (x >= 100 ? 0 : unit === "milli" && x < 10 ? 3 : 1);
  const round = (x) => x.toLocaleString("en", { maximumFractionDigits: digits(Math.abs(x)) });
  if (unit === "milli") return round(value / 1000);
  if (unit !== "bytes") return round(value);
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  for (; Math.abs(value) >= 1024 && i < names.length - 1; i++) value /= 1024;
  return round(value) + " " + names[i];
}

// inCores says that amounts are cores, whatever the cluster calls that dimension: devices are the only others in thousandths.
const inCores = (unit, name) => unit === "milli" && name !== "devices" && !name.startsWith("device/");

// withUnit is amount with the word "cores" where the amounts are cores.
function withUnit(value, unit, name) {
  const text = amount(value, unit);
  if (!inCores(unit, name)) return text;
  return text + (text === "1" ? " core" : " cores");
}

// quantity says how much of what: 90 cores, 64 GiB of memory, 4 devices.
function quantity(value, unit, name) {
  if (inCores(unit, name)) return withUnit(value, unit, name);
  return amount(value, unit) + (unit === "bytes" ? " of " : " ") + name;
}

// unitOfDimension returns the unit of the dimension with this name; undefined: it has none.
const unitOfDimension = (name) => ((overview && overview.dimensions) || []).find((d) => d.name === name)?.unit;

const asks = (list) => (list || []).map((a) => quantity(a.amount, a.unit, a.name)).join(", ");

function since(millis) {
  if (!millis) return "";
  const s = Math.max(0, (Date.now() - millis) / 1000);
  if (s < 90) return Math.round(s) + " s";
  return s < 5400 ? Math.round(s / 60) + " min" : Math.round(s / 3600) + " h";
}

async function ask(path) {
  const response = await fetch("api/" + path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error || response.statusText);
  return body;
}

// --- the constellation ---

let overview = null;
let dimension = 0;

function showOverview(o) {
  overview = o;
  const dims = o.dimensions || [];
  if (dimension >= dims.length) dimension = 0;
  showTotals(o, dims);
  showWhose();
  showDimensions(dims);
  remember(o.pending);
  const zones = byId("zones");
  keep(zones, o.zones || [], (z) => "z" + z.name, newZone, updateZone);
  if (!(o.zones || []).length) zones.replaceChildren(make("p", { className: "empty" }, "no node has joined yet"));
}

function showTotals(o, dims) {
  const all = (o.nodes.ready || 0) + (o.nodes.cordoned || 0) + (o.nodes.lost || 0);
  const rows = [["nodes", count(all)]];
  if (all !== o.nodes.ready) rows.push(["ready", count(o.nodes.ready || 0)]);
  if (o.nodes.cordoned) rows.push(["cordoned", count(o.nodes.cordoned)]);
  if (o.nodes.lost) rows.push(["lost", count(o.nodes.lost)]);
  rows.push(["placed", count(o.placed)], ["waiting", count(o.pending)]);
  for (const d of dims) if (d.capacity) rows.push([d.name, percent((1000 * d.used) / d.capacity)]);
  rows.push(["revision", count(o.revision)]);
  const trouble = byId("trouble");
  trouble.hidden = !o.trouble;
  trouble.textContent = o.trouble ? `The ledger can commit nothing: ${o.trouble}` : "";
  byId("totals").replaceChildren(...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", { "data-total": name }, value))));
}

// How much has waited: pairs of a time and a number, for the last ten minutes.
let history = [];
const remembered = 10 * 60e3;

// remember adds to the time line of what waits, and draws it.
function remember(pending) {
  const now = Date.now();
  history = history.filter(([at]) => at > now - remembered).slice(-1200);
  history.push([now, pending]);
  const most = Math.max(1, ...history.map(([, n]) => n)), span = Math.max(60e3, now - history[0][0]);
  const points = history.map(([at, n]) => `${(240 - (240 * (now - at)) / span).toFixed(1)},${(30 - (28 * n) / most).toFixed(1)}`);
  byId("timeline").firstElementChild.setAttribute("points", points.join(" "));
  byId("timeline").setAttribute("aria-label", `${count(pending)} wait; at most ${count(most)} in the last ${Math.round(span / 60e3)} min`);
}

function showDimensions(dims) {
  const box = byId("dimensions");
  keep(box, dims, (d) => d.name, (d) => make("button", { type: "button", role: "radio", onclick: () => choose(d.name) }, d.name), (el, d, i) => {
    el.setAttribute("aria-checked", i === dimension);
    el.tabIndex = i === dimension ? 0 : -1;
  });
}

function choose(name) {
  dimension = overview.dimensions.findIndex((d) => d.name === name);
  showOverview(overview);
  byId("dimensions").children[dimension].focus();
}

// keep makes the children of an element match a list, and touches those that stay in place.
function keep(parent, list, keyOf, create, update) {
  const old = new Map([...parent.children].map((el) => [el.dataset.key, el]));
  let at = parent.firstElementChild;
  list.forEach((item, i) => {
    const key = keyOf(item);
    let el = old.get(key);
    if (el) old.delete(key);
    else {
      el = create(item);
      el.dataset.key = key;
    }
    if (el === at) at = at.nextElementSibling;
    else parent.insertBefore(el, at);
    update(el, item, i);
  });
  for (const el of old.values()) el.remove();
  for (const el of [...parent.children]) if (el.dataset.key === undefined) el.remove();
}

function newZone() {
  const name = make("h3"), text = make("span"), bar = make("div", { className: "bar" }, make("i"));
  return make("div", { className: "zone" }, make("div", {}, name, text, bar), make("div", { className: "racks" }));
}

function updateZone(el, z) {
  const [head, racks] = el.children;
  const all = (z.nodes.ready || 0) + (z.nodes.cordoned || 0) + (z.nodes.lost || 0);
  head.children[0].textContent = z.all ? "all nodes" : z.name || `no ${overview.zoneLabel}`;
  let text = `${count(all)} nodes, ${percent(z.fill[dimension] || 0)}`;
  if (z.nodes.lost) text += `, ${count(z.nodes.lost)} lost`;
  if (z.nodes.cordoned) text += `, ${count(z.nodes.cordoned)} cordoned`;
  head.children[1].textContent = text;
  head.children[2].style.setProperty("--fill", (z.fill[dimension] || 0) / 1000);
  keep(racks, z.cells || [], (c) => JSON.stringify([c.rack, c.to, c.first]), newRack, (rack, c) => updateRack(rack, z, c));
}

function newRack() {
  return make("div", { className: "rack" });
}

function updateRack(el, z, c) {
  const range = c.to ? `${c.rack} to ${c.to}` : c.rack;
  const list = c.members ? c.members.map((m) => ({ key: "n" + m.id, node: m, fill: m.fill, state: m.state, text: `node ${m.id}, ${count(m.capsules)} capsules` })) : [{ key: "all", fill: c.fill, state: stateOf(c.nodes), text: `${overview.rackLabel} ${range || "none"}, ${count(all(c.nodes))} nodes, ${count(c.capsules)} capsules` }];
  const items = c.members && (c.rack || z.cells.length > 1) ? [{ key: "label", label: c.first ? "" : range || "–" }, ...list] : list;
  keep(el, items, (i) => i.key, (i) => (i.label !== undefined ? make("em") : newCell()), (cell, i) => {
    if (i.label !== undefined) {
      cell.textContent = i.label;
      return;
    }
    const fill = (i.fill && i.fill[dimension]) || 0;
    cell.style.setProperty("--fill", fill / 1000);
    cell.classList.toggle("over", fill > 1000);
    if (i.state) cell.dataset.state = i.state;
    else delete cell.dataset.state;
    cell.title = `${i.text}, ${percent(fill)}${i.state ? ", " + i.state : ""}`;
    cell.setAttribute("aria-label", cell.title);
    if (i.node) cell.dataset.node = i.node.id;
    cell.onclick = () => (i.node ? showNode(i.node.id) : showCell(z, c, range));
  });
}

const all = (nodes) => (nodes.ready || 0) + (nodes.cordoned || 0) + (nodes.lost || 0);

function stateOf(nodes) {
  if (nodes.ready) return "";
  return nodes.lost ? "lost" : "cordoned";
}

function newCell() {
  return make("button", { type: "button", className: "cell", tabIndex: document.querySelector("#zones .cell") ? -1 : 0 });
}

// Arrows move between cells, so that the whole constellation is one stop of the tab key.
byId("zones").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "down", ArrowUp: "up", Home: "first", End: "last" }[event.key];
  const cells = [...document.querySelectorAll("#zones .cell")];
  const at = cells.indexOf(document.activeElement);
  if (step === undefined || at < 0) return;
  event.preventDefault();
  let to = { first: 0, last: cells.length - 1 }[step] ?? at + (typeof step === "number" ? step : 0);
  if (step === "down" || step === "up") to = across(cells, at, step === "down" ? 1 : -1);
  to = Math.max(0, Math.min(cells.length - 1, to));
  cells[at].tabIndex = -1;
  cells[to].tabIndex = 0;
  cells[to].focus();
});

// across returns the cell of the next line that is nearest to one.
function across(cells, at, way) {
  const box = cells[at].getBoundingClientRect();
  let line = null, best = at, least = Infinity;
  for (let i = at + way; i >= 0 && i < cells.length; i += way) {
    const b = cells[i].getBoundingClientRect();
    if (Math.abs(b.top - box.top) < 4) continue;
    if (line === null) line = b.top;
    if (Math.abs(b.top - line) > 4) break;
    if (Math.abs(b.left - box.left) < least) [best, least] = [i, Math.abs(b.left - box.left)];
  }
  return best;
}

// --- passes and races ---

let boot = null;
// How often another process has answered than before.
let restarts = 0;
// How many entries are kept of what was refused, and how many of everything else.
const mostRefused = 60, mostOthers = 120;

function showRounds(event) {
  const feed = byId("feed");
  if (boot !== null && boot !== event.boot) restarts++;
  boot = event.boot;
  if (event.missed) feed.prepend(make("li", { className: "pass" }, `${count(event.missed)} passes are not shown`));
  for (const round of event.rounds) showRound(feed, round);
  let refused = 0, others = 0;
  for (const li of [...feed.children]) {
    if (li.dataset.refused !== undefined ? ++refused > mostRefused : ++others > mostOthers) li.remove();
  }
  select();
}

// What the newest pass of each engine says, its rows, and how often in a row it has said that.
const newest = new Map();

// showRound adds the rows of a pass. They replace those of the engine's pass before if that one says the same, so that an engine
// that tries the same thing again and again has one row, with a count.
function showRound(feed, round) {
  const { engine, pending, committed, proposed, conflicts, unplaced, errors, receipts } = round;
  const says = receipts ? "" : JSON.stringify([pending, committed, proposed, conflicts, unplaced, errors]);
  const before = newest.get(engine), again = says !== "" && before && before.says === says;
  const times = again ? before.times + 1 : 1, rows = [];
  if (again) for (const li of before.rows) li.remove();
  showReceipts(feed, round);
  for (const error of errors || []) rows.push(make("li", { "data-outcome": "failed", "data-refused": "", "data-engine": engine }, make("b", {}, engine), " " + error));
  if (pending || proposed) rows.push(passItem(round));
  if (times > 1 && rows.length) rows.at(-1).append(make("span", { className: "mark", "data-times": times }, `${count(times)} times`));
  for (const li of rows) feed.prepend(li);
  newest.set(engine, { says, rows, times });
}

// The most refused proposals of one pass that have rows of their own.
const mostOfAPass = 3;

// showReceipts adds the proposals of a pass. Where many are refused, they are one row that opens.
function showReceipts(feed, round) {
  const receipts = [...(round.receipts || [])].reverse();
  const refused = receipts.filter((r) => r.outcome !== "committed");
  const folded = refused.length > mostOfAPass;
  for (const r of receipts) if (!folded || r.outcome === "committed") feed.prepend(receiptItem(round, r));
  if (!folded) return;
  const kinds = Object.entries(Object.groupBy(refused, (r) => words[r.outcome] || r.outcome)).map(([word, list]) => `${count(list.length)} ${word}`);
  const items = refused.map((r) => receiptItem(round, r));
  const gravest = refused.find((r) => r.outcome !== "conflict") || refused[0]; // conflicts are ordinary
  feed.prepend(make("li", { "data-outcome": gravest.outcome, "data-refused": "", "data-engine": round.engine }, make("details", {}, make("summary", {}, make("b", {}, round.engine), " " + kinds.join(", ")), make("ol", {}, ...items))));
}

function passItem(r) {
  let text = `${r.engine}: ${count(r.pending)} waiting, ${count(r.committed)} of ${count(r.proposed)} committed`;
  if (r.conflicts) text += `, ${count(r.conflicts)} in conflict`;
  if (r.unplaced) text += `, ${count(r.unplaced)} without a place`;
  if (r.more > 0) text += `, ${count(r.more)} not listed`;
  return make("li", { className: "pass", "data-engine": r.engine }, `${text}; planned in ${(r.planning / 1000).toFixed(1)} ms at revision ${count(r.view)}`);
}

const words = { committed: "committed", conflict: "in conflict", infeasible: "does not fit", invalid: "is invalid", unknown: "outcome unknown", failed: "failed" };

function receiptItem(round, r) {
  const steps = r.steps.map((s) => [s.does, s.capsule || s.gang, s.node && (s.does === "evict" || s.does === "release" ? "from " : "on ") + s.node, s.for && "for " + s.for].filter(Boolean).join(" "));
  if (r.more) steps.push(`and ${count(r.more)} more`);
  const li = make("li", { "data-outcome": r.outcome, "data-engine": round.engine }, make("b", {}, `${round.engine} ${words[r.outcome] || r.outcome}`), r.revision ? ` at revision ${count(r.revision)}` : "", make("small", {}, steps.join("; ")));
  if (r.outcome === "committed") return li;
  li.dataset.refused = "";
  let why = r.reason || "";
  if (r.dimension) why += `: wants ${quantity(r.want || 0, unitOfDimension(r.dimension), r.dimension)}, ${withUnit(r.free || 0, unitOfDimension(r.dimension), r.dimension)} free`;
  if (r.bet) why = `bet ${r.bet}: ${why}`;
  if (r.rival) why += `; ${r.rival} came first at revision ${count(r.takenAt)}`;
  li.append(make("small", {}, why));
  return li;
}

// select hides the rows that do not contain the text of the search, and those of other engines.
function select() {
  const text = byId("search").value.trim().toLowerCase(), engine = byId("engine").value;
  const shown = (el) => !text || el.textContent.toLowerCase().includes(text);
  for (const li of byId("feed").children) li.hidden = !shown(li) || (engine !== "" && li.dataset.engine !== engine);
  for (const tr of document.querySelectorAll("#waiting tbody tr, #rules-body tr")) tr.hidden = !shown(tr);
  for (const tr of byId("engine-rows").tBodies[0].rows) tr.hidden = engine !== "" && tr.dataset.engine !== engine;
}
byId("search").addEventListener("input", select);
// Enter opens the node or the capsule of this name, because the lists show the first few only.
byId("search").addEventListener("keydown", async (event) => {
  const name = event.target.value.trim();
  if (event.key !== "Enter" || !name) return;
  const isNode = await ask("node?id=" + encodeURIComponent(name)).then(() => true, () => false);
  if (isNode) showNode(name);
  else explain("capsule=" + encodeURIComponent(name), name);
});
byId("engine").addEventListener("change", select);

byId("lost-only").addEventListener("change", (event) => byId("feed").classList.toggle("refused", event.target.checked));

// --- what waits, rules, engines ---

// The rows of what waits, as they came last.
let waiting = [];

function showWaiting(q) {
  waiting = q.rows;
  const body = byId("waiting-rows").tBodies[0];
  const focused = document.activeElement && document.activeElement.dataset.explain;
  body.replaceChildren(...q.rows.map((w) => {
    const name = w.gang ? `gang ${w.gang}` : w.capsule;
    const key = w.gang ? "gang=" + encodeURIComponent(w.gang) : "capsule=" + encodeURIComponent(w.capsule);
    const kind = [w.module, w.class, w.queue && "queue " + w.queue, w.owner && "for " + w.owner].filter(Boolean).join(", ");
    const first = make("td", {}, name, w.count > 1 ? ` and ${count(w.count - 1)} more` : "", w.nominated ? " " : "", w.nominated ? make("span", { className: "mark" }, "nominated") : "", make("small", {}, kind));
    return make("tr", {}, first, make("td", {}, String(w.priority)), make("td", {}, asks(w.asks)), make("td", { "data-since": w.since || 0 }, since(w.since)), make("td", { "data-why": "" }, w.why || (w.owner ? `engine ${w.owner} has not planned it yet` : "no engine has planned it yet"), " ", make("button", { type: "button", "data-explain": key, onclick: () => explain(key, name) }, "explain")));
  }));
  if (focused) document.querySelector(`[data-explain="${CSS.escape(focused)}"]`)?.focus();
  byId("waiting-more").textContent = q.pending === 0 ? "nothing waits" : q.more ? `and ${count(q.more)} more kinds of work` : "";
  showBlocked(q.blocked, q.moreBlocked);
  showFailing(q.failing);
  select();
}

// showFailing lists the nodes on which most starts have failed lately.
function showFailing(list) {
  if (!list.length) return byId("failing").replaceChildren();
  const rows = list.map((n) => make("tr", {}, make("td", {}, make("button", { type: "button", onclick: () => showNode(n.node) }, n.node)), make("td", {}, `${count(n.failed)} of ${count(n.of)} starts failed`)));
  byId("failing").replaceChildren(make("h3", {}, "Nodes on which starts fail"), make("table", {}, make("tbody", {}, ...rows)));
}

// showBlocked lists what is placed and may not begin, because something that has left has not stopped.
function showBlocked(list, more) {
  if (!list.length) return byId("blocked").replaceChildren();
  const rows = list.map((b) => make("tr", {}, make("td", {}, b.capsule, b.gang ? make("small", {}, "gang " + b.gang) : ""), make("td", {}, make("button", { type: "button", onclick: () => showNode(b.node) }, b.node)), make("td", {}, `until ${b.for === b.capsule ? "it" : b.for} stops`, b.on === b.node ? "" : make("small", {}, "on " + b.on)), make("td", { "data-since": b.since || 0 }, since(b.since))));
  byId("blocked").replaceChildren(make("h3", {}, "Placed, and waits to begin"), make("table", {}, make("tbody", {}, ...rows)), more ? make("p", { className: "more" }, `and ${count(more)} more`) : "");
}

setInterval(() => {
  for (const el of document.querySelectorAll("[data-since]")) el.textContent = since(+el.dataset.since);
}, 1000);

function showRules(r) {
  const parts = [];
  const add = (title, more, rows) => {
    if (rows.length) parts.push(make("h3", {}, title), make("table", {}, make("tbody", {}, ...rows)), more ? make("p", { className: "more" }, `and ${count(more)} more`) : "");
  };
  add("Budgets: members healthy, and how many may leave", r.moreBudgets, r.budgets.map((b) => make("tr", {}, make("td", {}, b.id, make("small", {}, b.group ? "group " + b.group : "module " + b.module)), make("td", { className: "number" }, `${count(b.healthy)} of ${count(b.expected)}`), make("td", { className: "number" }, b.spare > 0 ? `${count(b.spare)} may leave` : "none may leave"))));
  add("Broken rules: domains with too many of a group", r.moreSkewed, r.skewed.map((s) => make("tr", {}, make("td", {}, s.group, make("small", {}, `even over ${s.level}`)), make("td", {}, s.domain), make("td", { className: "number" }, `${count(s.members)}, and ${count(s.fewest + s.maxSkew)} may be`))));
  add("Nominations: first claims, highest rank first", r.moreNominations, r.nominations.map((n) => make("tr", {}, make("td", {}, n.gang ? "gang " + n.gang : n.capsule), make("td", {}, "rank " + n.rank), make("td", {}, n.nodes.join(", ") + (n.more ? ` and ${n.more} more` : "")))));
  add("Holds", r.moreHolds, r.holds.map((h) => make("tr", {}, make("td", {}, h.for || h.id), make("td", {}, h.node), make("td", {}, asks(h.room)))));
  byId("rules-body").replaceChildren(...(parts.length ? parts.filter((p) => p !== "") : [make("p", { className: "empty" }, "there are none")]));
}

// silence says that an engine stands by, or that it runs and makes no passes; empty: it does.
function silence(e) {
  if (e.standby) return make("small", { "data-standby": "", title: "it does not run in this process; another process may run it" }, "stands by");
  if (!e.silent) return "";
  return make("small", { className: "trouble", "data-silent": "" }, ...(e.passed ? ["no pass for ", make("span", { "data-since": e.passed }, since(e.passed))] : ["has made no pass"]));
}

// The sum of what the engines of this process have placed.
let placedHere = 0;

// showWhose says that the engines of other processes are not listed, and how much of all is placed by those that are.
function showWhose() {
  const now = overview ? `; ${count(overview.placed)} are placed now, by whomever` : "";
  byId("engines-whose").textContent = `engines of this process only: they have placed ${count(placedHere)} capsules since they were first seen${now}`;
}

function showEngines(list) {
  placedHere = list.reduce((sum, e) => sum + e.placed, 0);
  showWhose();
  const chosen = byId("engine");
  keep(chosen, [{ name: "" }, ...list], (e) => "e" + e.name, (e) => make("option", { value: e.name }, e.name || "all engines"), () => {});
  byId("engine-rows").tBodies[0].replaceChildren(...list.map((e) => make("tr", { "data-engine": e.name }, make("td", {}, e.name, silence(e)), ...[e.passes, e.placed, e.committed, e.conflicts, e.evicted, e.moved].map((n) => make("td", {}, count(n))), make("td", {}, `${(e.last.planning / 1000).toFixed(1)} ms`))));
}

// --- queues ---

let forest = null;
// The resource that the bars show, by its id.
let divided = "";

function showQueues(f) {
  forest = f;
  byId("queues").hidden = !f.rows.length;
  if (!f.resources.some((r) => r.id === divided)) divided = f.resources.length ? f.resources[0].id : "";
  keep(byId("divided"), f.resources, (r) => r.id, (r) => make("button", { type: "button", role: "radio", onclick: () => divide(r.id) }, r.name), (el, r) => {
    el.setAttribute("aria-checked", r.id === divided);
    el.tabIndex = r.id === divided ? 0 : -1;
  });
  const scales = scaleOf(f.rows);
  keep(byId("trees"), f.rows, (q) => q.id, newQueue, (el, q) => updateQueue(el, q, scales.get(q.id)));
  byId("queues-more").textContent = f.more ? `and ${count(f.more)} more queues, in which less work waits` : "";
}

function divide(id) {
  divided = id;
  showQueues(forest);
  byId("divided").querySelector("[aria-checked=true]").focus();
}

// scaleOf returns for each queue what the whole width of a bar is in its tree. A queue comes after the one above it.
function scaleOf(rows) {
  const scales = new Map();
  for (const q of rows) {
    const tree = q.parent ? scales.get(q.parent) : { most: 0 };
    const at = q.quotas[divided];
    if (at) tree.most = Math.max(tree.most, at.has, at.used);
    scales.set(q.id, tree);
  }
  return scales;
}

function newQueue(q) {
  const bar = make("div", { className: "shares", role: "img" }, ...["own", "lent", "idle", "borrowed"].map((part) => make("i", { "data-part": part })));
  return make("div", { className: "queue", "data-queue": q.id }, make("button", { type: "button", onclick: () => openQueue(q.id) }, q.id), bar, make("p"));
}

function updateQueue(el, q, scale) {
  const [name, bar, text] = el.children, at = q.quotas[divided], resource = forest.resources.find((r) => r.id === divided);
  el.style.setProperty("--depth", q.depth || 0);
  const said = at ? tellQuota(at, resource) : ["not divided here"];
  if (at && at.available < 0) said.push(withUnit(-at.available, resource.unit, resource.id) + " over the quota");
  el.classList.toggle("over", !!at && at.available < 0);
  if (q.share !== "0") said.push("share " + shareOf(q));
  if (q.waiting) said.push(count(q.waiting) + (q.waiting === 1 ? " waits" : " wait"));
  text.textContent = said.join(", ");
  name.title = q.weight > 1 ? `weight ${count(q.weight)}` : "";
  bar.hidden = !at;
  bar.setAttribute("aria-label", said.join(", "));
  const own = at ? at.used - (at.borrowed || 0) : 0, lent = (at && at.lent) || 0;
  const parts = { own, lent, idle: at ? Math.max(0, at.has - own - lent) : 0, borrowed: (at && at.borrowed) || 0 };
  for (const part of bar.children) {
    const share = scale.most ? parts[part.dataset.part] / scale.most : 0;
    part.style.width = 100 * share + "%";
    part.dataset.amount = parts[part.dataset.part];
  }
}

const shareOf = (q) => (q.permille === undefined ? q.share : (q.permille / 10).toLocaleString("en", { maximumFractionDigits: 1 }) + "%");

// tellQuota says in words what a bar shows.
function tellQuota(at, { unit, id }) {
  const said = [`uses ${amount(at.used, unit)} of ${withUnit(at.has, unit, id)}`];
  if (at.borrowed) said.push("borrows " + withUnit(at.borrowed, unit, id));
  if (at.lent) said.push("lends " + withUnit(at.lent, unit, id));
  return said;
}

// openQueue shows all resources of a queue, and what waits in it.
function openQueue(id) {
  const q = forest.rows.find((r) => r.id === id);
  if (!q) return;
  asked++;
  byId("detail-title").textContent = "queue " + id;
  const rows = forest.resources.filter((r) => q.quotas[r.id]).map((r) => {
    const at = q.quotas[r.id], show = (x) => withUnit(x || 0, r.unit, r.id);
    return make("tr", {}, make("td", {}, r.name), ...[at.used, at.nominal, at.has, at.borrowed, at.lent, at.available, at.most].map((x) => make("td", {}, show(x))));
  });
  const heads = ["", "used", "nominal", "quota in all", "borrowed", "lent", "available", "at most"].map((t) => make("th", {}, t));
  const where = [q.parent ? "below " + q.parent : "the root of a tree", `weight ${count(q.weight)}`, `share ${q.share}`, `${count(q.living)} capsules, ${count(q.waiting)} of them wait`];
  const waits = waiting.filter((w) => w.queue === id).map((w) => make("tr", {}, make("td", {}, w.gang ? "gang " + w.gang : w.capsule, w.count > 1 ? ` and ${count(w.count - 1)} more` : ""), make("td", {}, asks(w.asks), make("small", {}, w.why))));
  byId("detail-body").replaceChildren(make("p", {}, where.join(", ")), make("div", { className: "wide" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows))), ...(waits.length ? [make("h3", {}, "What waits"), make("table", {}, make("tbody", {}, ...waits))] : []));
  if (!detail.open) detail.showModal();
}

// --- details ---

const detail = byId("detail");
let asked = 0;

// open shows the dialog, and what a request answers as soon as it does, unless another one was opened meanwhile.
async function open(title, path, show) {
  const mine = ++asked;
  byId("detail-title").textContent = title;
  byId("detail-body").replaceChildren(make("p", { className: "empty" }, "looking …"));
  if (!detail.open) detail.showModal();
  let body, old = "";
  try {
    const answer = await ask(path);
    if (answer.trouble) old = make("p", { className: "trouble" }, tellTrouble(answer.trouble));
    body = show(answer);
  } catch (error) {
    body = [make("p", { className: "empty" }, error.message)];
  }
  if (mine === asked) byId("detail-body").replaceChildren(old, ...body.filter((el) => el !== ""));
}

function showNode(id) {
  open("node " + id, "node?id=" + encodeURIComponent(id), (n) => {
    const labels = Object.entries(n.labels || {}).map(([k, v]) => `${k}=${v}`).sort().join("  ");
    const table = make("table", { className: "wide" }, make("tbody", {}, ...n.rows.map((r) => make("tr", {}, make("td", {}, r.name), make("td", {}, `${amount(r.used, r.unit)} of ${withUnit(r.capacity, r.unit, r.name)}`), make("td", {}, r.capacity ? percent((1000 * r.used) / r.capacity) : "")))));
    const devices = n.devices ? make("p", {}, `devices ${n.model}: ` + n.devices.map((d) => (d < 0 ? "unhealthy" : percent(d) + " free")).join(", ")) : "";
    const rows = n.capsules.map((c) => make("tr", {}, make("td", {}, c.id, make("small", {}, [c.module, c.class, c.gang && "gang " + c.gang].filter(Boolean).join(", "))), make("td", {}, "priority " + c.priority), make("td", {}, asks(c.asks)), make("td", {}, c.waits ? "waits for what leaves" : "")));
    const parts = [make("p", {}, make("span", { className: "mark" }, n.state), " " + labels), table, devices, make("h3", {}, `${count(n.count)} capsules`), make("table", {}, make("tbody", {}, ...rows)), n.more ? make("p", { className: "more" }, `and ${count(n.more)} more`) : ""];
    for (const l of n.leaving || []) parts.push(make("p", {}, `${l.capsule} has left at revision ${count(l.left)} and still runs`));
    for (const l of n.nominations || []) parts.push(make("p", {}, `${l.gang ? "gang " + l.gang : l.capsule} is nominated for room here, rank ${l.rank}`));
    if (n.holds) parts.push(make("p", {}, "holds: " + n.holds.join(", ")));
    return parts;
  });
}

function showCell(z, c, range) {
  const query = new URLSearchParams({ rack: c.rack, count: all(c.nodes) });
  if (!z.all) query.set("zone", z.name);
  if (c.to) query.set("to", c.to);
  if (c.first) query.set("first", c.first);
  open(`${overview.rackLabel} ${range || "none"}`, "nodes?" + query, (n) => {
    const rows = n.nodes.map((m) => make("tr", {}, make("td", {}, make("button", { type: "button", "data-open": m.id, onclick: () => showNode(m.id) }, m.id)), make("td", {}, `${count(m.capsules)} capsules`), make("td", {}, n.dimensions.map((name, i) => `${name} ${percent(m.fill[i])}`).join(", ")), make("td", {}, m.state || "")));
    return [make("table", {}, make("tbody", {}, ...rows)), n.more ? make("p", { className: "more" }, `and ${count(n.more)} more`) : ""];
  });
}

function explain(key, name) {
  open("why " + name + " waits", "explain?" + key, (e) => {
    if (!e.nodes) return [make("pre", { "data-explained": "" }, e.text)];
    const soon = e.says ? "." : ": an engine that passes will place it, unless its navigator has reasons of its own.";
    const parts = [make("p", { "data-explained": "" }, e.fits ? `It fits on ${count(e.fits)} of ${count(e.nodes)} nodes now, at revision ${count(e.revision)}${soon}` : `It fits on none of ${count(e.nodes)} nodes, at revision ${count(e.revision)}.`)];
    for (const text of e.says || []) parts.push(make("p", { "data-says": "" }, text));
    if (e.failures) parts.push(make("p", {}, e.failures));
    if (e.why) parts.push(make("h3", {}, "What is in the way"));
    for (const w of e.why || []) parts.push(make("div", { className: "reasons" }, `${count(w.nodes)} nodes: ${w.reasons.join(", ")}. `, make("button", { type: "button", onclick: () => showNode(w.example) }, w.example)));
    if (e.fixes) parts.push(make("h3", {}, "What would help, the smallest change first"));
    for (const f of e.fixes || []) parts.push(make("div", { className: "fix" }, f.text));
    return parts;
  });
}

// --- events ---

function status(state, text) {
  const el = byId("status");
  el.dataset.state = state;
  el.lastElementChild.textContent = text;
}

// Why the ledger cannot be read; null: it can.
let unread = null;

// tellTrouble says that the ledger cannot be read, and how old the state is that is shown.
function tellTrouble(t) {
  return `The ledger cannot be read: ${t.error}.` + (t.since ? ` This is its state as of ${since(t.since)} ago.` : "");
}

// alive shows that events come.
function alive() {
  if (unread) return status("lost", tellTrouble(unread));
  status("live", restarts ? `live, restarted ${restarts === 1 ? "once" : count(restarts) + " times"}` : "live");
}

const shows = { overview: showOverview, waiting: showWaiting, rules: showRules, queues: showQueues, engines: showEngines, rounds: showRounds };
let latest = {};

// While the page is paused, frames replace each other and are drawn at the end; rounds are kept, as many as there may be rows.
let paused = false;
let missedWhilePaused = [];
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", paused);
  byId("pause").textContent = paused ? "go on" : "pause";
  if (paused) return;
  const rounds = missedWhilePaused;
  missedWhilePaused = [];
  rounds.forEach(showRounds);
  draw();
});

// Frames that come while the page is hidden, or faster than it is drawn, replace each other; rounds do not.
function draw() {
  if (paused) return;
  const due = latest;
  latest = {};
  for (const [name, value] of Object.entries(due)) shows[name](value);
}

function later(name, value) {
  const idle = Object.keys(latest).length === 0;
  latest[name] = value;
  if (idle && !paused) (document.hidden ? setTimeout : requestAnimationFrame)(draw);
}

let wait = 500;

function follow(last) {
  const url = "api/events" + (last ? "?after=" + encodeURIComponent(last) : "");
  const events = new EventSource(url);
  let id = last;
  events.onopen = () => {
    wait = 500;
    unread = null; // the server says so again if it still cannot be read
    alive();
  };
  for (const name of Object.keys(shows)) {
    events.addEventListener(name, (event) => {
      const value = JSON.parse(event.data);
      if (event.lastEventId) id = event.lastEventId;
      if (name === "rounds" && paused) missedWhilePaused = [...missedWhilePaused, value].slice(-mostOthers);
      else if (name === "rounds") showRounds(value);
      else later(name, value);
      alive();
    });
  }
  events.addEventListener("trouble", (event) => {
    const said = JSON.parse(event.data);
    unread = said.error ? said : null;
    alive();
  });
  events.onerror = () => {
    status("lost", "reconnecting");
    if (events.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    setTimeout(() => follow(id), wait);
    wait = Math.min(2 * wait, 10000);
  };
}

follow("");
