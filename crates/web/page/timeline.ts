// The timeline: requests as bars in lanes with their transactions in them, or columns of counts where there are too many.
import type { Crossing, Mark, Neighbour, Recording, Timeline as Answer, TransactionDetail, TransactionMark } from "./api";
import { clock, date, duration, plural, thousands, ticks } from "./format";
import { type Colors, colors } from "./theme";

/** Names of lanes have so much room. */
const GUTTER_MIN = 132;
const GUTTER_MAX = 300;
const AXIS = 30;
/** Few lanes get higher rows. */
const ROW_MIN = 32;
const ROW_MAX = 52;
/** Above and below the bar of a request. */
const BAR_TOP = 4;
/** Rows that requests of one lane are stacked in at most. */
const ROWS_MAX = 8;
/** Nobody needs less than a microsecond on the whole screen, or more than a century. */
const SPAN_MIN = 1;
const SPAN_MAX = 3.2e15;

export interface Range {
  from: number;
  until: number;
}

interface Lane {
  lane: number;
  name: string;
  requests: number;
  y: number;
  height: number;
}

interface Bar {
  mark: Mark;
  lane: Lane;
  row: number;
}

export interface Hit {
  request: Mark;
  transaction: TransactionMark | null;
}

export interface Events {
  moved(): void;
  hovered(hit: Hit | null, x: number, y: number): void;
  /** Where there are columns: what the one that is pointed at counts. */
  counted(lines: string[] | null, x: number, y: number): void;
  chosen(hit: Hit | null): void;
}

export class Timeline {
  readonly canvas: HTMLCanvasElement;
  range: Range = { from: 0, until: 1e6 };
  answer: Answer | null = null;
  recording: Recording | null = null;
  selected: { request: string; transaction: string | null } | null = null;
  hovered: Hit | null = null;
  /** The transaction whose sight is drawn. */
  sighted: TransactionDetail | null = null;
  stacked = false;
  scroll = 0;
  private context: CanvasRenderingContext2D;
  private lanes: Lane[] = [];
  private bars: Bar[] = [];
  private places = new Map<string, { bar: Bar; own: TransactionMark }>();
  private width = 0;
  private height = 0;
  private content = 0;
  private row = ROW_MIN;
  private gutter = GUTTER_MIN;
  private colors: Colors = colors();
  private scheduled = false;

  constructor(private readonly events: Events) {
    this.canvas = document.createElement("canvas");
    this.canvas.className = "timeline";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.context = this.canvas.getContext("2d")!;
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  get columns(): number {
    return Math.max(100, Math.round(this.width - this.gutter));
  }

  show(answer: Answer): void {
    this.answer = answer;
    this.layOut();
    this.canvas.setAttribute(
      "aria-label",
      `Timeline from ${clock(this.range.from)} to ${clock(this.range.until)} UTC: ${plural(answer.requests, "request")} in ${plural(this.lanes.length, "lane")}. The same requests are listed beside it.`,
    );
    this.draw();
  }

  restyle(): void {
    this.colors = colors();
    this.draw();
  }

  resize(): void {
    const box = this.canvas.getBoundingClientRect();
    if (box.width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paint();
    this.events.moved();
  }

  zoom(factor: number, at = 0.5): void {
    const span = this.range.until - this.range.from;
    const next = Math.min(SPAN_MAX, Math.max(SPAN_MIN, span * factor));
    const from = this.range.from + (span - next) * at;
    this.go({ from, until: from + next });
  }

  pan(part: number): void {
    const by = (this.range.until - this.range.from) * part;
    this.go({ from: this.range.from + by, until: this.range.until + by });
  }

  go(range: Range): void {
    this.range = range;
    this.draw();
    this.events.moved();
  }

  /** Brings a request into view, at a size at which it can be seen. */
  reveal(at: number, took: number, close: boolean): void {
    const span = this.range.until - this.range.from;
    const seen = at >= this.range.from && at + took <= this.range.until;
    const large = took / span > 0.08;
    if (seen && (large || !close)) return;
    const next = large ? span : Math.max(took * 8, 200);
    this.go({ from: at - (next - took) / 2, until: at - (next - took) / 2 + next });
  }

  scrollBy(pixels: number): void {
    this.scroll = Math.max(0, Math.min(this.scroll + pixels, this.content - (this.height - AXIS)));
    this.draw();
  }

  draw(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.paint();
    });
  }

