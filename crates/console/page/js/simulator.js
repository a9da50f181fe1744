// "May ann GetObject photos/cat.jpg: why not?", answered by the server's own decision.

import { adminJson, all, own, s3xml } from './api.js';
import { h } from './dom.js';
import { check, more, select, text } from './fields.js';
import { visible } from './format.js';

const OBJECT = ['GetObject', 'PutObject', 'DeleteObject', 'GetObjectVersion', 'DeleteObjectVersion', 'GetObjectTagging', 'PutObjectTagging', 'GetObjectAcl', 'PutObjectAcl',
  'GetObjectRetention', 'PutObjectRetention', 'PutObjectLegalHold', 'BypassGovernanceRetention', 'AbortMultipartUpload', 'ListMultipartUploadParts'];
const BUCKET = ['ListBucket', 'ListBucketVersions', 'ListBucketMultipartUploads', 'CreateBucket', 'DeleteBucket', 'GetBucketPolicy', 'PutBucketPolicy', 'DeleteBucketPolicy', 'GetBucketVersioning', 'PutBucketVersioning',
  'GetLifecycleConfiguration', 'PutLifecycleConfiguration', 'GetBucketCORS', 'PutBucketCORS', 'GetBucketNotification', 'PutBucketNotification', 'GetEncryptionConfiguration', 'PutEncryptionConfiguration',
  'GetBucketTagging', 'PutBucketTagging', 'GetBucketAcl', 'PutBucketAcl', 'GetBucketObjectLockConfiguration', 'PutBucketObjectLockConfiguration', 'GetBucketPublicAccessBlock', 'PutBucketPublicAccessBlock'];
const named = (names) => names.map((name) => `s3:${name}`);

// What this page remembers of the last question while other pages are shown.
const last = { who: '', action: 's3:GetObject', resource: '' };

function verdict({ action, resource, allowed, because }) {
  return h('li', { class: 'line verdict' }, h('span', { class: `badge ${allowed ? 'yes' : 'no'}` }, allowed ? 'allowed' : 'denied'),
    h('span', {}, h('span', { class: 'strong' }, action), ' ', h('span', { class: 'mono' }, visible(resource)), h('span', { class: 'hint block' }, visible(because))));
}

const suggestions = (id, values) => h('datalist', { id }, values.map((value) => h('option', { value })));
const withList = (input, id) => { input.setAttribute('list', id); return input; };

export async function simulator(lists, asked) {
  if (asked) last.who = asked;
  const names = async (work) => { try { return await work(); } catch { return []; } };
  const [users, roles, buckets] = await Promise.all([names(async () => (await lists.users()).map((one) => one.name)), names(async () => (await lists.roles()).map((one) => `role/${one.name}`)),
    names(async () => all(await s3xml('GET'), 'Bucket').map((node) => own(node, 'Name')))]);
  const who = text('Who', last.who, { placeholder: 'ann', hint: 'A user, role/NAME, an ARN or an access key; * is whoever does not sign.', required: true });
  const action = text('Does what', last.action, { placeholder: 's3:GetObject', hint: 'As policies name it: s3:…, iam:… or admin:….' });
  const resource = text('With what', last.resource, { placeholder: 'photos/cat.jpg', hint: 'A bucket, a bucket and a key, or an ARN.', required: true });
  withList(who.input, 'simulator-who');
  withList(action.input, 'simulator-actions');
  withList(resource.input, 'simulator-buckets');
  const address = text('From the address', '', { placeholder: '192.0.2.7', hint: 'Empty: this machine of the server.' });
  const secure = select('Over TLS', [['', 'as the server has it'], ['true', 'yes'], ['false', 'no']], '');
  const prefix = text('Prefix of the listing', '', { hint: 'For s3:ListBucket with a condition on s3:prefix.' });
  const every = check('All usual actions at once', false);
  const result = h('div', { 'aria-live': 'polite' });
  const run = async (event) => {
    event.preventDefault();
    Object.assign(last, { who: who.get(), action: action.get(), resource: resource.input.value });
    const hasKey = last.resource.replace(/^arn:aws:s3:::/, '').includes('/');
    const actions = every.get() ? named(hasKey ? OBJECT : BUCKET) : [last.action];
    const wish = { who: last.who, questions: actions.map((name) => ({ action: name, resource: last.resource })),
      ...(address.get() ? { source_ip: address.get() } : {}), ...(secure.get() ? { secure: secure.get() === 'true' } : {}), ...(prefix.get() ? { prefix: prefix.get() } : {}) };
    try {
      const answer = await adminJson('POST', 'simulate', wish);
      result.replaceChildren(h('p', { class: 'hint' }, 'Asked for ', h('span', { class: 'mono' }, visible(answer.who === '*' ? 'whoever does not sign' : answer.who))), h('ul', { class: 'lines' }, answer.verdicts.map(verdict)));
    } catch (error) { result.replaceChildren(h('p', { class: 'error', role: 'alert' }, error.message)); }
  };
  return h('div', { class: 'card' }, h('header', {}, h('h2', {}, 'Who may do what'), h('p', { class: 'hint' }, 'Nothing is done. The server decides as for a request: policies of the user and its groups, of the bucket, access lists, the public access block.')),
    h('div', { class: 'body' }, h('form', { class: 'simulator', onsubmit: run }, h('div', { class: 'grid3' }, who.node, action.node, resource.node), every.node,
      more('Circumstances', address.node, secure.node, prefix.node), h('p', {}, h('button', { type: 'submit', class: 'button primary' }, 'Ask'))), result),
    suggestions('simulator-who', ['*', ...users, ...roles]), suggestions('simulator-actions', [...named([...OBJECT, ...BUCKET]), 's3:ListAllMyBuckets', 'admin:Status', 'iam:ListUsers']), suggestions('simulator-buckets', buckets));
}
