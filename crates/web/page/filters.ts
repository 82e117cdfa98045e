// The row of filters, and what they say to the server.
import type { Recording } from "./api";
import { h, replace } from "./dom";

export interface Filter {
  types: string[];
  status: string[];
  took_min: string;
  contended: boolean;
  text: string;
  row: string;
}

export type Lanes = "client" | "type" | "session";
const LANES: Lanes[] = ["client", "type", "session"];

export class Filters {
  readonly element: HTMLElement;
  lanes: Lanes = "client";
  private text = input("Text", "in targets, bodies, statements", "text");
  private row = input("Row", "orders 4711", "row");
  private took = input("At least", "10 ms", "took");
  private type = h("select", { "aria-label": "Type of request" });
  private status = h("select", { "aria-label": "Status" });
  private contended = h("input", { type: "checkbox", id: "contended" });
  private segments: HTMLButtonElement[];
  private reset: HTMLButtonElement;

  constructor(private readonly changed: () => void) {
    this.segments = LANES.map((lanes) =>
      h("button", { "aria-pressed": String(lanes === this.lanes), onclick: () => this.choose(lanes) }, lanes),
    );
    this.reset = h("button", { class: "quiet", hidden: true, onclick: () => this.clear() }, "Clear");
    let pending = 0;
    const later = () => {
      clearTimeout(pending);
      pending = window.setTimeout(() => this.apply(), 250);
    };
    for (const one of [this.text, this.row, this.took]) one.input.addEventListener("input", later);
    for (const one of [this.type, this.status, this.contended]) one.addEventListener("change", () => this.apply());
    this.element = h(
      "div",
      { class: "filters", role: "search" },
      h("div", { class: "segments", role: "group", "aria-label": "Lanes by" }, h("span", null, "Lanes by"), this.segments),
      this.type,
      this.status,
      this.text.label,
      this.row.label,
      this.took.label,
      h("label", { class: "check", for: "contended", title: "Requests with a transaction that failed or had to wait for another" }, this.contended, "contended"),
      this.reset,
    );
  }

  known(recording: Recording): void {
    const option = (value: string, text: string) => h("option", { value }, text);
    const [type, status] = [this.type.value, this.status.value];
    replace(this.type, option("", "All types"), recording.types.slice(0, 1000).map((name) => option(name, name)));
    const classes = [...new Set(recording.statuses.filter((it) => it >= 100).map((it) => `${Math.floor(it / 100)}xx`))];
    replace(
      this.status,
      option("", "All statuses"),
      option("failed", "failed"),
      classes.map((it) => option(it, it)),
      recording.statuses.map((it) => (it === 0 ? option("broken", "broken off") : it === 1 ? option("unrecorded", "not recorded") : option(String(it), String(it)))),
    );
    this.type.value = type;
    this.status.value = status;
  }

  get filter(): Filter {
    return {
      types: this.type.value ? [this.type.value] : [],
      status: this.status.value ? [this.status.value] : [],
      took_min: this.took.input.value.trim(),
      contended: this.contended.checked,
      text: this.text.input.value.trim(),
      row: this.row.input.value.trim(),
    };
  }

  choose(lanes: Lanes): void {
    this.lanes = lanes;
    this.segments.forEach((button, at) => button.setAttribute("aria-pressed", String(LANES[at] === lanes)));
    this.changed();
  }

  cycle(): void {
    this.choose(LANES[(LANES.indexOf(this.lanes) + 1) % LANES.length]!);
  }

  focus(): void {
    this.text.input.focus();
  }

  clear(): void {
    for (const one of [this.text, this.row, this.took]) one.input.value = "";
    this.type.value = "";
    this.status.value = "";
    this.contended.checked = false;
    this.apply();
  }

  private apply(): void {
    const { types, status, took_min, contended, text, row } = this.filter;
    this.reset.hidden = types.length + status.length === 0 && !took_min && !contended && !text && !row;
    this.changed();
  }
}

function input(name: string, placeholder: string, id: string): { label: HTMLLabelElement; input: HTMLInputElement } {
  const field = h("input", { type: "search", id, placeholder, autocomplete: "off", spellcheck: "false" });
  return { input: field, label: h("label", { class: `field ${id}`, for: id }, h("span", null, name), field) };
}