  private x(us: number): number {
    const part = (us - this.range.from) / (this.range.until - this.range.from);
    return this.gutter + part * (this.width - this.gutter);
  }

  private time(x: number): number {
    const part = (x - this.gutter) / (this.width - this.gutter);
    return this.range.from + part * (this.range.until - this.range.from);
  }

  private y(lane: Lane, row = 0): number {
    return AXIS + lane.y - this.scroll + row * this.row;
  }

  // Where everything is: in a row the bar of the request, and in it those of its transactions.

  private get barHeight(): number {
    return this.row - 2 * BAR_TOP;
  }

  private get ownHeight(): number {
    return Math.round(this.row / 4);
  }

  private get ownTop(): number {
    return this.row - BAR_TOP - this.ownHeight - 3;
  }

  private layOut(): void {
    const answer = this.answer!;
    const shown = answer.lanes.filter((lane) => lane.requests > 0);
    const rows = new Map<number, number>();
    this.bars = [];
    this.places.clear();
    const placed = new Map<number, number[]>();
    const stacked: { mark: Mark; row: number }[] = [];
    for (const mark of answer.marks ?? []) {
      const ends = placed.get(mark.lane) ?? [];
      placed.set(mark.lane, ends);
      let row = this.stacked ? ends.findIndex((end) => end <= mark.at) : 0;
      if (row < 0) row = Math.min(ends.length, ROWS_MAX - 1);
      ends[row] = Math.max(ends[row] ?? -Infinity, mark.at + mark.took);
      rows.set(mark.lane, Math.max(rows.get(mark.lane) ?? 1, row + 1));
      stacked.push({ mark, row });
    }
    const all = shown.reduce((sum, lane) => sum + (rows.get(lane.lane) ?? 1), 0);
    this.row = Math.max(ROW_MIN, Math.min(ROW_MAX, Math.floor((this.height - AXIS - 16) / Math.max(1, all))));
    this.context.font = this.font(12);
    const names = shown.map((lane) => this.context.measureText(`${lane.name}${thousands(lane.requests)}`).width);
    this.gutter = Math.round(Math.max(GUTTER_MIN, Math.min(GUTTER_MAX, Math.max(0, ...names) + 52)));
    let y = 0;
    this.lanes = shown.map((lane) => {
      const height = this.row * (rows.get(lane.lane) ?? 1);
      const placed = { ...lane, y, height };
      y += height;
      return placed;
    });
    this.content = y + 8;
    const byLane = new Map(this.lanes.map((lane) => [lane.lane, lane]));
    for (const { mark, row } of stacked) {
      const lane = byLane.get(mark.lane);
      if (!lane) continue;
      const bar = { mark, lane, row };
      this.bars.push(bar);
      for (const own of mark.transactions) this.places.set(own.id, { bar, own });
    }
    this.scroll = Math.max(0, Math.min(this.scroll, this.content - (this.height - AXIS)));
  }

  // Drawing.

  private paint(): void {
    const { context, colors } = this;
    if (this.width === 0) return;
    context.fillStyle = colors.background;
    context.fillRect(0, 0, this.width, this.height);
    if (!this.recording || this.recording.from === null) return;
    context.save();
    context.beginPath();
    context.rect(0, AXIS, this.width, this.height - AXIS);
    context.clip();
    this.paintLanes();
    this.paintGrid();
    this.paintGaps();
    context.save();
    context.beginPath();
    context.rect(this.gutter, AXIS, this.width - this.gutter, this.height - AXIS);
    context.clip();
    if (this.answer?.drawn === "marks") this.paintMarks();
    else if (this.answer) this.paintColumns();
    this.paintGhosts();
    if (this.sighted?.sight) this.paintSight(this.sighted);
    context.restore();
    this.paintNames();
    context.restore();
    this.paintAxis();
  }

  private paintLanes(): void {
    const { context, colors } = this;
    for (const lane of this.lanes) {
      const y = Math.round(this.y(lane) + lane.height) - 0.5;
      if (y < AXIS || y - lane.height > this.height) continue;
      context.strokeStyle = colors.faint;
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(this.width, y);
      context.stroke();
    }
  }

  private paintGrid(): void {
    const { context, colors } = this;
    const { step } = this.ticks();
    context.strokeStyle = colors.faint;
    context.beginPath();
    for (let at = Math.ceil(this.range.from / step) * step; at <= this.range.until; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      context.moveTo(x, AXIS);
      context.lineTo(x, this.height);
    }
    context.stroke();
  }

