// The buckets: list, make, remove.

import { adminJson, all, own, s3, s3xml } from './api.js';
import { button, field, h, icon } from './dom.js';
import { ask, fail, form, toast } from './dialog.js';
import { bytes, date, number } from './format.js';
import { bucketOf, may } from './rights.js';
import { go, link, refresh } from './main.js';
import { emptyBucket } from './bulk.js';

export async function buckets({ rights }) {
  const [answer, usage] = await Promise.all([s3xml('GET').catch((error) => { if (error.status === 403) return null; throw error; }), rights.usage ? adminJson('GET', 'buckets').catch(() => null) : null]);
  const uses = new Map((usage?.buckets ?? []).map((one) => [one.bucket, one]));
  const found = answer ? all(answer, 'Bucket').map((node) => ({ name: own(node, 'Name'), made: own(node, 'CreationDate'), use: uses.get(own(node, 'Name')) })) : [];
  const deletes = await may(Object.fromEntries([['', ['s3:CreateBucket', 'arn:aws:s3:::a-new-bucket']], ...found.map(({ name }) => [name, bucketOf('s3:DeleteBucket', name)])]));
  const list = h('tbody', {}, found.map((one) => row(one, Boolean(usage), deletes[one.name])));
  const heads = usage ? ['Name', 'Objects', 'Size', 'Made', ''] : ['Name', 'Made', ''];
  const filter = h('input', { type: 'search', placeholder: 'Find a bucket', 'aria-label': 'Find a bucket',
    oninput: () => { for (const line of list.children) line.hidden = !line.dataset.name.includes(filter.value.trim().toLowerCase()); } });
  const node = h('div', { class: 'page' },
    h('div', { class: 'bar' }, h('h1', {}, 'Buckets'), h('span', { class: 'count' }, found.length), h('span', { class: 'grow' }),
      found.length > 8 && filter, deletes[''] && button('New bucket', create, { kind: 'primary', symbol: 'plus' })),
    found.length === 0
      ? h('div', { class: 'empty' }, icon('bucket'), h('p', {}, answer ? 'There is no bucket yet that this key may see.' : 'This key may not list the buckets.'), openByName())
      : h('div', { class: 'card table' }, h('table', {}, h('thead', {}, h('tr', {}, heads.map((text) => (text ? h('th', { scope: 'col', class: ['Objects', 'Size'].includes(text) ? 'right' : '' }, text) : h('td', {}))))), list)));
  return { title: 'Buckets', node };
}

// Who may not list the buckets may still use one that he knows.
function openByName() {
  const name = h('input', { 'aria-label': 'Name of a bucket', placeholder: 'name of a bucket', spellcheck: false, required: true });
  return h('form', { class: 'bar center', onsubmit: (event) => { event.preventDefault(); go('browse', name.value.trim()); } }, name, h('button', { type: 'submit', class: 'button' }, 'Open'));
}

const full = (used, most, show) => (most ? `${show(used)} of ${show(most)}` : show(used));

function row(bucket, hasUse, isDeletable) {
  const { use } = bucket;
  return h('tr', { 'data-name': bucket.name },
    h('td', { class: 'strong' }, icon('bucket'), h('a', { href: link('browse', bucket.name) }, bucket.name)),
    hasUse && h('td', { class: 'hint right' }, use ? full(use.objects, use.objects_max, number) : '–'), hasUse && h('td', { class: 'hint right' }, use ? full(use.bytes, use.bytes_max, bytes) : '–'),
    h('td', { class: 'hint' }, date(bucket.made)),
    h('td', { class: 'actions' },
      h('a', { class: 'button quiet only', href: link('settings', bucket.name), 'aria-label': `Settings of ${bucket.name}`, title: 'Settings' }, icon('gear')),
      isDeletable && button(`Delete ${bucket.name}`, () => remove(bucket.name), { kind: 'quiet', symbol: 'trash', only: true })));
}

function create() {
  const name = h('input', { name: 'name', required: true, autofocus: true, minLength: 3, maxLength: 63, pattern: '[a-z0-9][a-z0-9.\\-]*[a-z0-9]', spellcheck: false, autocapitalize: 'off' });
  const check = (label, id) => h('label', { class: 'check' }, h('input', { type: 'checkbox', name: id }), label);
  return form('New bucket', [field('Name', name, 'Lower-case letters, digits, dots and hyphens.'),
    check('Keep versions of objects', 'versioning'), check('Object lock (keeps versions too; cannot be turned off)', 'lock')], 'Make bucket', async (data) => {
    const bucket = data.get('name');
    await s3('PUT', bucket, undefined, {}, { headers: data.get('lock') ? { 'x-amz-bucket-object-lock-enabled': 'true' } : {} });
    if (data.get('versioning') && !data.get('lock')) {
      const body = '<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>';
      await s3('PUT', bucket, undefined, { versioning: true }, { body, headers: { 'content-type': 'application/xml' } });
    }
    go('browse', bucket);
  });
}

export async function remove(bucket) {
  const yes = await ask(`Delete ${bucket}?`, 'Only an empty bucket is deleted.', 'Delete bucket', 'danger');
  if (!yes) return;
  try {
    await s3('DELETE', bucket);
  } catch (error) {
    if (error.code !== 'BucketNotEmpty') { fail(error); return; }
    if (!(await emptyBucket(bucket))) return;
    try { await s3('DELETE', bucket); } catch (again) { fail(again); return; }
  }
  toast(`${bucket} is deleted`);
  if (location.hash.replace(/^#\/?/, '') === '') refresh(); else go('');
}
