// Light, dark, or as the system is; and the colours that the canvas draws with.

export interface Colors {
  background: string;
  panel: string;
  line: string;
  faint: string;
  text: string;
  dim: string;
  accent: string;
  ok: string;
  okText: string;
  redirect: string;
  client: string;
  server: string;
  broken: string;
  read: string;
  write: string;
  saw: string;
  unseen: string;
  waited: string;
  gap: string;
}

const KEPT = "hindcast-theme";
type Choice = "system" | "light" | "dark";
const ORDER: Choice[] = ["system", "light", "dark"];

function kept(): Choice {
  try {
    const choice = localStorage.getItem(KEPT) as Choice | null;
    return choice && ORDER.includes(choice) ? choice : "system";
  } catch {
    return "system";
  }
}

let choice = kept();
let printing = false;

const dark = matchMedia("(prefers-color-scheme: dark)");

function apply(): void {
  const chosen = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
  document.documentElement.dataset.theme = printing ? "light" : chosen;
}

/** Calls back when the system changes between light and dark. */
export function followed(changed: () => void): void {
  dark.addEventListener("change", () => {
    apply();
    changed();
  });
}

export function current(): Choice {
  return choice;
}

export function next(): Choice {
  choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length]!;
  try {
    localStorage.setItem(KEPT, choice);
  } catch {
    // Then it holds for this page only.
  }
  apply();
  return choice;
}

/** Paper is white. */
export function print(on: boolean): void {
  printing = on;
  apply();
}

export function colors(): Colors {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    background: of("background"),
    panel: of("panel"),
    line: of("line"),
    faint: of("faint"),
    text: of("text"),
    dim: of("dim"),
    accent: of("accent"),
    ok: of("ok"),
    okText: of("ok-text"),
    redirect: of("redirect"),
    client: of("client"),
    server: of("server"),
    broken: of("broken"),
    read: of("read"),
    write: of("write"),
    saw: of("saw"),
    unseen: of("unseen"),
    waited: of("waited"),
    gap: of("gap"),
  };
}

apply();
