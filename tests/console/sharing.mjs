// Access lists, the search for names, and uploads over what exists.

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { check, equal, fresh, gone, press, text, within } from './browser.mjs';
import { go, signIn } from './flows.mjs';
import { policyOf, user } from './server.mjs';
import { fill } from './settings.mjs';

const LIST = 'section[aria-labelledby=part-access-list]';
const stranger = (s3, path) => fetch(`http://${s3.address}${path}`).then((answer) => answer.status);
const sure = async (page, answer) => { await page.waitForSelector('dialog[open]'); await press(page, answer, 'dialog[open]'); await gone(page, 'dialog[open]'); };
const shows = (page, where, wanted) => page.waitForFunction((root, line) => document.querySelector(root)?.textContent.includes(line), {}, where, wanted);

export async function bucketList({ page, s3, accessible }) {
  await s3.request('PUT', '/lists');
  await s3.put('lists', 'a', 'x');
  const stored = async () => (await s3.must('GET', '/lists', { query: [['acl', '']] })).body;
  await go(page, '#/settings/lists', LIST);
  await shows(page, LIST, 'margay');
  check((await text(page, LIST)).includes('FULL_CONTROL'), 'the list of a bucket is shown with its owner');
  await fill(page, LIST, 'Replace it by', 'public-read');
  await press(page, 'Replace', LIST);
  await sure(page, 'Cancel');
  equal(await stranger(s3, '/lists'), 403, 'nothing is opened without a question');
  await press(page, 'Replace', LIST);
  await sure(page, 'Open it');
  await within(async () => await stranger(s3, '/lists') === 200, 'public-read opens it');
  await shows(page, LIST, 'Everybody, also without a key');
  await accessible(page, 'an access list');
  await press(page, 'Remove Everybody, also without a key READ', LIST);
  await within(async () => await stranger(s3, '/lists') === 403, 'a grant is taken away');
  await page.waitForFunction((where) => !document.querySelector(where).querySelector('.lines').textContent.includes('Everybody'), {}, LIST);
  await fill(page, LIST, 'Who', 'http://acs.amazonaws.com/groups/global/AuthenticatedUsers');
  await fill(page, LIST, 'May', 'WRITE');
  await press(page, 'Add', LIST);
  await sure(page, 'Open it');
  await within(async () => /AuthenticatedUsers<\/URI><\/Grantee><Permission>WRITE</.test(await stored()), 'a grant to a group is added');
  check((await stored()).includes('<Permission>FULL_CONTROL<'), 'and the others stay');
  await shows(page, LIST, 'Everybody with a key of this server');
  await fill(page, LIST, 'Who', '');
  await fill(page, LIST, 'Canonical id of the account', 'nobody-of-that-id');
  await press(page, 'Add', LIST);
  await page.waitForFunction(() => [...document.querySelectorAll('.toast.bad')].some((node) => node.textContent.includes('no account with this canonical id')));
  check(!(await stored()).includes('nobody-of-that-id'), 'an account that is not there is refused');
  await fill(page, LIST, 'Canonical id of the account', 'margay');
  await fill(page, LIST, 'May', 'READ_ACP');
  await press(page, 'Add', LIST);
  await within(async () => /<ID>margay<\/ID>.{0,80}<\/Grantee><Permission>READ_ACP</.test(await stored()), 'a grant to an account is added');
  await fill(page, LIST, 'Replace it by', 'private');
  await press(page, 'Replace', LIST);
  await within(async () => !/AuthenticatedUsers|READ_ACP/.test(await stored()), 'private takes all of them away');

  const OWNER = 'section[aria-labelledby=part-ownership]';
  await fill(page, OWNER, 'Who owns objects that others write', 'BucketOwnerEnforced');
  await press(page, 'Save', OWNER);
  await within(async () => (await s3.request('GET', '/lists', { query: [['ownershipControls', '']] })).body.includes('BucketOwnerEnforced'), 'ownership is saved by the form');
  await go(page, '#/', 'main table');
  await go(page, '#/settings/lists', LIST);
  await shows(page, LIST, 'Access lists have no effect in this bucket');
  equal(await page.$$eval(`${LIST} button`, (all) => all.length), 0, 'where lists have no effect they cannot be changed');
}

