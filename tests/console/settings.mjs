// The settings of a bucket as forms: what is filled in is what the server has, and what a form cannot hold is not lost.

import { check, equal, press, text, within } from './browser.mjs';
import { go } from './flows.mjs';

const part = (title) => `section[aria-labelledby=part-${title}]`;

// Fills the last field with this label in a part of the page.
export async function fill(page, where, label, value) {
  const handle = await page.waitForFunction((root, wanted) => {
    const labels = [...document.querySelectorAll(`${root} label`)].filter((node) => (node.querySelector('.label') ?? node).textContent.trim() === wanted);
    return labels.at(-1)?.querySelector('input, select, textarea') ?? null;
  }, {}, where, label);
  await handle.asElement().evaluate((input, to) => {
    input.closest('details')?.setAttribute('open', '');
    if (input.type === 'checkbox') { if (input.checked !== to) input.click(); return; }
    input.value = to;
    input.dispatchEvent(new Event('change', { bubbles: true }));
  }, value);
}

// Saves, and waits until the form shows what is stored now.
async function save(page, where, label = 'Save') {
  await page.$eval(`${where} .body > *`, (form) => { form.dataset.old = '1'; });
  await press(page, label, where);
  await page.waitForFunction((root) => !document.querySelector(`${root} [data-old]`), {}, where);
}

const valueOf = (page, where, label) => page.evaluate((root, wanted) => {
  const found = [...document.querySelectorAll(`${root} label`)].find((node) => (node.querySelector('.label') ?? node).textContent.trim() === wanted)?.querySelector('input, select, textarea');
  return found?.type === 'checkbox' ? found.checked : found?.value;
}, where, label);

