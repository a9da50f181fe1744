// Users, their keys and rights, groups, roles and policies: the server's IAM service, with the rights of the key.

import { all, iam, own, unescape } from './api.js';
import { add, button, field, h, icon } from './dom.js';
import { ask, copy, dialog, fail, form, toast } from './dialog.js';
import { date } from './format.js';
import { checkPolicy, editor } from './editor.js';
import { link, refresh } from './main.js';
import { iamOf, may } from './rights.js';

const KINDS = { users: 'Users', groups: 'Groups', roles: 'Roles', policies: 'Policies', simulator: 'Who may do what' };
const NEEDS = { users: 'users', groups: 'groups', roles: 'roles', policies: 'policies', simulator: 'simulate' };
const WORDS = { users: 'User', groups: 'Group', roles: 'Role', policies: 'Policy' };
const TRUST = { Version: '2012-10-17', Statement: [{ Effect: 'Allow', Principal: { AWS: 'arn:aws:iam::000000000000:user/NAME' }, Action: 'sts:AssumeRole' }] };
const EXAMPLE = { Version: '2012-10-17', Statement: [{ Effect: 'Allow', Action: ['s3:GetObject', 's3:ListBucket'], Resource: ['arn:aws:s3:::BUCKET', 'arn:aws:s3:::BUCKET/*'] }] };

// All members of a list, over its pages.
async function every(action, fields, name = 'member') {
  const found = [];
  let marker;
  do {
    const answer = await iam(action, { ...fields, ...(marker ? { Marker: marker } : {}) });
    const list = answer.documentElement.children[0];
    found.push(...all(list, name));
    marker = own(list, 'IsTruncated') === 'true' ? own(list, 'Marker') : '';
  } while (marker);
  return found;
}

const LISTS = {
  users: async () => (await every('ListUsers', {})).map((node) => ({ name: own(node, 'UserName'), made: own(node, 'CreateDate'), arn: own(node, 'Arn') })),
  groups: async () => (await every('ListGroups', {})).map((node) => ({ name: own(node, 'GroupName'), made: own(node, 'CreateDate'), arn: own(node, 'Arn') })),
  roles: async () => (await every('ListRoles', {})).map((node) => ({ name: own(node, 'RoleName'), made: own(node, 'CreateDate'), arn: own(node, 'Arn'), trust: unescape(own(node, 'AssumeRolePolicyDocument')) })),
  policies: async () => (await every('ListPolicies', { Scope: 'Local' })).map((node) => ({ name: own(node, 'PolicyName'), made: own(node, 'UpdateDate') || own(node, 'CreateDate'), arn: own(node, 'Arn'), version: own(node, 'DefaultVersionId') })),
};

export async function people({ rights }, wanted, name) {
  const seen = Object.keys(KINDS).filter((one) => rights[NEEDS[one]]);
  const kind = seen.includes(wanted) ? wanted : seen[0];
  const page = (body, action) => ({ title: 'Access', node: h('div', { class: 'page' }, h('div', { class: 'bar' }, h('h1', {}, 'Access'), h('span', { class: 'grow' }), action),
    seen.length > 0 && h('nav', { class: 'tabs', 'aria-label': 'Kinds' }, seen.map((one) => h('a', { href: link('people', one), 'aria-current': one === kind ? 'page' : null }, KINDS[one]))), body) });
  if (!kind) return page(h('div', { class: 'empty' }, icon('people'), h('p', {}, 'This key may not see users, groups, roles or policies.')));
  if (kind === 'simulator') return page(await (await import('./simulator.js')).simulator(LISTS, name));
  const found = await LISTS[kind]();
  const word = WORDS[kind];
  const allowed = await may(Object.fromEntries([['', iamOf(`Create${word}`, `${word.toLowerCase()}/new`)], ...found.map((one) => [one.name, [`iam:Delete${word}`, one.arn]])]));
  const body = found.length === 0 ? h('div', { class: 'empty' }, icon('people'), h('p', {}, `There are no ${kind} yet.`))
    : h('div', { class: 'card table' }, h('table', {}, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Name'), h('th', { scope: 'col' }, 'Changed'), h('td', {}))),
      h('tbody', {}, found.map((one) => h('tr', {}, h('td', { class: 'strong' }, h('button', { type: 'button', class: 'link', onclick: () => open(kind, one) }, one.name)), h('td', { class: 'hint' }, date(one.made)),
        h('td', { class: 'actions' }, rights.simulate && ['users', 'roles'].includes(kind) && h('a', { class: 'button quiet small', href: link('people', 'simulator', kind === 'roles' ? `role/${one.name}` : one.name), 'aria-label': `What may ${one.name} do?` }, 'May …?'),
          allowed[one.name] && button(`Delete ${one.name}`, () => remove(kind, one), { kind: 'quiet', symbol: 'trash', only: true })))))));
  const label = `New ${word.toLowerCase()}`;
  return page(body, allowed[''] && button(label, () => create(kind, label), { kind: 'primary', symbol: 'plus' }));
}

