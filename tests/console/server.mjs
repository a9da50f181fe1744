// What an operator does with the console: who may do what, roles, live requests, mounts and upkeep; and what users with few rights see.

import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { check, equal, fresh, press, text, within } from './browser.mjs';
import { go, signIn } from './flows.mjs';
import { S3 } from './s3.mjs';
import { fill } from './settings.mjs';

const run = promisify(execFile);
const keysOf = (body) => [/<AccessKeyId>([^<]+)/.exec(body)[1], /<SecretAccessKey>([^<]+)/.exec(body)[1]];
export const policyOf = (...statements) => JSON.stringify({ Version: '2012-10-17', Statement: statements.map(([Action, Resource, Sid, Effect = 'Allow']) => ({ Sid, Effect, Action, Resource })) });

// A user with an own policy; answers the keys.
export async function user(s3, name, policy) {
  await s3.iam({ Action: 'CreateUser', UserName: name });
  await s3.iam({ Action: 'PutUserPolicy', UserName: name, PolicyName: 'own', PolicyDocument: policy });
  return keysOf(await s3.iam({ Action: 'CreateAccessKey', UserName: name }));
}

// The simulator says what a signed request gets.
export async function simulator({ page, s3, address, accessible }) {
  await s3.request('PUT', '/rooms');
  await s3.put('rooms', 'open/a', 'open');
  await s3.put('rooms', 'shut/a', 'shut');
  const [accessKey, secretKey] = await user(s3, 'alice', policyOf(['s3:GetObject', 'arn:aws:s3:::rooms/*', 'ReadRooms'], ['s3:*', 'arn:aws:s3:::rooms/shut/*', 'NotShut', 'Deny']));
  const alice = new S3(address, accessKey, secretKey);
  await go(page, '#/people/simulator/alice', '.simulator');
  equal(await page.$eval('.simulator input', (input) => input.value), 'alice', 'a link names the user');
  const asks = async (who, action, resource) => {
    for (const [label, value] of [['Who', who], ['Does what', action], ['With what', resource]]) await fill(page, '.simulator', label, value);
    await page.evaluate(() => document.querySelector('.verdict')?.remove());
    await press(page, 'Ask', '.simulator');
    await page.waitForSelector('.verdict');
    return text(page, '.verdict');
  };
  for (const [action, method, key, wanted, why] of [['s3:GetObject', 'GET', 'open/a', true, 'ReadRooms'], ['s3:GetObject', 'GET', 'shut/a', false, 'NotShut'], ['s3:PutObject', 'PUT', 'open/b', false, 'no statement'],
    ['s3:DeleteObject', 'DELETE', 'open/a', false, 'no statement'], ['s3:GetObject', 'GET', 'open/missing', false, 'there is no such object']]) {
    const said = await asks('alice', action, `rooms/${key}`);
    const { status } = await alice.request(method, `/rooms/${key}`);
    check(said.includes(wanted ? 'allowed' : 'denied') && said.includes(why), `may alice ${action} ${key}: ${said}`);
    equal(status < 300, wanted, `and a request of alice gets the same: ${method} ${key}`);
  }
  check((await asks('*', 's3:GetObject', 'rooms/open/a')).includes('denied'), 'whoever does not sign may not');
  await s3.must('PUT', '/rooms', { query: [['policy', '']], body: JSON.stringify({ Version: '2012-10-17', Statement: [{ Sid: 'All', Effect: 'Allow', Principal: '*', Action: 's3:GetObject', Resource: 'arn:aws:s3:::rooms/open/*' }] }) });
  check((await asks('*', 's3:GetObject', 'rooms/open/a')).includes('statement All of bucket policy'), 'the policy of the bucket counts');
  equal((await fetch(`http://${address}/rooms/open/a`)).status, 200, 'as it does for a request');
  check((await asks(accessKey, 'admin:Status', 'arn:aws:margay:::server')).includes('denied'), 'actions of administration are answered, too');
  check((await asks('root', 's3:PutObject', 'rooms/x')).includes('root keys'), 'and root');
  await fill(page, '.simulator', 'Who', 'nobody-of-that-name');
  await press(page, 'Ask', '.simulator');
  await page.waitForFunction(() => document.querySelector('main .error')?.textContent.includes('nobody-of-that-name'));
  await fill(page, '.simulator', 'Who', 'alice');
  await fill(page, '.simulator', 'All usual actions at once', true);
  await press(page, 'Ask', '.simulator');
  await page.waitForFunction(() => document.querySelectorAll('.verdict').length > 10);
  check(true, 'all usual actions are asked at once');
  await accessible(page, 'what somebody may do');
  return { accessKey, secretKey };
}

