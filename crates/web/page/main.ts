// The page: asks the server for what is in view, and shows it. Whatever is large stays with the server.
import { ask, Refused, type Overview as OverviewAnswer, type RequestDetail, type Row, type Searching, type Status, type Timeline as TimelineAnswer, type TransactionDetail } from "./api";
import { listPanel, requestPanel } from "./detail";
import { type Child, h, replace } from "./dom";
import { Filters } from "./filters";
import { type Key, keysDialog } from "./help";
import { clock, date, duration, plural, thousands } from "./format";
import { Overview } from "./overview";
import { type Report, retroPage } from "./retro";
import * as theme from "./theme";
import { type Hit, type Range, Timeline } from "./timeline";

const LANES_SHOWN = 128;
const LIVE_MS = 2000;
const LOADING_MS = 250;

let status: Status | null = null;
let generation = 0;
let lane = 0;
let following = true;
let rows: Row[] | null = null;
let detail: RequestDetail | null = null;
let chosen: TransactionDetail | null = null;
let failure: Refused | null = null;

const overview = new Overview((range) => timeline.go(range));
const timeline = new Timeline({
  moved: () => {
    overview.view = timeline.range;
    overview.draw();
    tellRange();
    wanted();
  },
  hovered: hover,
  counted: (lines, x, y) => {
    if (!lines) tip.hidden = true;
    else place(lines.map((line, at) => h(at === 0 ? "b" : "div", { class: at === 2 ? "dim" : undefined }, line)), x, y);
  },
  chosen: choose,
});
const filters = new Filters(() => {
  timeline.stacked = filters.lanes !== "client";
  timeline.scroll = 0;
  lane = 0;
  rows = null;
  if (!detail) showPanel();
  wanted();
  void askOverview();
});

// Keys, by what is pressed.

const KEYS: Key[] = [
  ["ArrowLeft", "move to earlier", () => timeline.pan(-0.2)],
  ["ArrowRight", "move to later", () => timeline.pan(0.2)],
  ["+ =", "zoom in", () => timeline.zoom(0.5)],
  ["- −", "zoom out", () => timeline.zoom(2)],
  ["f", "the whole recording", fit],
  ["ArrowDown", "scroll lanes down", () => timeline.scrollBy(64)],
  ["ArrowUp", "scroll lanes up", () => timeline.scrollBy(-64)],
  ["n", "next request in the list", () => step(1)],
  ["p", "previous request", () => step(-1)],
  ["]", "next transaction of the request: what it saw", () => stepTransaction(1)],
  ["[", "previous transaction", () => stepTransaction(-1)],
  ["Escape", "close the request", closePanel],
  ["/", "search text", () => filters.focus()],
  ["l", "lanes by client, type, session", () => filters.cycle()],
  ["c", "clear the filter", () => filters.clear()],
  ["r", "read the recording again", () => void reload()],
  ["t", "theme: as the system, light, dark", toggleTheme],
  ["?", "these keys", () => help.showModal()],
];

// What the page is made of.

const tip = h("div", { class: "tip", hidden: true });
const panel = h("aside", { class: "panel", "aria-label": "Details" });
const banner = h("div", { class: "banner", role: "status", hidden: true });
const rangeText = h("span", { class: "range" });
const countText = h("span", { "aria-live": "polite" });
const pager = h("span", { class: "pager" });
const live = h("span", { class: "live", hidden: true }, "live");
const source = h("span", { class: "source" });
const themeButton = h("button", { class: "quiet", title: "Theme (t)", onclick: toggleTheme }, "");
const tabs = h("nav", { class: "tabs", hidden: true });
const cover = h("div", { class: "cover" });
const stage = h("main", { class: "stage-timeline" }, filters.element, overview.canvas, banner, h("div", { class: "columns" }, h("div", { class: "canvas" }, timeline.canvas, cover), panel), h("footer", null, rangeText, countText, pager, h("span", { class: "keys" }, "drag, wheel, ", h("kbd", null, "+"), h("kbd", null, "−"), h("kbd", null, "←"), h("kbd", null, "→"), "  ", h("kbd", null, "?"), " all keys")));
const retroStage = h("main", { class: "stage-retro", hidden: true });
const help = keysDialog(KEYS);
replace(
  document.getElementById("app")!,
  h("header", { class: "top" }, h("h1", null, "Hindcast"), source, live, tabs, h("span", { class: "space" }), themeButton, h("button", { class: "quiet", title: "Keys (?)", "aria-label": "Keys", onclick: () => help.showModal() }, "?")),
  stage,
  retroStage,
  tip,
  help,
);
showTheme();

