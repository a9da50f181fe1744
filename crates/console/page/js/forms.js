// Forms of the settings that S3 keeps as XML. A document that its form does not hold exactly is edited as XML, so nothing of it is lost.

import { escapeXml, own, xml } from './api.js';
import { h } from './dom.js';
import { at, check, each, leaf, lines, more, repeat, select, text, whole, wrap } from './fields.js';
import { pairs } from './object.js';

const TYPES = { GET: 'read', HEAD: 'look at', PUT: 'write', POST: 'post', DELETE: 'delete' };

function rule(node) {
  const filter = node && each(node, 'Filter')[0];
  const inside = (filter && each(filter, 'And')[0]) ?? filter;
  const date = at(node, 'Expiration', 'Date');
  const on = check('On', !node || own(node, 'Status') === 'Enabled');
  const prefix = text('Names that begin with', at(inside, 'Prefix'));
  const days = whole('Delete after days', at(node, 'Expiration', 'Days'));
  const older = whole('Older versions after days', at(node, 'NoncurrentVersionExpiration', 'NoncurrentDays'));
  const uploads = whole('Unfinished uploads after days', at(node, 'AbortIncompleteMultipartUpload', 'DaysAfterInitiation'));
  const name = text('Name of the rule', node ? own(node, 'ID') : '');
  const day = text('Delete on a date', date.slice(0, 10), { type: 'date' });
  const keep = whole('Older versions to keep', at(node, 'NoncurrentVersionExpiration', 'NewerNoncurrentVersions'), { hint: 'Needs the days above.' });
  const larger = whole('Only larger than bytes', at(inside, 'ObjectSizeGreaterThan'), { min: 0 });
  const smaller = whole('Only smaller than bytes', at(inside, 'ObjectSizeLessThan'), { min: 1 });
  const marker = check('Remove delete markers that hide nothing', at(node, 'Expiration', 'ExpiredObjectDeleteMarker') === 'true');
  const tags = pairs(each(inside, 'Tag').map((tag) => [own(tag, 'Key'), own(tag, 'Value')]), 'Only objects with these tags');
  const filterXml = () => {
    const parts = [leaf('Prefix', prefix.input.value), ...tags.values().map(([key, value]) => `<Tag><Key>${escapeXml(key)}</Key><Value>${escapeXml(value)}</Value></Tag>`),
      leaf('ObjectSizeGreaterThan', larger.get()), leaf('ObjectSizeLessThan', smaller.get())].filter(Boolean);
    return `<Filter>${parts.length > 1 ? `<And>${parts.join('')}</And>` : parts[0] ?? '<Prefix></Prefix>'}</Filter>`;
  };
  const expires = () => {
    if ([days.get(), day.get(), marker.get()].filter(Boolean).length > 1) throw new Error('A rule deletes after days, or on a date, or removes delete markers: choose one.');
    const when = day.get() && (day.get() === date.slice(0, 10) ? date : `${day.get()}T00:00:00.000Z`);
    return wrap('Expiration', leaf('Days', days.get()) + leaf('Date', when) + (marker.get() ? '<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker>' : ''));
  };
  return {
    node: [prefix.node, days.node, older.node, uploads.node, on.node, more('More', name.node, day.node, keep.node, larger.node, smaller.node, marker.node, tags.node)],
    xml: () => `<Rule>${leaf('ID', name.get())}${filterXml()}<Status>${on.get() ? 'Enabled' : 'Disabled'}</Status>${expires()}`
      + wrap('NoncurrentVersionExpiration', leaf('NoncurrentDays', older.get()) + leaf('NewerNoncurrentVersions', keep.get()))
      + `${wrap('AbortIncompleteMultipartUpload', leaf('DaysAfterInitiation', uploads.get()))}</Rule>`,
  };
}