  private ticks() {
    return ticks(this.range.until - this.range.from, Math.max(2, (this.width - this.gutter) / 130));
  }

  private paintGaps(): void {
    const { context, colors } = this;
    for (const gap of this.recording!.gaps) {
      if (gap.doubt || gap.to < this.range.from || gap.from > this.range.until) continue;
      const left = Math.max(this.gutter, this.x(gap.from));
      const right = Math.min(this.width, Math.max(this.x(gap.to), left + 3));
      context.save();
      context.beginPath();
      context.rect(left, AXIS, right - left, this.height);
      context.clip();
      context.strokeStyle = colors.gap;
      context.beginPath();
      for (let x = left - this.height; x < right; x += 8) {
        context.moveTo(x, this.height);
        context.lineTo(x + this.height, 0);
      }
      context.stroke();
      context.restore();
    }
  }

  private fill(status: number): string {
    const { colors } = this;
    if (status === 0 || status === 1) return colors.broken;
    if (status >= 500) return colors.server;
    if (status >= 400) return colors.client;
    return status >= 300 ? colors.redirect : colors.ok;
  }

  private paintMarks(): void {
    const { context, colors } = this;
    const answer = this.answer!;
    const types = this.recording!.types;
    context.font = this.font(11);
    context.textBaseline = "middle";
    for (const bar of this.bars) {
      const { mark } = bar;
      const left = this.x(answer.from + mark.at);
      const right = Math.max(this.x(answer.from + mark.at + mark.took), left + 2);
      const top = this.y(bar.lane, bar.row) + BAR_TOP;
      if (right < this.gutter || left > this.width || top + this.barHeight < AXIS || top > this.height) continue;
      const clipped = Math.max(left, this.gutter - 8);
      const width = Math.min(right, this.width + 8) - clipped;
      context.fillStyle = this.fill(mark.status);
      this.box(clipped, top, width, this.barHeight, Math.min(4, width / 2));
      context.fill();
      this.paintTransactions(bar, answer.from, top - BAR_TOP);
      if (width > 46) {
        context.fillStyle = colors.okText;
        const label = `${types[mark.kind] ?? ""}  ${mark.id}`;
        context.fillText(this.fit(label, Math.min(right, this.width) - Math.max(left, this.gutter) - 10), Math.max(left, this.gutter) + 5, top + (this.ownTop - BAR_TOP) / 2 + 1);
      }
      if (this.selected?.request === mark.id || this.hovered?.request.id === mark.id) {
        context.strokeStyle = this.selected?.request === mark.id ? colors.accent : colors.dim;
        context.lineWidth = this.selected?.request === mark.id ? 2 : 1;
        this.box(clipped - 1, top - 1, width + 2, this.barHeight + 2, 5);
        context.stroke();
        context.lineWidth = 1;
      }
    }
  }

  private paintTransactions(bar: Bar, base: number, top: number): void {
    const { context, colors } = this;
    for (const own of bar.mark.transactions) {
      const left = this.x(base + own.at);
      const right = Math.max(this.x(base + own.at + own.lasted), left + 1.5);
      if (right < this.gutter || left > this.width) continue;
      const clipped = Math.max(left, this.gutter - 4);
      const width = Math.min(right, this.width + 4) - clipped;
      context.fillStyle = own.aborted ? colors.unseen : own.wrote ? colors.write : colors.read;
      this.box(clipped, top + this.ownTop, width, this.ownHeight, Math.min(2, width / 2));
      context.fill();
      if (own.waited && width > 3) {
        context.fillStyle = colors.waited;
        context.fillRect(clipped, top + this.ownTop + this.ownHeight - 2, width, 2);
      }
      const id = this.selected?.transaction ?? this.sighted?.id;
      if (id === own.id) {
        context.strokeStyle = colors.text;
        context.lineWidth = 1.5;
        this.box(clipped - 1, top + this.ownTop - 1, width + 2, this.ownHeight + 2, 3);
        context.stroke();
        context.lineWidth = 1;
      }
    }
  }

