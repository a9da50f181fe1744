// The settings of a bucket. What the key may not read is not there; what it may not change has no button.

import { accessList } from './acl.js';
import { adminJson, all, own, putDocument, s3, s3xml, xml } from './api.js';
import { add, button, h } from './dom.js';
import { ask, fail, toast } from './dialog.js';
import { checkPolicy, checkXml, editor, pretty } from './editor.js';
import { text as textField, whole } from './fields.js';
import { bytes, number } from './format.js';
import { FORMS, documentOf, formOf } from './forms.js';
import { pairs, tagging } from './object.js';
import { any, bucketOf, may, ofSettings } from './rights.js';
import { link } from './main.js';
import { remove } from './buckets.js';

const NOTHING = ['NoSuchBucketPolicy', 'NoSuchLifecycleConfiguration', 'NoSuchTagSet', 'NoSuchCORSConfiguration', 'ObjectLockConfigurationNotFoundError',
  'ServerSideEncryptionConfigurationNotFoundError', 'NoSuchWebsiteConfiguration', 'NoSuchPublicAccessBlockConfiguration', 'OwnershipControlsNotFoundError'];

async function read(bucket, name) {
  try { return await (await s3('GET', bucket, undefined, { [name]: true })).text(); } catch (error) { if (NOTHING.includes(error.code)) return ''; throw error; }
}

const save = (bucket, name, body, type) => putDocument(bucket, undefined, { [name]: true }, body, { type });

async function saved(work, what) {
  try { await work(); toast(`${what} saved`); return true; } catch (error) { fail(error); return false; }
}

// A part of the page, filled when it is there.
function part(title, hint, build) {
  const body = h('div', { class: 'body' }, h('p', { class: 'hint' }, 'Loading …'));
  const fill = async () => {
    try { const built = await build(fill); body.replaceChildren(); add(body, [built]); } catch (error) {
      body.replaceChildren(h('p', { class: 'hint', role: 'status' }, error.status === 403 ? 'This key may not read this setting.' : error.message));
    }
  };
  fill();
  const id = `part-${title.toLowerCase().replace(/[^a-z]+/g, '-')}`;
  return h('section', { class: 'card part', 'aria-labelledby': id }, h('header', {}, h('h2', { id }, title), h('p', { class: 'hint' }, hint)), body);
}

const only = (text) => (text ? h('pre', { class: 'shown', tabindex: 0 }, text) : h('p', { class: 'hint' }, 'Not set.'));

const VERSIONING = { Enabled: 'Keep versions', Suspended: 'Keep those that are there, make no more', Off: 'Never kept any' };

async function versioning(bucket, isWritable) {
  const answer = await s3xml('GET', bucket, undefined, { versioning: true });
  const now = own(answer, 'Status') || 'Off';
  if (!isWritable) return h('p', {}, VERSIONING[now]);
  return h('div', { role: 'radiogroup', 'aria-label': 'Versioning' }, Object.entries(VERSIONING).map(([value, label]) => h('label', { class: 'check' }, h('input', { type: 'radio', name: 'versioning', value, checked: now === value, disabled: value === 'Off' && now !== 'Off',
    onchange: (event) => { if (event.target.checked) saved(() => save(bucket, 'versioning', `<VersioningConfiguration><Status>${value}</Status></VersioningConfiguration>`), 'Versioning'); } }), label)));
}

async function quota(bucket, isWritable, fill) {
  const found = (await adminJson('GET', 'buckets')).buckets.find((one) => one.bucket === bucket);
  if (!found) throw new Error('The server does not list this bucket.');
  const used = h('p', {}, `${number(found.objects)} objects, ${bytes(found.bytes)} now.`);
  const most = [found.objects_max && `${number(found.objects_max)} objects`, found.bytes_max && bytes(found.bytes_max)].filter(Boolean).join(', ');
  if (!isWritable) return [used, h('p', {}, most ? `At most ${most}.` : 'No limit.')];
  const gib = 1024 ** 3;
  const size = textField('At most GiB', found.bytes_max ? String(found.bytes_max / gib) : '', { type: 'number', min: 0, step: 'any', hint: 'Empty: no limit.' });
  const objects = whole('At most objects', found.objects_max ?? '', { min: 0, hint: 'Empty: no limit.' });
  const run = async () => {
    const wish = { bucket, bytes_max: size.get() === '' ? null : Math.round(Number(size.get()) * gib), objects_max: objects.get() === '' ? null : Number(objects.get()) };
    if (await saved(() => adminJson('POST', 'quota', wish), 'The quota is')) fill();
  };
  return [used, h('div', { class: 'pair' }, size.node, objects.node), button('Save quota', run, { kind: 'primary' })];
}

async function tags(bucket, isWritable) {
  const text = await read(bucket, 'tagging');
  const found = text ? all(xml(text), 'Tag').map((tag) => [own(tag, 'Key'), own(tag, 'Value')]) : [];
  if (!isWritable) return only(found.map(([name, value]) => `${name} = ${value}`).join('\n'));
  const edit = pairs(found, 'Tags of the bucket');
  const run = () => saved(() => (edit.values().length ? save(bucket, 'tagging', tagging(edit.values())) : s3('DELETE', bucket, undefined, { tagging: true })), 'Tags');
  return [edit.node, h('p', {}, button('Save tags', run, { kind: 'primary' }))];
}

