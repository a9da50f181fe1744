// Every flow of the console in Chromium, on a real server: what a user does and what the server has afterwards.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { check, equal, gone, press, text, within } from './browser.mjs';

const keysOf = (body) => [...body.matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key]) => key);
const list = async (s3, bucket, prefix = '') => keysOf((await s3.must('GET', `/${bucket}`, { query: [['list-type', '2'], ['prefix', prefix]] })).body);

export async function signIn({ page, url, accessKey, secretKey }) {
  await page.goto(url);
  await page.waitForSelector('input[name=key]');
  await page.type('input[name=key]', accessKey);
  await page.type('input[name=secret]', secretKey);
  await page.click('button[type=submit]');
  await page.waitForSelector('nav.side');
}

export const go = async (page, hash, selector) => {
  await page.evaluate((to) => { location.hash = to; }, hash);
  if (selector) await page.waitForSelector(selector);
};

async function dialogForm(page, values, action) {
  await page.waitForSelector('dialog[open]');
  for (const [name, value] of Object.entries(values)) {
    await page.$eval(`dialog[open] [name=${name}]`, (input) => { if (input.type !== 'checkbox') input.value = ''; });
    if (value === true) await page.click(`dialog[open] [name=${name}]`); else await page.type(`dialog[open] [name=${name}]`, value);
  }
  await press(page, action, 'dialog[open]');
}

export async function buckets({ page, s3 }) {
  await go(page, '#/', 'main h1');
  await press(page, 'New bucket');
  await dialogForm(page, { name: 'flows', versioning: true }, 'Make bucket');
  await page.waitForFunction(() => location.hash.includes('browse/flows'));
  equal((await s3.request('HEAD', '/flows')).status, 200, 'a bucket is made');
  check((await s3.must('GET', '/flows', { query: [['versioning', '']] })).body.includes('Enabled'), 'it keeps versions');
}

export async function settings({ page, s3 }) {
  await go(page, '#/settings/flows', '.part textarea');
  await page.waitForFunction(() => document.querySelectorAll('.part .button').length >= 11);
  const part = (title) => `section[aria-labelledby=part-${title}]`;
  const policy = part('policy');
  await page.type(`${policy} textarea`, '{"Version": "2012-10-17",\n "Statement": [}');
  check((await text(page, `${policy} .note`)).includes('Line 2'), 'the editor names the line of what is wrong');
  await press(page, 'Save policy', policy);
  equal((await s3.request('GET', '/flows', { query: [['policy', '']] })).status, 404, 'what is wrong is not sent');
  await press(page, 'Example: everybody reads', policy);
  await press(page, 'Save policy', policy);
  await within(async () => (await s3.request('GET', '/flows', { query: [['policy', '']] })).body.includes('PublicRead'), 'a policy is saved');

  await press(page, 'Add a tag', part('tags'));
  await page.type(`${part('tags')} .pair input:nth-of-type(1)`, 'team');
  await page.type(`${part('tags')} .pair input:nth-of-type(2)`, 'a+b = c');
  await press(page, 'Save tags', part('tags'));
  await within(async () => (await s3.request('GET', '/flows', { query: [['tagging', '']] })).body.includes('a+b = c'), 'tags are saved');
}