  private paintColumns(): void {
    const { context, colors } = this;
    const answer = this.answer!;
    const width = ((answer.column_us ?? 1) / (this.range.until - this.range.from)) * (this.width - this.gutter);
    let most = 1;
    for (const own of answer.columns ?? []) for (const count of own.requests) most = Math.max(most, count);
    const byLane = new Map(this.lanes.map((lane) => [lane.lane, lane]));
    for (const own of answer.columns ?? []) {
      const lane = byLane.get(own.lane);
      if (!lane) continue;
      const base = this.y(lane) + this.row - 3;
      if (base < AXIS || base - this.row > this.height) continue;
      own.x.forEach((column, at) => {
        const left = this.x(answer.begins! + column * answer.column_us!);
        if (left + width < this.gutter || left > this.width) return;
        const count = own.requests[at]!;
        const high = Math.max(2, Math.sqrt(count / most) * (this.row - 7));
        const wide = Math.max(1, width - (width > 4 ? 1 : 0));
        context.fillStyle = colors.ok;
        context.fillRect(left, base - high, wide, high);
        const failed = own.failed[at]!;
        if (failed > 0) {
          context.fillStyle = colors.server;
          const part = Math.max(2, high * (failed / count));
          context.fillRect(left, base - part, wide, part);
        }
      });
    }
  }

  private paintGhosts(): void {
    const { context, colors } = this;
    const answer = this.answer;
    if (!answer) return;
    for (const ghost of answer.ghosts) {
      const left = this.x(answer.from + ghost.at);
      const right = Math.max(this.x(answer.from + ghost.at + ghost.lasted), left + 3);
      context.fillStyle = ghost.wrote ? colors.write : colors.read;
      context.fillRect(left, this.height - 8, right - left, 5);
    }
  }

  /** Where a transaction is drawn: the heights of its bar, and its lane's. */
  private bar(id: string, lane: number | null): number | null {
    const place = this.places.get(id);
    if (place) return this.y(place.bar.lane, place.bar.row) + this.ownTop + this.ownHeight / 2;
    const own = this.lanes.find((one) => one.lane === lane);
    return own ? this.y(own) + this.ownTop + this.ownHeight / 2 : null;
  }

  private paintSight(own: TransactionDetail): void {
    const { context, colors } = this;
    const place = this.places.get(own.id);
    if (!place) return;
    const height = this.bar(own.id, null)!;
    const start = this.x(own.began);
    const end = this.x(own.began + own.took);
    // The latest ones tell enough; the panel has them all.
    for (const writer of own.sight!.saw.slice(0, 5)) this.line(start, height, writer, colors.saw, []);
    const crossed = new Set(own.sight!.crossed.map((one) => one.other_write));
    for (const writer of own.sight!.unseen) {
      if (!crossed.has(writer.id)) this.line(start, height, writer, colors.unseen, [4, 4]);
    }
    for (const one of own.sight!.crossed) this.cross(height, one);
    for (const wait of own.sight!.waited) {
      if (wait.other) this.line(end, height, wait.other, colors.waited, [2, 3]);
    }
    context.fillStyle = colors.text;
    context.beginPath();
    context.arc(start, height, 3.5, 0, 7);
    context.fill();
  }

  private line(x: number, y: number, other: Neighbour, color: string, dashes: number[]): void {
    const { context } = this;
    const to = this.bar(other.id, other.lane);
    if (to === null) return;
    const commit = this.x(other.ended);
    // A commit far outside leaves a hint of the direction, at the edge.
    const tip = Math.max(this.gutter - 20, Math.min(this.width + 20, commit));
    context.strokeStyle = color;
    context.lineWidth = 1.5;
    context.setLineDash(dashes);
    context.beginPath();
    context.moveTo(x, y);
    const bend = Math.max(12, Math.abs(tip - x) / 3);
    const side = tip < x ? -1 : 1;
    context.bezierCurveTo(x + side * bend, y, tip - side * bend, to, tip, to);
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
    context.fillStyle = color;
    context.beginPath();
    context.arc(tip, to, 3, 0, 7);
    context.fill();
  }

