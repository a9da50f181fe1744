// Users, groups, roles, policies and identity providers: the server's IAM service, with the rights of the key.

import { iam, own } from './api.js';
import { add, button, field, h, icon } from './dom.js';
import { ask, dialog, fail, form, toast } from './dialog.js';
import { date } from './format.js';
import { checkPolicy, editor } from './editor.js';
import { more, text } from './fields.js';
import { EXAMPLE, LISTS, every, members, trustEditor } from './iam.js';
import { IDENTITIES } from './identity.js';
import { link, refresh } from './main.js';
import { policy } from './policy.js';
import { providers } from './providers.js';
import { iamOf, may } from './rights.js';

const KINDS = { users: 'Users', groups: 'Groups', roles: 'Roles', policies: 'Policies', providers: 'Providers', simulator: 'Who may do what' };
const NEEDS = { users: 'users', groups: 'groups', roles: 'roles', policies: 'policies', providers: 'providers', simulator: 'simulate' };
const WORDS = { users: 'User', groups: 'Group', roles: 'Role', policies: 'Policy' };
const PAGES = { ...IDENTITIES, policies: policy };
const TRUST = { Version: '2012-10-17', Statement: [{ Effect: 'Allow', Principal: { AWS: 'arn:aws:iam::000000000000:user/NAME' }, Action: 'sts:AssumeRole' }] };

export async function people({ rights }, wanted, name) {
  const seen = Object.keys(KINDS).filter((one) => rights[NEEDS[one]]);
  const kind = seen.includes(wanted) ? wanted : seen[0];
  const page = (body, action) => ({ title: 'Access', node: h('div', { class: 'page' }, h('div', { class: 'bar' }, h('h1', {}, 'Access'), h('span', { class: 'grow' }), action),
    seen.length > 0 && h('nav', { class: 'tabs', 'aria-label': 'Kinds' }, seen.map((one) => h('a', { href: link('people', one), 'aria-current': one === kind ? 'page' : null }, KINDS[one]))), body) });
  if (!kind) return page(h('div', { class: 'empty' }, icon('people'), h('p', {}, 'This key may not see users, groups, roles, policies or providers.')));
  if (kind === 'simulator') return page(await (await import('./simulator.js')).simulator(LISTS, name));
  if (kind === 'providers') { const { node, action } = await providers(); return page(node, action); }
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
  const path = text('Path', '', { placeholder: '/', hint: 'Groups names in ARNs, so that a policy can mean all of them. It begins and ends with a slash: /desks/.' });
  const done = await form(label, [field('Name', name), kind === 'roles' && h('p', { class: 'hint' }, 'Who may take the role:'), edit?.node, more('More', path.node)], 'Make', async () => {
    if (edit?.look()) throw new Error(edit.look());
    const at = path.get() ? { Path: path.get() } : {};
    if (kind === 'users') await iam('CreateUser', { UserName: name.value, ...at });
    else if (kind === 'groups') await iam('CreateGroup', { GroupName: name.value, ...at });
    else if (kind === 'roles') await iam('CreateRole', { RoleName: name.value, AssumeRolePolicyDocument: edit.area.value, ...at });
    else await iam('CreatePolicy', { PolicyName: name.value, PolicyDocument: edit.area.value, ...at });
  }, { wide: Boolean(edit) });
  if (done) refresh();
}

async function remove(kind, one) {
  if (!(await ask(`Delete ${one.name}?`, kind === 'users' ? 'Its keys stop working at once.' : 'It cannot be restored.', 'Delete', 'danger'))) return;
  try {
    if (kind === 'users') await removeUser(one.name);
    else if (kind === 'groups') await removeGroup(one.name);
    else if (kind === 'roles') await removeRole(one.name);
    else await removePolicy(one.arn);
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

async function removePolicy(PolicyArn) {
  for (const version of await every('ListPolicyVersions', { PolicyArn })) {
    if (own(version, 'IsDefaultVersion') !== 'true') await iam('DeletePolicyVersion', { PolicyArn, VersionId: own(version, 'VersionId') });
  }
  await iam('DeletePolicy', { PolicyArn });
}

function open(kind, one) {
  return dialog(one.name, (close) => {
    const body = h('div', { class: 'body' });
    const fill = async () => { try { const built = await PAGES[kind](one, fill, close); body.replaceChildren(); add(body, [built]); } catch (error) { body.replaceChildren(h('p', { class: 'error', role: 'alert' }, error.message)); } };
    fill();
    return body;
  }, { wide: true });
}
