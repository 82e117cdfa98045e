/** Something could not be done: what (`message`), why, and what to do next. */
export class HindcastError extends Error {
    causes: string[];
    hint?: string;
    exitCode?: number;
}

/** As `hindcast replay --json` prints it. */
export interface Verdict {
    faithful: boolean;
    from: number;
    to: number;
    divergences: Array<{ kind: string; position: { request: number | null; transaction: number | null }; [detail: string]: unknown }>;
    divergence_count: number;
    counts: Record<string, number>;
    timing: { prepare_us: number; replay_us: number; original_us: number };
    final_state: { state: string; [detail: string]: unknown };
    remarks: Array<{ remark: string; [detail: string]: unknown }>;
}

export interface RecordedRequest {
    request: string;
    arrived_us: number;
    ended_us: number;
    method: string;
    target: string;
    status: number | null;
    note: string | null;
    transactions: number;
}

export interface Recording {
    /** Ends the service and completes the recording. */
    stop(): Promise<void>;
    /** What the service and the recorder wrote. */
    said(): string;
}

/** Options of the command, in camel case: `keepGoing: true`, `ignore: ["header:date"]`. */
export type Options = Record<string, string | number | boolean | Array<string | number> | undefined>;

/** Where the binary is. */
export const program: string;
export function record(command: string[], trace: string, options?: Options & { url?: string; patience?: number }): Promise<Recording>;
export function replay(trace: string, options?: Options): Promise<Verdict>;
export function requests(trace: string, options?: Options): Promise<RecordedRequest[]>;
