// Versions of policies, paths and tags of identities, identity providers: what is pressed is what the server has.

import { check, equal, fresh, gone, press, text, within } from './browser.mjs';
import { go, signIn } from './flows.mjs';
import { policyOf, user } from './server.mjs';
import { fill } from './settings.mjs';

const DIALOG = 'dialog[open]';
const opened = async (page, name) => { await press(page, name, 'main'); await page.waitForFunction(() => document.querySelector('dialog[open] h3, dialog[open] dl')); };
const closed = async (page) => { await press(page, 'Close', DIALOG); await gone(page, 'dialog'); };
const asked = async (page, answer) => { await page.waitForFunction(() => document.querySelectorAll('dialog[open]').length === 2); await press(page, answer, `${DIALOG}:last-of-type`); await page.waitForFunction(() => document.querySelectorAll('dialog[open]').length === 1); };
const home = async (page) => { await go(page, '#/'); await page.waitForFunction(() => document.querySelector('main h1')?.textContent === 'Buckets'); };
const arnOf = (body) => /<Arn>([^<]+)/.exec(body)[1];
// Lists are read again after each change, so a button may be one that is about to go: the page is asked until it says what is wanted.
const says = (page, wanted, where = DIALOG) => page.waitForFunction((root, line) => document.querySelector(root)?.textContent.includes(line), {}, where, wanted);

export async function versions({ page, s3, accessible }) {
  const document = (key) => policyOf(['s3:GetObject', `arn:aws:s3:::docs/${key}`, 'One']);
  const PolicyArn = arnOf(await s3.iam({ Action: 'CreatePolicy', PolicyName: 'versioned', PolicyDocument: document('v1') }));
  const ofServer = async () => { const body = await s3.iam({ Action: 'ListPolicyVersions', PolicyArn }); return [...body.matchAll(/<VersionId>(v\d+)<\/VersionId><IsDefaultVersion>(\w+)/g)].map(([, id, is]) => (is === 'true' ? `${id}*` : id)).join(); };
  const shown = () => page.$eval(`${DIALOG} textarea`, (area) => area.value);
  const write = (key) => page.$eval(`${DIALOG} textarea`, (area, body) => { area.value = body; area.dispatchEvent(new Event('input')); }, document(key));
  await home(page);
  await go(page, '#/people/policies', 'main table');
  await opened(page, 'versioned');
  for (let version = 2; version <= 5; version += 1) {
    await write(`v${version}`);
    await press(page, 'Save as new version', DIALOG);
    await says(page, `Version v${version}, in force`);
  }
  equal(await ofServer(), 'v5*,v4,v3,v2,v1', 'each save is a new version, which is in force');
  equal(await page.$$eval(`${DIALOG} .lines li`, (lines) => lines.length), 5, 'all versions are listed');
  await accessible(page, 'versions of a policy');
  await press(page, 'Show v2', DIALOG);
  await says(page, 'Version v2, without effect');
  check((await shown()).includes('docs/v2'), 'an older version is shown');
  await write('v6');
  await press(page, 'Show v3', DIALOG);
  await asked(page, 'Cancel');
  check((await shown()).includes('docs/v6'), 'what is written is not lost without a question');
  await press(page, 'Save as new version', DIALOG);
  await says(page, 'There are 5 versions');
  check(/Delete one of them.*v1 is the oldest/.test(await text(page, `${DIALOG} .error[role=alert]`)), 'a sixth version says what to do');
  equal(await ofServer(), 'v5*,v4,v3,v2,v1', 'and is not made');
  await press(page, 'Delete v1', DIALOG);
  await asked(page, 'Delete');
  await within(async () => await ofServer() === 'v5*,v4,v3,v2', 'a version is deleted');
  check(!(await page.$$eval(`${DIALOG} button`, (all) => all.map((one) => one.getAttribute('aria-label')))).includes('Delete v5'), 'the one in force has no button for it');
  await page.waitForFunction(() => document.querySelectorAll('dialog[open] .lines li').length === 4);
  equal(await text(page, `${DIALOG} .error[role=alert]`), '', 'what was said of too many is no longer said');
  check((await shown()).includes('docs/v6'), 'the text is still there');
  await press(page, 'Save as new version', DIALOG);
  await within(async () => await ofServer() === 'v6*,v5,v4,v3,v2', 'and is saved then');
  await says(page, 'Version v6, in force');
  await press(page, 'Put v4 in force', DIALOG);
  await within(async () => await ofServer() === 'v6,v5,v4*,v3,v2', 'an older version is put in force');
  await says(page, 'Version v6, without effect');
  await closed(page);
  await opened(page, 'versioned');
  await says(page, 'Version v4, in force');
  check((await shown()).includes('docs/v4'), 'the one in force is what is shown first');
  await closed(page);
  await press(page, 'Delete versioned', 'main');
  await press(page, 'Delete', DIALOG);
  await within(async () => !(await s3.iam({ Action: 'ListPolicies', Scope: 'Local' })).includes('versioned'), 'a policy is deleted with its versions');
}