async function create(kind, label) {
  const name = h('input', { required: true, autofocus: true, spellcheck: false });
  const edit = kind === 'policies' ? editor(JSON.stringify(EXAMPLE, null, 2), 'Policy', checkPolicy) : kind === 'roles' ? trustEditor(JSON.stringify(TRUST, null, 2)) : null;
  const done = await form(label, [field('Name', name), kind === 'roles' && h('p', { class: 'hint' }, 'Who may take the role:'), edit?.node], 'Make', async () => {
    if (edit?.look()) throw new Error(edit.look());
    if (kind === 'users') await iam('CreateUser', { UserName: name.value });
    else if (kind === 'groups') await iam('CreateGroup', { GroupName: name.value });
    else if (kind === 'roles') await iam('CreateRole', { RoleName: name.value, AssumeRolePolicyDocument: edit.area.value });
    else await iam('CreatePolicy', { PolicyName: name.value, PolicyDocument: edit.area.value });
  }, { wide: Boolean(edit) });
  if (done) refresh();
}

const trustEditor = (text) => editor(text, 'Who may take the role', (document) => checkPolicy(document, { resource: false }));

async function remove(kind, one) {
  if (!(await ask(`Delete ${one.name}?`, kind === 'users' ? 'Its keys stop working at once.' : 'It cannot be restored.', 'Delete', 'danger'))) return;
  try {
    if (kind === 'users') await removeUser(one.name);
    else if (kind === 'groups') await removeGroup(one.name);
    else if (kind === 'roles') await removeRole(one.name);
    else await iam('DeletePolicy', { PolicyArn: one.arn });
    toast(`${one.name} is deleted`);
    refresh();
  } catch (error) { fail(error); }
}

// What hangs on a user goes before it, as the service demands.
async function removeUser(UserName) {
  for (const key of await every('ListAccessKeys', { UserName })) await iam('DeleteAccessKey', { UserName, AccessKeyId: own(key, 'AccessKeyId') });
  for (const policy of await every('ListAttachedUserPolicies', { UserName })) await iam('DetachUserPolicy', { UserName, PolicyArn: own(policy, 'PolicyArn') });
  for (const policy of await every('ListUserPolicies', { UserName })) await iam('DeleteUserPolicy', { UserName, PolicyName: policy.textContent });
  for (const group of await every('ListGroupsForUser', { UserName })) await iam('RemoveUserFromGroup', { UserName, GroupName: own(group, 'GroupName') });
  await iam('DeleteUser', { UserName });
}

async function removeGroup(GroupName) {
  for (const user of await members(GroupName)) await iam('RemoveUserFromGroup', { GroupName, UserName: user });
  for (const policy of await every('ListAttachedGroupPolicies', { GroupName })) await iam('DetachGroupPolicy', { GroupName, PolicyArn: own(policy, 'PolicyArn') });
  for (const policy of await every('ListGroupPolicies', { GroupName })) await iam('DeleteGroupPolicy', { GroupName, PolicyName: policy.textContent });
  await iam('DeleteGroup', { GroupName });
}

async function removeRole(RoleName) {
  for (const policy of await every('ListAttachedRolePolicies', { RoleName })) await iam('DetachRolePolicy', { RoleName, PolicyArn: own(policy, 'PolicyArn') });
  for (const policy of await every('ListRolePolicies', { RoleName })) await iam('DeleteRolePolicy', { RoleName, PolicyName: policy.textContent });
  await iam('DeleteRole', { RoleName });
}

const members = async (GroupName) => (await every('GetGroup', { GroupName })).map((node) => own(node, 'UserName')).filter(Boolean);

function open(kind, one) {
  return dialog(one.name, () => {
    const body = h('div', { class: 'body' });
    const fill = async () => { try { const built = await PAGES[kind](one, fill); body.replaceChildren(); add(body, [built]); } catch (error) { body.replaceChildren(h('p', { class: 'error', role: 'alert' }, error.message)); } };
    fill();
    return body;
  }, { wide: true });
}

const tried = (work, fill) => async () => { try { await work(); fill(); } catch (error) { fail(error); } };
const line = (...parts) => h('li', { class: 'line' }, parts);
const none = (list, text) => (list.length ? h('ul', { class: 'lines' }, list) : h('p', { class: 'hint' }, text));

