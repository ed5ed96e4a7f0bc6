// Opens /review in Chromium, lists the dialogues of a dataset that waits for approval, breaks one, repairs it, approves it
// and rejects another. Usage: GATEWAY_URL=http://127.0.0.1:8080 API_KEY=ppx_... DATASET=ds_... node review.mjs [folder]
// Needs playwright-core (npm) and a Chromium (CHROMIUM, default /usr/bin/chromium).
import { join } from "node:path";
import { chromium } from "playwright-core";

const { GATEWAY_URL, API_KEY, DATASET, CHROMIUM = "/usr/bin/chromium" } = process.env;
if (!GATEWAY_URL || !API_KEY || !DATASET) throw new Error("GATEWAY_URL, API_KEY and DATASET must be set");
const folder = process.argv[2] ?? ".";

const browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
const faults = [];
try {
  const page = await browser.newPage({ viewport: { width: 1440, height: 1000 } });
  page.setDefaultTimeout(20_000);
  page.on("console", (m) => m.type() === "error" && faults.push(`console: ${m.text()}`));
  page.on("pageerror", (e) => faults.push(`page: ${e.message}`));
  page.on("request", (r) => {
    const url = r.url();
    if (!url.startsWith(GATEWAY_URL) && !/^(data|about|blob):/.test(url)) faults.push(`foreign request: ${url}`);
  });
  const said = async (text) => page.locator("#say").filter({ hasText: text }).waitFor();

  await page.goto(`${GATEWAY_URL}/review#dataset=${DATASET}`);
  await page.locator("#key").fill(API_KEY);
  await page.locator("#filter button").click();
  const rows = page.locator("#list button");
  await rows.first().waitFor();
  await rows.first().click();
  await said("Keeps every rule.");
  const frame = page.frameLocator("#page");
  await frame.locator(".turn").first().waitFor();
  await page.screenshot({ path: join(folder, "review-valid.png") });

  // A figure from nowhere, and markup that must stay text.
  await page.locator("#edit").click();
  const text = page.locator("#editor .row.turn textarea").nth(2);
  const before = await text.inputValue();
  await text.fill(`${before} It costs $987.65 <img src=x onerror=alert(1)>`);
  await page.screenshot({ path: join(folder, "review-edit.png") });
  await page.locator("#save").click();
  await said("violation");
  await frame.locator(".faults").waitFor();
  if (!(await page.locator("#approve").isDisabled())) faults.push("an invalid dialogue can be approved");
  if (await frame.locator("img").count()) faults.push("markup of a text became an element");
  await page.screenshot({ path: join(folder, "review-invalid.png") });

  await page.locator("#edit").click();
  await page.locator("#editor .row.turn textarea").nth(2).fill(before);
  await page.locator("#save").click();
  await said("Keeps every rule.");
  await page.locator("#approve").click();
  await said("Saved: approved.");
  await rows.nth(1).click();
  await said("Keeps every rule.");
  await page.locator("#reject").click();
  await said("a rejection needs a reason");
  await page.locator("#reason").fill("too much like the first one");
  await page.locator("#reject").click();
  await said("Saved: rejected.");
  await frame.locator("text=too much like the first one").waitFor();
  await page.screenshot({ path: join(folder, "review-decided.png") });
} finally {
  await browser.close();
}
// A refused rejection is a 422 that the browser logs; everything else is a fault.
const unexpected = faults.filter((f) => !f.includes("status of 422"));
if (unexpected.length) throw new Error(unexpected.join("\n"));
console.log("review: listed, edited, checked again, approved and rejected");
