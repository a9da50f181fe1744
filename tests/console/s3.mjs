// Signed requests to the server under test, beside the browser: what a test prepares and what it looks at afterwards.

import { createHash, createHmac } from 'node:crypto';
import http from 'node:http';

const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });
const hmac = (key, text) => createHmac('sha256', key).update(text).digest();
const sha256 = (text) => createHash('sha256').update(text).digest('hex');
export const strict = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`);

export class S3 {
  constructor(address, accessKey, secretKey) { Object.assign(this, { address, accessKey, secretKey }); }

  // Answers {status, headers, body}; `query` is [[name, value]].
  request(method, path, { query = [], headers = {}, body = '', service = 's3' } = {}) {
    const date = `${new Date().toISOString().replace(/[-:]|\.\d+/g, '')}`;
    const scope = `${date.slice(0, 8)}/us-east-1/${service}/aws4_request`;
    const text = query.map(([name, value]) => `${strict(name)}=${strict(value)}`).sort().join('&');
    const sent = { host: this.address, 'x-amz-date': date, 'x-amz-content-sha256': sha256(body), ...headers };
    const names = Object.keys(sent).sort();
    const canonical = [method, path, text, ...names.map((name) => `${name}:${sent[name]}`), '', names.join(';'), sent['x-amz-content-sha256']].join('\n');
    const toSign = ['AWS4-HMAC-SHA256', date, scope, sha256(canonical)].join('\n');
    const key = scope.split('/').reduce((secret, part) => hmac(secret, part), `AWS4${this.secretKey}`);
    sent.authorization = `AWS4-HMAC-SHA256 Credential=${this.accessKey}/${scope},SignedHeaders=${names.join(';')},Signature=${createHmac('sha256', key).update(toSign).digest('hex')}`;
    const [host, port] = this.address.split(':');
    return new Promise((resolve, reject) => {
      const request = http.request({ host, port, method, path: text ? `${path}?${text}` : path, headers: { ...sent, 'content-length': Buffer.byteLength(body) }, agent }, (answer) => {
        const parts = [];
        answer.on('data', (part) => parts.push(part));
        answer.on('end', () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts).toString() }));
      });
      request.on('error', reject);
      request.end(body);
    });
  }

  async must(method, path, options) {
    const answer = await this.request(method, path, options);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.body.slice(0, 300)}`);
    return answer;
  }

  put(bucket, key, body = '', headers = {}) { return this.must('PUT', `/${bucket}/${key.split('/').map(strict).join('/')}`, { body, headers }); }

  async iam(fields) {
    const body = new URLSearchParams({ Version: '2010-05-08', ...fields }).toString();
    return (await this.must('POST', '/', { body, service: 'iam', headers: { 'content-type': 'application/x-www-form-urlencoded' } })).body;
  }

  // Many empty objects, a number at a time.
  async fill(bucket, count, name) {
    let next = 0;
    await Promise.all(Array.from({ length: 48 }, async () => { while (next < count) { const index = next; next += 1; await this.put(bucket, name(index)); } }));
  }
}