export async function uploads({ page, s3 }) {
  await go(page, '#/browse/flows/up%2F', '.rows');
  const folder = mkdtempSync(join(tmpdir(), 'margay-console-'));
  const [small, large] = [join(folder, 'small file ü.txt'), join(folder, 'large.bin')];
  writeFileSync(small, 'small content');
  writeFileSync(large, Buffer.alloc(21 * 1024 * 1024, 'margay '));
  const [chooser] = await Promise.all([page.waitForFileChooser(), press(page, 'Upload')]);
  await chooser.accept([small, large]);
  await within(async () => (await list(s3, 'flows', 'up/')).length === 2, 'files are uploaded');
  const head = await s3.must('HEAD', '/flows/up/large.bin');
  equal(Number(head.headers['content-length']), 21 * 1024 * 1024, 'all bytes of a file in parts');
  check(/-3"$/.test(head.headers.etag), 'in three parts');
  equal((await s3.must('GET', `/flows/up/${encodeURIComponent('small file ü.txt')}`)).body, 'small content', 'a name with a blank and a letter that is not ASCII');
  // A drop of a folder, as the browser shows it to the page.
  await page.evaluate(() => {
    const file = (name, content) => ({ isFile: true, name, file: (done) => done(new File([content], name, { type: 'text/plain' })) });
    const directory = (name, entries) => ({ isFile: false, name, createReader: () => { let rest = [entries, []]; return { readEntries: (done) => done(rest.shift() ?? []) }; } });
    const tree = directory('tree', [file('one.txt', '1'), directory('deep', [file('two.txt', '2')])]);
    const event = new Event('drop', { bubbles: true, cancelable: true });
    event.dataTransfer = { types: ['Files'], items: [{ webkitGetAsEntry: () => tree }], files: [] };
    document.querySelector('.browse').dispatchEvent(event);
  });
  await within(async () => (await list(s3, 'flows', 'up/tree/')).join() === 'up/tree/deep/two.txt,up/tree/one.txt', 'a dropped folder keeps its tree');
  await page.waitForFunction(() => document.querySelector('.uploads [role=status]')?.textContent.startsWith('4 of 4'));
  await press(page, 'Close', '.uploads');
}

// An upload that is still under way some seconds after its first part came: on a busy machine it takes long until it is paused.
const LONG_PARTS = 12;
const LONG_BYTES = LONG_PARTS * 8 * 1024 * 1024;

export async function pauseAndResume({ page, s3, cdp }) {
  await go(page, '#/browse/flows/slow%2F', '.rows');
  const folder = mkdtempSync(join(tmpdir(), 'margay-console-'));
  const file = join(folder, 'slow.bin');
  writeFileSync(file, Buffer.alloc(LONG_BYTES, 'slow'));
  await cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 12 * 1024 * 1024 });
  const [chooser] = await Promise.all([page.waitForFileChooser(), press(page, 'Upload')]);
  await chooser.accept([file]);
  const parts = async () => {
    const id = /<UploadId>([^<]+)/.exec((await s3.must('GET', '/flows', { query: [['uploads', '']] })).body)?.[1];
    return id ? (await s3.must('GET', '/flows/slow/slow.bin', { query: [['uploadId', id]] })).body.split('<Part>').length - 1 : 0;
  };
  await within(async () => await parts() >= 1, 'a part arrives');
  await page.click('.uploads header button[aria-label="Pause all"]');
  await page.waitForFunction(() => document.querySelector('.uploads li.paused'));
  const before = await parts();
  check(before >= 1 && before < LONG_PARTS && (await list(s3, 'flows', 'slow/')).length === 0, 'a paused upload is neither complete nor lost');
  await cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  await page.click('.uploads header button[aria-label="Resume all"]');
  await within(async () => (await list(s3, 'flows', 'slow/')).length === 1, 'it goes on');
  equal(Number((await s3.must('HEAD', '/flows/slow/slow.bin')).headers['content-length']), LONG_BYTES, 'and is whole');
  await press(page, 'Close', '.uploads');
}