export async function objectList({ page, browser, s3, url, accessible }) {
  await s3.request('PUT', '/lists-of-objects');
  await s3.put('lists-of-objects', 'd/one.txt', 'one', { 'content-type': 'text/plain' });
  await go(page, '#/browse/lists-of-objects/d%2F', '.rows .row[data-index] .name');
  await page.evaluate(() => document.querySelector('.row[data-index] .name').click());
  await page.waitForSelector('#tab-Access:not([hidden])');
  await page.click('#tab-Access');
  await shows(page, '.panel .body', 'Owner');
  await fill(page, '.panel', 'Who', 'http://acs.amazonaws.com/groups/global/AllUsers');
  await press(page, 'Add', '.panel');
  await sure(page, 'Open it');
  await within(async () => await stranger(s3, '/lists-of-objects/d/one.txt') === 200, 'a grant opens an object');
  await shows(page, '.panel .body', 'Everybody, also without a key');
  await accessible(page, 'the access list of an object');
  await s3.must('PUT', '/lists-of-objects', { query: [['publicAccessBlock', '']], body: '<PublicAccessBlockConfiguration><IgnorePublicAcls>true</IgnorePublicAcls></PublicAccessBlockConfiguration>' });
  await page.click('#tab-Access');
  await shows(page, '.panel .body', 'ignores what is open to everybody');
  equal(await stranger(s3, '/lists-of-objects/d/one.txt'), 403, 'a block that makes a list count less is named');
  await fill(page, '.panel', 'Replace it by', 'private');
  await press(page, 'Replace', '.panel');
  await within(async () => !(await s3.must('GET', '/lists-of-objects/d/one.txt', { query: [['acl', '']] })).body.includes('AllUsers'), 'private takes it away');
  await press(page, 'Close', '.panel');

  // Who may only read a list has no button to change it.
  const [accessKey, secretKey] = await user(s3, 'lister', policyOf([['s3:GetObject', 's3:GetObjectAcl', 's3:GetBucketAcl', 's3:ListBucket'], ['arn:aws:s3:::lists-of-objects', 'arn:aws:s3:::lists-of-objects/*']]));
  const other = await fresh(browser);
  await signIn({ page: other.page, url, accessKey, secretKey });
  await go(other.page, '#/settings/lists-of-objects', LIST);
  await shows(other.page, LIST, 'FULL_CONTROL');
  equal(await other.page.$$eval(`${LIST} button, ${LIST} select`, (all) => all.length), 0, 'who may only read the list of a bucket cannot change it');
  await go(other.page, '#/browse/lists-of-objects/d%2F', '.rows .row[data-index] .name');
  await other.page.evaluate(() => document.querySelector('.row[data-index] .name').click());
  await other.page.waitForSelector('#tab-Access:not([hidden])');
  await other.page.click('#tab-Access');
  await shows(other.page, '.panel .body', 'FULL_CONTROL');
  equal(await other.page.$$eval('.panel .body button, .panel .body select', (all) => all.length), 0, 'nor that of an object');
  await other.context.close();
}

export async function search({ page, s3 }) {
  await s3.request('PUT', '/search');
  for (const key of ['in/', 'in/sub/', 'in/sub/one', 'in/subject']) await s3.put('search', key, '');
  await go(page, '#/browse/search/in%2F', '.rows .row[data-index]');
  const names = () => page.$$eval('.row[data-index] .name', (all) => all.map((one) => one.textContent).join());
  equal(await names(), 'sub/,subject', 'a folder does not show its own marker');
  const seek = async (given, wanted, what) => {
    await page.$eval('input[type=search]', (input, to) => { input.value = to; input.dispatchEvent(new Event('input')); }, given);
    await within(async () => await names() === wanted, what);
  };
  await seek('subj', 'subject', 'names that begin with what is typed are found');
  await seek('sub/', 'sub/one', 'nor that of the folder whose name is searched');
  await seek('', 'sub/,subject', 'and all are back');
}

// Chooses files of these names with this content, as somebody does in the browser's dialog.
async function choose(page, names, content) {
  const folder = mkdtempSync(join(tmpdir(), 'margay-console-'));
  const files = names.map((name) => join(folder, name));
  files.forEach((file) => writeFileSync(file, content));
  const [chooser] = await Promise.all([page.waitForFileChooser(), press(page, 'Upload')]);
  await chooser.accept(files);
}

