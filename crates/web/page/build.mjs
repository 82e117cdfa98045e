// Builds the page into a folder: ../built, or the one that is given. The same source gives the same bytes.
import { copyFileSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const target = process.argv[2] ?? fileURLToPath(new URL("../built", import.meta.url));
mkdirSync(target, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { page: "main.ts" },
  outdir: target,
  bundle: true,
  format: "iife",
  target: ["chrome110", "firefox115", "safari16"],
  minify: true,
  charset: "utf8",
  legalComments: "none",
});
await build({
  absWorkingDir: here,
  entryPoints: { page: "page.css" },
  outdir: target,
  minify: true,
  charset: "utf8",
});
for (const file of ["index.html", "icon.svg"]) {
  copyFileSync(here + file, `${target}/${file}`);
}