// Asking.

let asking = false;
let again = false;

/** Asks for what is in view, one question at a time; what was wanted meanwhile is asked last. */
function wanted(): void {
  if (!status?.recording || status.recording.from === null) return;
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  void look().finally(() => {
    asking = false;
    if (again) {
      again = false;
      wanted();
    }
  });
}

/** A little more than is in view, so that a small move shows no blank. */
function around(range: Range): Range {
  const margin = (range.until - range.from) / 3;
  return { from: Math.floor(range.from - margin), until: Math.ceil(range.until + margin) };
}

async function look(): Promise<void> {
  const range = around(timeline.range);
  const question = { ...range, columns: Math.round(timeline.columns * 0.85), lane, rows: LANES_SHOWN, lanes: filters.lanes, filter: filters.filter };
  try {
    const answer = await ask<TimelineAnswer | Searching>("timeline", question);
    failure = null;
    if ("searching" in answer) {
      const { done, total } = answer.searching;
      say(`Searching what was recorded: ${Math.floor((100 * done) / Math.max(1, total))} %`);
      setTimeout(wanted, 300);
      return;
    }
    quiet();
    if (answer.found) sayFound(answer);
    timeline.show(answer);
    tellCount(answer);
    empty(answer);
    scheduleList(answer.requests);
    document.body.dataset.ready = "yes";
  } catch (error) {
    fail(error);
  }
}

async function askOverview(): Promise<void> {
  if (!status?.recording || status.recording.from === null) return;
  try {
    const answer = await ask<OverviewAnswer | Searching>("overview", { columns: overview.columns, lanes: filters.lanes, filter: filters.filter });
    if ("searching" in answer) {
      setTimeout(() => void askOverview(), 500);
      return;
    }
    overview.answer = answer;
    overview.draw();
  } catch {
    // The timeline's own question says what is wrong.
  }
}

let listTimer = 0;
let listed = 0;

function scheduleList(total: number): void {
  listed = total;
  clearTimeout(listTimer);
  if (detail) return;
  if (rows === null) showPanel();
  listTimer = window.setTimeout(async () => {
    const { from, until } = timeline.range;
    try {
      const answer = await ask<{ rows: Row[] } | Searching>("list", { from: Math.floor(from), until: Math.ceil(until), lanes: filters.lanes, filter: filters.filter });
      if ("searching" in answer) return;
      rows = answer.rows;
      if (!detail) showPanel();
    } catch (error) {
      fail(error);
    }
  }, 180);
}

let pollTimer = 0;

function pollIn(ms: number): void {
  clearTimeout(pollTimer);
  pollTimer = window.setTimeout(() => void poll(), ms);
}

/** Has the recording read again, and waits until that was done: a little while, since nothing new may be there. */
async function reload(): Promise<void> {
  try {
    await ask("reload");
  } catch (error) {
    return fail(error);
  }
  const before = generation;
  for (let attempt = 0; attempt < 20 && generation === before; attempt++) {
    await new Promise((done) => setTimeout(done, LOADING_MS));
    await poll();
  }
}

async function poll(): Promise<void> {
  try {
    status = await ask<Status>("status");
    showStatus(status);
  } catch (error) {
    fail(error);
    pollIn(LIVE_MS);
    return;
  }
  const { recording } = status;
  if (!recording) pollIn(LOADING_MS);
  else if (recording.live) pollIn(LIVE_MS);
}

