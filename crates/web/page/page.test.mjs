// The page in a real browser. scripts/web-test starts this: HINDCAST is the program, TRACE a made-up recording (see the example `made`),
// REPORT a report of a retroaction of it, SCREENSHOTS a folder for pictures of every screen.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import puppeteer from "puppeteer-core";

const { HINDCAST, TRACE, REPORT, SCREENSHOTS, CHROMIUM = "/usr/bin/chromium" } = process.env;
let browser;
let served;
const problems = [];
const asked = new Set();

function serve(...more) {
  const child = spawn(HINDCAST, ["web", "--trace", TRACE, ...more], { stdio: ["ignore", "pipe", "inherit"] });
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`hindcast web ended with ${code}`)));
    let said = "";
    child.stdout.on("data", (data) => {
      said += data;
      if (said.endsWith("\n")) resolve({ child, url: said.trim() });
    });
  });
}

async function open(url, size = { width: 1440, height: 900 }) {
  const page = await browser.newPage();
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("request", (request) => asked.add(new URL(request.url()).origin));
  await page.setViewport(size);
  await page.goto(url);
  return page;
}

const settled = (page) => page.waitForFunction(() => document.body.dataset.ready === "yes", { timeout: 30_000 });
const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
const said = (page, selector, words) =>
  page.waitForFunction((s, w) => document.querySelector(s)?.textContent.includes(w), { timeout: 30_000 }, selector, words);
const picture = (page, name) => page.screenshot({ path: `${SCREENSHOTS}/${name}.png` });
const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** The report is about one request with two transactions; which one of the recording that is, is filled in. */
function report() {
  const hindcast = (...words) => execFileSync(HINDCAST, [...words, "--trace", TRACE], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const lines = hindcast("ls", "--json", "-n", "500").trim().split("\n").map((line) => JSON.parse(line));
  const { request } = lines.find((one) => one.method === "POST" && one.transactions === 2);
  const [check, insert] = JSON.parse(hindcast("show", request, "--json")).transactions.map((one) => one.id);
  const text = readFileSync(REPORT, "utf8").replaceAll('"REQUEST"', request).replaceAll('"CHECK"', check).replaceAll('"INSERT"', insert);
  const path = `${SCREENSHOTS}/report.json`;
  writeFileSync(path, text);
  return path;
}

before(async () => {
  served = await serve("--report", report());
  browser = await puppeteer.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
});

after(async () => {
  await browser?.close();
  served?.child.removeAllListeners("exit");
  served?.child.kill("SIGINT");
});

async function timeline() {
  const page = await open(served.url);
  await said(page, ".tabs", "Timeline");
  await page.click(".tabs button");
  await settled(page);
  await page.waitForSelector(".list tbody tr");
  return page;
}

test("the whole recording, and every distance down to microseconds", async () => {
  const page = await timeline();
  assert.match(await text(page, "footer"), /20,000 requests, 2\d,\d{3} transactions/);
  await page.mouse.move(500, 400);
  await page.waitForFunction(() => /requests?, .*the longest/.test(document.querySelector(".tip").textContent));
  await picture(page, "whole");
  const frames = await page.evaluate(async () => {
    const times = [];
    for (let step = 0; step < 22; step++) {
      const begun = performance.now();
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "+", bubbles: true }));
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      times.push(performance.now() - begun);
    }
    return times.sort((a, b) => a - b);
  });
  // Two frames, without a graphics card and on a machine that may be busy.
  assert.ok(frames[11] < 200, `${frames[11]} ms for two frames`);
  await page.waitForFunction(() => / µs$/.test(document.querySelector(".range").textContent));
  await page.keyboard.press("f");
  await page.waitForFunction(() => / s$/.test(document.querySelector(".range").textContent));
  await page.close();
});