  /** Two requests that did not see each other: from each one's snapshot to the other's commit. */
  private cross(y: number, one: Crossing): void {
    const { context, colors } = this;
    const to = this.bar(one.other_write, one.lane);
    if (to === null) return;
    const [start, end] = [this.x(one.read_began), this.x(one.write_ended)];
    const [began, ended] = [this.x(one.other_read_began), this.x(one.other_write_ended)];
    context.strokeStyle = colors.unseen;
    context.lineWidth = 2;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(start, y);
    context.lineTo(ended, to);
    context.moveTo(began, to);
    context.lineTo(end, y);
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
    context.fillStyle = colors.unseen;
    for (const [x, at] of [[ended, to], [end, y]] as const) {
      context.beginPath();
      context.arc(x, at, 3.5, 0, 7);
      context.fill();
    }
    // Both lines run from one height to the other: they meet where their parts are the same.
    const share = crossing(start, ended, end, began) ?? 0.5;
    const [x, at] = [start + (ended - start) * share, y + (to - y) * share];
    if (Math.abs(to - y) < this.row) return;
    context.fillStyle = colors.background;
    context.strokeStyle = colors.unseen;
    context.beginPath();
    context.arc(x, at, 6, 0, 7);
    context.fill();
    context.stroke();
    const text = one.known ? `neither saw the other: both ${one.values.slice(0, 3).join(", ")}` : "neither saw the other";
    context.font = this.font(11, 600);
    const wide = context.measureText(text).width;
    const left = x + 14 + wide + 8 > this.width ? x - 26 - wide : x + 12;
    context.fillStyle = colors.background;
    this.box(left, at - 9, wide + 12, 18, 4);
    context.fill();
    context.stroke();
    context.fillStyle = colors.unseen;
    context.textBaseline = "middle";
    context.fillText(text, left + 6, at + 0.5);
  }

  private paintNames(): void {
    const { context, colors } = this;
    context.fillStyle = colors.panel;
    context.fillRect(0, AXIS, this.gutter, this.height);
    context.textBaseline = "middle";
    for (const lane of this.lanes) {
      const middle = this.y(lane) + Math.min(lane.height, this.row) / 2;
      if (middle < AXIS - this.row || middle > this.height + this.row) continue;
      context.font = this.font(11);
      const count = thousands(lane.requests);
      context.fillStyle = colors.dim;
      context.textAlign = "right";
      context.fillText(count, this.gutter - 12, middle);
      const room = this.gutter - 36 - context.measureText(count).width;
      context.font = this.font(12);
      context.textAlign = "left";
      context.fillStyle = colors.text;
      context.fillText(this.fit(lane.name, room), 16, middle);
      context.strokeStyle = colors.faint;
      const line = Math.round(this.y(lane) + lane.height) - 0.5;
      context.beginPath();
      context.moveTo(0, line);
      context.lineTo(this.gutter, line);
      context.stroke();
    }
    if (this.answer?.ghosts.length) {
      context.font = this.font(11);
      context.fillStyle = colors.panel;
      context.fillRect(0, this.height - 16, this.gutter, 16);
      context.fillStyle = colors.dim;
      context.fillText("of no request", 16, this.height - 6);
    }
    context.strokeStyle = colors.line;
    context.beginPath();
    context.moveTo(this.gutter - 0.5, AXIS);
    context.lineTo(this.gutter - 0.5, this.height);
    context.stroke();
  }