function showStatus(now: Status): void {
  source.textContent = now.trace;
  source.title = now.trace;
  document.title = `${now.trace.split("/").filter(Boolean).pop() ?? ""} – Hindcast`;
  tabs.hidden = !now.report;
  if (now.report && tabs.childElementCount === 0) makeTabs();
  const { recording } = now;
  live.hidden = !recording?.live;
  if (!recording) {
    if (now.failure) covered(h("h2", null, "The recording cannot be read"), h("p", null, now.failure));
    else loading(now);
    return;
  }
  if (now.failure) say(`Read again in vain, so this is an earlier state: ${now.failure}`);
  if (recording.generation === generation) return;
  const first = generation === 0;
  const before = overview.whole;
  generation = recording.generation;
  timeline.recording = recording;
  filters.known(recording);
  if (recording.from === null || recording.until === null) {
    nothing(recording.live);
    return;
  }
  cover.hidden = true;
  overview.whole = { from: recording.from, until: recording.until };
  const follows = following && timeline.range.until >= before.until;
  if (first) fit();
  else if (follows && recording.live) {
    const span = timeline.range.until - timeline.range.from;
    const whole = span >= (before.until - before.from) * 0.98;
    if (whole) fit();
    else timeline.go({ from: recording.until - span, until: recording.until });
  } else wanted();
  void askOverview();
}

function fit(): void {
  const { from, until } = overview.whole;
  const edge = Math.max(1, (until - from) * 0.01);
  timeline.go({ from: from - edge, until: until + edge });
}

// Saying.

function covered(...children: Child[]): void {
  cover.hidden = false;
  replace(cover, h("div", { class: "message" }, ...children));
}

function loading(now: Status): void {
  const part = now.total > 0 ? now.done / now.total : 0;
  covered(h("h2", null, "Reading the recording"), h("progress", { max: 1, value: part, "aria-label": "Progress" }), h("p", { class: "dim" }, `${thousands(now.done)} of ${thousands(now.total)} requests and transactions`));
}

function nothing(isLive: boolean): void {
  covered(h("h2", null, "Nothing was recorded yet"), h("p", { class: "dim" }, isLive ? "A recorder is writing into this trace. Send the service a request; it appears here within seconds." : "This trace has no requests and no transactions. If its recorder runs elsewhere, press R once it has written a segment."));
  replace(panel);
}

function empty(answer: TimelineAnswer): void {
  if (answer.taken > 0 || answer.ghosts.length > 0) {
    cover.hidden = true;
    return;
  }
  covered(h("h2", null, "No request is like that"), h("p", { class: "dim" }, `None of ${plural(status!.recording!.requests, "request")} passes the filter.`), h("button", { onclick: () => filters.clear() }, "Clear the filter"));
}

function say(text: string): void {
  banner.hidden = false;
  banner.className = "banner";
  banner.textContent = text;
}

function quiet(): void {
  if (!status?.failure) banner.hidden = true;
}

function sayFound(answer: TimelineAnswer): void {
  const { by_value, by_request, unknown } = answer.found!;
  const parts = [`${plural(by_value, "request")} by a value of a statement`];
  if (by_request > 0) parts.push(`${thousands(by_request)} by the request or its response, since values were not kept`);
  if (unknown > 0) parts.push(`${thousands(unknown)} more touched the table with values that were not kept, and are not shown`);
  say(`Found ${parts.join("; ")}.`);
}

function fail(error: unknown): void {
  failure = error instanceof Refused ? error : new Refused(0, String(error), null);
  banner.hidden = false;
  banner.className = "banner failed";
  replace(banner, h("b", null, failure.message), failure.hint ? `. Next: ${failure.hint}.` : "");
  if (failure.status === 401 || failure.status === 403) covered(h("h2", null, "This address is not enough"), h("p", { class: "dim" }, `${failure.message}: ${failure.hint ?? ""}.`));
}

function tellRange(): void {
  const { from, until } = timeline.range;
  rangeText.textContent = `${date(from)} ${clock(from, 3)} – ${clock(until, 3)} UTC · ${duration(until - from)}`;
}

function tellCount(answer: TimelineAnswer): void {
  const all = status!.recording!;
  const taken = answer.taken === all.requests ? plural(all.requests, "request") : `${thousands(answer.taken)} of ${plural(all.requests, "request")}`;
  countText.textContent = `${taken}, ${plural(all.transactions, "transaction")}${all.ghosts ? ` (${plural(all.ghosts, "ghost")})` : ""}`;
  const last = Math.min(answer.lane + LANES_SHOWN, answer.lanes_total);
  if (answer.lanes_total <= LANES_SHOWN) replace(pager);
  else {
    const to = (next: number) => () => {
      lane = Math.max(0, Math.min(next, answer.lanes_total - 1));
      timeline.scroll = 0;
      wanted();
    };
    replace(pager, `lanes ${answer.lane + 1}–${last} of ${thousands(answer.lanes_total)} `, h("button", { class: "quiet", disabled: answer.lane === 0, onclick: to(lane - LANES_SHOWN) }, "‹"), h("button", { class: "quiet", disabled: last === answer.lanes_total, onclick: to(lane + LANES_SHOWN) }, "›"));
  }
}