// A list that the key may not read is left out.
const listed = async (work) => { try { return await work(); } catch (error) { if (error.status === 403) return null; throw error; } };
// What of these actions of IAM the key may do with an entity.
const allowed = (arn, actions) => may(Object.fromEntries(actions.map((action) => [action, [`iam:${action}`, arn]])));

const PAGES = {
  async users({ name: UserName, arn }, fill) {
    const [keys, groups, can] = await Promise.all([
      listed(async () => (await every('ListAccessKeys', { UserName })).map((node) => ({ id: own(node, 'AccessKeyId'), active: own(node, 'Status') === 'Active' }))),
      listed(async () => (await every('ListGroupsForUser', { UserName })).map((node) => ({ name: own(node, 'GroupName'), arn: own(node, 'Arn') }))),
      allowed(arn, ['CreateAccessKey', 'UpdateAccessKey', 'DeleteAccessKey'])]);
    const leaves = await may(Object.fromEntries((groups ?? []).map((group) => [group.name, ['iam:RemoveUserFromGroup', group.arn]])));
    const newKey = async () => {
      try {
        const answer = await iam('CreateAccessKey', { UserName });
        await showKey(all(answer, 'AccessKeyId')[0].textContent, all(answer, 'SecretAccessKey')[0].textContent);
        fill();
      } catch (error) { fail(error); }
    };
    const keyLine = (key) => line(h('span', { class: 'mono' }, key.id), !key.active && h('span', { class: 'badge' }, 'disabled'), h('span', { class: 'grow' }),
      can.UpdateAccessKey && button(key.active ? 'Disable' : 'Enable', tried(() => iam('UpdateAccessKey', { UserName, AccessKeyId: key.id, Status: key.active ? 'Inactive' : 'Active' }), fill), { kind: 'small' }),
      can.DeleteAccessKey && button(`Delete key ${key.id}`, tried(() => iam('DeleteAccessKey', { UserName, AccessKeyId: key.id }), fill), { kind: 'quiet', symbol: 'trash', only: true }));
    return [keys && [h('h3', {}, 'Access keys'), none(keys.map(keyLine), 'No key: this user cannot sign in.')], can.CreateAccessKey && button('New key', newKey, { symbol: 'plus' }),
      groups && [h('h3', {}, 'Groups'), none(groups.map(({ name: GroupName }) => line(GroupName, h('span', { class: 'grow' }), leaves[GroupName] && button(`Leave ${GroupName}`, tried(() => iam('RemoveUserFromGroup', { UserName, GroupName }), fill), { kind: 'quiet', symbol: 'close', only: true }))), 'In no group.')],
      await rights('User', { UserName }, arn, fill)];
  },
  async groups({ name: GroupName, arn }, fill) {
    const [inside, users, can] = await Promise.all([listed(() => members(GroupName)), listed(() => LISTS.users()), allowed(arn, ['AddUserToGroup', 'RemoveUserFromGroup'])]);
    const others = (users ?? []).map((user) => user.name).filter((user) => !inside?.includes(user));
    const choice = h('select', { 'aria-label': 'User to add' }, others.map((user) => h('option', { value: user }, user)));
    return [inside && [h('h3', {}, 'Members'), none(inside.map((UserName) => line(UserName, h('span', { class: 'grow' }), can.RemoveUserFromGroup && button(`Remove ${UserName}`, tried(() => iam('RemoveUserFromGroup', { UserName, GroupName }), fill), { kind: 'quiet', symbol: 'close', only: true }))), 'Nobody yet.')],
      can.AddUserToGroup && others.length > 0 && h('div', { class: 'bar' }, choice, button('Add', tried(() => iam('AddUserToGroup', { UserName: choice.value, GroupName }), fill), { symbol: 'plus' })), await rights('Group', { GroupName }, arn, fill)];
  },
  async roles({ name: RoleName, arn, trust }, fill) {
    const can = await allowed(arn, ['UpdateAssumeRolePolicy']);
    const edit = trustEditor(indented(trust));
    const save = async () => { if (edit.look()) return; try { await iam('UpdateAssumeRolePolicy', { RoleName, PolicyDocument: edit.area.value }); toast('It is saved'); } catch (error) { fail(error); } };
    return [h('p', { class: 'hint mono' }, arn), h('h3', {}, 'Who may take the role'), edit.node, can.UpdateAssumeRolePolicy && button('Save', save, { kind: 'primary' }), await rights('Role', { RoleName }, arn, fill)];
  },
  async policies({ arn: PolicyArn, version }) {
    const [answer, can] = await Promise.all([iam('GetPolicyVersion', { PolicyArn, VersionId: version }), allowed(PolicyArn, ['CreatePolicyVersion'])]);
    const edit = editor(documentOf(answer, 'Document'), 'Policy', checkPolicy);
    const save = async () => {
      if (edit.look()) return;
      try { await iam('CreatePolicyVersion', { PolicyArn, PolicyDocument: edit.area.value, SetAsDefault: 'true' }); toast('The policy is saved'); } catch (error) { fail(error); }
    };
    return [h('p', { class: 'hint mono' }, PolicyArn), edit.node, can.CreatePolicyVersion && button('Save as new version', save, { kind: 'primary' })];
  },
};