// The page is closed in the middle of an upload. Whoever chooses the file again sends only what the server lacks.
export async function reload({ page, s3, cdp }) {
  await go(page, '#/browse/flows/again%2F', '.rows');
  const folder = mkdtempSync(join(tmpdir(), 'margay-console-'));
  const file = join(folder, 'again.bin');
  writeFileSync(file, Buffer.alloc(LONG_BYTES, 'again'));
  const choose = async () => { const [chooser] = await Promise.all([page.waitForFileChooser(), press(page, 'Upload')]); await chooser.accept([file]); };
  await cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 12 * 1024 * 1024 });
  await choose();
  const had = async () => {
    const id = /<UploadId>([^<]+)/.exec((await s3.must('GET', '/flows', { query: [['uploads', ''], ['prefix', 'again/']] })).body)?.[1];
    return id ? [...(await s3.must('GET', '/flows/again/again.bin', { query: [['uploadId', id]] })).body.matchAll(/<PartNumber>(\d+)/g)].map(([, part]) => part) : [];
  };
  await within(async () => (await had()).length >= 1, 'a part arrives before the page is closed');
  page.on('dialog', (question) => question.accept());
  await page.reload();
  await page.waitForSelector('.rows');
  await cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
  const before = await had();
  check(before.length >= 1 && before.length < LONG_PARTS, `the server has some parts: ${before}`);
  const sent = [];
  const note = (request) => { const found = /partNumber%3D(\d+)/.exec(request.url()); if (found && request.method() === 'PUT') sent.push(found[1]); };
  page.on('request', note);
  await choose();
  await within(async () => (await list(s3, 'flows', 'again/')).length === 1, 'the same file goes on after a reload');
  page.off('request', note);
  // A part that was under way at the reload may have come since: then fewer are sent.
  check(sent.length <= LONG_PARTS - before.length && new Set(sent).size === sent.length && !sent.some((part) => before.includes(part)), `only what the server lacked is sent: ${sent} beside ${before}`);
  equal(Number((await s3.must('HEAD', '/flows/again/again.bin')).headers['content-length']), LONG_BYTES, 'and it is whole');
  await press(page, 'Close', '.uploads');
}

const openObject = async (page, name) => {
  await page.waitForFunction((wanted) => [...document.querySelectorAll('.row .name')].some((node) => node.textContent === wanted), {}, name);
  await page.evaluate((wanted) => [...document.querySelectorAll('.row .name')].find((node) => node.textContent === wanted).click(), name);
  await page.waitForSelector('.panel');
};
const tab = async (page, name) => { await page.click(`#tab-${name}`); await page.waitForFunction(() => !document.querySelector('.panel .body')?.textContent.startsWith('Loading')); };

export async function objects({ page, s3 }) {
  await s3.put('flows', 'show/text.txt', 'first content', { 'content-type': 'text/plain' });
  await s3.put('flows', 'show/text.txt', 'second content', { 'content-type': 'text/plain' });
  await s3.put('flows', 'show/table.csv', 'name,age\nanna,30\n"bert, jr",4\n', { 'content-type': 'text/csv' });
  await s3.put('flows', 'show/picture.svg', '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><rect width="10" height="10"/></svg>', { 'content-type': 'image/svg+xml' });
  await go(page, '#/browse/flows/show%2F', '.rows');
  await openObject(page, 'text.txt');
  await page.waitForSelector('pre.shown');
  equal(await text(page, 'pre.shown'), 'second content', 'text is shown');
  await openObject(page, 'picture.svg');
  await page.waitForFunction(() => document.querySelector('img.shown')?.naturalWidth > 0);
  check(true, 'a picture is shown');
  await openObject(page, 'table.csv');
  await page.waitForSelector('.sheet td');
  check((await text(page, '.sheet')).includes('bert, jr'), 'a table is shown');
  await page.$eval('.query input', (input) => { input.value = "SELECT s.name FROM s3object s WHERE s.age = '30'"; });
  await press(page, 'Ask', '.query');
  await page.waitForFunction(() => document.querySelector('.query .sheet')?.textContent.includes('anna'));
  check(!(await text(page, '.query .sheet')).includes('bert'), 'S3 Select answers');

  await openObject(page, 'text.txt');
  await tab(page, 'Tags');
  await press(page, 'Add a tag', '.panel');
  await page.type('.panel .pair input:nth-of-type(1)', 'kind');
  await page.type('.panel .pair input:nth-of-type(2)', 'note');
  await press(page, 'Save tags', '.panel');
  await within(async () => (await s3.must('GET', '/flows/show/text.txt', { query: [['tagging', '']] })).body.includes('<Value>note'), 'tags of an object are saved');
  await tab(page, 'Versions');
  await page.waitForSelector('.versions li:nth-child(2)');
  await press(page, 'Restore', '.versions');
  await within(async () => (await s3.must('GET', '/flows/show/text.txt')).body === 'first content', 'an earlier version is restored');
  await tab(page, 'Share');
  await page.$eval('.panel input[inputmode=url]', (input, origin) => { input.value = origin; }, `http://${s3.address}`);
  await press(page, 'Make link', '.panel');
  await page.waitForFunction(() => document.querySelector('.panel input[readonly]')?.value.includes('X-Amz-Signature'));
  const link = await page.$eval('.panel input[readonly]', (input) => input.value);
  equal(await (await fetch(link)).text(), 'first content', 'a link opens for somebody without a key');
  check(link.includes('X-Amz-Expires=3600'), 'and expires');
  const saved = await page.evaluate(async () => { const answer = await fetch('raw?t=%2Fflows%2Fshow%2Ftext.txt&as=save'); return [answer.headers.get('content-disposition'), await answer.text()]; });
  check(saved[0].startsWith('attachment') && saved[1] === 'first content', 'a download is saved');
  await press(page, 'Close', '.panel');
}