// Choosing.

const actions = {
  openRequest: (id: string) => void openRequest(id, null, true),
  openTransaction: (id: string, request: string | null) => void openTransaction(id, request),
  close: () => closePanel(),
};

function choose(hit: Hit | null): void {
  if (!hit) return closePanel();
  if (hit.transaction) void openTransaction(hit.transaction.id, hit.request.id);
  else void openRequest(hit.request.id);
}

async function openRequest(id: string, transaction: string | null = null, close = false): Promise<void> {
  try {
    const found = await ask<RequestDetail>("request", { id });
    detail = found;
    chosen = null;
    timeline.selected = { request: id, transaction };
    timeline.sighted = null;
    showPanel();
    timeline.reveal(found.arrived, found.took, close);
    timeline.draw();
    const own = transaction ?? (found.transactions.length === 1 ? found.transactions[0]!.id : null);
    if (own && !transaction) await openTransaction(own, id);
  } catch (error) {
    fail(error);
  }
}

async function openTransaction(id: string, request: string | null): Promise<void> {
  try {
    if (request && detail?.id !== request) await openRequest(request, id);
    const found = await sight(id);
    chosen = found;
    timeline.selected = request ? { request, transaction: id } : null;
    timeline.sighted = found;
    if (!request) {
      say(`t${id} belongs to no request: see it with hindcast show t${id}`);
    }
    showPanel();
    timeline.draw();
    document.body.dataset.sighted = id;
  } catch (error) {
    fail(error);
  }
}

function closePanel(): void {
  detail = null;
  chosen = null;
  timeline.selected = null;
  timeline.sighted = null;
  showPanel();
  timeline.draw();
  scheduleList(listed);
}

function showPanel(): void {
  if (detail) replace(panel, ...requestPanel(detail, chosen, actions));
  else if (status?.recording) replace(panel, ...listPanel(status.recording, rows, listed, actions));
  if (detail && chosen) panel.querySelector(".transaction.open")?.scrollIntoView({ block: "nearest" });
  else panel.scrollTop = 0;
}

const sights = new Map<string, TransactionDetail>();

async function sight(id: string): Promise<TransactionDetail> {
  const key = `${generation} ${filters.lanes} ${id}`;
  const known = sights.get(key);
  if (known) return known;
  const found = await ask<TransactionDetail>("transaction", { id, lanes: filters.lanes });
  if (sights.size > 200) sights.clear();
  sights.set(key, found);
  return found;
}

let hoverTimer = 0;

function hover(hit: Hit | null, x: number, y: number): void {
  clearTimeout(hoverTimer);
  if (!hit) {
    tip.hidden = true;
    if (timeline.sighted !== chosen) {
      timeline.sighted = chosen;
      timeline.draw();
    }
    return;
  }
  const { request, transaction } = hit;
  const type = status!.recording!.types[request.kind] ?? "";
  const answered = request.status === 0 ? "broken off" : request.status === 1 ? "not recorded" : String(request.status);
  const lines: Child[] = [h("b", null, `${request.id} ${type}`), h("div", { class: "dim" }, `${answered} · ${duration(request.took)} · ${clock(timeline.answer!.from + request.at)}`)];
  if (transaction) {
    const what = transaction.aborted ? "aborted" : transaction.wrote ? "wrote" : "read";
    lines.push(h("div", null, `t${transaction.id} ${what} · ${duration(transaction.lasted)}`));
    hoverTimer = window.setTimeout(async () => {
      try {
        const found = await sight(transaction.id);
        if (timeline.hovered?.transaction?.id !== transaction.id) return;
        timeline.sighted = found;
        timeline.draw();
        place([...lines, ...sightLines(found)], x, y);
      } catch {
        // A click says what is wrong.
      }
    }, 70);
  } else if (timeline.sighted !== chosen) {
    timeline.sighted = chosen;
    timeline.draw();
  }
  place(lines, x, y);
}

