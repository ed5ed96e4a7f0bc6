// Opens /docs in Chromium, authorises with an API key, executes listRuns, and reloads to see that the key was kept.
// Usage: GATEWAY_URL=http://127.0.0.1:8080 API_KEY=ppx_... node gateway/tests/ui/swagger.mjs [screenshot.png]
// Needs playwright-core (npm) and a Chromium (CHROMIUM, default /usr/bin/chromium).
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const { GATEWAY_URL, API_KEY, CHROMIUM = "/usr/bin/chromium" } = process.env;
if (!GATEWAY_URL || !API_KEY) throw new Error("GATEWAY_URL and API_KEY must be set");

const profile = mkdtempSync(join(tmpdir(), "ppx-swagger-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: CHROMIUM,
  headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
  viewport: { width: 1280, height: 1600 },
});
const faults = [];
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  page.on("console", (m) => m.type() === "error" && faults.push(`console: ${m.text()}`));
  page.on("pageerror", (e) => faults.push(`page: ${e.message}`));
  page.on("request", (r) => {
    const url = r.url();
    if (!url.startsWith(GATEWAY_URL) && !url.startsWith("data:")) faults.push(`foreign request: ${url}`);
  });
  await page.goto(`${GATEWAY_URL}/docs/`);
  await page.locator(".opblock").first().waitFor();
  const operations = await page.locator(".opblock").count();
  const document = await (await fetch(`${GATEWAY_URL}/openapi.json`)).json();
  const documented = Object.values(document.paths).flatMap((item) => Object.keys(item)).length;
  if (operations !== documented) faults.push(`${operations} operations shown, ${documented} documented`);

  await page.locator(".btn.authorize").first().click();
  await page.locator(".auth-container input").first().fill(API_KEY);
  await page.locator(".auth-btn-wrapper .authorize").first().click();
  await page.locator(".auth-btn-wrapper .btn-done").first().click();

  const status = async () => {
    const block = page.locator("#operations-runs-listRuns");
    await block.waitFor();
    // A reload opens the operation that was open before, once its link is followed.
    await page.waitForTimeout(500);
    if (!(await block.locator(".execute").isVisible())) await block.locator(".opblock-summary-control").click();
    await block.locator(".execute").click();
    const shown = block.locator(".live-responses-table .response-col_status").nth(1);
    await shown.waitFor();
    return (await shown.innerText()).trim().split(/\s/)[0];
  };
  const first = await status();
  if (first !== "200") faults.push(`listRuns answered ${first}`);
  if (process.argv[2]) await page.screenshot({ path: process.argv[2] });
  await page.reload();
  await page.locator(".opblock").first().waitFor();
  const again = await status();
  if (again !== "200") faults.push(`listRuns answered ${again} after a reload: the key was not kept`);
} finally {
  await browser.close();
  rmSync(profile, { recursive: true, force: true });
}
if (faults.length > 0) {
  console.error(faults.join("\n"));
  process.exit(1);
}
console.log("swagger: ok");