test("a transaction shows whom it saw", async () => {
  const page = await timeline();
  await page.select("select[aria-label='Type of request']", "POST /subscribe");
  await page.waitForFunction(() => /^[\d,]+ of 20,000/.test(document.querySelector("footer").textContent.split(" s")[1] ?? ""));
  await page.waitForFunction(() => document.querySelector(".list td.target")?.textContent.startsWith("POST"));
  for (let step = 0; step < 40; step++) {
    const before = await text(page, ".panel .title h2");
    await page.keyboard.press("n");
    await page.waitForFunction((before) => document.querySelector(".panel .title h2")?.textContent !== before, {}, before);
    await page.keyboard.press("]");
    await page.waitForSelector(".transaction.open .sight");
    if (await page.$(".race")) break;
  }
  assert.match(await text(page, ".race"), /Crossed with request \d+\. Both wrote subscriptions\. t\d+ did not see t\d+, and t\d+ did not see t\d+\. Whether/);
  assert.match(await text(page, ".sight"), /Saw last/);
  await drawn(page);
  await picture(page, "sight");
  // Pointing at a transaction tells the same without a click.
  await page.keyboard.press("Escape");
  await page.waitForSelector(".list");
  await page.close();
});

test("filters, search, and what they leave", async () => {
  const page = await timeline();
  await page.select("select[aria-label='Status']", "failed");
  await page.waitForFunction(() => [...document.querySelectorAll(".list .badge")].every((badge) => badge.textContent === "500"));
  await page.keyboard.press("c");
  await page.type("#row", "subscriptions 17");
  await said(page, ".banner", "Found");
  await picture(page, "row");
  await page.$eval("#row", (input) => (input.value = ""));
  await page.type("#row", "nosuchtable 17");
  await said(page, ".banner.failed", "no recorded statement names the table");
  await page.$eval("#row", (input) => (input.value = ""));
  await page.type("#text", "no such text anywhere");
  await said(page, ".cover", "No request is like that");
  await picture(page, "nothing");
  await page.click(".cover button");
  await page.waitForFunction(() => document.querySelector(".cover").hidden);
  await page.keyboard.press("l");
  await page.waitForFunction(() => document.querySelector(".segments [aria-pressed=true]").textContent === "type");
  await drawn(page);
  await picture(page, "types");
  await page.close();
});

test("dark, help, a narrow window, paper", async () => {
  const page = await timeline();
  const background = () => page.$eval("body", (body) => getComputedStyle(body).backgroundColor);
  // A feature of the medium and a key take effect with the next frame.
  const becomes = (wanted, unlike) =>
    page.waitForFunction(
      (wanted, unlike) => {
        const colour = getComputedStyle(document.body).backgroundColor;
        return wanted ? colour === wanted : colour !== unlike;
      },
      { timeout: 10_000 },
      wanted,
      unlike,
    );
  const light = await background();
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await becomes(null, light);
  const dark = await background();
  await drawn(page);
  await picture(page, "dark");
  await page.keyboard.press("t");
  await becomes(light); // It was chosen, though the system is dark.
  await page.keyboard.press("t");
  await becomes(dark);
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  await picture(page, "help");
  await page.keyboard.press("Escape");
  await page.setViewport({ width: 640, height: 900 });
  await drawn(page);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${wide} pixels too wide`);
  await picture(page, "narrow");
  const paper = await page.pdf({ path: `${SCREENSHOTS}/paper.pdf`, format: "A4", landscape: true });
  assert.ok(paper.length > 10_000);
  await page.close();
});

test("a retroaction, old beside new", async () => {
  const page = await open(served.url);
  await page.waitForSelector(".difference");
  assert.match(await text(page, ".verdict"), /Something would have been different/);
  assert.match(await text(page, ".difference tr.first"), /ON CONFLICT.*first that differs/);
  assert.match(await text(page, ".lanes"), /other statements/);
  await picture(page, "retroaction");
  await page.click(".stage .link");
  await said(page, ".panel .title h2", "Request");
  await page.close();
});

test("without the token nothing is shown, and the page says so", async () => {
  const page = await open(served.url.split("#")[0]);
  await said(page, ".cover", "This address is not enough");
  assert.equal(await page.$(".list"), null);
  await page.close();
  // The browser reports refused questions as errors of its own.
  assert.deepEqual(problems.filter((problem) => !/status of (401|422)/.test(problem)), []);
  assert.deepEqual([...asked], [new URL(served.url).origin], "nothing is loaded from elsewhere");
});