export async function renameAndMove({ page, s3 }) {
  await s3.put('flows', 'mv/a/1', '1');
  await s3.put('flows', 'mv/a/2', '2');
  await s3.put('flows', 'mv/file', 'x');
  await go(page, '#/browse/flows/mv%2F', '.rows');
  await page.waitForFunction(() => document.querySelectorAll('.row[data-index]').length === 2);
  await page.click('.row[data-index="1"] .box');
  await press(page, 'Rename', '.selection');
  await dialogForm(page, { name: 'renamed' }, 'Rename');
  await within(async () => (await list(s3, 'flows', 'mv/')).includes('mv/renamed'), 'an object is renamed');
  await page.waitForFunction(() => [...document.querySelectorAll('.row .name')].some((node) => node.textContent === 'renamed') && document.querySelector('.selection').hidden);
  await page.click('.row[data-index="0"] .box');
  await press(page, 'Move', '.selection');
  await page.waitForSelector('dialog[open] [name=folder]');
  await page.$eval('dialog[open] [name=folder]', (input) => { input.value = 'moved/to'; });
  await press(page, 'Go', 'dialog[open]');
  await within(async () => (await list(s3, 'flows', 'moved/')).join() === 'moved/to/a/1,moved/to/a/2', 'a folder is moved');
  await within(async () => (await list(s3, 'flows', 'mv/')).join() === 'mv/renamed', 'and is not left behind');

  // What is there already is not lost, and stays where it was, too.
  await s3.put('flows', 'moved/renamed', 'other');
  await page.waitForFunction(() => document.querySelectorAll('.row[data-index]').length === 1 && document.querySelector('.selection').hidden);
  const send = async (values) => {
    await page.waitForSelector('.row[data-index="0"] .box');
    await page.click('.row[data-index="0"] .box');
    await press(page, 'Move', '.selection');
    await page.waitForSelector('dialog[open] [name=folder]');
    await page.evaluate((given) => Object.entries(given).forEach(([name, value]) => { document.querySelector(`dialog[open] [name=${name}]`).value = value; }), values);
    await press(page, 'Go', 'dialog[open]');
  };
  const bodyOf = async (key) => (await s3.request('GET', `/flows/${key}`)).body;
  await send({ folder: 'moved/' });
  await page.waitForFunction(() => [...document.querySelectorAll('.toast.bad')].some((node) => node.textContent.includes('1 object stayed')));
  equal([await bodyOf('moved/renamed'), await bodyOf('mv/renamed')].join(), 'other,x', 'a move replaces nothing unless it is told to');
  await page.evaluate(() => document.querySelectorAll('.toast').forEach((node) => node.remove()));
  await page.waitForFunction(() => document.querySelector('.selection').hidden);
  await send({ folder: 'moved/', kind: 'copy', same: 'replace' });
  await within(async () => (await bodyOf('moved/renamed')) === 'x', 'and replaces it when it is');

  await go(page, '#/browse/flows/', '.rows');
  await page.waitForFunction(() => [...document.querySelectorAll('.row .name')].some((node) => node.textContent.startsWith('moved')));
  await page.evaluate(() => [...document.querySelectorAll('.row[data-index]')].find((row) => row.querySelector('.name').textContent.startsWith('moved')).querySelector('.box').click());
  await press(page, 'Rename', '.selection');
  await dialogForm(page, { name: 'moved/in' }, 'Rename');
  await page.waitForFunction(() => document.querySelector('dialog[open] .error').textContent.includes('into itself'));
  check((await list(s3, 'flows', 'moved/')).join() === 'moved/renamed,moved/to/a/1,moved/to/a/2', 'a folder is not renamed into itself');
  await press(page, 'Cancel', 'dialog[open]');
}

