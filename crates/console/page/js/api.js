// Requests to the server. The target of an S3 request travels in the query, because a browser would resolve `..` in a path.

import { crc32, sha256 } from './digest.js';

// Answers are parsed as data. This is the only place that may, see the page's policy.
const policy = globalThis.trustedTypes?.createPolicy('margay-xml', { createHTML: (text) => text });

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message || code || `the server answered ${status}`);
    this.status = status;
    this.code = code;
  }
}

export const strict = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`);
export const keyPath = (key) => key.split('/').map(strict).join('/');
export const target = (bucket, key, query) => {
  const path = bucket === undefined ? '/' : `/${strict(bucket)}${key === undefined ? '' : `/${keyPath(key)}`}`;
  const text = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => (value === true ? strict(name) : `${strict(name)}=${strict(String(value))}`)).join('&');
  return text ? `${path}?${text}` : path;
};

export const rawUrl = (bucket, key, form, versionId) =>
  `raw?t=${encodeURIComponent(target(bucket, key, { versionId }))}&as=${form}`;
export const apiUrl = (service, to) => `api/${service}?t=${encodeURIComponent(to)}`;

export const HEADERS = { 'x-margay-console': '1' };

export async function call(path, options = {}) {
  const { headers, ...rest } = options;
  let response;
  try {
    response = await fetch(path, { credentials: 'same-origin', redirect: 'error', ...rest, headers: { ...HEADERS, ...headers } });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'Unreachable', 'the server does not answer');
  }
  if (!response.ok) throw await failure(response.status, await response.text());
  return response;
}

export function failure(status, text) {
  if (status === 401) document.dispatchEvent(new Event('signed-out'));
  if (text.startsWith('<')) {
    const document = xml(text);
    return new ApiError(status, value(document, 'Code'), value(document, 'Message'));
  }
  try {
    return new ApiError(status, '', JSON.parse(text).error);
  } catch {
    return new ApiError(status, '', text.slice(0, 300));
  }
}

export const s3 = (method, bucket, key, query, options = {}) =>
  call(apiUrl('s3', target(bucket, key, query)), { method, ...options });

export async function s3xml(method, bucket, key, query, options) {
  return xml(await (await s3(method, bucket, key, query, options)).text());
}

// Puts a document of a bucket or an object, with a checksum where S3 wants one.
export const putDocument = (bucket, key, query, body, { method = 'PUT', type = 'application/xml', headers } = {}) =>
  s3(method, bucket, key, query, {
    body, headers: { 'content-type': type, 'x-amz-sdk-checksum-algorithm': 'CRC32', 'x-amz-checksum-crc32': crc32(body), ...headers },
  });

export async function iam(action, fields = {}) {
  const form = new URLSearchParams({ Action: action, Version: '2010-05-08', ...fields }).toString();
  const headers = { 'content-type': 'application/x-www-form-urlencoded', 'x-amz-content-sha256': sha256(form) };
  return xml(await (await call(apiUrl('iam', '/'), { method: 'POST', body: form, headers })).text());
}

// A work of the server's administration; what is wished is covered by the signature.
export function admin(method, work, wish, { signal } = {}) {
  const body = wish === undefined ? '' : JSON.stringify(wish);
  const headers = { 'x-amz-content-sha256': sha256(body), ...(body ? { 'content-type': 'application/json' } : {}) };
  return call(apiUrl('admin', `/-/admin/v1/${work}`), { method, headers, signal, ...(body ? { body } : {}) });
}

export const adminJson = async (...given) => (await admin(...given)).json();

export const json = async (path, options) => (await call(path, options)).json();
export const post = (path, value) => json(path, { method: 'POST', body: JSON.stringify(value), headers: { 'content-type': 'application/json' } });

export function xml(text) {
  const parsed = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, 'application/xml');
  if (parsed.getElementsByTagName('parsererror').length > 0) throw new ApiError(0, 'MalformedXML', 'this is no well-formed XML');
  return parsed;
}

export const children = (node, name) => Array.from((node.documentElement ?? node).children).filter((child) => child.localName === name);
export const all = (node, name) => Array.from(node.getElementsByTagNameNS('*', name));
export const value = (node, name) => all(node, name)[0]?.textContent ?? '';
export const own = (node, name) => children(node, name)[0]?.textContent ?? '';
export const unescape = (text) => decodeURIComponent(text.replaceAll('+', '%20'));
export const escapeXml = (text) => String(text).replace(/[<>&'"]/g, (mark) => `&#${mark.charCodeAt(0)};`);
