// A retroaction's report: what was, and what would have been, side by side.
import { ask, type RequestDetail } from "./api";
import { statusBadge } from "./detail";
import { type Child, h, replace } from "./dom";
import { duration, plainId, plural, thousands } from "./format";

// The report as `hindcast retro --json` writes it, as far as it is shown.
interface TransactionChange {
  transaction: number | null;
  request: number | null;
  of: string;
  kind: string;
  before?: string[] | string | null;
  after?: string[] | string | null;
  statements?: string[];
  error?: string | null;
  retry?: boolean;
  into?: number | null;
  before_rows?: number;
  after_rows?: number;
}
interface ValueChange {
  name: string;
  before: string | null;
  after: string | null;
}
interface ResponseChange {
  request: number;
  of: string;
  status: [number | null, number | null];
  headers: ValueChange[];
  body: { kind: string; changes?: ValueChange[]; more?: number; before?: string; after?: string; before_bytes?: number; after_bytes?: number } | null;
  error: string | null;
}
type Cells = (string | null)[];
interface Cause {
  cause: string;
  request?: number | null;
  transaction?: number | null;
  of?: string;
  statement?: string | null;
}
interface RowChange {
  kind: string;
  row?: Cells;
  before?: Cells | number;
  after?: Cells | number;
  before_by: Cause | null;
  after_by: Cause | null;
}
interface Answer {
  answer: string;
  columns?: string[];
  rows?: Cells[];
  count?: number;
  error?: string;
}
export interface Report {
  from: number;
  to: number;
  change: { app: string; migrations: string[]; isolation: string | null; skipped: string[] };
  outcome: { outcome: string; why?: { why: string; last_lines?: string[] } };
  counts: Record<string, number>;
  responses: { changed: ResponseChange[]; groups: { what: string; count: number }[] };
  transactions: { changed: TransactionChange[]; groups: { what: string; count: number }[] };
  state: {
    tables: { table: string; columns: string[]; key: string[]; added: number; removed: number; changed: number; noise: number; rows: RowChange[] }[];
    tables_same: number;
  };
  checks: { sql: string; before: Answer; after: Answer }[];
  timing: { run_us: number; original_us: number };
}

export interface Actions {
  showRequest(id: string): void;
}

/** Requests that are listed. */
const LISTED_MAX = 400;

interface Changed {
  request: number;
  of: string;
  response: ResponseChange | null;
  transactions: TransactionChange[];
}

export function retroPage(report: Report, actions: Actions): HTMLElement {
  const changed = byRequest(report);
  const lead = interesting(report, changed);
  const stage = h("div", { class: "stage" });
  const list = h("div", { class: "chooser", role: "listbox", "aria-label": "Changed requests" });
  let chosen: HTMLElement | null = null;
  const show = (one: Changed, item: HTMLElement) => {
    chosen?.removeAttribute("aria-selected");
    chosen = item;
    item.setAttribute("aria-selected", "true");
    void sideBySide(one, report, stage, actions);
  };
  const items = changed.slice(0, LISTED_MAX).map((one) => {
    const item = h(
      "button",
      { role: "option", class: "item", onclick: () => show(one, item) },
      h("b", null, plainId(one.request)),
      h("span", { class: "what" }, one.of),
      h("span", { class: "tags" }, tags(one)),
    );
    return { one, item };
  });
  list.append(...items.map(({ item }) => item));
  if (changed.length > LISTED_MAX) list.append(h("p", { class: "note" }, `The first ${LISTED_MAX} of ${thousands(changed.length)} are listed.`));
  const first = items.find(({ one }) => one === lead) ?? items[0];
  if (first) {
    show(first.one, first.item);
    requestAnimationFrame(() => first.item.scrollIntoView({ block: "center" }));
  } else replace(stage, h("p", { class: "empty" }, "Every request did what it did then."));
  return h("div", { class: "retro" }, head(report), h("div", { class: "pair" }, list, stage));
}

function byRequest(report: Report): Changed[] {
  const all = new Map<number, Changed>();
  const of = (request: number, kind: string) => {
    const one = all.get(request) ?? { request, of: kind, response: null, transactions: [] };
    all.set(request, one);
    return one;
  };
  for (const change of report.transactions.changed) {
    if (change.request !== null) of(change.request, change.of).transactions.push(change);
  }
  for (const change of report.responses.changed) of(change.request, change.of).response = change;
  return [...all.values()].sort((a, b) => a.request - b.request);
}