function cors(node) {
  const texts = (name) => each(node, name).map((one) => one.textContent);
  const origins = lines('Pages of these origins', texts('AllowedOrigin'), 'One a line, as https://app.example; * is every page.');
  const methods = Object.entries(TYPES).map(([name, label]) => [name, check(`${label} (${name})`, node ? texts('AllowedMethod').includes(name) : name === 'GET')]);
  const headers = lines('Headers that they may send', texts('AllowedHeader'));
  const shown = lines('Headers that they may read', texts('ExposeHeader'));
  const age = whole('Seconds that browsers remember it', at(node, 'MaxAgeSeconds'), { min: 0 });
  const name = text('Name of the rule', at(node, 'ID'));
  const all = (element, values) => values.map((value) => leaf(element, value)).join('');
  return {
    node: [origins.node, h('div', { role: 'group', 'aria-label': 'What they may do' }, methods.map(([, one]) => one.node)), more('More', headers.node, shown.node, age.node, name.node)],
    xml: () => `<CORSRule>${leaf('ID', name.get())}${all('AllowedOrigin', origins.get())}${all('AllowedMethod', methods.filter(([, one]) => one.get()).map(([method]) => method))}`
      + `${all('AllowedHeader', headers.get())}${all('ExposeHeader', shown.get())}${leaf('MaxAgeSeconds', age.get())}</CORSRule>`,
  };
}

const TARGETS = [['Queue', 'Queue'], ['Topic', 'Topic'], ['CloudFunction', 'Function']];
const EVENTS = { 's3:ObjectCreated:*': 'made or changed', 's3:ObjectRemoved:*': 'deleted', 's3:ObjectTagging:*': 'tags changed', 's3:LifecycleExpiration:*': 'expired' };

function notification(node) {
  const kind = node ? node.localName.replace('Configuration', '') : 'Queue';
  const asked = each(node, 'Event').map((one) => one.textContent);
  const rules = node ? Array.from(node.getElementsByTagNameNS('*', 'FilterRule'), (one) => [own(one, 'Name'), own(one, 'Value')]) : [];
  const ruleOf = (wanted) => rules.find(([name]) => name.toLowerCase() === wanted);
  const type = select('Kind of the ARN', TARGETS, kind);
  const target = text('Target', at(node, kind), { placeholder: 'arn:aws:sqs:us-east-1:000000000000:NAME', hint: 'The last part is the name of a target in the settings of the server.' });
  const events = Object.entries(EVENTS).map(([event, label]) => [event, check(`${label} (${event})`, node ? asked.includes(event) : event === 's3:ObjectCreated:*')]);
  const others = lines('Other events', asked.filter((event) => !Object.hasOwn(EVENTS, event)));
  const prefix = text('Names that begin with', ruleOf('prefix')?.[1] ?? '');
  const suffix = text('Names that end with', ruleOf('suffix')?.[1] ?? '');
  const name = text('Name of the rule', at(node, 'Id'));
  const filterRule = (wanted, input) => (input.input.value ? `<FilterRule><Name>${ruleOf(wanted)?.[0] ?? wanted}</Name><Value>${escapeXml(input.input.value)}</Value></FilterRule>` : '');
  return {
    node: [target.node, h('div', { role: 'group', 'aria-label': 'Events' }, events.map(([, one]) => one.node)), prefix.node, suffix.node, more('More', type.node, name.node, others.node)],
    xml: () => wrap(`${type.get()}Configuration`, leaf('Id', name.get()) + leaf(type.get(), target.get())
      + [...events.filter(([, one]) => one.get()).map(([event]) => event), ...others.get()].map((event) => leaf('Event', event)).join('')
      + wrap('Filter', wrap('S3Key', filterRule('prefix', prefix) + filterRule('suffix', suffix)))),
  };
}

