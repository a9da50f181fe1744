// Chromium, and what checks are made of. A check that fails is counted, and the run goes on; a flow that breaks is one failure.

import puppeteer from 'puppeteer-core';

// Only ends a run that hangs; nothing is measured by it.
const LIMIT_MS = Number(process.env.LIMIT_MS ?? 120000);

export const counts = { good: 0, bad: 0 };

export function check(is, what) {
  if (is) { counts.good += 1; return; }
  counts.bad += 1;
  console.log(`FAILED: ${what}`);
}

export const equal = (found, wanted, what) => check(found === wanted, `${what}: ${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`);

// Waits for a condition outside the page. The limit only ends a run that hangs.
export async function within(is, what) {
  const end = Date.now() + LIMIT_MS;
  while (Date.now() < end) {
    if (await is()) { check(true, what); return; }
    await new Promise((wake) => setTimeout(wake, 50));
  }
  check(false, `${what}: it did not happen`);
}

// Presses the button or link with this name.
export async function press(page, name, inside = 'body') {
  const handle = await page.waitForFunction((wanted, where) => {
    const roots = [...document.querySelectorAll(where)].reverse();
    for (const root of roots) {
      const found = [...root.querySelectorAll('button, a')].find((node) => (node.textContent.trim() === wanted || node.getAttribute('aria-label') === wanted) && !node.disabled && node.getClientRects().length > 0);
      if (found) return found;
    }
    return null;
  }, {}, name, inside);
  await handle.asElement().evaluate((node) => node.click());
}

export const text = (page, selector) => page.$eval(selector, (node) => node.textContent);
export const gone = (page, selector) => page.waitForFunction((wanted) => !document.querySelector(wanted), {}, selector);

export async function launch() {
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
  return puppeteer.launch({ executablePath, headless: true, protocolTimeout: 1800000, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
}

// A page of a browser that has nothing of other pages; what its scripts fail at is a failure of the run.
export async function fresh(browser, { width = 1280, height = 800 } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await page.setViewport({ width, height });
  page.setDefaultTimeout(LIMIT_MS);
  page.on('pageerror', (error) => check(false, `a script of the page failed: ${error.message}`));
  page.on('console', (message) => { if (/Content Security Policy|TrustedHTML/.test(message.text())) check(false, `the policy stopped the page: ${message.text()}`); });
  if (process.env.VERBOSE) {
    await page.exposeFunction('told', (line) => console.log(`toast: ${line}`));
    await page.evaluateOnNewDocument(() => document.addEventListener('DOMContentLoaded', () => new MutationObserver((all) => all.forEach((one) => one.addedNodes.forEach((node) => window.told(node.textContent)))).observe(document.getElementById('toasts'), { childList: true })));
    page.on('response', async (answer) => { if (answer.status() >= 400) console.log(`${answer.request().method()} ${decodeURIComponent(answer.url().split('/-/console/')[1] ?? '')}: ${answer.status()} ${(await answer.text().catch(() => '')).slice(0, 300)} for ${(answer.request().postData() ?? '').slice(0, 600)}`); });
  }
  return { page, context, cdp: await page.createCDPSession() };
}
