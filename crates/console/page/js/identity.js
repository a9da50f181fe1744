// What a user, a group or a role has: its name and path, its tags, its keys, members and rights.

import { all, iam, own } from './api.js';
import { button, field, h } from './dom.js';
import { copy, dialog, fail, form, toast } from './dialog.js';
import { checkPolicy, editor } from './editor.js';
import { text } from './fields.js';
import { EXAMPLE, LISTS, allowed, documentOf, every, indented, line, listed, members, none, numbered, tried, trustEditor } from './iam.js';
import { refresh } from './main.js';
import { pairs } from './object.js';
import { may } from './rights.js';

export const IDENTITIES = {
  async users(one, fill, close) {
    const { name: UserName, arn } = one;
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
    return [await facts('User', one, close), keys && [h('h3', {}, 'Access keys'), none(keys.map(keyLine), 'No key: this user cannot sign in.')], can.CreateAccessKey && button('New key', newKey, { symbol: 'plus' }),
      groups && [h('h3', {}, 'Groups'), none(groups.map(({ name: GroupName }) => line(GroupName, h('span', { class: 'grow' }), leaves[GroupName] && button(`Leave ${GroupName}`, tried(() => iam('RemoveUserFromGroup', { UserName, GroupName }), fill), { kind: 'quiet', symbol: 'close', only: true }))), 'In no group.')],
      await rights('User', { UserName }, arn, fill), await tags('User', { UserName }, arn)];
  },
  async groups(one, fill, close) {
    const { name: GroupName, arn } = one;
    const [inside, users, can] = await Promise.all([listed(() => members(GroupName)), listed(() => LISTS.users()), allowed(arn, ['AddUserToGroup', 'RemoveUserFromGroup'])]);
    const others = (users ?? []).map((user) => user.name).filter((user) => !inside?.includes(user));
    const choice = h('select', { 'aria-label': 'User to add' }, others.map((user) => h('option', { value: user }, user)));
    return [await facts('Group', one, close), inside && [h('h3', {}, 'Members'), none(inside.map((UserName) => line(UserName, h('span', { class: 'grow' }), can.RemoveUserFromGroup && button(`Remove ${UserName}`, tried(() => iam('RemoveUserFromGroup', { UserName, GroupName }), fill), { kind: 'quiet', symbol: 'close', only: true }))), 'Nobody yet.')],
      can.AddUserToGroup && others.length > 0 && h('div', { class: 'bar' }, choice, button('Add', tried(() => iam('AddUserToGroup', { UserName: choice.value, GroupName }), fill), { symbol: 'plus' })), await rights('Group', { GroupName }, arn, fill)];
  },
  async roles(one, fill) {
    const { name: RoleName, arn, trust } = one;
    const can = await allowed(arn, ['UpdateAssumeRolePolicy']);
    const edit = trustEditor(indented(trust));
    const save = async () => { if (edit.look()) return; try { await iam('UpdateAssumeRolePolicy', { RoleName, PolicyDocument: edit.area.value }); toast('It is saved'); } catch (error) { fail(error); } };
    return [await facts('Role', one), h('h3', {}, 'Who may take the role'), edit.node, can.UpdateAssumeRolePolicy && button('Save', save, { kind: 'primary' }), await rights('Role', { RoleName }, arn, fill), await tags('Role', { RoleName }, arn)];
  },
};

// The ARN with its path; the service renames users and groups, but no roles.
async function facts(kind, { name, arn, path }, close) {
  const renames = kind !== 'Role' && (await allowed(arn, [`Update${kind}`]))[`Update${kind}`];
  return [h('dl', {}, h('dt', {}, 'ARN'), h('dd', { class: 'mono' }, arn), h('dt', {}, 'Path'), h('dd', { class: 'mono' }, path)),
    renames && button('Rename', async () => { if (await rename(kind, { name, path })) { close(); refresh(); } }, { symbol: 'pencil' })];
}

function rename(kind, { name, path }) {
  const to = text('New name', name, { required: true, autofocus: true });
  const at = text('Path', path, { required: true, hint: 'It begins and ends with a slash.' });
  return form(`Rename ${name}`, [h('p', {}, 'The ARN changes with it: policies of buckets and roles that name the old one do not mean the new one.'), to.node, at.node], 'Rename', () =>
    iam(`Update${kind}`, { [`${kind}Name`]: name, ...(to.get() === name ? {} : { [`New${kind}Name`]: to.get() }), ...(at.get() === path ? {} : { NewPath: at.get() }) }).then(() => true));
}

// The tags, which policies see as aws:PrincipalTag. Only what has changed is sent.
async function tags(kind, whose, arn) {
  const [found, can] = await Promise.all([listed(async () => (await every(`List${kind}Tags`, whose)).map((node) => [own(node, 'Key'), own(node, 'Value')])), allowed(arn, [`Tag${kind}`, `Untag${kind}`])]);
  if (!found) return null;
  const title = h('h3', {}, 'Tags');
  if (!can[`Tag${kind}`] || !can[`Untag${kind}`]) return [title, none(found.map(([key, value]) => line(h('span', { class: 'mono' }, `${key} = ${value}`))), 'No tags.')];
  let stored = new Map(found);
  const edit = pairs(found, 'Tags');
  const save = async () => {
    const wanted = new Map(edit.values());
    const gone = [...stored.keys()].filter((key) => !wanted.has(key));
    const set = [...wanted].filter(([key, value]) => stored.get(key) !== value);
    try {
      if (wanted.size < edit.values().length) throw new Error('A tag is given twice.');
      if (gone.length > 0) await iam(`Untag${kind}`, { ...whose, ...numbered('TagKeys', gone) });
      if (set.length > 0) await iam(`Tag${kind}`, { ...whose, ...Object.fromEntries(set.flatMap(([key, value], index) => [[`Tags.member.${index + 1}.Key`, key], [`Tags.member.${index + 1}.Value`, value]])) });
      stored = wanted;
      toast('Tags are saved');
    } catch (error) { fail(error); }
  };
  return [title, h('p', { class: 'hint' }, 'Policies see them as aws:PrincipalTag/NAME.'), edit.node, h('p', {}, button('Save tags', save, { kind: 'primary' }))];
}

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