export async function roles({ page, s3, accessible }) {
  await s3.iam({ Action: 'CreatePolicy', PolicyName: 'for-roles', PolicyDocument: policyOf(['s3:GetObject', 'arn:aws:s3:::rooms/*', 'One']) });
  await go(page, '#/people/roles', 'main h1');
  await press(page, 'New role');
  await page.waitForSelector('dialog[open] textarea');
  await page.type('dialog[open] input', 'backup');
  await page.$eval('dialog[open] textarea', (area) => { area.value = area.value.replace('user/NAME', 'user/alice'); });
  await press(page, 'Make', 'dialog[open]');
  await within(async () => decodeURIComponent(await s3.iam({ Action: 'GetRole', RoleName: 'backup' }).catch(() => '')).includes('user/alice'), 'a role is made, with whom it trusts');
  await page.waitForFunction(() => document.querySelector('main table')?.textContent.includes('backup'));
  await press(page, 'backup', 'main');
  await page.waitForSelector('dialog[open] select');
  await page.$eval('dialog[open] select', (choice) => { choice.value = [...choice.options].find((option) => option.textContent === 'for-roles').value; });
  await press(page, 'Attach', 'dialog[open]');
  await within(async () => (await s3.iam({ Action: 'ListAttachedRolePolicies', RoleName: 'backup' })).includes('for-roles'), 'a policy is attached to it');
  await accessible(page, 'a role');
  await press(page, 'Close', 'dialog[open]');
  await press(page, 'Delete backup', 'main');
  await press(page, 'Delete', 'dialog[open]');
  await within(async () => !(await s3.iam({ Action: 'ListRoles' })).includes('backup'), 'and deleted with what hangs on it');
}

export async function trace({ page, s3, accessible }) {
  await go(page, '#/live/trace', '.filters');
  await fill(page, '.filters', 'Bucket', 'rooms');
  await press(page, 'Watch', 'main');
  await page.waitForFunction(() => document.querySelector('main [role=status]')?.textContent.startsWith('Watching'));
  const rows = () => page.$$eval('.trace tbody tr', (found) => found.map((row) => row.textContent));
  await within(async () => { await s3.request('GET', '/rooms/shown-in-trace'); await s3.request('GET', '/plain/other-bucket'); return (await rows()).some((row) => row.includes('shown-in-trace') && row.includes('NoSuchKey')); }, 'requests are shown as they end');
  check(!(await rows()).some((row) => row.includes('other-bucket')), 'and only those that were asked for');
  await fill(page, '.filters', 'Operation', 'PutObject');
  await fill(page, '.filters', 'Only what is refused or fails', false);
  await press(page, 'Clear', 'main');
  await within(async () => { await s3.request('GET', '/rooms/not-this'); await s3.put('rooms', 'put-in-trace', 'x'); return (await rows()).some((row) => row.includes('put-in-trace')); }, 'filters change while it runs');
  await press(page, 'Stop', 'main');
  await page.waitForFunction(() => document.querySelector('main [role=status]')?.textContent.startsWith('Not watching'));
  check(!(await rows()).some((row) => row.includes('not-this')), 'another operation is not shown');
  await accessible(page, 'live requests');
}

export async function upkeep({ page, s3, binary, data, accessible }) {
  let mounted = null;
  if (binary && data) {
    const place = mkdtempSync(join(tmpdir(), 'margay-console-mount-'));
    try { await run(binary, ['mount', 'rooms', place, '--data', data]); mounted = place; } catch (error) { console.log(`client console: skipped: a mount: ${String(error.stderr || error).trim().split('\n')[0]}`); }
  }
  await go(page, '#/live/upkeep', 'main .facts');
  check((await text(page, '.facts')).includes('ok'), 'the state of the storage is shown');
  if (mounted) {
    await page.waitForFunction((place) => [...document.querySelectorAll('main td')].some((cell) => cell.textContent === place), {}, mounted);
    check(readdirSync(mounted).length > 0, 'a mount is shown');
    await accessible(page, 'mounts');
    await press(page, `Unmount ${mounted}`, 'main');
    await press(page, 'Unmount', 'dialog[open]');
    // To look into it meanwhile would keep it busy, or fail when it goes just then.
    await within(async () => !readFileSync('/proc/self/mountinfo', 'utf8').includes(` ${mounted} `), 'and unmounted');
    await page.waitForFunction((place) => ![...document.querySelectorAll('main td')].some((cell) => cell.textContent === place), {}, mounted);
  }
  for (const [name, wanted] of [['Scrub now', 'No damage'], ['Check now', 'No findings'], ['Compact now', 'given back']]) {
    await press(page, name, 'main');
    await page.waitForFunction((line) => document.querySelector('main').textContent.includes(line), {}, wanted);
    check(true, `${name}: ${wanted}`);
  }
  await s3.must('GET', '/');
}

