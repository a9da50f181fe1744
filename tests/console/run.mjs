// Runs all flows, the accessibility checks and the attacks against the server at CONSOLE_URL, and says how many checks passed.

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

import * as attacks from './attacks.mjs';
import { check, counts, fresh, launch } from './browser.mjs';
import * as flows from './flows.mjs';
import * as people from './people.mjs';
import { S3 } from './s3.mjs';
import * as server from './server.mjs';
import * as settings from './settings.mjs';
import * as sharing from './sharing.mjs';

const { CONSOLE_URL: url, S3_ADDRESS: address, ACCESS_KEY: accessKey, SECRET_KEY: secretKey, KEYS = '3000', SHOTS, ONLY, MARGAY: binary, DATA: data } = process.env;
const s3 = new S3(address, accessKey, secretKey);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let clean = async () => {};

async function step(name, run) {
  if (ONLY && !ONLY.split(',').includes(name)) return undefined;
  await clean();
  if (process.env.VERBOSE) console.log(`step ${name}`);
  try { return await run(); } catch (error) { check(false, `${name} broke off: ${error.stack?.split('\n').slice(0, 4).join(' | ')}`); return undefined; }
}

async function accessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ['violations'] })).violations
    .filter(({ impact }) => ['serious', 'critical'].includes(impact)).map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes[0].html.slice(0, 120)} ${(nodes[0].any[0] ?? nodes[0].all[0] ?? nodes[0].none[0])?.message ?? ''}`));
  check(found.length === 0, `axe on ${what}: ${found.join('; ')}`);
}

// What makes the first view fast is checked; its time, which the machine decides too, is evidence.
const FIRST_BYTES_MAX = 300_000;
const FIRST_REQUESTS_MAX = 15;

async function firstView(browser) {
  const { page, cdp, context } = await fresh(browser);
  let [bytes, requests] = [0, 0];
  await cdp.send('Network.enable');
  cdp.on('Network.requestWillBeSent', () => { requests += 1; });
  cdp.on('Network.loadingFinished', ({ encodedDataLength }) => { bytes += encodedDataLength; });
  await page.goto(url);
  await page.waitForSelector('input[name=key]');
  // A file that is asked for only after another one was read costs a turn of the network.
  const turns = await page.evaluate(() => {
    const files = performance.getEntriesByType('resource').filter((one) => /\.(js|css)$/.test(one.name));
    const page_ = performance.getEntriesByType('navigation')[0].responseEnd;
    const first = Math.max(...files.filter((one) => one.initiatorType === 'link').map((one) => one.responseEnd), page_);
    return files.filter((one) => one.initiatorType !== 'link' && one.initiatorType !== 'script' && one.startTime > first).map((one) => one.name);
  });
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  await accessible(page, 'signing in');
  await context.close();
  check(bytes > 2000 && bytes <= FIRST_BYTES_MAX, `the first view takes ${bytes} bytes`);
  check(requests <= FIRST_REQUESTS_MAX, `the first view takes ${requests} requests`);
  check(turns.length === 0, `no file of the first view is found late: ${turns}`);
  console.log(`evidence: console: the first view takes ${(bytes / 1000).toFixed(0)} kB in ${requests} requests${paint === undefined ? '' : ` and is painted after ${paint.toFixed(0)} ms`}`);
}

const PAGES = { buckets: '#/', browse: '#/browse/plain/bulk%2F', settings: '#/settings/forms', live: '#/live', trace: '#/live/trace', upkeep: '#/live/upkeep', people: '#/people/users', roles: '#/people/roles', providers: '#/people/providers', simulator: '#/people/simulator' };

async function looks(browser) {
  for (const [theme, size] of [['light', {}], ['dark', {}], ['light', { width: 390, height: 780 }]]) {
    const { page, context } = await fresh(browser, size);
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
    await flows.signIn({ page, url, accessKey, secretKey });
    for (const [name, hash] of Object.entries(PAGES)) {
      await flows.go(page, hash, 'main h1');
      await page.waitForFunction(() => ![...document.querySelectorAll('.hint')].some((node) => node.textContent === 'Loading …'));
      await new Promise((wake) => setTimeout(wake, name === 'live' ? 4500 : 300));
      const what = `${name}-${theme}${size.width ? '-phone' : ''}`;
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      check(wide <= 0, `${what} fits the width: ${wide} px too wide`);
      await accessible(page, what);
      if (SHOTS) await page.screenshot({ path: `${SHOTS}/${what}.png` });
    }
    await flows.go(page, PAGES.browse, '.rows .row[data-index] .name');
    await page.evaluate(() => [...document.querySelectorAll('.row .name')].at(-1).click());
    await page.waitForSelector('.panel');
    await new Promise((wake) => setTimeout(wake, 500));
    await accessible(page, `an object, ${theme}`);
    if (SHOTS) await page.screenshot({ path: `${SHOTS}/object-${theme}${size.width ? '-phone' : ''}.png` });
    await page.evaluate(() => document.querySelector('.panel button[aria-label=Close]').click());
    await page.evaluate(() => document.querySelector('.row[data-index] .box').click());
    await page.evaluate(() => [...document.querySelectorAll('.selection button')].find((node) => node.textContent === 'Delete').click());
    await page.waitForFunction(() => document.querySelector('dialog[open] h2')?.textContent.startsWith('Delete '));
    await accessible(page, `a question, ${theme}`);
    await context.close();
  }
}

const browser = await launch();
try {
  await step('first', () => firstView(browser));
  const { page, cdp } = await fresh(browser);
  const at = { page, cdp, browser, s3, url, address, accessKey, secretKey, binary, data, accessible };
  await flows.signIn(at);
  // What a step that broke off left open does not break the next one.
  clean = () => page.evaluate(() => document.querySelectorAll('dialog').forEach((open) => open.close())).catch(() => {});
  let key;
  for (const name of ['buckets', 'settings', 'uploads', 'pauseAndResume', 'reload', 'objects', 'renameAndMove', 'bulkDelete', 'keyboard', 'access', 'live', 'deleteBucket']) {
    const given = await step(name, () => flows[name](at));
    if (name === 'access') key = given;
  }
  if (key) await step('rights', async () => { const other = await fresh(browser); await flows.rights({ ...other, url, s3 }, key); await other.context.close(); });
  for (const name of ['forms', 'quotas']) await step(name, () => settings[name](at));
  for (const name of ['versions', 'tags', 'providers', 'partsOfPeople']) await step(name, () => people[name](at));
  for (const name of ['bucketList', 'objectList', 'search', 'existing']) await step(name, () => sharing[name](at));
  for (const name of ['simulator', 'roles', 'trace', 'upkeep', 'fewRights']) await step(name, () => server[name](at));
  await step('looks', () => looks(browser));
  await step('many', async () => {
    const count = Number(KEYS);
    if ((await s3.request('HEAD', '/million')).status === 404) {
      await s3.must('PUT', '/million');
      await s3.fill('million', count, (index) => `many/${String(index).padStart(8, '0')}-a-file-of-some-name.jpg`);
    }
    const used = await flows.many(at, 'million', count);
    console.log(`evidence: console: a folder of ${count} names is scrolled through to its end in ${used.seconds} s, and the page uses ${used.mib.toFixed(0)} MiB`);
  });
  for (const name of ['names', 'storedPage', 'people', 'forgery', 'forgedCalls', 'framing', 'heads', 'paths', 'targets', 'sessions']) await step(name, () => attacks[name](at));
  const stranger = await step('theft', () => attacks.theft(at));
  if (stranger) await step('fixation', () => attacks.fixation(stranger, at));
} finally {
  await browser.close();
}
console.log(counts.bad === 0 ? `client console: ${counts.good} checks passed` : `client console: FAILED, ${counts.bad} of ${counts.good + counts.bad} checks`);
process.exit(counts.bad === 0 ? 0 : 1);
