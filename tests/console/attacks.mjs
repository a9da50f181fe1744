// What somebody might try against a user of the console: each attempt must find nothing.

import { createHash } from 'node:crypto';
import http from 'node:http';

import { check, equal, fresh, press, text, within } from './browser.mjs';
import { go, signIn } from './flows.mjs';
import { fill } from './settings.mjs';

// A page of another origin on the same host, which is the same site: cookies would travel.
function otherSite(html) {
  const server = http.createServer((_, answer) => { answer.writeHead(200, { 'content-type': 'text/html' }); answer.end(html); });
  return new Promise((resolve) => { server.listen(0, '127.0.0.1', () => resolve({ url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() })); });
}

const NAMES = [
  '<img src=x onerror="window.hacked=1">', '"><script>window.hacked=1</script>', "javascript:window.hacked=1", "'+window.hacked+'", '{{hacked}}',
  '\u202egpj.exe', 'a\u0007bell', '&lt;b&gt;', '%3Cscript%3E', ' leading and trailing ', '../../etc/passwd', '..', '#/live', 'con?versions&delete',
];

// Two servers of one host have cookies of their own.
const cookieName = (url) => `margay-console-${new URL(url).port}`;

export async function names({ page, s3 }) {
  await s3.request('PUT', '/hostile');
  for (const name of NAMES) {
    await s3.put('hostile', `x/${name}`, '<script>window.hacked=1</script>', { 'content-type': 'text/html', 'x-amz-meta-note': '<img src=x onerror=window.hacked=1>' });
  }
  await s3.must('PUT', '/hostile/x/%3Cimg', { query: [['tagging', '']], body: '' }).catch(() => {});
  await page.evaluate(() => { window.hacked = 0; });
  await go(page, '#/browse/hostile/x%2F', '.rows .row[data-index]');
  await page.waitForFunction((count) => document.querySelectorAll('.row[data-index]').length >= count, {}, NAMES.length - 2);
  check(!(await text(page, '.rows')).includes('\u202e'), 'marks that turn text around are made visible');
  const count = await page.$$eval('.row[data-index]', (rows) => rows.length);
  for (let index = 0; index < count; index += 1) {
    const isFile = await page.evaluate((at) => { const name = document.querySelector(`.row[data-index="${at}"] .name`); if (name.tagName !== 'BUTTON') return false; name.click(); return true; }, index);
    if (!isFile) continue;
    await page.waitForSelector('.panel');
    await page.waitForFunction(() => document.querySelector('.panel .body') && !document.querySelector('.panel .body').textContent.startsWith('Loading'));
    for (const tab of ['Details', 'Versions']) {
      await page.click(`#tab-${tab}`);
      await page.waitForFunction(() => !document.querySelector('.panel .body').textContent.startsWith('Loading'));
    }
  }
  equal(await page.evaluate(() => window.hacked), 0, 'no name and no metadata runs');
  equal(await page.$$eval('main img[src=x], main script', (found) => found.length), 0, 'nor becomes an element');
}

// A stored page, opened in all ways that the console has.
export async function storedPage({ page, s3, url }) {
  const evil = '<script>try { fetch("/-/console/api/session", { headers: { "x-margay-console": "1" } }).then((a) => a.text()).then((t) => { document.title = "stolen " + t; }); } catch (e) {} document.title = "ran";</script>';
  await s3.put('hostile', 'evil.html', evil, { 'content-type': 'text/html' });
  await s3.put('hostile', 'evil.svg', `<svg xmlns="http://www.w3.org/2000/svg"><script>document.title = "ran"; window.hacked = 1</script></svg>`, { 'content-type': 'image/svg+xml' });
  await s3.put('hostile', 'evil.pdf', evil, { 'content-type': 'application/pdf' });
  for (const [key, form] of [['evil.html', 'text'], ['evil.svg', 'media'], ['evil.html', 'media'], ['evil.pdf', 'text']]) {
    const tab = await page.browserContext().newPage();
    await tab.goto(`${url}raw?t=%2Fhostile%2F${key}&as=${form}`).catch(() => {});
    const title = await tab.title().catch(() => '');
    check(!title.includes('ran') && !title.includes('stolen'), `${key} as ${form} runs nothing: ${title}`);
    await tab.close();
  }
}