function encryption(root) {
  const now = root && each(root, 'Rule')[0];
  const used = now && each(now, 'ApplyServerSideEncryptionByDefault')[0];
  const way = select('New objects are encrypted', [['', 'only if the request asks for it'], ['AES256', 'with a key of the server (AES256)'], ['aws:kms', 'with a named key (aws:kms)']], at(used, 'SSEAlgorithm'));
  const key = text('Name of the key', at(used, 'KMSMasterKeyID'), { hint: 'For aws:kms; empty for the default key.' });
  const bucketKey = check('Bucket key', at(now, 'BucketKeyEnabled') === 'true');
  const given = at(now, 'BucketKeyEnabled');
  return {
    node: [way.node, key.node, bucketKey.node],
    inside: () => way.get() && wrap('Rule', wrap('ApplyServerSideEncryptionByDefault', leaf('SSEAlgorithm', way.get()) + (way.get() === 'aws:kms' ? leaf('KMSMasterKeyID', key.get()) : ''))
      + (bucketKey.get() || given ? leaf('BucketKeyEnabled', String(bucketKey.get())) : '')),
  };
}

function lock(root) {
  const kept = root && each(each(root, 'Rule')[0], 'DefaultRetention')[0];
  const years = at(kept, 'Years');
  const mode = select('Lock of new objects', [['', 'none, unless the request has one'], ['GOVERNANCE', 'GOVERNANCE: who has the right may shorten it'], ['COMPLIANCE', 'COMPLIANCE: nobody may, root neither']], at(kept, 'Mode'));
  const time = whole('For', years || at(kept, 'Days'));
  const unit = select('Unit', [['Days', 'days'], ['Years', 'years']], years ? 'Years' : 'Days');
  return {
    node: [mode.node, h('div', { class: 'pair' }, time.node, unit.node)],
    inside: () => {
      if (mode.get() && !time.get()) throw new Error('Say for how many days or years.');
      return `<ObjectLockEnabled>Enabled</ObjectLockEnabled>${mode.get() ? wrap('Rule', wrap('DefaultRetention', leaf('Mode', mode.get()) + leaf(unit.get(), time.get()))) : ''}`;
    },
  };
}

const BLOCKS = { BlockPublicAcls: 'Refuse access lists that open it to everybody', IgnorePublicAcls: 'Ignore access lists that are there',
  BlockPublicPolicy: 'Refuse policies that open it to everybody', RestrictPublicBuckets: 'Ignore such a policy that is there' };

function publicBlock(root) {
  const checks = Object.entries(BLOCKS).map(([name, label]) => [name, check(label, at(root, name) === 'true')]);
  return { node: checks.map(([, one]) => one.node), inside: () => checks.map(([name, one]) => leaf(name, String(one.get()))).join('') };
}

const OWNERS = [['', 'not set: as ObjectWriter'], ['ObjectWriter', 'ObjectWriter: who writes an object owns it, and access lists count'],
  ['BucketOwnerPreferred', 'BucketOwnerPreferred: the owner of the bucket, where the list of a new object says so'], ['BucketOwnerEnforced', 'BucketOwnerEnforced: the owner of the bucket; access lists have no effect']];

function ownership(root) {
  const owner = select('Who owns objects that others write', OWNERS, at(root && each(root, 'Rule')[0], 'ObjectOwnership'));
  return { node: [owner.node], inside: () => owner.get() && wrap('Rule', leaf('ObjectOwnership', owner.get())) };
}

function website(root) {
  const index = text('Page of a folder', root ? at(root, 'IndexDocument', 'Suffix') : 'index.html', { placeholder: 'index.html' });
  const error = text('Page for what is not found', at(root, 'ErrorDocument', 'Key'));
  const host = text('Send everything to this host instead', at(root, 'RedirectAllRequestsTo', 'HostName'));
  const protocol = select('By', [['', 'the same protocol'], ['https', 'https'], ['http', 'http']], at(root, 'RedirectAllRequestsTo', 'Protocol'));
  return {
    node: [index.node, error.node, more('Redirect', host.node, protocol.node)],
    inside: () => (host.get() ? wrap('RedirectAllRequestsTo', leaf('HostName', host.get()) + leaf('Protocol', protocol.get()))
      : wrap('IndexDocument', leaf('Suffix', index.get())) + wrap('ErrorDocument', leaf('Key', error.get()))),
  };
}

