// The strip above the timeline: the whole recording, and which part of it is in view.
import type { Overview as Answer } from "./api";
import type { Range } from "./timeline";
import { colors } from "./theme";

const EDGE = 16;

export class Overview {
  readonly canvas: HTMLCanvasElement;
  answer: Answer | null = null;
  whole: Range = { from: 0, until: 1 };
  view: Range = { from: 0, until: 1 };
  private context: CanvasRenderingContext2D;
  private width = 0;
  private height = 0;

  constructor(private readonly moved: (range: Range) => void) {
    this.canvas = document.createElement("canvas");
    this.canvas.className = "overview";
    this.canvas.setAttribute("aria-hidden", "true");
    this.context = this.canvas.getContext("2d")!;
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    this.listen();
  }

  get columns(): number {
    return Math.max(100, Math.round(this.width / 2));
  }

  resize(): void {
    const box = this.canvas.getBoundingClientRect();
    if (box.width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    [this.width, this.height] = [box.width, box.height];
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw();
  }

  private x(us: number): number {
    return EDGE + ((us - this.whole.from) / (this.whole.until - this.whole.from)) * (this.width - 2 * EDGE);
  }

  private time(x: number): number {
    return this.whole.from + ((x - EDGE) / (this.width - 2 * EDGE)) * (this.whole.until - this.whole.from);
  }

  draw(): void {
    const { context, answer } = this;
    if (this.width === 0) return;
    const tone = colors();
    context.fillStyle = tone.panel;
    context.fillRect(0, 0, this.width, this.height);
    const base = this.height - 6;
    if (answer) {
      const most = Math.max(1, ...answer.requests);
      const width = Math.max(1, (answer.column_us / (this.whole.until - this.whole.from)) * (this.width - 2 * EDGE) - 0.5);
      answer.x.forEach((column, at) => {
        const left = this.x(answer.begins + column * answer.column_us);
        const high = Math.max(1.5, Math.sqrt(answer.requests[at]! / most) * (this.height - 14));
        context.fillStyle = tone.ok;
        context.fillRect(left, base - high, width, high);
        const failed = answer.failed[at]!;
        if (failed > 0) {
          const part = Math.max(1.5, high * (failed / answer.requests[at]!));
          context.fillStyle = tone.server;
          context.fillRect(left, base - part, width, part);
        }
      });
    }
    const left = Math.max(EDGE - 4, this.x(this.view.from));
    const right = Math.min(this.width - EDGE + 4, Math.max(this.x(this.view.until), left + 3));
    context.fillStyle = tone.panel;
    context.globalAlpha = 0.66;
    if (left > EDGE) context.fillRect(0, 0, left, this.height);
    if (right < this.width - EDGE) context.fillRect(right, 0, this.width - right, this.height);
    context.globalAlpha = 1;
    context.strokeStyle = tone.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    context.roundRect(left, 3, right - left, this.height - 6, 3);
    context.stroke();
    context.lineWidth = 1;
  }

  private listen(): void {
    let start: number | null = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      start = event.offsetX;
      this.canvas.setPointerCapture(event.pointerId);
    });
    const to = (x: number) => {
      if (start === null) return;
      const [from, until] = [this.time(Math.min(start, x)), this.time(Math.max(start, x))];
      if (Math.abs(x - start) > 3) return this.moved({ from, until });
      // A click brings what is there into the middle.
      const span = this.view.until - this.view.from;
      this.moved({ from: from - span / 2, until: from + span / 2 });
    };
    this.canvas.addEventListener("pointermove", (event) => start !== null && Math.abs(event.offsetX - start) > 3 && to(event.offsetX));
    this.canvas.addEventListener("pointerup", (event) => {
      to(event.offsetX);
      start = null;
    });
  }
}