function sightLines(own: TransactionDetail): Child[] {
  if (!own.sight) return [];
  const { saw, unseen, crossed, waited, snapshot } = own.sight;
  const names = (all: { id: string }[]) => all.slice(0, 4).map((it) => `t${it.id}`).join(", ") + (all.length > 4 ? " …" : "");
  const line = (kind: string, text: string) => h("div", null, h("span", { class: `dot ${kind}` }), text);
  const lines: Child[] = [];
  const mine = new Set(crossed.map((one) => one.other_write));
  const other = unseen.filter((it) => !mine.has(it.id));
  for (const one of crossed.slice(0, 3)) {
    const about = one.known ? `both wrote ${one.values.slice(0, 3).join(", ")}` : `both wrote ${one.tables.join(", ")}`;
    lines.push(line("unseen", `crossed with request ${one.request}: ${about}, neither saw the other`));
  }
  if (other.length > 0) lines.push(line("unseen", `did not see ${names(other)}`));
  if (saw.length > 0) lines.push(line("saw", `saw ${names(saw)}`));
  for (const wait of waited.slice(0, 3)) lines.push(line("waited", `statement ${wait.statement} waited${wait.other ? ` for t${wait.other.id}` : ""}`));
  if (lines.length === 0 && snapshot) lines.push(h("div", { class: "dim" }, "no recorded writer of its tables before it or beside it"));
  return lines;
}

function place(lines: Child[], x: number, y: number): void {
  replace(tip, ...lines);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
  const top = y + 18 + box.height > innerHeight ? y - 12 - box.height : y + 18;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

// Theme, tabs, keys, printing.

function toggleTheme(): void {
  theme.next();
  showTheme();
}

function showTheme(): void {
  const names = { system: "Auto", light: "Light", dark: "Dark" };
  themeButton.textContent = names[theme.current()];
  timeline.restyle();
  overview.draw();
}

function makeTabs(): void {
  const timelineTab = h("button", { "aria-pressed": "true", onclick: () => select(false) }, "Timeline");
  const retroTab = h("button", { "aria-pressed": "false", onclick: () => select(true) }, "Retroaction");
  let shown = false;
  const select = (retro: boolean) => {
    stage.hidden = retro;
    retroStage.hidden = !retro;
    timelineTab.setAttribute("aria-pressed", String(!retro));
    retroTab.setAttribute("aria-pressed", String(retro));
    if (retro && !shown) {
      shown = true;
      const back = (id: string) => {
        select(false);
        void openRequest(id, null, true);
      };
      ask<Report>("report").then(
        (report) => replace(retroStage, retroPage(report, { showRequest: back })),
        (error: Error) => replace(retroStage, h("p", { class: "warning" }, error.message)),
      );
    } else if (!retro) timeline.resize();
  };
  replace(tabs, timelineTab, retroTab);
  select(true);
}

function step(by: number): void {
  if (!rows || rows.length === 0) return;
  const at = rows.findIndex(([id]) => id === detail?.id);
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))]!;
  void openRequest(next[0], null, true);
}

function stepTransaction(by: number): void {
  if (!detail || detail.transactions.length === 0) return;
  const at = detail.transactions.findIndex((own) => own.id === chosen?.id);
  const next = detail.transactions[(at + by + detail.transactions.length) % detail.transactions.length]!;
  void openTransaction(next.id, detail.id);
}

document.addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName)) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (stage.hidden && !["t", "?"].includes(event.key)) return;
  if (target.closest(".panel") && ["ArrowUp", "ArrowDown"].includes(event.key)) return;
  const found = KEYS.find(([keys]) => keys.split(" ").includes(event.key) || keys.split(" ").includes(event.key.toLowerCase()));
  if (!found) return;
  event.preventDefault();
  found[2]();
});

theme.followed(showTheme);
addEventListener("beforeprint", () => {
  theme.print(true);
  timeline.restyle();
  overview.draw();
});
addEventListener("afterprint", () => {
  theme.print(false);
  showTheme();
});
timeline.canvas.addEventListener("pointerdown", () => {
  following = false;
});
void poll();
