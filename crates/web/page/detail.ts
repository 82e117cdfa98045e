// The panel beside the timeline: one request, or what the recording is.
import type { Body, Neighbour, Recording, RequestDetail, Row, Sight, TransactionDetail } from "./api";
import { type Child, h } from "./dom";
import { bytes, clock, date, duration, plural, thousands } from "./format";

export interface Actions {
  openRequest(id: string): void;
  openTransaction(id: string, request: string | null): void;
  close(): void;
}

export function statusBadge(status: number | null): HTMLElement {
  const kind =
    status === null ? "broken" : status >= 500 ? "server" : status >= 400 ? "client" : status >= 300 ? "redirect" : "ok";
  return h("span", { class: `badge ${kind}` }, status === null ? "none" : String(status));
}

export function requestPanel(
  detail: RequestDetail,
  chosen: TransactionDetail | null,
  actions: Actions,
): Child[] {
  const parts: Child[] = [
    h(
      "div",
      { class: "title" },
      h("h2", null, `Request ${detail.id}`),
      h("button", { class: "quiet", title: "Close (Esc)", "aria-label": "Close", onclick: actions.close }, "✕"),
    ),
    h("p", { class: "line" }, h("code", null, `${detail.method} ${detail.target}`)),
    h(
      "dl",
      { class: "facts" },
      fact("response", detail.unanswered ?? [statusBadge(detail.status), ` ${bytes(detail.response_bytes)}`]),
      fact("arrived", `${date(detail.arrived)} ${clock(detail.arrived)}`),
      fact("took", duration(detail.took)),
      fact("type", detail.of),
    ),
  ];
  parts.push(h("h3", null, plural(detail.transactions.length + detail.transactions_left_out, "transaction")));
  if (detail.transactions.length === 0) parts.push(h("p", { class: "dim" }, "It did not use the database."));
  for (const own of detail.transactions) {
    const open = chosen?.id === own.id;
    parts.push(transactionBlock(open ? { ...own, sight: chosen!.sight } : own, detail, open, actions));
  }
  if (detail.transactions_left_out > 0) {
    parts.push(h("p", { class: "dim" }, `${thousands(detail.transactions_left_out)} more: hindcast show ${detail.id}`));
  }
  if (detail.calls.length > 0) {
    parts.push(
      h("h3", null, "Calls to others"),
      h(
        "ul",
        { class: "plain" },
        detail.calls.map((call) =>
          h(
            "li",
            null,
            h("code", null, call.peer),
            ` ${call.encrypted ? "encrypted, " : ""}${bytes(call.sent)} sent, ${bytes(call.received)} received, ${duration(call.took)}`,
          ),
        ),
      ),
    );
  }
  parts.push(message("Request", detail.headers, detail.body));
  if (detail.status !== null) parts.push(message("Response", detail.response_headers, detail.response, detail.response_bytes));
  return parts;
}

function fact(name: string, value: Child): Child {
  return value === null ? null : [h("dt", null, name), h("dd", null, value)];
}

function transactionBlock(
  own: TransactionDetail,
  request: RequestDetail,
  open: boolean,
  actions: Actions,
): HTMLElement {
  const failed = own.outcome !== "committed";
  const head = h(
    "button",
    {
      class: "head",
      "aria-expanded": String(open),
      onclick: () => actions.openTransaction(own.id, request.id),
    },
    h("b", null, `t${own.id}`),
    h("span", { class: failed ? "mark unseen" : own.xid ? "mark write" : "mark read" }, failed ? own.outcome : own.xid ? "wrote" : "read"),
    h("span", { class: "dim" }, `+${duration(own.began - request.arrived)} for ${duration(own.took)}`),
  );
  const waited = new Set(own.sight?.waited.map((wait) => wait.statement) ?? []);
  const body: Child[] = [
    h(
      "ol",
      { class: "statements" },
      own.statements.map((statement, at) =>
        h(
          "li",
          { class: waited.has(at + 1) ? "waited" : undefined },
          h("code", null, statement.text),
          statement.values.length > 0 &&
            h("div", { class: "values" }, statement.values.map((value, n) => h("span", null, h("i", null, `$${n + 1}`), ` ${value}`))),
        ),
      ),
    ),
  ];
  if (own.statements.length === 0) body.push(h("p", { class: "dim" }, "Its statements are not in the recording."));
  if (open) body.push(...transactionFacts(own, actions));
  return h("section", { class: open ? "transaction open" : "transaction" }, head, ...body);
}