async function policy(bucket, isWritable, fill) {
  const text = await read(bucket, 'policy');
  const shown = text ? JSON.stringify(JSON.parse(text), null, 2) : '';
  if (!isWritable) return only(shown);
  const edit = editor(shown, 'Policy of the bucket', checkPolicy);
  const example = (Sid, Action, Resource) => JSON.stringify({ Version: '2012-10-17', Statement: [{ Sid, Effect: 'Allow', Principal: '*', Action, Resource }] }, null, 2);
  const put = (value) => { edit.area.value = value; edit.look(); edit.area.focus(); };
  const run = async () => {
    if (edit.look()) { edit.area.focus(); return; }
    if (!edit.area.value.trim()) return;
    if (await saved(() => save(bucket, 'policy', edit.area.value, 'application/json'), 'The policy is')) fill();
  };
  const drop = async () => { if (await ask('Remove the policy?', 'Then only rights of users, groups and keys count.', 'Remove', 'danger') && await saved(() => s3('DELETE', bucket, undefined, { policy: true }), 'The change is')) fill(); };
  return [edit.node, h('div', { class: 'bar' }, button('Save policy', run, { kind: 'primary' }), text && button('Remove', drop),
    button('Example: everybody reads', () => put(example('PublicRead', ['s3:GetObject'], `arn:aws:s3:::${bucket}/*`)), { kind: 'quiet' }))];
}

// A setting that S3 keeps as XML: a form, or the document itself.
async function documentPart(bucket, spec, isWritable, fill) {
  const stored = await read(bucket, spec.name);
  const isSet = Boolean(stored) && xml(stored).documentElement.children.length > 0;
  if (!isWritable) return only(isSet ? pretty(stored) : '');
  const place = h('div', {});
  const send = async (document) => {
    const isEmpty = xml(document).documentElement.children.length === 0;
    await (isEmpty && spec.removable ? s3('DELETE', bucket, undefined, { [spec.name]: true }) : save(bucket, spec.name, document));
  };
  const keep = (make) => async () => {
    // What is typed while it is saved would be lost when it is read again.
    place.inert = true;
    if (await saved(async () => send(make()), `${spec.title}:`)) await fill();
    place.inert = false;
  };
  const clear = isSet && spec.removable && button('Remove', async () => { if (await saved(() => s3('DELETE', bucket, undefined, { [spec.name]: true }), 'The change is')) fill(); });
  const show = (...parts) => { place.replaceChildren(); add(place, parts); };
  const asForm = (document) => {
    const form = formOf(spec, document);
    if (!form) { asXml(document, 'This has more than the form can show, so it is edited as XML.'); return; }
    show(form.node, h('div', { class: 'bar' }, button('Save', keep(() => documentOf(spec, form)), { kind: 'primary' }), clear,
      button('Edit as XML', () => { try { asXml(documentOf(spec, form)); } catch (error) { fail(error); } }, { kind: 'quiet' })));
  };
  const asXml = (document, note) => {
    const edit = editor(document ? pretty(document) : `<${spec.root}>\n</${spec.root}>`, `${spec.title}, as XML`, checkXml);
    edit.area.rows = 9;
    const good = (work) => () => { if (edit.look() || !edit.area.value.trim()) edit.area.focus(); else work(); };
    show(note && h('p', { class: 'hint' }, note), edit.node, h('div', { class: 'bar' }, button('Save', good(keep(() => edit.area.value)), { kind: 'primary' }), clear,
      button('Use the form', good(() => asForm(edit.area.value)), { kind: 'quiet' })));
  };
  asForm(isSet ? stored : '');
  return place;
}

export async function settings(_, bucket) {
  await s3('HEAD', bucket).catch((error) => { if (error.status === 404) throw new Error(`There is no bucket ${bucket}.`); });
  const [rights, { deletes }] = await Promise.all([ofSettings(bucket), may({ deletes: bucketOf('s3:DeleteBucket', bucket) })]);
  const own_ = (title, name, hint, build) => rights.read[name] && part(title, hint, (fill) => build(bucket, rights.write[name], fill));
  const node = h('div', { class: 'page' },
    h('div', { class: 'bar' }, h('h1', {}, 'Settings of ', h('a', { href: link('browse', bucket) }, bucket)), h('span', { class: 'grow' }), deletes && button('Delete bucket', () => remove(bucket), { kind: 'danger', symbol: 'trash' })),
    any(rights.read) ? h('div', { class: 'parts' },
      own_('Versioning', 'versioning', 'Whether overwritten and deleted objects can be restored.', versioning),
      own_('Quota', 'quota', 'How much the bucket may hold. A mount and S3 refuse what goes beyond.', quota),
      own_('Tags', 'tagging', 'Names and values of the bucket.', tags),
      own_('Policy', 'policy', 'Who may do what with the bucket and its objects.', policy),
      own_('Access list', 'acl', 'To whom the bucket is open beside what policies say. Policies are the usual way.', (name, isWritable, fill) => accessList(name, { isWritable }, fill)),
      FORMS.map((spec) => own_(spec.title, spec.name, spec.hint, (name, isWritable, fill) => documentPart(name, spec, isWritable, fill))))
      : h('p', { class: 'hint' }, 'This key may not read the settings of this bucket.'));
  return { title: `Settings of ${bucket}`, node };
}