export async function bulkDelete({ page, s3 }) {
  await s3.request('PUT', '/plain');
  for (let i = 0; i < 25; i += 1) await s3.put('plain', `bulk/in/${i}`, 'xx');
  for (const key of ['bulk/é & <b>', 'bulk/a\u0001b', 'bulk/keep', 'bulk/../up']) await s3.put('plain', key, 'x');
  await go(page, '#/browse/plain/bulk%2F', '.rows');
  await page.waitForFunction(() => document.querySelectorAll('.row[data-index]').length === 5);
  await page.focus('.rows');
  await page.keyboard.down('Control');
  await page.keyboard.press('a');
  await page.keyboard.up('Control');
  await page.evaluate(() => [...document.querySelectorAll('.row[data-index]')].find((row) => row.textContent.includes('keep')).querySelector('.box').click());
  await press(page, 'Delete', '.selection');
  await page.waitForFunction(() => document.querySelector('dialog[open] h2')?.textContent.startsWith('Delete 28 objects'));
  check(true, 'what would be deleted is counted before');
  await press(page, 'Delete 28 objects', 'dialog[open]');
  await within(async () => (await list(s3, 'plain')).join() === 'bulk/keep', 'everything that was chosen is deleted, and nothing else');
}

export async function keyboard({ page }) {
  await go(page, '#/browse/flows', '.rows .row[data-index]');
  await page.focus('.rows');
  for (const key of ['Home', 'ArrowDown', ' ']) await page.keyboard.press(key);
  await page.waitForSelector('.row[data-index="1"].marked');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Home');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash.startsWith('#/browse/flows/'));
  check(true, 'a folder is opened by keys alone');
}

export async function access({ page, s3 }) {
  await go(page, '#/people/users', 'main h1');
  await press(page, 'New user');
  await page.waitForSelector('dialog[open] input');
  await page.type('dialog[open] input', 'carol');
  await press(page, 'Make', 'dialog[open]');
  await page.waitForFunction(() => document.querySelector('main table')?.textContent.includes('carol'));
  check((await s3.iam({ Action: 'ListUsers' })).includes('carol'), 'a user is made');
  await press(page, 'carol', 'main');
  await page.waitForFunction(() => document.querySelector('dialog[open] h3'));
  await press(page, 'New key', 'dialog[open]');
  await page.waitForFunction(() => [...document.querySelectorAll('dialog[open] h2')].some((node) => node.textContent === 'The new key'));
  const pair = await page.$$eval('dialog[open]:last-of-type input', (inputs) => inputs.map((input) => input.value));
  await press(page, 'Done', 'dialog[open]:last-of-type');
  await press(page, 'Close', 'dialog[open]');
  await gone(page, 'dialog');
  check(pair[0].length >= 16 && pair[1].length >= 30, 'a key is made and shown once');
  return { accessKey: pair[0], secretKey: pair[1] };
}