  private paintAxis(): void {
    const { context, colors } = this;
    context.fillStyle = colors.panel;
    context.fillRect(0, 0, this.width, AXIS);
    context.strokeStyle = colors.line;
    context.beginPath();
    context.moveTo(0, AXIS - 0.5);
    context.lineTo(this.width, AXIS - 0.5);
    context.stroke();
    context.font = this.font(11);
    context.textBaseline = "middle";
    context.textAlign = "left";
    const { step, label } = this.ticks();
    context.fillStyle = colors.dim;
    context.fillText(`${date(this.range.from)} UTC`, 16, AXIS / 2);
    for (let at = Math.ceil(this.range.from / step) * step; at <= this.range.until; at += step) {
      const x = this.x(at);
      const text = label(at);
      if (x + context.measureText(text).width + 8 > this.width || x < this.gutter) continue;
      context.strokeStyle = colors.line;
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, AXIS - 8);
      context.lineTo(Math.round(x) + 0.5, AXIS);
      context.stroke();
      context.fillText(text, x + 5, AXIS / 2);
    }
  }

  private font(size: number, weight = 400): string {
    return `${weight} ${size}px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif`;
  }

  private box(x: number, y: number, width: number, height: number, radius: number): void {
    this.context.beginPath();
    this.context.roundRect(x, y, Math.max(0.5, width), height, Math.max(0, radius));
  }

  private fit(text: string, room: number): string {
    const { context } = this;
    if (context.measureText(text).width <= room) return text;
    let [low, high] = [0, text.length];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(text.slice(0, middle) + "…").width <= room) low = middle;
      else high = middle - 1;
    }
    return low === 0 ? "" : text.slice(0, low) + "…";
  }

  // Mouse and touch. Keys are the page's.

  private hit(x: number, y: number): Hit | null {
    const answer = this.answer;
    if (!answer || answer.drawn !== "marks" || x < this.gutter || y < AXIS) return null;
    let best: Hit | null = null;
    let least = 4;
    for (const bar of this.bars) {
      const top = this.y(bar.lane, bar.row);
      if (y < top || y >= top + this.row) continue;
      const [from, { mark }] = [answer.from, bar];
      const distance = this.distance(x, from + mark.at, mark.took);
      if (distance > least) continue;
      least = distance;
      let transaction: TransactionMark | null = null;
      if (y >= top + this.ownTop - 2) {
        let near = 5;
        for (const own of mark.transactions) {
          const far = this.distance(x, from + own.at, own.lasted);
          if (far < near) [near, transaction] = [far, own];
        }
      }
      best = { request: mark, transaction };
    }
    return best;
  }

  private distance(x: number, at: number, took: number): number {
    const [left, right] = [this.x(at), this.x(at + took)];
    return x < left ? left - x : x > right ? x - right : 0;
  }

  private listen(): void {
    const { canvas } = this;
    let drag: { x: number; y: number; range: Range; scroll: number; moved: boolean } | null = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      drag = { x: event.offsetX, y: event.offsetY, range: this.range, scroll: this.scroll, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const [dx, dy] = [event.offsetX - drag.x, event.offsetY - drag.y];
        if (Math.abs(dx) + Math.abs(dy) > 3) drag.moved = true;
        if (!drag.moved) return;
        const by = (-dx / (this.width - this.gutter)) * (drag.range.until - drag.range.from);
        this.scroll = Math.max(0, Math.min(drag.scroll - dy, this.content - (this.height - AXIS)));
        this.go({ from: drag.range.from + by, until: drag.range.until + by });
        return;
      }
      const hit = this.hit(event.offsetX, event.offsetY);
      const same =
        hit?.request.id === this.hovered?.request.id && hit?.transaction?.id === this.hovered?.transaction?.id;
      this.hovered = hit;
      canvas.style.cursor = hit ? "pointer" : "grab";
      if (!same) this.draw();
      if (this.answer?.drawn === "columns") {
        this.events.counted(this.counted(event.offsetX, event.offsetY), event.clientX, event.clientY);
      } else this.events.hovered(hit, event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerup", (event) => {
      const click = drag && !drag.moved;
      drag = null;
      if (click) this.events.chosen(this.hit(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointerleave", () => {
      this.hovered = null;
      this.draw();
      this.events.hovered(null, 0, 0);
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.25, (event.offsetX - this.gutter) / (this.width - this.gutter)));
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const unit = event.deltaMode === 1 ? 16 : 1;
        const sideways = event.shiftKey ? event.deltaY : event.deltaX;
        if (event.offsetX < this.gutter && !event.ctrlKey) this.scrollBy(event.deltaY * unit);
        else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
          this.pan((sideways * unit) / (this.width - this.gutter));
        } else {
          const at = (event.offsetX - this.gutter) / (this.width - this.gutter);
          this.zoom(Math.exp(event.deltaY * unit * 0.002), Math.max(0, Math.min(1, at)));
        }
      },
      { passive: false },
    );
  }

  private counted(x: number, y: number): string[] | null {
    const answer = this.answer!;
    const lane = this.lanes.find((one) => y >= this.y(one) && y < this.y(one) + one.height);
    if (!lane || x < this.gutter || y < AXIS) return null;
    const column = Math.floor((this.time(x) - answer.begins!) / answer.column_us!);
    const own = answer.columns?.find((one) => one.lane === lane.lane);
    const at = own?.x.indexOf(column) ?? -1;
    const from = answer.begins! + column * answer.column_us!;
    const when = `${clock(from)}, for ${duration(answer.column_us!)}`;
    if (!own || at < 0) return [lane.name, "no request arrived", when];
    const failed = own.failed[at]!;
    const what = `${plural(own.requests[at]!, "request")}${failed ? `, ${thousands(failed)} failed` : ""}, the longest ${duration(own.longest[at]!)}`;
    return [lane.name, what, when];
  }
}

/** The part of the way at which two lines between the same two heights meet, if they do. */
function crossing(a: number, b: number, c: number, d: number): number | null {
  // a + (b - a) s = c + (d - c) s
  const slope = b - a - (d - c);
  if (slope === 0) return null;
  const share = (c - a) / slope;
  return share >= 0 && share <= 1 ? share : null;
}