export async function forgery({ page, s3, url }) {
  const target = `${url}api/s3?t=%2Fforged`;
  const attempts = `<body><form id=f method=post action="${url}api/sign-out"></form><img src="${url}raw?t=%2Fhostile%2Fevil.svg&as=media"><script>
    window.results = [];
    const note = (name, promise) => promise.then((answer) => results.push(name + ' ' + answer.type + ' ' + answer.status), () => results.push(name + ' refused'));
    window.done = Promise.all([
      note('no-cors', fetch('${target}', { method: 'POST', mode: 'no-cors', credentials: 'include' })),
      note('put', fetch('${target}', { method: 'PUT', credentials: 'include' })),
      note('header', fetch('${target}', { method: 'PUT', credentials: 'include', headers: { 'x-margay-console': '1' } })),
      note('read', fetch('${url}api/session', { credentials: 'include', headers: { 'x-margay-console': '1' } })),
      note('raw', fetch('${url}raw?t=%2Fhostile%2Fevil.html&as=text', { credentials: 'include' })),
    ]).then(() => results);
  </script></body>`;
  const other = await otherSite(attempts);
  const tab = await page.browserContext().newPage();
  await tab.goto(other.url);
  const results = await tab.evaluate(() => window.done);
  for (const line of results) check(line.endsWith('refused') || line === 'no-cors opaque 0', `another site sees no answer: ${line}`);
  equal(await tab.$eval('img', (image) => image.naturalWidth), 0, 'another site shows no picture of a bucket');
  await Promise.all([tab.waitForNavigation().catch(() => {}), tab.evaluate(() => document.getElementById('f').submit())]);
  equal((await s3.request('HEAD', '/forged')).status, 404, 'another site makes no bucket');
  const session = await page.evaluate(async () => (await fetch('api/session', { headers: { 'x-margay-console': '1' } })).status);
  equal(session, 200, 'another site signs nobody out');
  await tab.close();
  other.close();
}

export async function framing({ page, url }) {
  const other = await otherSite(`<iframe id=a src="${url}"></iframe><iframe id=b src="${url}raw?t=%2Fhostile%2Fevil.html&as=text"></iframe>`);
  const tab = await page.browserContext().newPage();
  await tab.goto(other.url);
  for (const frame of tab.frames().slice(1)) {
    const content = await frame.content().catch(() => '');
    check(!content.includes('id="app"') && !content.includes('stolen'), 'nothing of the console is shown in a frame of another site');
  }
  await tab.close();
  other.close();
}

export async function theft({ page, browser, url, secretKey }) {
  const kept = await page.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }]));
  check(!kept.includes('margay-console') && !kept.includes(secretKey), 'scripts see neither the session nor the key');
  const [cookie] = (await page.browserContext().cookies()).filter((one) => one.name === cookieName(url));
  check(cookie.httpOnly && cookie.sameSite === 'Strict' && cookie.path === '/-/console/', 'the cookie is kept from scripts, other sites and other paths');
  const headers = { cookie: `${cookieName(url)}=${cookie.value}`, 'x-margay-console': '1' };
  equal((await fetch(`${url}api/session`, { headers })).status, 200, 'the cookie is the session');
  await page.evaluate(() => document.querySelector('button[aria-label="Sign out"]').click());
  await page.waitForSelector('input[name=key]');
  equal((await fetch(`${url}api/session`, { headers })).status, 401, 'a copied cookie is worth nothing after signing out');
  const stranger = await fresh(browser);
  await stranger.page.goto(url);
  await stranger.page.waitForSelector('input[name=key]');
  check(!(await stranger.page.content()).includes('nav class="side"'), 'a stranger sees the sign-in');
  // An id that an attacker put there before is not taken over.
  await stranger.context.setCookie({ name: cookieName(url), value: 'a'.repeat(64), domain: new URL(url).hostname, path: '/-/console/' });
  return stranger;
}

