// What keys, mouse and colours mean.
import { h } from "./dom";

export type Key = [keys: string, what: string, run: () => void];

export function keysDialog(keys: Key[]): HTMLDialogElement {
  const names: Record<string, string> = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };
  const element: HTMLDialogElement = h(
    "dialog",
    { "aria-label": "Keys" },
    h("h2", null, "Keys"),
    h(
      "table",
      null,
      h("tbody", null, keys.map(([pressed, what]) => h("tr", null, h("td", null, pressed.split(" ").map((key) => h("kbd", null, names[key] ?? key))), h("td", null, what)))),
    ),
    h("h2", null, "Mouse"),
    h("p", null, "Drag moves, the wheel zooms where it points, and over the names it scrolls. Point at a transaction to see whom it saw; click for statements, values and the response. In the strip above, drag over a part to go there."),
    h("h2", null, "Colours"),
    h(
      "ul",
      { class: "plain" },
      [
        ["ok", "answered"],
        ["client", "answered with 4xx"],
        ["server", "answered with 5xx"],
        ["write", "a transaction that wrote"],
        ["read", "a transaction that only read"],
        ["saw", "a line to a commit that it saw"],
        ["unseen", "a line to a commit that it did not see; an aborted transaction"],
        ["waited", "it waited"],
      ].map(([kind, what]) => h("li", null, h("span", { class: `dot ${kind}` }), what)),
    ),
    h("form", { method: "dialog" }, h("button", { onclick: (event: Event) => (event.preventDefault(), element.close()) }, "Close")),
  );
  return element;
}