/** The one to begin with: what wrote a row that is different, or has another response. */
function interesting(report: Report, changed: Changed[]): Changed | undefined {
  const writers = new Set<number>();
  for (const table of report.state.tables) {
    for (const row of table.rows) {
      for (const cause of [row.before_by, row.after_by]) if (cause?.request) writers.add(cause.request);
    }
  }
  return changed.find((one) => writers.has(one.request)) ?? changed.find((one) => one.response) ?? changed[0];
}

function tags(one: Changed): Child {
  const kinds = new Set<string>(one.transactions.map((change) => change.kind));
  const names: Record<string, string> = {
    statements: "other statements",
    results: "other results",
    deleted: "gone",
    added: "added",
    newly_failing: "fails now",
    newly_succeeding: "succeeds now",
    fails_otherwise: "fails otherwise",
  };
  return [one.response && "other response", ...[...kinds].map((kind) => names[kind] ?? kind)].filter(Boolean).join(" · ");
}

function head(report: Report): HTMLElement {
  const { counts } = report;
  const outcome = report.outcome.outcome;
  const headline =
    outcome === "faithful" ? "Nothing would have been different" : outcome === "stopped" ? "The run stopped before its end" : "Something would have been different";
  const cell = (n: number | undefined, what: string, kind: string) =>
    h("div", { class: `count ${n ? kind : "none"}` }, h("b", null, thousands(n ?? 0)), h("span", null, what));
  return h(
    "header",
    { class: `verdict ${outcome}` },
    h("h2", null, headline),
    h("p", { class: "dim" }, `Requests ${plainId(report.from)} to ${plainId(report.to)} with `, h("code", null, report.change.app || "the changed service"), report.change.migrations.map((name) => [" after ", h("code", null, name)]), `; ${duration(report.timing.run_us)} for what took ${duration(report.timing.original_us)}.`),
    report.outcome.why?.last_lines?.length ? h("pre", null, report.outcome.why.last_lines.join("\n")) : null,
    h(
      "div",
      { class: "counts" },
      cell(counts.requests_executed, "requests executed", "plain"),
      cell(counts.responses_changed, "other responses", "changed"),
      cell(counts.changed, "transactions changed", "changed"),
      cell(counts.deleted, "gone", "gone"),
      cell(counts.added, "added", "new"),
      cell(counts.newly_failing, "fail now", "gone"),
      cell(counts.newly_succeeding, "succeed now", "new"),
    ),
    report.checks.map(check),
    report.state.tables.map((table) => tableChange(table)),
  );
}

function check(one: Report["checks"][number]): HTMLElement {
  const answer = (side: Answer) => {
    if (side.answer === "failed") return h("p", { class: "warning" }, side.error ?? "");
    if (side.answer === "not_asked") return h("p", { class: "dim" }, "not asked: there is no original final state");
    if (!side.count) return h("p", { class: "dim" }, "no rows");
    return rowsTable(side.columns ?? [], side.rows ?? []);
  };
  return h(
    "section",
    { class: "checked" },
    h("p", null, h("code", null, one.sql)),
    h("div", { class: "two" }, h("div", null, h("h4", null, "then"), answer(one.before)), h("div", null, h("h4", null, "with the change"), answer(one.after))),
  );
}

function rowsTable(columns: string[], rows: Cells[], marked?: (row: number, column: number) => boolean): HTMLElement {
  const cell = (value: string | null) => (value === null ? h("i", { class: "dim" }, "NULL") : value);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "rows" },
      h("thead", null, h("tr", null, columns.map((name) => h("th", null, name)))),
      h("tbody", null, rows.map((row, r) => h("tr", null, row.map((value, c) => h("td", { class: marked?.(r, c) ? "differs" : undefined }, cell(value)))))),
    ),
  );
}

function tableChange(table: Report["state"]["tables"][number], only?: (row: RowChange) => boolean): HTMLElement | null {
  const rows = only ? table.rows.filter(only) : table.rows.slice(0, 20);
  if (rows.length === 0) return null;
  const summary = [
    table.added && `${thousands(table.added)} added`,
    table.removed && `${thousands(table.removed)} removed`,
    table.changed && `${thousands(table.changed)} changed`,
    table.noise && `${thousands(table.noise)} of noise`,
  ].filter(Boolean);
  return h(
    "section",
    { class: "checked" },
    h("p", null, h("code", null, table.table), h("span", { class: "dim" }, `  ${summary.join(", ")}`)),
    rows.map((row) => {
      const before = (row.kind === "removed" ? row.row : row.kind === "changed" ? row.before : null) as Cells | null;
      const after = (row.kind === "added" ? row.row : row.kind === "changed" ? row.after : null) as Cells | null;
      const differs = (_: number, column: number) => !!before && !!after && before[column] !== after[column];
      const side = (title: string, cells: Cells | null, by: Cause | null) =>
        h("div", null, h("h4", null, title), cells ? rowsTable(table.columns, [cells], differs) : h("p", { class: "dim" }, row.kind === "count" ? `${row.before} times, now ${row.after}` : "no such row"), by ? h("p", { class: "note" }, causeText(by)) : null);
      return h("div", { class: "two" }, side("row then", before, row.before_by), side("row with the change", after, row.after_by));
    }),
  );
}

