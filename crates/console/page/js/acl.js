// The access list of a bucket or an object: who owns it, and to whom it is open beside what policies say.

import { all, children, escapeXml, own, putDocument, s3, s3xml } from './api.js';
import { button, h } from './dom.js';
import { ask, fail, toast } from './dialog.js';
import { select, text } from './fields.js';
import { line, none } from './iam.js';

const GROUPS = 'http://acs.amazonaws.com/groups/';
const [EVERYBODY, SIGNED_IN, LOGS] = [`${GROUPS}global/AllUsers`, `${GROUPS}global/AuthenticatedUsers`, `${GROUPS}s3/LogDelivery`];
const WHO = { [EVERYBODY]: 'Everybody, also without a key', [SIGNED_IN]: 'Everybody with a key of this server', [LOGS]: 'Log delivery' };
const WHAT = {
  bucket: { READ: 'list its objects', WRITE: 'write and delete its objects', READ_ACP: 'read this list', WRITE_ACP: 'change this list', FULL_CONTROL: 'all of it' },
  object: { READ: 'read it', READ_ACP: 'read this list', WRITE_ACP: 'change this list', FULL_CONTROL: 'all of it' },
};
const CANNED = {
  private: 'private: nobody but the owner', 'public-read': 'public-read: everybody reads', 'public-read-write': 'public-read-write: everybody reads and writes',
  'authenticated-read': 'authenticated-read: everybody with a key reads', 'bucket-owner-read': 'bucket-owner-read: and the owner of the bucket reads', 'bucket-owner-full-control': 'bucket-owner-full-control: and the owner of the bucket does all',
};
const OF_BUCKET = ['private', 'public-read', 'public-read-write', 'authenticated-read'];
const OPEN = ['public-read', 'public-read-write', 'authenticated-read'];

function parsed(document) {
  const owner = children(document, 'Owner')[0];
  const grants = all(document, 'Grant').map((grant) => {
    const grantee = children(grant, 'Grantee')[0];
    return { id: own(grantee, 'ID'), name: own(grantee, 'DisplayName'), uri: own(grantee, 'URI'), permission: own(grant, 'Permission') };
  });
  return { owner: { id: own(owner, 'ID'), name: own(owner, 'DisplayName') }, grants };
}

function written({ owner, grants }) {
  const grantee = ({ id, uri }) => `<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="${uri ? 'Group' : 'CanonicalUser'}">${uri ? `<URI>${escapeXml(uri)}</URI>` : `<ID>${escapeXml(id)}</ID>`}</Grantee>`;
  return `<AccessControlPolicy><Owner><ID>${escapeXml(owner.id)}</ID></Owner><AccessControlList>${grants.map((grant) => `<Grant>${grantee(grant)}<Permission>${escapeXml(grant.permission)}</Permission></Grant>`).join('')}</AccessControlList></AccessControlPolicy>`;
}

const isSame = (left, right) => left.id === right.id && left.uri === right.uri && left.permission === right.permission;
const shown = ({ id, name, uri }) => (uri ? WHO[uri] ?? uri : name && name !== id ? `${name} (${id})` : id);

// What makes the list count less than it says; nothing where the key may not read it.
async function limits(bucket) {
  const read = (setting) => s3xml('GET', bucket, undefined, { [setting]: true }).catch(() => null);
  const [ownership, block] = await Promise.all([read('ownershipControls'), read('publicAccessBlock')]);
  const is = (name) => Boolean(block) && all(block, name)[0]?.textContent === 'true';
  return { isOff: Boolean(ownership) && all(ownership, 'ObjectOwnership')[0]?.textContent === 'BucketOwnerEnforced', ignoresPublic: is('IgnorePublicAcls'), refusesPublic: is('BlockPublicAcls') };
}

// `version` is that of an object; without a key it is the list of the bucket.
export async function accessList(bucket, { key, version, isWritable }, fill) {
  const query = { acl: true, versionId: version };
  const kind = key === undefined ? 'bucket' : 'object';
  const read = async () => parsed(await s3xml('GET', bucket, key, query));
  const [list, { isOff, ignoresPublic, refusesPublic }] = await Promise.all([read(), limits(bucket)]);
  const tried = async (work) => {
    try { await work(); toast('The access list is saved'); fill(); } catch (error) { fail(error.message === 'Invalid id' ? new Error('There is no account with this canonical id.') : error); }
  };
  // Read again before it is written: somebody may have changed it since it was shown.
  const change = (edit) => tried(async () => { const now = await read(); await putDocument(bucket, key, query, written({ ...now, grants: edit(now.grants) })); });
  const can = isWritable && !isOff;
  const grants = none(list.grants.map((grant) => line(h('span', {}, h('span', { class: 'strong' }, shown(grant)), h('span', { class: 'hint block' }, `${WHAT[kind][grant.permission] ?? 'nothing here'} (${grant.permission})`)), h('span', { class: 'grow' }),
    can && button(`Remove ${shown(grant)} ${grant.permission}`, () => change((now) => now.filter((one) => !isSame(one, grant))), { kind: 'quiet', symbol: 'close', only: true }))), 'Nobody beside the owner.');
  return [isOff && h('p', { class: 'strong' }, 'Access lists have no effect in this bucket: its ownership is BucketOwnerEnforced, so only policies count.'),
    !isOff && ignoresPublic && h('p', { class: 'strong' }, 'The public access block of the bucket ignores what is open to everybody here.'),
    !isOff && refusesPublic && h('p', { class: 'hint' }, 'The public access block of the bucket refuses new lists that open it to everybody.'),
    h('dl', {}, h('dt', {}, 'Owner'), h('dd', {}, shown(list.owner))), h('h3', {}, 'Open to'), grants, can && editors(bucket, { key, kind, query, change, tried })];
}

function editors(bucket, { key, kind, query, change, tried }) {
  const canned = select('Replace it by', (kind === 'bucket' ? OF_BUCKET : Object.keys(CANNED)).map((name) => [name, CANNED[name]]), 'private');
  const replace = async () => {
    const acl = canned.get();
    if (OPEN.includes(acl) && !(await ask('Open it to others?', `${CANNED[acl]}. It counts at once.`, 'Open it', 'danger'))) return;
    await tried(() => s3('PUT', bucket, key, query, { headers: { 'x-amz-acl': acl } }));
  };
  const id = text('Canonical id of the account', '', { hint: 'An account finds it as the owner of its buckets; that of root is margay.' });
  const who = select('Who', [['', 'An account'], ...Object.entries(WHO)], '', { onchange: () => { id.node.hidden = who.get() !== ''; } });
  const what = select('May', Object.entries(WHAT[kind]).map(([name, label]) => [name, `${label} (${name})`]), 'READ');
  const grant = async () => {
    if (who.get() === '' && !id.get()) { id.input.focus(); return; }
    const isOpen = [EVERYBODY, SIGNED_IN].includes(who.get());
    if (isOpen && !(await ask('Open it to others?', `${WHO[who.get()]}: ${WHAT[kind][what.get()]}. It counts at once.`, 'Open it', 'danger'))) return;
    const added = { id: who.get() ? '' : id.get(), uri: who.get(), permission: what.get() };
    await change((now) => [...now.filter((one) => !isSame(one, added)), added]);
  };
  return [h('h3', {}, 'Open it to somebody else'), who.node, id.node, what.node, h('p', {}, button('Add', grant, { symbol: 'plus' })),
    h('h3', {}, 'A usual list'), canned.node, h('p', {}, button('Replace', replace, {}))];
}