export async function forms({ page, s3, accessible }) {
  for (const name of ['forms', 'forms-log']) await s3.must('PUT', `/${name}`);
  await s3.must('PUT', '/forms-lock', { headers: { 'x-amz-bucket-object-lock-enabled': 'true' } });
  const stored = async (name, bucket = 'forms') => (await s3.request('GET', `/${bucket}`, { query: [[name, '']] })).body;
  const becomes = (name, wanted, what, bucket) => within(async () => { const now = await stored(name, bucket); return wanted.every((one) => one.test(now)); }, what);
  const again = async (bucket = 'forms') => { await go(page, '#/', 'main table'); await go(page, `#/settings/${bucket}`, '.part'); await page.waitForFunction(() => ![...document.querySelectorAll('.part .hint')].some((node) => node.textContent === 'Loading …')); };

  await again();
  const life = part('lifecycle');
  await press(page, 'Add a rule', life);
  await fill(page, life, 'Names that begin with', 'logs/<a>');
  await fill(page, life, 'Delete after days', '30');
  await fill(page, life, 'Only larger than bytes', '100');
  await press(page, 'Add a tag', life);
  await page.type(`${life} .pair input:nth-of-type(1)`, 'kind');
  await page.type(`${life} .pair input:nth-of-type(2)`, 'log & old');
  await fill(page, life, 'Delete on a date', '2030-01-31');
  await press(page, 'Save', life);
  await page.waitForFunction(() => document.querySelector('.toast.bad')?.textContent.includes('choose one'));
  equal((await s3.request('GET', '/forms', { query: [['lifecycle', '']] })).status, 404, 'a rule that contradicts itself is not sent');
  await fill(page, life, 'Delete on a date', '');
  await save(page, life);
  await becomes('lifecycle', [/<Days>30</, /<And>/, /logs\/(&lt;|&#60;)a(>|&gt;|&#62;)/, /<Value>log &amp; old</, /<ObjectSizeGreaterThan>100</], 'a rule with tags and sizes is saved by the form');
  await again();
  equal(await valueOf(page, life, 'Delete after days'), '30', 'the form shows what is stored');
  await press(page, 'Edit as XML', life);
  check((await page.$eval(`${life} textarea`, (area) => area.value)).includes('<Days>30</Days>'), 'the same is shown as XML');
  await page.$eval(`${life} textarea`, (area) => { area.value = area.value.replace('<Days>30<', '<Days>31<'); });
  await press(page, 'Use the form', life);
  equal(await valueOf(page, life, 'Delete after days'), '31', 'and the form takes what was written there');
  await press(page, 'Add a rule', life);
  await fill(page, life, 'Delete on a date', '2030-01-31');
  await fill(page, life, 'Unfinished uploads after days', '7');
  await save(page, life);
  await becomes('lifecycle', [/<Days>31</, /<Date>2030-01-31T00:00:00/, /<DaysAfterInitiation>7</], 'a second rule ends on a date');
  await again();
  for (let left = 2; left > 0; left -= 1) await press(page, 'Remove rule', life);
  await save(page, life);
  await within(async () => (await s3.request('GET', '/forms', { query: [['lifecycle', '']] })).status === 404, 'no rule is no document');

  const cors = part('browser-access-cors-');
  await press(page, 'Add a rule', cors);
  await fill(page, cors, 'Pages of these origins', 'https://app.example\nhttps://*.other.example');
  await fill(page, cors, 'write (PUT)', true);
  await fill(page, cors, 'Headers that they may send', '*');
  await fill(page, cors, 'Seconds that browsers remember it', '600');
  await save(page, cors);
  await becomes('cors', [/https:\/\/app\.example/, /\*\.other\.example/, /<AllowedMethod>GET/, /<AllowedMethod>PUT/, /<MaxAgeSeconds>600/], 'CORS is saved by the form');

  const note = part('notifications');
  await press(page, 'Add a rule', note);
  await fill(page, note, 'Target', 'arn:aws:sqs:us-east-1:000000000000:nowhere');
  await fill(page, note, 'deleted (s3:ObjectRemoved:*)', true);
  await fill(page, note, 'Names that end with', '.jpg');
  await save(page, note);
  await becomes('notification', [/:nowhere</, /s3:ObjectCreated:\*/, /s3:ObjectRemoved:\*/, /\.jpg/], 'a notification is saved by the form');
  await again();
  equal(await valueOf(page, note, 'Names that end with'), '.jpg', 'and shown by it');
  await page.$$eval('.part details', (all) => all.forEach((one) => { one.open = true; }));
  await accessible(page, 'forms of settings');

  const encryption = part('encryption');
  await fill(page, encryption, 'New objects are encrypted', 'AES256');
  await save(page, encryption);
  await becomes('encryption', [/AES256/], 'encryption is saved by the form');

  const block = part('public-access-block');
  await fill(page, block, 'Refuse policies that open it to everybody', true);
  await save(page, block);
  await becomes('publicAccessBlock', [/<BlockPublicPolicy>true/, /<BlockPublicAcls>false/], 'the block is saved by the form');

  const web = part('website');
  await fill(page, web, 'Page for what is not found', 'error.html');
  await save(page, web);
  await becomes('website', [/<Suffix>index\.html</, /<Key>error\.html</], 'a website is saved by the form');
  const rules = '<WebsiteConfiguration><IndexDocument><Suffix>index.html</Suffix></IndexDocument><RoutingRules><RoutingRule><Condition><KeyPrefixEquals>old/</KeyPrefixEquals></Condition><Redirect><ReplaceKeyPrefixWith>new/</ReplaceKeyPrefixWith></Redirect></RoutingRule></RoutingRules></WebsiteConfiguration>';
  await s3.must('PUT', '/forms', { query: [['website', '']], body: rules });
  await again();
  await page.waitForFunction((where) => document.querySelector(where)?.textContent.includes('more than the form can show'), {}, web);
  check((await page.$eval(`${web} textarea`, (area) => area.value)).includes('<KeyPrefixEquals>old/'), 'what the form cannot hold is edited as XML');
  await press(page, 'Remove', web);
  await within(async () => (await s3.request('GET', '/forms', { query: [['website', '']] })).status === 404, 'a setting is removed');

  const log = part('access-log');
  await fill(page, log, 'Bucket for the log', 'forms-log');
  await fill(page, log, 'Names begin with', 'here/');
  await save(page, log);
  await becomes('logging', [/<TargetBucket>forms-log</, /<TargetPrefix>here\//], 'an access log is saved by the form');
  await fill(page, log, 'Bucket for the log', '');
  await save(page, log);
  await within(async () => !(await stored('logging')).includes('TargetBucket'), 'and turned off');

  await again('forms-lock');
  const lock = part('object-lock');
  await fill(page, lock, 'Lock of new objects', 'GOVERNANCE');
  await fill(page, lock, 'For', '3');
  await save(page, lock);
  await becomes('object-lock', [/GOVERNANCE/, /<Days>3</], 'a lock is saved by the form', 'forms-lock');
  check((await text(page, part('versioning'))).includes('Keep versions'), 'versioning is a choice');
}

export async function quotas({ page, s3 }) {
  await s3.request('PUT', '/limited');
  await s3.put('limited', 'first', 'x'.repeat(1000));
  await go(page, '#/settings/limited', part('quota'));
  await page.waitForFunction((where) => document.querySelector(where)?.textContent.includes('1 objects'), {}, part('quota'));
  await fill(page, part('quota'), 'At most GiB', '2');
  await fill(page, part('quota'), 'At most objects', '1');
  await save(page, part('quota'), 'Save quota');
  await within(async () => { const answer = await s3.request('PUT', '/limited/second', { body: 'x' }); return answer.status >= 400; }, 'what is beyond the quota is refused');
  await go(page, '#/', 'main table');
  await page.waitForFunction(() => [...document.querySelectorAll('main tr')].some((row) => row.textContent.includes('limited') && row.textContent.includes('1 of 1') && row.textContent.includes('2.0 GiB')));
  check(true, 'buckets are listed with what they hold and may hold');
  await go(page, '#/settings/limited', part('quota'));
  await fill(page, part('quota'), 'At most objects', '');
  await save(page, part('quota'), 'Save quota');
  await within(async () => (await s3.request('PUT', '/limited/second', { body: 'x' })).status === 200, 'a limit is taken away');
}