function transactionFacts(own: TransactionDetail, actions: Actions): HTMLElement[] {
  const tables = (names: string[]) => names.map((name, at) => [at > 0 && ", ", h("code", null, name)]);
  const facts = h(
    "dl",
    { class: "facts" },
    fact("isolation", own.isolation.toUpperCase()),
    fact("session", own.session),
    own.attribution && fact("found", own.attribution),
    own.xid && fact("id", String(own.xid)),
    own.writes.length > 0 && fact("writes", tables(own.writes)),
    own.reads.length > 0 && fact("reads", tables(own.reads)),
    fact("answered", `${plural(own.result_rows, "row")}, digest ${own.result_digest}`),
    own.drawn.length > 0 && fact("drew", own.drawn.join(", ")),
  );
  const parts: HTMLElement[] = [facts];
  if (!own.with_values && own.statements.length > 0) {
    parts.push(h("p", { class: "note" }, "Values of statements were not kept: record with --values to have them here."));
  }
  if (own.sight) parts.push(sightBlock(own, own.sight, actions));
  return parts;
}

function sightBlock(own: TransactionDetail, sight: Sight, actions: Actions): HTMLElement {
  const link = (other: Neighbour) =>
    h(
      "button",
      { class: "link", onclick: () => actions.openTransaction(other.id, other.request) },
      `t${other.id}`,
    );
  const line = (other: Neighbour, mark: string) =>
    h(
      "li",
      null,
      h("span", { class: `dot ${mark}` }),
      link(other),
      other.request ? ` of request ${other.request}, ${other.of}` : " of no request",
      h("span", { class: "dim" }, ` · ${own.began >= other.ended ? `${duration(own.began - other.ended)} before` : `ended ${duration(other.ended - own.began)} after it began`} · ${other.tables.join(", ")}`),
    );
  const parts: Child[] = [];
  const named = (id: string, request: string | null) =>
    h("button", { class: "link", onclick: () => actions.openTransaction(id, request) }, `t${id}`);
  for (const one of sight.crossed) {
    parts.push(
      h(
        "div",
        { class: "race", role: "note" },
        h("b", null, one.known ? "A race with request " : "Crossed with request "),
        h("button", { class: "link", onclick: () => actions.openTransaction(one.other_write, one.request) }, one.request),
        `. Both wrote ${one.tables.join(", ")}${one.known ? ` with ${one.values.join(", ")}` : ""}. `,
        named(one.read, own.request),
        " did not see ",
        named(one.other_write, one.request),
        ", and ",
        named(one.other_read, one.request),
        " did not see ",
        named(one.write, own.request),
        ".",
        !one.known && h("span", { class: "dim" }, " Whether it was about the same rows is not known: values were not recorded."),
      ),
    );
  }
  if (sight.waited.length > 0) {
    parts.push(
      h("h4", null, "Waited"),
      h(
        "ul",
        { class: "plain" },
        sight.waited.map((wait) =>
          h(
            "li",
            null,
            h("span", { class: "dot waited" }),
            `statement ${wait.statement}: `,
            wait.other ? ["for ", link(wait.other), ": "] : null,
            h("span", { class: "dim" }, wait.why),
          ),
        ),
      ),
    );
  }
  if (sight.snapshot === null) {
    parts.push(h("p", { class: "dim" }, "It took no snapshot, or none is known."));
    return h("div", { class: "sight" }, ...parts);
  }
  parts.push(
    h("h4", null, "Did not see"),
    sight.unseen.length > 0
      ? h("ul", { class: "plain" }, sight.unseen.map((other) => line(other, "unseen")))
      : h("p", { class: "dim" }, "No recorded writer of its tables ran at the same time."),
    h("h4", null, "Saw last"),
    sight.saw.length > 0
      ? h("ul", { class: "plain" }, sight.saw.map((other) => line(other, "saw")))
      : h("p", { class: "dim" }, "No recorded transaction before it wrote to its tables."),
    h("p", { class: "note" }, `Its snapshot: ${sight.snapshot}.`),
  );
  for (const [statement, snapshot] of own.later_snapshots) {
    parts.push(h("p", { class: "note" }, `From statement ${statement} on: ${snapshot}.`));
  }
  return h("div", { class: "sight" }, ...parts);
}