function causeText(cause: Cause): string {
  switch (cause.cause) {
    case "transaction":
      return `${cause.transaction ? `t${plainId(cause.transaction)}` : "an added transaction"}${cause.request ? ` of request ${plainId(cause.request)}, ${cause.of}` : ""}${cause.statement ? `: ${cause.statement}` : ""}`;
    case "migration":
      return "the migration wrote it";
    case "before":
      return "it was so before the range began";
    default:
      return "it is not known who wrote it";
  }
}

async function sideBySide(one: Changed, report: Report, stage: HTMLElement, actions: Actions): Promise<void> {
  const id = plainId(one.request);
  let recorded: RequestDetail | null = null;
  let why: string | null = null;
  try {
    recorded = await ask<RequestDetail>("request", { id });
  } catch (error) {
    why = (error as Error).message;
  }
  const mine = (cause: Cause | null) => cause?.request === one.request;
  replace(
    stage,
    h("div", { class: "title" }, h("h2", null, `Request ${id}`), h("button", { class: "link", onclick: () => actions.showRequest(id) }, "show it on the timeline")),
    h("p", { class: "line" }, h("code", null, recorded ? `${recorded.method} ${recorded.target}` : one.of)),
    why ? h("p", { class: "warning" }, why) : null,
    recorded ? lanes(recorded, one) : null,
    one.transactions.map(transactionPair),
    one.response ? responsePair(one.response) : null,
    report.state.tables.map((table) => tableChange(table, (row) => mine(row.before_by) || mine(row.after_by))),
  );
}

/** Old and new lane: the request's transactions in order, those that belong together one above the other. */
function lanes(recorded: RequestDetail, one: Changed): HTMLElement {
  const changes = new Map(one.transactions.filter((it) => it.transaction !== null).map((it) => [plainId(it.transaction!), it]));
  const old: Child[] = [];
  const now: Child[] = [];
  for (const own of recorded.transactions) {
    const change = changes.get(own.id);
    const text = own.statements.find((it) => !/^(BEGIN|START|COMMIT|SET)\b/i.test(it.text))?.text ?? own.outcome;
    const block = (kind: string, label: string) => h("div", { class: `block ${kind}`, title: text }, h("b", null, `t${own.id}`), h("span", null, label));
    old.push(block(own.outcome === "aborted" ? "failed" : own.xid ? "write" : "read", duration(own.took)));
    if (!change) now.push(block("same", "the same"));
    else if (change.kind === "deleted") now.push(block("gone", change.into ? `moved into t${plainId(change.into)}` : "not run"));
    else if (change.kind === "newly_failing") now.push(block("failed", "fails"));
    else now.push(block("changed", tagsOf(change)));
  }
  for (const added of one.transactions.filter((it) => it.transaction === null)) {
    old.push(h("div", { class: "block empty" }, h("span", null, "—")));
    now.push(h("div", { class: "block added" }, h("b", null, added.retry ? "a retry" : "added"), h("span", null, added.error ?? plural(added.statements?.length ?? 0, "statement"))));
  }
  if (old.length === 0) return h("p", { class: "dim" }, "It did not use the database.");
  return h("div", { class: "lanes" }, h("div", { class: "name" }, "then"), h("div", { class: "blocks" }, ...old), h("div", { class: "name" }, "with the change"), h("div", { class: "blocks" }, ...now));
}

function tagsOf(change: TransactionChange): string {
  switch (change.kind) {
    case "statements":
      return "other statements";
    case "results":
      return `${change.before_rows} → ${plural(change.after_rows ?? 0, "row")}`;
    case "newly_succeeding":
      return "succeeds";
    default:
      return "changed";
  }
}