function logging(root) {
  const now = root && each(root, 'LoggingEnabled')[0];
  const bucket = text('Bucket for the log', at(now, 'TargetBucket'), { hint: 'Empty: no log.' });
  const prefix = text('Names begin with', at(now, 'TargetPrefix'));
  return { node: [bucket.node, prefix.node], inside: () => bucket.get() && `<LoggingEnabled>${leaf('TargetBucket', bucket.get())}<TargetPrefix>${escapeXml(prefix.input.value)}</TargetPrefix></LoggingEnabled>` };
}

const rules = (build, element, words) => (root) => {
  const found = root ? Array.from(root.children).filter((child) => element.test(child.localName)) : [];
  const list = repeat(found, build, { add: 'Add a rule', remove: 'Remove rule', legend: 'Rule', ...words });
  return { node: list.node, inside: list.xml };
};

// `removable`: an empty document is a DELETE; the others are put without content.
export const FORMS = [
  { title: 'Lifecycle', name: 'lifecycle', root: 'LifecycleConfiguration', hint: 'What is deleted by itself, and when.', removable: true, form: rules(rule, /^Rule$/) },
  { title: 'Browser access (CORS)', name: 'cors', root: 'CORSConfiguration', hint: 'Which pages of other origins may ask for objects.', removable: true, form: rules(cors, /^CORSRule$/) },
  { title: 'Notifications', name: 'notification', root: 'NotificationConfiguration', hint: 'Which events are sent to which target of the server.', form: rules(notification, /^(Queue|Topic|CloudFunction)Configuration$/) },
  { title: 'Encryption', name: 'encryption', root: 'ServerSideEncryptionConfiguration', hint: 'How new objects are encrypted on the disk.', removable: true, form: encryption },
  { title: 'Object lock', name: 'object-lock', root: 'ObjectLockConfiguration', hint: 'How long new objects cannot be deleted or overwritten. It needs versions, and cannot be turned off again.', form: lock },
  { title: 'Public access block', name: 'publicAccessBlock', root: 'PublicAccessBlockConfiguration', hint: 'Whether policies and access lists may open the bucket for everybody.', removable: true, form: publicBlock },
  { title: 'Ownership', name: 'ownershipControls', root: 'OwnershipControls', hint: 'Who owns objects that other accounts write, and whether access lists count.', removable: true, form: ownership },
  { title: 'Website', name: 'website', root: 'WebsiteConfiguration', hint: 'What is shown at the website host names of the server.', removable: true, form: website },
  { title: 'Access log', name: 'logging', root: 'BucketLoggingStatus', hint: 'Into which bucket lines about requests go.', form: logging },
];

export const documentOf = (spec, form) => `<${spec.root}>${form.inside()}</${spec.root}>`;

// What two documents have in common if they mean the same: order and empty elements do not count.
function meaning(node) {
  const inside = node.children.length > 0 ? Array.from(node.children, meaning).filter(Boolean).sort().join('') : escapeXml(node.textContent);
  const marks = Array.from(node.attributes).filter((one) => !one.name.startsWith('xmlns')).map((one) => `${one.name}=${one.value}`).sort().join(' ');
  return inside || marks ? `<${node.localName} ${marks}>${inside}</>` : '';
}

// The form with a document in it, or nothing if it would lose something of it.
export function formOf(spec, document) {
  const form = spec.form(document ? xml(document).documentElement : null);
  if (!document) return form;
  try { return meaning(xml(documentOf(spec, form)).documentElement) === meaning(xml(document).documentElement) ? form : null; } catch { return null; }
}