function message(what: string, headers: [string, string][], body: Body | null, length?: number): HTMLElement {
  return h(
    "details",
    { open: body !== null && body.text.length < 2000 },
    h("summary", null, what, h("span", { class: "dim" }, ` ${plural(headers.length, "header")}${body ? `, ${bytes(body.bytes)}` : ""}`)),
    h("table", { class: "headers" }, h("tbody", null, headers.map(([name, value]) => h("tr", null, h("th", null, name), h("td", null, value))))),
    body ? h("pre", null, pretty(body)) : length ? h("p", { class: "note" }, "The body was longer than what the recorder keeps.") : null,
    body?.cut ? h("p", { class: "note" }, "Only its beginning is shown.") : null,
  );
}

function pretty(body: Body): string {
  if (body.binary || body.cut) return body.text;
  try {
    return JSON.stringify(JSON.parse(body.text), null, 2);
  } catch {
    return body.text;
  }
}

/** As wide as the longest number under it. */
function heading(rows: Row[]): HTMLElement {
  const element = h("th", { scope: "col" }, "#");
  const longest = Math.max(4, ...rows.map(([id]) => id.length));
  element.style.width = `${longest + 1.5}ch`;
  return element;
}

/** What is shown while nothing is chosen. */
export function listPanel(recording: Recording, rows: Row[] | null, total: number, actions: Actions): Child[] {
  const parts: Child[] = [];
  for (const warning of recording.warnings) parts.push(h("p", { class: "warning" }, warning));
  for (const gap of recording.gaps.slice(0, 20)) parts.push(h("p", { class: gap.doubt ? "note" : "warning" }, gap.text));
  parts.push(h("div", { class: "title" }, h("h2", null, "In view"), h("span", { class: "dim" }, rows === null ? "" : plural(total, "request"))));
  if (rows === null) parts.push(h("p", { class: "dim" }, "…"));
  else if (rows.length === 0) parts.push(h("p", { class: "dim" }, "Nothing arrived here that the filter takes."));
  else {
    parts.push(
      h(
        "table",
        { class: "list" },
        h("thead", null, h("tr", null, heading(rows), ["arrived", "took", "", "request"].map((name) => h("th", { scope: "col" }, name)))),
        h(
          "tbody",
          null,
          rows.map(([id, arrived, took, status, method, target]) =>
            h(
              "tr",
              { tabindex: "0", "data-id": id, onclick: () => actions.openRequest(id), onkeydown: (event: KeyboardEvent) => event.key === "Enter" && actions.openRequest(id) },
              h("td", { class: "number" }, id),
              h("td", { class: "number" }, clock(arrived, 3)),
              h("td", { class: "number" }, duration(took)),
              h("td", null, statusBadge(status)),
              h("td", { class: "target", title: target }, h("b", null, method), ` ${target}`),
            ),
          ),
        ),
      ),
    );
    if (rows.length < total) parts.push(h("p", { class: "note" }, `The first ${thousands(rows.length)} are listed. Zoom in for others.`));
  }
  return parts;
}