export async function fixation(stranger, { url, accessKey, secretKey }) {
  await signIn({ page: stranger.page, url, accessKey, secretKey });
  const [cookie] = (await stranger.context.cookies()).filter((one) => one.name === cookieName(url));
  check(cookie.value !== 'a'.repeat(64), 'signing in makes a new id');
  await stranger.context.close();
}

export async function paths({ page, s3, url }) {
  await s3.request('PUT', '/victim');
  await s3.put('victim', 'precious', 'kept');
  for (const key of ['../victim/precious', '../../victim/precious', '..%2Fvictim/precious']) {
    await page.evaluate(async (wanted) => {
      const { s3: send } = await import('./js/api.js');
      await send('DELETE', 'hostile', wanted).catch(() => {});
    }, key);
  }
  equal((await s3.request('GET', '/victim/precious')).body, 'kept', 'a key with dots deletes nothing elsewhere');
  for (const path of ['../../health', 'js/../../../metrics', 'api/../../../victim/precious', '%2e%2e%2fmetrics', 'raw?t=/-/health&as=text', 'raw?t=http://127.0.0.1/x&as=text']) {
    const answer = await page.evaluate(async (to) => { const got = await fetch(to); return [got.url, got.status, await got.text()]; }, `${url}${path}`);
    check(!answer[0].includes('/-/console/') || answer[1] >= 400, `${path} leads nowhere: ${answer[1]}`);
  }
}

// Answers a request as node sends it: with any path and any headers, which fetch would not.
function plain(url, method, path, headers = {}, body = '') {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const request = http.request({ hostname, port, method, path, headers: { ...headers, 'content-length': Buffer.byteLength(body) } }, (answer) => {
      const parts = [];
      answer.on('data', (part) => parts.push(part));
      answer.on('end', () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts).toString() }));
    });
    // The answer to CONNECT is no response to node.
    request.on('connect', (answer, socket) => { socket.destroy(); resolve({ status: answer.statusCode, headers: answer.headers, body: '' }); });
    request.setTimeout(60000, () => request.destroy(new Error(`${method} ${path}: no answer`)));
    request.on('error', reject);
    request.end(body);
  });
}

const own = { 'x-margay-console': '1' };
const API = '/-/console/api/';

async function cookieOf(url, accessKey, secretKey, more = {}) {
  const answer = await plain(url, 'POST', `${API}sign-in`, { ...own, 'content-type': 'application/json', ...more }, JSON.stringify({ accessKey, secretKey }));
  return { answer, cookie: answer.headers['set-cookie']?.[0] };
}