// Users with a few rights: each sees what it may, and no button for the rest.
export async function fewRights({ browser, s3, url }) {
  await s3.put('rooms', 'open/read-me', 'content');
  const buttons = (page) => page.$$eval('button, a.button', (found) => found.filter((one) => one.getClientRects().length > 0).map((one) => (one.getAttribute('aria-label') ?? one.textContent).trim()));
  const as = async (name, policy, look) => {
    const [accessKey, secretKey] = await user(s3, name, policy);
    const { page, context } = await fresh(browser);
    await signIn({ page, url, accessKey, secretKey });
    await look(page);
    await context.close();
  };
  await as('reader', policyOf([['s3:ListAllMyBuckets'], '*'], [['s3:ListBucket', 's3:GetObject', 's3:GetBucketVersioning'], ['arn:aws:s3:::rooms', 'arn:aws:s3:::rooms/*']]), async (page) => {
    await page.waitForSelector('main table');
    check(!(await buttons(page)).some((name) => /New bucket|Delete/.test(name)), 'who may not make or delete buckets has no button for it');
    check(!/Live|Access/.test(await text(page, '.side')), 'nor for the server and users');
    await go(page, '#/browse/rooms/open%2F', '.rows .row[data-index] .name');
    check(!(await buttons(page)).some((name) => /Upload|New folder/.test(name)), 'who may only read has no button to write');
    await page.click('.row[data-index] .box');
    await page.waitForSelector('.selection:not([hidden])');
    const shown = await buttons(page);
    check(shown.includes('Download') && !shown.some((name) => /Delete|Rename/.test(name)), `nor to delete or rename: ${shown}`);
    await page.keyboard.press('Delete');
    equal(await page.$('dialog[open]'), null, 'nor a key for it');
    await page.evaluate(() => document.querySelector('.row[data-index] .name').click());
    await page.waitForSelector('.panel [role=tab][aria-selected=true]');
    const tabs = await page.$$eval('.panel [role=tab]', (found) => found.filter((tab) => !tab.hidden).map((tab) => tab.textContent));
    equal(tabs.join(), 'Preview,Details,Share', 'an object has the parts that may be read');
    await go(page, '#/settings/rooms', '.part');
    equal(await page.$$eval('.part h2', (found) => found.map((one) => one.textContent).join()), 'Versioning', 'only the setting that may be read is there');
    check(!(await buttons(page)).some((name) => /Save|Delete/.test(name)) && (await page.$('.part input')) === null, 'and it cannot be changed');
  });
  await as('watcher', policyOf([['admin:Status', 'admin:ListMounts', 'admin:Trace'], '*'], ['iam:ListUsers', '*']), async (page) => {
    await page.waitForSelector('main h1');
    check(/Live/.test(await text(page, '.side')), 'who may see the server has a button for it');
    await go(page, '#/live', '.chart');
    await page.waitForFunction(() => document.querySelector('.facts')?.textContent.includes('ok'));
    await go(page, '#/live/upkeep', '.facts');
    check(!(await buttons(page)).some((name) => /now$|Unmount/.test(name)), 'who may not scrub has no button for it');
    for (const work of ['scrub', 'compact', 'fsck', 'unmount', 'quota']) {
      const status = await page.evaluate(async (name) => { const { admin } = await import('./js/api.js'); return admin('POST', name, { path: '/x', bucket: 'rooms' }).then(() => 200, (error) => error.status); }, work);
      equal(status, 403, `and is refused: ${work}`);
    }
    await go(page, '#/people', 'main table');
    check(!(await buttons(page)).some((name) => /New user|Delete|May/.test(name)), 'who may only list users has no other button');
    equal(await page.$$eval('.tabs a', (found) => found.map((one) => one.textContent).join()), 'Users', 'and sees no groups, roles or policies');
  });
}