export async function live({ page }) {
  await go(page, '#/live', '.chart');
  await page.waitForFunction(() => document.querySelector('.chart .value')?.textContent.includes('/s'), { timeout: 30000 });
  check((await text(page, '.facts')).includes('ok') && (await page.$$('.chart')).length === 4, 'the live page shows the server');
}

export async function deleteBucket({ page, s3 }) {
  await go(page, '#/', 'button[aria-label="Delete flows"]');
  await page.click('button[aria-label="Delete flows"]');
  await press(page, 'Delete bucket', 'dialog[open]');
  await page.waitForFunction(() => /^Delete [\d,]+ version/.test(document.querySelector('dialog[open] h2')?.textContent ?? ''));
  await page.click('dialog[open] button[type=submit]');
  await within(async () => (await s3.request('HEAD', '/flows')).status === 404, 'a bucket is deleted with all versions, after a count');
}

export async function rights({ page, url, s3 }, { accessKey, secretKey }) {
  await s3.put('plain', 'bulk/secret-name', 'secret content');
  await signIn({ page, url, accessKey, secretKey });
  check(!/Live|Access/.test(await text(page, '.side')), 'who may not see the server has no button for it');
  equal(await page.$('button.primary'), null, 'who may not make a bucket has no button for it');
  await page.waitForSelector('main h1');
  check(!(await text(page, 'main')).includes('plain'), 'who may not see a bucket does not');
  await go(page, '#/browse/plain/bulk%2F', '.rows');
  await page.waitForFunction(() => document.querySelector('.count[role=status]')?.textContent.includes('may not list'));
  check(!(await page.content()).includes('secret-name'), 'nor its names');
  await go(page, '#/people', 'main');
  await page.waitForFunction(() => document.querySelector('main')?.textContent.includes('may not see users'));
  await go(page, '#/live', 'main');
  await page.waitForFunction(() => document.querySelector('main')?.textContent.includes('may not see the server'));
  check(true, 'nor the state of the server');
}

// A folder of very many names: all of it is scrolled through.
export async function many({ page, cdp }, bucket, count) {
  await go(page, `#/browse/${bucket}/many%2F`, '.rows .row[data-index]');
  await page.focus('.rows');
  const begun = Date.now();
  await page.keyboard.down('Control');
  await page.keyboard.press('End');
  await page.keyboard.up('Control');
  await page.waitForFunction((all) => document.querySelector('.rows').getAttribute('aria-rowcount') === String(all + 1), { timeout: 1800000, polling: 500 }, count);
  const seconds = Math.round((Date.now() - begun) / 1000);
  for (const share of [0.1, 0.9, 0.5, 0.3, 0.77, 1, 0]) {
    await page.evaluate((to) => { const node = document.querySelector('.scroller'); node.scrollTop = (node.scrollHeight - node.clientHeight) * to; }, share);
    await page.waitForFunction(() => !document.querySelector('.row.waiting') && document.querySelector('.row[data-index] .name'), { timeout: 60000 });
    const [index, name] = await page.evaluate(() => { const row = document.querySelectorAll('.row[data-index]')[3]; return [Number(row.dataset.index), row.querySelector('.name').textContent]; });
    equal(Number(name.slice(0, 8)), index, `row ${index} has its name`);
  }
  const nodes = await page.$$eval('.row[data-index]', (rows) => rows.length);
  check(nodes < 100, `only ${nodes} rows of ${count} exist`);
  await cdp.send('HeapProfiler.collectGarbage');
  const { usedSize } = await cdp.send('Runtime.getHeapUsage');
  const mib = usedSize / 1048576;
  check(mib < 100, `the page of ${count} names uses ${mib.toFixed(0)} MiB`);
  return { mib, seconds };
}