// Adds a line to the tags of the open dialog.
async function tag(page, key, value) {
  await press(page, 'Add a tag', DIALOG);
  await page.$$eval(`${DIALOG} .pairs .pair:last-child input`, (inputs, given) => inputs.forEach((input, index) => { input.value = given[index]; }), [key, value]);
}

export async function tags({ page, s3, accessible }) {
  const stored = async (kind, name) => [...(await s3.iam({ Action: `List${kind}Tags`, [`${kind}Name`]: name })).matchAll(/<Key>([^<]*)<\/Key><Value>([^<]*)/g)].map(([, key, value]) => `${key}=${value}`).join();
  await home(page);
  await go(page, '#/people/users', 'main h1');
  await press(page, 'New user');
  await page.waitForSelector(`${DIALOG} input`);
  await page.type(`${DIALOG} input`, 'paula');
  await fill(page, DIALOG, 'Path', '/desks/');
  await press(page, 'Make', DIALOG);
  await within(async () => (await s3.iam({ Action: 'GetUser', UserName: 'paula' }).catch(() => '')).includes('<Path>/desks/</Path>'), 'a user is made at a path');
  await gone(page, 'dialog');
  await opened(page, 'paula');
  await says(page, ':user/desks/paula');
  check((await text(page, `${DIALOG} dl`)).includes('Path/desks/'), 'a user is shown with ARN and path');
  await tag(page, 'team', 'red');
  await tag(page, 'room', '12 & <b>');
  await press(page, 'Save tags', DIALOG);
  await within(async () => await stored('User', 'paula') === 'room=12 &amp; &lt;b&gt;,team=red', 'tags of a user are saved');
  await closed(page);
  await opened(page, 'paula');
  await page.waitForSelector(`${DIALOG} .pairs .pair:nth-child(2)`);
  await accessible(page, 'a user with tags');
  await page.$eval(`${DIALOG} .pairs .pair:nth-child(1) button`, (button) => button.click());
  await page.$eval(`${DIALOG} .pairs .pair:nth-child(1) input:nth-of-type(2)`, (input) => { input.value = 'blue'; });
  await press(page, 'Save tags', DIALOG);
  await within(async () => await stored('User', 'paula') === 'team=blue', 'one is changed and one is taken away');
  await tag(page, 'team', 'green');
  await press(page, 'Save tags', DIALOG);
  await page.waitForFunction(() => [...document.querySelectorAll('.toast.bad')].some((node) => node.textContent.includes('given twice')));
  equal(await stored('User', 'paula'), 'team=blue', 'a tag that is given twice is not sent');
  await press(page, 'Rename', DIALOG);
  await page.waitForFunction(() => document.querySelectorAll('dialog[open]').length === 2);
  await fill(page, `${DIALOG}:last-of-type`, 'New name', 'paul');
  await fill(page, `${DIALOG}:last-of-type`, 'Path', '/halls/');
  await press(page, 'Rename', `${DIALOG}:last-of-type footer`);
  await within(async () => arnOf(await s3.iam({ Action: 'GetUser', UserName: 'paul' }).catch(() => '<Arn>x')).endsWith(':user/halls/paul'), 'a user gets another name and path');
  await gone(page, 'dialog');
  await page.waitForFunction(() => [...document.querySelectorAll('main td button.link')].some((node) => node.textContent === 'paul'));
  check(!(await page.$$eval('main td button.link', (all) => all.map((one) => one.textContent))).some((name) => name === '' || name === 'paula'), 'the list has the new name, and no line for tags');
  await press(page, 'Delete paul', 'main');
  await press(page, 'Delete', DIALOG);
  await within(async () => !(await s3.iam({ Action: 'ListUsers' })).includes('>paul<'), 'and is deleted');

  await s3.iam({ Action: 'CreateGroup', GroupName: 'sellers' });
  await go(page, '#/people/groups', 'main table');
  await opened(page, 'sellers');
  await press(page, 'Rename', DIALOG);
  await page.waitForFunction(() => document.querySelectorAll('dialog[open]').length === 2);
  await fill(page, `${DIALOG}:last-of-type`, 'Path', '/shops/');
  await press(page, 'Rename', `${DIALOG}:last-of-type footer`);
  await within(async () => arnOf(await s3.iam({ Action: 'GetGroup', GroupName: 'sellers' })).endsWith(':group/shops/sellers'), 'a group gets another path and keeps its name');
  await gone(page, 'dialog');

  await s3.iam({ Action: 'CreateRole', RoleName: 'tagged', Path: '/jobs/', AssumeRolePolicyDocument: '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}' });
  await go(page, '#/people/roles', 'main table');
  await opened(page, 'tagged');
  await says(page, 'Path/jobs/');
  await tag(page, 'stage', 'test');
  await press(page, 'Save tags', DIALOG);
  await within(async () => await stored('Role', 'tagged') === 'stage=test', 'tags of a role are saved');
  await closed(page);
}

