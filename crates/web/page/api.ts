// What the server answers, and how it is asked.

export interface Recording {
  generation: number;
  requests: number;
  transactions: number;
  ghosts: number;
  from: number | null;
  until: number | null;
  types: string[];
  statuses: number[];
  live: boolean;
  recorders: { number: number; started: number; database: string; server_version: string; command: string[] }[];
  gaps: { from: number; to: number; doubt: boolean; text: string }[];
  warnings: string[];
  index_bytes: number;
}

export interface Status {
  trace: string;
  done: number;
  total: number;
  failure: string | null;
  report: boolean;
  recording: Recording | null;
}

export interface TransactionMark {
  id: string;
  at: number;
  lasted: number;
  wrote: boolean;
  aborted: boolean;
  committed: boolean;
  locks: boolean;
  waited: boolean;
}

export interface Mark {
  id: string;
  lane: number;
  at: number;
  took: number;
  status: number;
  kind: number;
  transactions: TransactionMark[];
}

export interface LaneColumns {
  lane: number;
  x: number[];
  requests: number[];
  failed: number[];
  longest: number[];
}

export interface Found {
  by_value: number;
  by_request: number;
  unknown: number;
}

export interface Searching {
  searching: { done: number; total: number };
}

export interface Timeline {
  from: number;
  until: number;
  lanes_total: number;
  lane: number;
  lanes: { lane: number; name: string; requests: number }[];
  requests: number;
  drawn: "marks" | "columns";
  marks?: Mark[];
  begins?: number;
  column_us?: number;
  columns?: LaneColumns[];
  ghosts: (TransactionMark & { session: string })[];
  generation: number;
  taken: number;
  found?: Found;
}

export interface Overview {
  begins: number;
  column_us: number;
  x: number[];
  requests: number[];
  failed: number[];
}

export interface Body {
  text: string;
  binary: boolean;
  bytes: number;
  cut: boolean;
}

export interface Neighbour {
  id: string;
  request: string | null;
  of: string | null;
  lane: number | null;
  began: number;
  ended: number;
  committed: boolean;
  tables: string[];
}

export interface Crossing {
  read: string;
  read_began: number;
  write: string;
  write_ended: number;
  request: string;
  lane: number;
  other_read: string;
  other_read_began: number;
  other_write: string;
  other_write_ended: number;
  tables: string[];
  values: string[];
  known: boolean;
}

export interface Sight {
  snapshot: string | null;
  saw: Neighbour[];
  unseen: Neighbour[];
  crossed: Crossing[];
  waited: { statement: number; other: Neighbour | null; why: string }[];
}

export interface TransactionDetail {
  id: string;
  request: string | null;
  attribution: string | null;
  session: string;
  began: number;
  took: number;
  isolation: string;
  outcome: string;
  xid: number | null;
  statements: { text: string; values: string[] }[];
  with_values: boolean;
  later_snapshots: [number, string][];
  reads: string[];
  writes: string[];
  result_rows: number;
  result_digest: string;
  drawn: string[];
  sight?: Sight;
}

export interface RequestDetail {
  id: string;
  of: string | null;
  method: string;
  target: string;
  arrived: number;
  took: number;
  headers: [string, string][];
  body: Body | null;
  unanswered: string | null;
  status: number | null;
  response_headers: [string, string][];
  response_bytes: number;
  response_digest: string | null;
  response: Body | null;
  calls: { peer: string; began: number; took: number; sent: number; received: number; encrypted: boolean }[];
  transactions: TransactionDetail[];
  transactions_left_out: number;
}

export type Row = [id: string, arrived: number, took: number, status: number | null, method: string, target: string];

/** What a question failed with, as the server says it. */
export class Refused extends Error {
  constructor(readonly status: number, message: string, readonly hint: string | null) {
    super(message);
  }
}

// What is behind # is in no request; it is kept for reloads of this tab only.
const KEPT = "hindcast-token";

function token(): string {
  const given = location.hash.slice(1);
  if (/^[0-9a-f]{16,}$/.test(given)) {
    try {
      sessionStorage.setItem(KEPT, given);
    } catch {
      // Storage may be off; then a reload needs the whole address.
    }
    history.replaceState(null, "", location.pathname);
    return given;
  }
  try {
    return sessionStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
}

const own = token();

export async function ask<T>(path: string, question: unknown = {}): Promise<T> {
  let response: Response;
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (own) headers.authorization = `Bearer ${own}`;
  try {
    response = await fetch(`/api/${path}`, { method: "POST", headers, body: JSON.stringify(question) });
  } catch {
    throw new Refused(0, "hindcast web does not answer any more", "start it again, and open the address that it prints");
  }
  const answer = await response.json();
  if (!response.ok) throw new Refused(response.status, answer.error, answer.hint ?? null);
  return answer as T;
}
