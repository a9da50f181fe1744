// What the pages of identities share: lists of the server's IAM service over all their pages, and lines with buttons.

import { all, iam, own, unescape } from './api.js';
import { h } from './dom.js';
import { fail } from './dialog.js';
import { checkPolicy, editor } from './editor.js';
import { may } from './rights.js';

export const EXAMPLE = { Version: '2012-10-17', Statement: [{ Effect: 'Allow', Action: ['s3:GetObject', 's3:ListBucket'], Resource: ['arn:aws:s3:::BUCKET', 'arn:aws:s3:::BUCKET/*'] }] };

// All members of a list, over its pages; what a member holds itself, such as its tags, is none.
export async function every(action, fields, name = 'member') {
  const found = [];
  let marker;
  do {
    const answer = await iam(action, { ...fields, ...(marker ? { Marker: marker } : {}) });
    const list = answer.documentElement.children[0];
    found.push(...all(list, name).filter((node) => node.parentNode.parentNode.localName !== name));
    marker = own(list, 'IsTruncated') === 'true' ? own(list, 'Marker') : '';
  } while (marker);
  return found;
}

export const LISTS = {
  users: async () => (await every('ListUsers', {})).map((node) => ({ name: own(node, 'UserName'), made: own(node, 'CreateDate'), arn: own(node, 'Arn'), path: own(node, 'Path') })),
  groups: async () => (await every('ListGroups', {})).map((node) => ({ name: own(node, 'GroupName'), made: own(node, 'CreateDate'), arn: own(node, 'Arn'), path: own(node, 'Path') })),
  roles: async () => (await every('ListRoles', {})).map((node) => ({ name: own(node, 'RoleName'), made: own(node, 'CreateDate'), arn: own(node, 'Arn'), path: own(node, 'Path'), trust: unescape(own(node, 'AssumeRolePolicyDocument')) })),
  policies: async () => (await every('ListPolicies', { Scope: 'Local' })).map((node) => ({ name: own(node, 'PolicyName'), made: own(node, 'UpdateDate') || own(node, 'CreateDate'), arn: own(node, 'Arn'), version: own(node, 'DefaultVersionId') })),
};

export const members = async (GroupName) => (await every('GetGroup', { GroupName })).map((node) => own(node, 'UserName')).filter(Boolean);

export const tried = (work, fill) => async () => { try { await work(); fill(); } catch (error) { fail(error); } };
export const line = (...parts) => h('li', { class: 'line' }, parts);
export const none = (list, text) => (list.length ? h('ul', { class: 'lines' }, list) : h('p', { class: 'hint' }, text));

// A list that the key may not read is left out.
export const listed = async (work) => { try { return await work(); } catch (error) { if (error.status === 403) return null; throw error; } };
// What of these actions of IAM the key may do with an entity.
export const allowed = (arn, actions) => may(Object.fromEntries(actions.map((action) => [action, [`iam:${action}`, arn]])));

// A field of the service that has several values.
export const numbered = (name, values) => Object.fromEntries(values.map((value, index) => [`${name}.member.${index + 1}`, value]));

export const indented = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };
export const documentOf = (answer, name) => indented(unescape(all(answer, name)[0]?.textContent ?? ''));

export const trustEditor = (text) => editor(text, 'Who may take the role', (document) => checkPolicy(document, { resource: false }));