export async function providers({ page, s3, accessible }) {
  await go(page, '#/people/providers', 'main h1');
  await press(page, 'New provider');
  await page.waitForSelector(`${DIALOG} input`);
  await fill(page, DIALOG, 'Address', 'https://id.example.com/realms/main?x=1');
  await press(page, 'Make', DIALOG);
  await page.waitForFunction(() => document.querySelector('dialog[open] .error')?.textContent.includes('no query'));
  await fill(page, DIALOG, 'Address', 'https://id.example.com/realms/main');
  await fill(page, DIALOG, 'Client ids', 'web\nphone');
  await press(page, 'Make', DIALOG);
  await within(async () => (await s3.iam({ Action: 'ListOpenIDConnectProviders' })).includes('oidc-provider/id.example.com/realms/main'), 'a provider is made');
  const OpenIDConnectProviderArn = arnOf(await s3.iam({ Action: 'ListOpenIDConnectProviders' }));
  const now = () => s3.iam({ Action: 'GetOpenIDConnectProvider', OpenIDConnectProviderArn });
  check(/<member>web<\/member><member>phone<\/member>|<member>phone<\/member><member>web<\/member>/.test(await now()), 'with its client ids');
  await opened(page, 'id.example.com/realms/main');
  await press(page, 'Remove phone', DIALOG);
  await within(async () => !(await now()).includes('phone'), 'a client id is taken away');
  await page.waitForFunction(() => !document.querySelector('dialog[open]').textContent.includes('phone'));
  await fill(page, DIALOG, 'New client id', 'desk');
  await press(page, 'Add client id', DIALOG);
  await within(async () => (await now()).includes('<member>desk</member>'), 'one is added');
  await says(page, 'desk');
  await fill(page, DIALOG, 'Thumbprints', 'a'.repeat(40));
  await press(page, 'Save thumbprints', DIALOG);
  await within(async () => (await now()).includes('a'.repeat(40)), 'thumbprints are saved');
  await accessible(page, 'an identity provider');
  await closed(page);
  await press(page, 'Delete id.example.com/realms/main', 'main');
  await press(page, 'Delete', DIALOG);
  await within(async () => !(await s3.iam({ Action: 'ListOpenIDConnectProviders' })).includes('id.example.com'), 'a provider is deleted');
}

// Who may only look has no button for the rest.
export async function partsOfPeople({ browser, s3, url }) {
  await s3.iam({ Action: 'CreatePolicy', PolicyName: 'looked-at', PolicyDocument: policyOf(['s3:GetObject', '*', 'One']) });
  const [accessKey, secretKey] = await user(s3, 'auditor', policyOf([['iam:List*', 'iam:Get*'], '*']));
  await s3.iam({ Action: 'TagUser', UserName: 'auditor', 'Tags.member.1.Key': 'team', 'Tags.member.1.Value': 'audit' });
  const { page, context } = await fresh(browser);
  await signIn({ page, url, accessKey, secretKey });
  const labels = (where) => page.$$eval(`${where} button`, (all) => all.map((one) => one.getAttribute('aria-label') ?? one.textContent.trim()));
  await go(page, '#/people/policies', 'main table');
  await opened(page, 'looked-at');
  await says(page, 'Version v1, in force');
  equal((await labels(DIALOG)).join(), 'Close', 'who may only read a policy has no button to change it');
  await closed(page);
  await go(page, '#/people/users', 'main table');
  await opened(page, 'auditor');
  await says(page, 'team = audit');
  check(!(await labels(DIALOG)).some((name) => /Rename|Save tags|Add a tag/.test(name)), 'nor to rename a user or change its tags');
  await closed(page);
  await go(page, '#/people/providers', 'main .empty');
  check(!(await labels('main')).includes('New provider'), 'nor to make a provider');
  await context.close();
}
