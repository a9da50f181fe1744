// What the key may do, asked of the server, so that no button is shown that would be refused. The server decides again at each request.

import { post } from './api.js';

const AT_ONCE = 400;
let isRoot = false;
let account = '';

export function begin(session) { isRoot = session.root; account = session.account; }

export const server = (action) => [`admin:${action}`, 'arn:aws:margay:::server'];
export const bucketOf = (action, bucket) => [action, `arn:aws:s3:::${bucket}`];
export const objectOf = (action, bucket, key) => [action, `arn:aws:s3:::${bucket}/${key}`];
// `place` is the part of the ARN after the account: `user/ann`, or `user/` for all.
export const iamOf = (action, place) => [`iam:${action}`, `arn:aws:iam::${account}:${place}`];

// Answers {name: boolean} for {name: [action, resource]}. What cannot be asked is not shown.
export async function may(wanted) {
  const names = Object.keys(wanted);
  if (isRoot) return Object.fromEntries(names.map((name) => [name, true]));
  const allowed = {};
  for (let at = 0; at < names.length; at += AT_ONCE) {
    const some = names.slice(at, at + AT_ONCE);
    const answer = await post('api/may', some.map((name) => ({ action: wanted[name][0], resource: wanted[name][1] }))).catch(() => ({ allowed: [] }));
    some.forEach((name, index) => { allowed[name] = answer.allowed[index] === true; });
  }
  return allowed;
}

export const any = (allowed) => Object.values(allowed).some(Boolean);

// The settings of a bucket: what reads each, and what writes it.
const SETTINGS = {
  versioning: ['GetBucketVersioning', 'PutBucketVersioning'], tagging: ['GetBucketTagging', 'PutBucketTagging'], policy: ['GetBucketPolicy', 'PutBucketPolicy'],
  lifecycle: ['GetLifecycleConfiguration', 'PutLifecycleConfiguration'], cors: ['GetBucketCORS', 'PutBucketCORS'], notification: ['GetBucketNotification', 'PutBucketNotification'],
  encryption: ['GetEncryptionConfiguration', 'PutEncryptionConfiguration'], 'object-lock': ['GetBucketObjectLockConfiguration', 'PutBucketObjectLockConfiguration'],
  publicAccessBlock: ['GetBucketPublicAccessBlock', 'PutBucketPublicAccessBlock'], website: ['GetBucketWebsite', 'PutBucketWebsite'], logging: ['GetBucketLogging', 'PutBucketLogging'],
  acl: ['GetBucketAcl', 'PutBucketAcl'], ownershipControls: ['GetBucketOwnershipControls', 'PutBucketOwnershipControls'],
};

// {read, write}, each {setting: boolean}.
export async function ofSettings(bucket) {
  const asked = {};
  for (const [name, [reads, writes]] of Object.entries(SETTINGS)) {
    asked[`read ${name}`] = bucketOf(`s3:${reads}`, bucket);
    asked[`write ${name}`] = bucketOf(`s3:${writes}`, bucket);
  }
  const allowed = await may({ ...asked, 'read quota': server('ListBuckets'), 'write quota': bucketOf('admin:SetQuota', bucket) });
  const of = (kind) => Object.fromEntries(Object.entries(allowed).filter(([name]) => name.startsWith(kind)).map(([name, is]) => [name.slice(kind.length), is]));
  return { read: of('read '), write: of('write ') };
}