export async function existing({ page, browser, s3, url, accessible }) {
  await s3.request('PUT', '/existing');
  for (const name of ['a', 'b']) await s3.put('existing', `up/${name}`, 'old');
  const contents = (names) => Promise.all(names.map(async (name) => (await s3.request('GET', `/existing/up/${name}`)).body)).then((all) => all.map((body) => body.slice(0, 3)).join());
  const title = (wanted) => page.waitForFunction((line) => document.querySelector('dialog[open] h2')?.textContent === line, {}, wanted);
  const done = async () => { await page.waitForFunction(() => { const found = /^(\S+) of (\S+) ·/.exec(document.querySelector('.uploads [role=status]')?.textContent); return found && found[1] === found[2]; }); await press(page, 'Close', '.uploads'); };
  await go(page, '#/browse/existing/up%2F', '.rows .row[data-index]');
  await choose(page, ['a', 'b', 'c'], 'new');
  await title('2 of 3 names exist: replace them?');
  check((await text(page, 'dialog[open] .names')).includes('up/a'), 'the names that exist are shown');
  await accessible(page, 'a question about an upload');
  await sure(page, 'Cancel');
  equal(await contents(['a', 'b']), 'old,old', 'cancelled, nothing is replaced');
  equal((await s3.request('HEAD', '/existing/up/c')).status, 404, 'and nothing is uploaded');
  await choose(page, ['a', 'b', 'c'], 'new');
  await sure(page, 'Skip');
  await within(async () => await contents(['a', 'b', 'c']) === 'old,old,new', 'skipped, only what is new is uploaded');
  await done();
  await choose(page, ['b', 'd'], 'two');
  await title('1 of 2 names exist: replace it?');
  await sure(page, 'Replace');
  await within(async () => await contents(['a', 'b', 'c', 'd']) === 'old,two,new,two', 'replaced, all are uploaded');
  await done();
  await choose(page, ['e'], 'one');
  await within(async () => await contents(['e']) === 'one', 'without a name that exists nothing is asked');
  await done();

  // Who may write and not read is told that it cannot be known.
  const [accessKey, secretKey] = await user(s3, 'dropper', policyOf(['s3:PutObject', 'arn:aws:s3:::existing/*', 'Drop']));
  const other = await fresh(browser);
  await signIn({ page: other.page, url, accessKey, secretKey });
  await go(other.page, '#/browse/existing/up%2F', '.rows');
  await choose(other.page, ['a'], 'bad');
  await other.page.waitForFunction(() => document.querySelector('dialog[open] h2')?.textContent === 'Upload without looking?');
  await sure(other.page, 'Cancel');
  equal(await contents(['a']), 'old', 'who may not see what exists replaces nothing without a question');
  await choose(other.page, ['f'], 'six');
  await sure(other.page, 'Upload');
  await within(async () => await contents(['f']) === 'six', 'and uploads after it');
  await other.context.close();

  // Many names are looked for in the listing, also where much lies between them that nobody asks for.
  const many = Array.from({ length: 120 }, (_, index) => `m-${String(index * 10).padStart(5, '0')}`);
  await s3.fill('existing', 1300, (index) => `up/m-${String(index).padStart(5, '0')}`);
  for (let index = 0; index < 120; index += 2) await s3.request('DELETE', `/existing/up/${many[index]}`);
  let [heads, lists] = [0, 0];
  const note = (request) => { if (request.method() === 'HEAD') heads += 1; if (/start-after/.test(decodeURIComponent(request.url()))) lists += 1; };
  page.on('request', note);
  await choose(page, [...many, 'z-last', '😀', 'Ａ'], 'now');
  await title('60 of 123 names exist: replace them?');
  page.off('request', note);
  check(lists > 0 && heads + lists < 20, `many names take few requests: ${lists} pages, ${heads} names`);
  await sure(page, 'Skip');
  await within(async () => await contents([many[0], many[1], 'z-last', encodeURIComponent('😀')]) === 'now,,now,now', 'those that exist are skipped');
  await done();

  // Between `up/` and this name is more than a page.
  await s3.put('existing', 'up/n', 'old');
  await choose(page, ['n', ...Array.from({ length: 60 }, (_, index) => `zz-${index}`)], 'one');
  await title('1 of 61 names exist: replace it?');
  await sure(page, 'Cancel');
  equal(await contents(['n']), 'old', 'a name behind many others is found');

  await s3.must('PUT', '/existing', { query: [['versioning', '']], body: '<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>' });
  await go(page, '#/', 'main table');
  await go(page, '#/browse/existing/up%2F', '.rows .row[data-index]');
  await choose(page, ['a'], 'ver');
  await within(async () => await contents(['a']) === 'ver', 'a bucket that keeps versions asks nothing');
  await shows(page, '.uploads', 'keeps versions');
  await done();
  await s3.must('PUT', '/existing', { query: [['versioning', '']], body: '<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>' });
  await go(page, '#/', 'main table');
  await go(page, '#/browse/existing/up%2F', '.rows .row[data-index]');
  await choose(page, ['a'], 'sus');
  await title('1 of 1 name exists: replace it?');
  await sure(page, 'Cancel');
  equal(await contents(['a']), 'ver', 'one that keeps no more of them asks');
}