// Everything that people may name, where the console shows it: paths and tags of identities, statements, settings, live requests.
export async function people({ page, s3 }) {
  const evil = '<img src=x onerror="window.hacked=1">';
  await page.evaluate(() => { window.hacked = 0; });
  for (const name of [evil, '<b>', 'a b', "a'b", 'a"b']) {
    for (const [action, field] of [['CreateUser', 'UserName'], ['CreateGroup', 'GroupName']]) {
      const made = await s3.iam({ Action: action, [field]: name }).then(() => true, () => false);
      equal(made, false, `no name of markup is accepted: ${action} ${name}`);
    }
    const made = await s3.iam({ Action: 'CreatePolicy', PolicyName: name, PolicyDocument: '{"Version":"2012-10-17","Statement":[]}' }).then(() => true, () => false);
    equal(made, false, `nor of a policy: ${name}`);
  }
  const sid = evil.replace(/"/g, '\\"');
  await s3.iam({ Action: 'CreateUser', UserName: 'evil=+@.-', Path: '/a<b/' }).catch(() => s3.iam({ Action: 'CreateUser', UserName: 'evil=+@.-' }));
  await s3.iam({ Action: 'PutUserPolicy', UserName: 'evil=+@.-', PolicyName: 'own', PolicyDocument: `{"Version":"2012-10-17","Statement":[{"Sid":"${sid}","Effect":"Deny","Action":"s3:*","Resource":"*"}]}` })
    .catch(() => s3.iam({ Action: 'PutUserPolicy', UserName: 'evil=+@.-', PolicyName: 'own', PolicyDocument: `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::${sid}"}]}` }));
  await go(page, '#/people/users', 'main table');
  await press(page, 'evil=+@.-', 'main');
  await page.waitForFunction(() => document.querySelector('dialog[open] h3'));
  await press(page, 'Edit', 'dialog[open]');
  await page.waitForFunction(() => document.querySelectorAll('dialog[open]').length === 2);
  check((await page.$$eval('dialog[open] textarea', (areas) => areas.at(-1).value)).includes('<img'), 'markup in a policy is text');
  await page.evaluate(() => document.querySelectorAll('dialog[open]').forEach((one) => one.close()));
  await go(page, '#/people/simulator', '.simulator');
  for (const [label, value] of [['Who', 'evil=+@.-'], ['Does what', 's3:GetObject'], ['With what', `hostile/${evil}`]]) await fill(page, '.simulator', label, value);
  await press(page, 'Ask', '.simulator');
  await page.waitForSelector('.verdict');
  for (const who of [evil, `arn:aws:iam::000000000000:user/${evil}`]) {
    await fill(page, '.simulator', 'Who', who);
    await press(page, 'Ask', '.simulator');
    await page.waitForFunction((name) => document.querySelector('main .error')?.textContent.includes(name.slice(-20)), {}, who);
  }
  await s3.must('PUT', '/hostile', { query: [['tagging', '']], body: '<Tagging><TagSet><Tag><Key>+a - b</Key><Value>a:/=+@ javascript:x</Value></Tag></TagSet></Tagging>' });
  await s3.must('PUT', '/hostile', { query: [['lifecycle', '']], body: `<LifecycleConfiguration><Rule><ID>${evil.replace(/</g, '&lt;')}</ID><Filter><Prefix>${evil.replace(/</g, '&lt;')}</Prefix></Filter><Status>Enabled</Status><Expiration><Days>9</Days></Expiration></Rule></LifecycleConfiguration>` });
  await go(page, '#/settings/hostile', '.part fieldset');
  await press(page, 'Edit as XML', 'section[aria-labelledby=part-lifecycle]');
  await go(page, '#/live/trace', '.filters');
  await press(page, 'Watch', 'main');
  await within(async () => { await s3.request('GET', `/hostile/${encodeURIComponent(evil)}`, { headers: { 'user-agent': evil } }); return (await text(page, '.trace')).includes('<img'); }, 'a hostile key and agent are text in the live requests');
  await press(page, 'Stop', 'main');
  await go(page, `#/people/simulator/${encodeURIComponent(evil)}`, '.simulator');
  for (const hash of [`#/browse/${encodeURIComponent(evil)}`, `#/settings/${encodeURIComponent(evil)}`, `#/${evil}`, '#/__proto__', '#/constructor/x', '#/live/__proto__', '#/people/constructor']) {
    await go(page, hash, 'main');
    await page.waitForFunction(() => document.querySelector('main h1'));
  }
  equal(await page.evaluate(() => window.hacked), 0, 'nothing that people name runs');
  equal(await page.$$eval('img[src=x], main script', (found) => found.length), 0, 'nor becomes an element');
}

// Each call that changes something, as another site could send it with the cookie of a user.
export async function forgedCalls({ s3, url, accessKey, secretKey }) {
  const { cookie } = await cookieOf(url, accessKey, secretKey);
  const session = { cookie: cookie.split(';')[0] };
  const calls = [['POST', 'sign-out'], ['PUT', 's3?t=%2Fforged'], ['DELETE', 's3?t=%2Fvictim%2Fprecious'], ['POST', 'iam?t=%2F'], ['POST', 'admin?t=%2F-%2Fadmin%2Fv1%2Fscrub'], ['POST', 'share'], ['POST', 'may'], ['GET', 'session'], ['GET', 'metrics'], ['POST', 'sign-in']];
  for (const [method, call] of calls) {
    for (const [what, headers] of [['without the header', {}], ['of another origin', { ...own, origin: 'http://evil.example' }], ['of another port', { ...own, origin: 'http://127.0.0.1:1' }], ['of nowhere', { ...own, origin: 'null' }],
      ['of another site', { ...own, 'sec-fetch-site': 'cross-site' }], ['of the same site', { ...own, 'sec-fetch-site': 'same-site' }]]) {
      const answer = await plain(url, method, API + call, { ...session, ...headers });
      check(answer.status === 403 && !answer.headers['set-cookie'] && !answer.headers['access-control-allow-origin'], `${method} ${call} ${what}: ${answer.status}`);
    }
    const preflight = await plain(url, 'OPTIONS', API + call, { origin: 'http://evil.example', 'access-control-request-method': method, 'access-control-request-headers': 'x-margay-console' });
    check(preflight.status >= 400 && !preflight.headers['access-control-allow-origin'], `no permission is given to ${method} ${call}`);
  }
  equal((await plain(url, 'GET', `${API}session`, { ...session, ...own })).status, 200, 'the session is still there');
  equal((await s3.request('HEAD', '/forged')).status, 404, 'and nothing was done');
}

// The heads of every kind of answer: no frame, no guessing of types, no store, no other origin.
export async function heads({ s3, url, accessKey, secretKey }) {
  const { cookie } = await cookieOf(url, accessKey, secretKey);
  const session = { cookie: cookie.split(';')[0], ...own };
  await s3.put('hostile', 'plain.txt', 'x', { 'content-type': 'text/plain' });
  const base = '/-/console/';
  for (const path of ['', 'js/main.js', 'app.css', 'no-such-file', 'api/session', 'api/no-such-call', 'api/s3?t=%2Fhostile%2Fevil.html', 'api/s3?t=%2Fno-such-bucket', 'api/metrics', 'raw?t=%2Fhostile%2Fevil.html&as=text', 'raw?t=%2Fhostile%2Fevil.svg&as=media',
    'raw?t=%2Fhostile%2Fevil.pdf&as=media', 'raw?t=%2Fhostile%2Fevil.html&as=media', 'raw?t=%2Fhostile%2Fmissing&as=text', 'raw']) {
    const { headers, status } = await plain(url, 'GET', base + path, session);
    const policy = headers['content-security-policy'] ?? '';
    const isRaw = path.startsWith('raw') && status === 200;
    const isFrameless = headers['x-frame-options'] === 'DENY' && policy.includes("frame-ancestors 'none'");
    const isOwnFrame = headers['x-frame-options'] === 'SAMEORIGIN' && policy.includes("frame-ancestors 'self'");
    // What is saved is never shown in a frame.
    const isSaved = (headers['content-disposition'] ?? '').startsWith('attachment');
    if (status !== 404 || path !== 'no-such-file') check(isRaw ? isOwnFrame || isFrameless || isSaved : isFrameless, `no other site frames ${path || 'the page'} (${status}): ${headers['x-frame-options']}, ${policy}`);
    check(status === 404 && path === 'no-such-file' || headers['x-content-type-options'] === 'nosniff', `the type of ${path || 'the page'} is not guessed`);
    check(!policy.includes('unsafe-eval') && !/script-src[^;]*unsafe/.test(policy), `no policy lets a script of ${path || 'the page'} be made of text`);
    if (path.startsWith('api') || path.startsWith('raw')) check(headers['cache-control'] === 'private, no-store' && headers['cross-origin-resource-policy'] === 'same-origin', `${path} is not stored, and no other origin may have it`);
    check(!headers['set-cookie'], `${path || 'the page'} sets no cookie`);
  }
}

// Targets that try to leave their service, to name another host, or to split a request.
export async function targets({ s3, url, accessKey, secretKey }) {
  const { cookie } = await cookieOf(url, accessKey, secretKey);
  const session = { cookie: cookie.split(';')[0], ...own };
  const bad = ['s3?t=%2F-%2Fadmin%2Fv1%2Fstatus', 's3?t=%2F-%2Fhealth', 's3?t=%2F-%2Fconsole%2Fapi%2Fsession', 'admin?t=%2Fvictim%2Fprecious', 'admin?t=%2F-%2Fconsole%2F', 'admin?t=%2F-%2Fadmin', 'iam?t=%2Fvictim', 'iam?t=%2F%3Fx%3D1', 's3?t=http%3A%2F%2F127.0.0.1%2Fx',
    's3?t=victim%2Fprecious', 's3?t=%2Fa%0d%0ax-evil%3A%201', 's3?t=%2Fa%00b', 's3?t=%2Fa%23b', 's3?t=%2Fa%20b', 's3?t=', 's3?t=%2Fa&t=%2Fb', 's3?t=%2Fa&u=b', 's3?t=%2Fa%ff', 's3?t=%zz', `s3?t=%2F${'a'.repeat(20000)}`, 's3', 'S3?t=%2F', 's3/?t=%2F', 's3%2f?t=%2F', '../raw?t=%2F'];
  for (const call of bad) {
    for (const method of ['GET', 'DELETE', 'POST']) {
      const { status, body } = await plain(url, method, API + call, session);
      check(status >= 400 && status < 500 && !body.includes('kept'), `${method} ${call.slice(0, 60)}: ${status}`);
    }
  }
  // Dots are part of a key, so they lead to no other bucket.
  for (const key of ['..%2Fvictim%2Fprecious', '..%252Fvictim%252Fprecious', '%252e%252e%2Fvictim%2Fprecious', '.%2F..%2Fvictim%2Fprecious']) {
    const { status, body } = await plain(url, 'GET', `${API}s3?t=%2Fhostile%2F${key}`, session);
    check(status === 404 && !body.includes('kept'), `a key with dots is a key: ${key}: ${status}`);
    await plain(url, 'DELETE', `${API}s3?t=%2Fhostile%2F${key}`, session);
  }
  for (const method of ['TRACE', 'CONNECT', 'PATCH', 'OPTIONS']) {
    const answer = await plain(url, method, method === 'CONNECT' ? '127.0.0.1:1' : `${API}s3?t=%2F`, session).catch(() => ({ status: 400 }));
    check(answer.status >= 400, `${method} is not passed on: ${answer.status}`);
  }
  // What the browser is not asked for is not passed on: a second signature, another host, a copy of the session.
  const passed = await plain(url, 'GET', `${API}s3?t=%2Fvictim%2Fprecious`, { ...session, authorization: 'AWS4-HMAC-SHA256 Credential=x', 'x-amz-security-token': 'stolen', 'x-amz-date': '20000101T000000Z', 'x-forwarded-for': '192.0.2.1' });
  equal(passed.body, 'kept', 'headers of a signature from outside are left out');
  equal((await s3.request('GET', '/victim/precious')).body, 'kept', 'and nothing elsewhere was deleted');
}

// Reads the live requests as a copy of a session could.
async function watch(url, cookie) {
  const body = '{"bucket":"hostile"}';
  const { hostname, port } = new URL(url);
  const seen = { text: '', isOver: false };
  await new Promise((resolve, reject) => {
    const headers = { ...own, cookie, 'x-amz-content-sha256': createHash('sha256').update(body).digest('hex'), 'content-length': body.length };
    const request = http.request({ hostname, port, method: 'POST', path: `${API}admin?t=%2F-%2Fadmin%2Fv1%2Ftrace`, headers }, (answer) => {
      equal(answer.statusCode, 200, 'live requests are answered');
      answer.on('data', (part) => { seen.text += part; });
      answer.on('close', () => { seen.isOver = true; });
      resolve();
    });
    request.on('error', reject);
    request.end(body);
  });
  return seen;
}

// Sessions: what a cookie says and what ends it.
export async function sessions({ s3, url, address }) {
  await s3.iam({ Action: 'CreateUser', UserName: 'mallory' });
  const made = await s3.iam({ Action: 'CreateAccessKey', UserName: 'mallory' });
  const [accessKey, secretKey] = [/<AccessKeyId>([^<]+)/.exec(made)[1], /<SecretAccessKey>([^<]+)/.exec(made)[1]];
  const { answer, cookie } = await cookieOf(url, accessKey, secretKey);
  check(/; HttpOnly/.test(cookie) && /; SameSite=Strict/.test(cookie) && /; Path=\/-\/console\//.test(cookie) && !/Domain=/i.test(cookie) && !/Expires=|Max-Age=/i.test(cookie), `a cookie for this host, this path, this session: ${cookie.replace(/=[0-9a-f]+/, '=…')}`);
  check(!cookie.includes('; Secure'), 'without TLS it is not kept back');
  check(!(answer.body + JSON.stringify(answer.headers)).includes(secretKey), 'the secret is in no answer');
  const behind = await cookieOf(url, accessKey, secretKey, { origin: url.replace('http:', 'https:').replace(/\/-.*/, '') });
  check(behind.cookie?.includes('; Secure'), 'behind TLS it is');
  const id = cookie.split(';')[0];
  const ask = (value) => plain(url, 'GET', `${API}session`, { ...own, cookie: value }).then((got) => got.status);
  equal(await ask(id), 200, 'it is the session');
  for (const [what, value] of [['changed', id.slice(0, -1) + (id.endsWith('0') ? '1' : '0')], ['cut', id.slice(0, -2)], ['twice', `${id}; ${id.split('=')[0]}=${'b'.repeat(64)}`], ['empty', `${id.split('=')[0]}=`], ['long', `${id.split('=')[0]}=${'a'.repeat(4000)}`], ['of another name', id.replace('margay-console', 'Margay-Console')]]) {
    equal(await ask(value), 401, `an id that is ${what} is nobody`);
  }
  const again = (await cookieOf(url, accessKey, secretKey)).cookie.split(';')[0];
  check(again !== id && again.length === id.length, 'each sign-in has an id of its own');
  // Who signs in again in the same browser leaves no session behind that its old id would open.
  const third = (await cookieOf(url, accessKey, secretKey)).cookie.split(';')[0];
  equal((await cookieOf(url, accessKey, 'a wrong secret', { cookie: third })).cookie, undefined, 'a failed sign-in gives no session');
  equal(await ask(third), 200, 'and ends none');
  const fourth = (await cookieOf(url, accessKey, secretKey, { cookie: third })).cookie.split(';')[0];
  equal([await ask(third), await ask(fourth), await ask(again)].join(), '401,200,200', 'signing in again ends the session of the cookie that was sent, and no other');
  // Live requests are one long answer; it ends with the session, too.
  await s3.iam({ Action: 'PutUserPolicy', UserName: 'mallory', PolicyName: 'own', PolicyDocument: '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"admin:Trace","Resource":"*"}]}' });
  const watching = await watch(url, id);
  await s3.request('GET', '/hostile/seen-while-signed-in');
  await within(() => watching.text.includes('seen-while-signed-in'), 'who may watch does');
  const left = await plain(url, 'POST', `${API}sign-out`, { ...own, cookie: id });
  check(/Max-Age=0/.test(left.headers['set-cookie']?.[0] ?? ''), 'signing out takes the cookie away');
  equal(await ask(id), 401, 'and ends the session');
  await within(() => watching.isOver, 'live requests end with the session');
  await s3.request('GET', '/hostile/seen-after-signing-out');
  check(!watching.text.includes('seen-after-signing-out'), 'and show nothing more');
  equal(await ask(again), 200, 'but no other one');
  await s3.iam({ Action: 'UpdateAccessKey', UserName: 'mallory', AccessKeyId: accessKey, Status: 'Inactive' });
  equal(await ask(again), 401, 'a disabled key ends its sessions');
  await s3.iam({ Action: 'UpdateAccessKey', UserName: 'mallory', AccessKeyId: accessKey, Status: 'Active' });
  equal(await ask(again), 401, 'for ever');
  const last = (await cookieOf(url, accessKey, secretKey)).cookie.split(';')[0];
  equal(await ask(last), 200, 'a new sign-in is needed');
  await s3.iam({ Action: 'DeleteAccessKey', UserName: 'mallory', AccessKeyId: accessKey });
  equal(await ask(last), 401, 'a deleted key ends its sessions');
  const elsewhere = await plain(`http://${address}/`, 'GET', '/', { cookie: `${id}` });
  equal(elsewhere.status, 403, 'a session is worth nothing at the S3 address');
}
