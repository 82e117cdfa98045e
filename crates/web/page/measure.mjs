// How long the page takes: HINDCAST=target/release/hindcast TRACE=FOLDER node measure.mjs
//
// Prints how long it takes from the start of the program to the first picture, and how long 200 zooms and moves take: each until the answer
// has been drawn. There is no graphics card in it: Chromium draws with the processor.
import { spawn } from "node:child_process";
import puppeteer from "puppeteer-core";

const { HINDCAST, TRACE, CHROMIUM = "/usr/bin/chromium" } = process.env;
const browser = await puppeteer.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage();
await page.setViewport({ width: 1440, height: 900 });
const begun = performance.now();
const child = spawn(HINDCAST, ["web", "--trace", TRACE], { stdio: ["ignore", "pipe", "ignore"] });
const url = await new Promise((resolve) => child.stdout.once("data", (data) => resolve(String(data).trim())));
const listening = performance.now();
await page.goto(url);
await page.waitForFunction(() => document.body.dataset.ready === "yes", { timeout: 600_000 });
const shown = performance.now();
const [frames, answers] = await page.evaluate(async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const [frames, answers] = [[], []];
  const own = window.fetch;
  window.fetch = async (path, ...more) => {
    const asked = performance.now();
    const answer = await own(path, ...more);
    if (path === "/api/timeline") answers.push(performance.now() - asked);
    return answer;
  };
  for (let round = 0; round < 5; round++) {
    press("f");
    await frame();
    for (let step = 0; step < 40; step++) {
      const before = performance.now();
      press(step % 3 === 2 ? "ArrowRight" : "+");
      await frame();
      await frame();
      frames.push((performance.now() - before) / 2);
    }
  }
  await new Promise((done) => setTimeout(done, 500));
  return [frames, answers];
});
const middle = (times) => {
  times.sort((a, b) => a - b);
  const at = (part) => times[Math.min(times.length - 1, Math.floor(part * times.length))].toFixed(1);
  return `${at(0.5)} ms median, ${at(0.95)} ms for 95 of 100, ${at(1)} ms at most, of ${times.length}`;
};
console.log(`listens after   ${((listening - begun) / 1000).toFixed(2)} s`);
console.log(`first picture   ${((shown - begun) / 1000).toFixed(2)} s`);
console.log(`a frame         ${middle(frames)}`);
console.log(`an answer       ${middle(answers)}`);
await browser.close();
child.kill("SIGINT");