function transactionPair(change: TransactionChange): HTMLElement {
  const name = change.transaction === null ? "An added transaction" : `t${plainId(change.transaction)}`;
  if (change.kind === "statements") {
    const [before, after] = [change.before as string[], change.after as string[]];
    return h("section", { class: "change" }, h("h3", null, `${name}: other statements`), difference(before, after));
  }
  if (change.kind === "added") {
    return h("section", { class: "change" }, h("h3", null, change.retry ? "A retry" : name), change.error ? h("p", { class: "warning" }, change.error) : null, difference([], change.statements ?? []));
  }
  const said: Record<string, string> = {
    deleted: change.into ? `its writes moved into t${plainId(change.into)}` : "its request did not come to it",
    results: `the same statements answered ${plural(change.after_rows ?? 0, "row")} instead of ${change.before_rows}`,
    newly_failing: `fails now: ${change.error}`,
    newly_succeeding: `succeeds now${change.error ? `; it failed then: ${change.error}` : ""}`,
    fails_otherwise: `failed then with ${change.before ?? "an error that is not known"}, now with ${change.after ?? "another one"}`,
  };
  return h("section", { class: "change" }, h("p", null, h("b", null, name), `: ${said[change.kind] ?? change.kind}`));
}

/** Statements in two columns, equal ones in one row; the first that differ are marked. */
function difference(before: string[], after: string[]): HTMLElement {
  const rows: [string | null, string | null][] = [];
  const pairs = common(before, after);
  let [x, y] = [0, 0];
  for (const [nextX, nextY] of [...pairs, [before.length, after.length] as [number, number]]) {
    while (x < nextX || y < nextY) rows.push([x < nextX ? before[x++]! : null, y < nextY ? after[y++]! : null]);
    if (nextX < before.length && nextY < after.length) rows.push([before[x++]!, after[y++]!]);
  }
  const first = rows.findIndex(([a, b]) => a !== b);
  return h(
    "table",
    { class: "difference" },
    h("thead", null, h("tr", null, h("th", null, "then"), h("th", null, "with the change"))),
    h(
      "tbody",
      null,
      rows.map(([a, b], at) =>
        h("tr", { class: at === first ? "first" : undefined }, h("td", { class: a !== b && a !== null ? "gone" : undefined }, a !== null && h("code", null, a)), h("td", { class: a !== b && b !== null ? "new" : undefined }, b !== null && h("code", null, b), at === first && h("span", { class: "flag" }, "first that differs"))),
      ),
    ),
  );
}

/** Places of a longest common subsequence. */
function common(a: string[], b: string[]): [number, number][] {
  if (a.length * b.length > 1e6) return [];
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let x = a.length - 1; x >= 0; x--) {
    for (let y = b.length - 1; y >= 0; y--) {
      lengths[x]![y] = a[x] === b[y] ? lengths[x + 1]![y + 1]! + 1 : Math.max(lengths[x + 1]![y]!, lengths[x]![y + 1]!);
    }
  }
  const pairs: [number, number][] = [];
  let [x, y] = [0, 0];
  while (x < a.length && y < b.length) {
    if (a[x] === b[y]) pairs.push([x++, y++]);
    else if (lengths[x + 1]![y]! >= lengths[x]![y + 1]!) x++;
    else y++;
  }
  return pairs;
}

function responsePair(change: ResponseChange): HTMLElement {
  const rows: ValueChange[] = [...change.headers.map((it) => ({ ...it, name: `header ${it.name}` })), ...(change.body?.changes ?? [])];
  if (change.body?.kind === "text") rows.push({ name: "body", before: change.body.before ?? null, after: change.body.after ?? null });
  if (change.body?.kind === "unkept") rows.push({ name: "body", before: `${change.body.before_bytes} bytes that were not kept`, after: change.body.after ?? null });
  const [before, after] = change.status;
  return h(
    "section",
    { class: "change" },
    h("h3", null, "Response"),
    change.error ? h("p", { class: "warning" }, change.error) : null,
    h("p", null, statusBadge(before), " → ", statusBadge(after)),
    rows.length > 0 &&
      h(
        "table",
        { class: "difference named" },
        h("thead", null, h("tr", null, h("th", null, ""), h("th", null, "then"), h("th", null, "with the change"))),
        h("tbody", null, rows.map((row) => h("tr", null, h("th", null, row.name), h("td", { class: row.before !== null ? "gone" : undefined }, row.before ?? "—"), h("td", { class: row.after !== null ? "new" : undefined }, row.after ?? "—")))),
      ),
    change.body?.more ? h("p", { class: "note" }, `${plural(change.body.more, "more change")}`) : null,
  );
}