const indented = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };
const documentOf = (answer, name) => indented(unescape(all(answer, name)[0]?.textContent ?? ''));

async function rights(kind, whose, arn, fill) {
  const [attached, inline, policies, can] = await Promise.all([
    listed(async () => (await every(`ListAttached${kind}Policies`, whose)).map((node) => ({ name: own(node, 'PolicyName'), arn: own(node, 'PolicyArn') }))),
    listed(async () => (await every(`List${kind}Policies`, whose)).map((node) => node.textContent)), listed(() => LISTS.policies()),
    allowed(arn, [`Attach${kind}Policy`, `Detach${kind}Policy`, `Get${kind}Policy`, `Put${kind}Policy`, `Delete${kind}Policy`])]);
  if (!attached && !inline) return null;
  const free = (policies ?? []).filter((policy) => !attached?.some((one) => one.arn === policy.arn));
  const choice = h('select', { 'aria-label': 'Policy to attach' }, free.map((policy) => h('option', { value: policy.arn }, policy.name)));
  const attaches = can[`Attach${kind}Policy`] && free.length > 0;
  return [h('h3', {}, 'Policies'), none([
    ...(attached ?? []).map((policy) => line(policy.name, h('span', { class: 'grow' }), can[`Detach${kind}Policy`] && button(`Detach ${policy.name}`, tried(() => iam(`Detach${kind}Policy`, { ...whose, PolicyArn: policy.arn }), fill), { kind: 'quiet', symbol: 'close', only: true }))),
    ...(inline ?? []).map((PolicyName) => line(PolicyName, h('span', { class: 'badge' }, 'own'), h('span', { class: 'grow' }), can[`Get${kind}Policy`] && can[`Put${kind}Policy`] && button('Edit', () => inlinePolicy(kind, whose, PolicyName, fill), { kind: 'small' }),
      can[`Delete${kind}Policy`] && button(`Delete policy ${PolicyName}`, tried(() => iam(`Delete${kind}Policy`, { ...whose, PolicyName }), fill), { kind: 'quiet', symbol: 'trash', only: true })))], 'No policy: no rights of its own.'),
  h('div', { class: 'bar' }, attaches && choice, attaches && button('Attach', tried(() => iam(`Attach${kind}Policy`, { ...whose, PolicyArn: choice.value }), fill), { symbol: 'plus' }),
    can[`Put${kind}Policy`] && button('Own policy', () => inlinePolicy(kind, whose, null, fill), { symbol: 'pencil' }))];
}

async function inlinePolicy(kind, whose, PolicyName, fill) {
  const text = PolicyName ? documentOf(await iam(`Get${kind}Policy`, { ...whose, PolicyName }), 'PolicyDocument') : JSON.stringify(EXAMPLE, null, 2);
  const name = h('input', { value: PolicyName ?? '', required: true, readOnly: Boolean(PolicyName), spellcheck: false });
  const edit = editor(text, 'Policy', checkPolicy);
  const done = await form(PolicyName ? `Policy ${PolicyName}` : 'Own policy', [field('Name', name), edit.node], 'Save', async () => {
    if (edit.look()) throw new Error(edit.look());
    await iam(`Put${kind}Policy`, { ...whose, PolicyName: name.value, PolicyDocument: edit.area.value });
  }, { wide: true });
  if (done) fill();
}

function showKey(id, secret) {
  const line_ = (label, value) => { const input = h('input', { value, readOnly: true, class: 'mono' }); return h('div', { class: 'bar' }, field(label, input), button(`Copy ${label.toLowerCase()}`, () => copy(value, input), { symbol: 'link', only: true })); };
  return dialog('The new key', (close) => h('div', {}, h('div', { class: 'body' }, h('p', {}, 'The secret is shown only now. Keep it safe.'), line_('Access key', id), line_('Secret key', secret)), h('footer', {}, button('Done', () => close(), { kind: 'primary' }))));
}
