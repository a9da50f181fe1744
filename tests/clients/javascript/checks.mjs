// The AWS SDK for JavaScript against $ENDPOINT; started by run.sh. Prints one line per check, as the shell scripts do.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream, readFileSync } from "node:fs";
import { Readable } from "node:stream";
import {
    AbortMultipartUploadCommand, CompleteMultipartUploadCommand, CopyObjectCommand, CreateBucketCommand, CreateMultipartUploadCommand,
    DeleteBucketCommand, DeleteObjectCommand, DeleteObjectsCommand, GetObjectCommand, HeadBucketCommand, HeadObjectCommand,
    ListBucketsCommand, ListObjectVersionsCommand, ListPartsCommand, PutObjectCommand, S3Client, UploadPartCommand,
    paginateListObjectsV2, waitUntilBucketExists,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { createPresignedPost } from "@aws-sdk/s3-presigned-post";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const { ENDPOINT, FILES, SEEDED } = process.env;
const Bucket = "clients-javascript";
const settings = { endpoint: ENDPOINT, forcePathStyle: true, region: "us-east-1", maxAttempts: 1 };
const s3 = new S3Client(settings);
const send = (Command, input) => s3.send(new Command({ Bucket, ...input }));
const file = (name) => readFileSync(`${FILES}/${name}`);
const bytes = async (answer) => Buffer.from(await answer.Body.transformToByteArray());
const get = async (Key, more = {}) => bytes(await send(GetObjectCommand, { Key, ...more }));
const md5 = (body) => createHash("md5").update(body).digest("hex");
const refused = (name, status, call) =>
    assert.rejects(call, (error) => {
        assert.deepEqual([error.name, error.$metadata?.httpStatusCode], [name, status]);
        return true;
    });
const ODD_KEYS = [
    "with space", " leading", "trailing ", "plus+plus", "per%cent", "per%2Fcent", "ünïcödé/日本語", "emoji-🐈", "amp&and=equals",
    "semi;colon,comma", "hash#tag", "question?mark=1", "quote'single\"double", "paren(1)[2]{3}", "at@colon:tilde~bang!", "<xml>&amp;",
    "a", "a/", "a/b", "a//b", "a-b", "a0", "..dots", "back\\slash", "k".repeat(1024),
];
const byBytes = (left, right) => Buffer.compare(Buffer.from(left), Buffer.from(right));

async function keys(input) {
    const found = [];
    for await (const page of paginateListObjectsV2({ client: s3 }, { Bucket, ...input })) {
        found.push(...(page.Contents ?? []).map((entry) => entry.Key));
    }
    return found;
}

const checks = {
    async "make bucket"() {
        await send(CreateBucketCommand);
        await send(HeadBucketCommand);
        await waitUntilBucketExists({ client: s3, minDelay: 1, maxWaitTime: 5 }, { Bucket });
        const { Buckets } = await s3.send(new ListBucketsCommand({}));
        assert(Buckets.some((bucket) => bucket.Name === Bucket));
    },
    async "put and get"() {
        for (const name of ["empty", "one", "100k"]) {
            const { ETag } = await send(PutObjectCommand, { Key: name, Body: file(name) });
            assert.equal(ETag, `"${md5(file(name))}"`);
            assert.deepEqual(await get(name), file(name));
        }
    },
    async "put of a stream, with a trailing checksum"() {
        const Body = createReadStream(`${FILES}/100k`);
        const answer = await send(PutObjectCommand, { Key: "streamed", Body, ContentLength: 102400, ChecksumAlgorithm: "CRC32" });
        assert(answer.ChecksumCRC32);
        const got = await send(GetObjectCommand, { Key: "streamed", ChecksumMode: "ENABLED" }); // compared on the way
        assert.equal(got.ChecksumCRC32, answer.ChecksumCRC32);
        assert.deepEqual(await bytes(got), file("100k"));
    },
    async "every checksum"() {
        for (const ChecksumAlgorithm of ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]) {
            const answer = await send(PutObjectCommand, { Key: "sum", Body: file("100k"), ChecksumAlgorithm });
            assert(answer[`Checksum${ChecksumAlgorithm}`], ChecksumAlgorithm);
            assert.deepEqual(await get("sum", { ChecksumMode: "ENABLED" }), file("100k"));
        }
        const wrong = { Key: "never", Body: "x", ChecksumSHA256: "0".repeat(43) + "=" };
        await refused("BadDigest", 400, send(PutObjectCommand, wrong));
        await refused("NotFound", 404, send(HeadObjectCommand, { Key: "never" }));
    },
    async "odd keys, listed in order"() {
        for (const Key of ODD_KEYS) await send(PutObjectCommand, { Key: `odd/${Key}`.slice(0, 1024), Body: Key });
        for (const Key of ODD_KEYS) assert.equal(String(await get(`odd/${Key}`.slice(0, 1024))), Key);
        const expected = ODD_KEYS.map((key) => `odd/${key}`.slice(0, 1024)).sort(byBytes);
        assert.deepEqual(await keys({ Prefix: "odd/" }), expected);
        assert.deepEqual(await keys({ Prefix: "odd/", MaxKeys: 3, EncodingType: undefined }), expected);
    },
    async "2500 keys in pages"() {
        assert.equal((await keys({ Bucket: SEEDED })).length, 2500);
        assert.equal((await keys({ Bucket: SEEDED, StartAfter: "many/002490" })).length, 9);
    },
    async "metadata and content headers"() {
        const headers = { ContentType: "text/x-margay", CacheControl: "no-store", ContentDisposition: "inline", ContentLanguage: "de" };
        await send(PutObjectCommand, { Key: "meta", Body: "m", ...headers, Metadata: { colour: "green" } });
        const head = await send(HeadObjectCommand, { Key: "meta" });
        for (const [name, value] of Object.entries(headers)) assert.equal(head[name], value);
        assert.deepEqual(head.Metadata, { colour: "green" });
    },
    async "ranged and conditional get"() {
        assert.deepEqual(await get("100k", { Range: "bytes=1000-1999" }), file("100k").subarray(1000, 2000));
        const { ETag } = await send(HeadObjectCommand, { Key: "100k" });
        await refused("Unknown", 304, send(GetObjectCommand, { Key: "100k", IfNoneMatch: ETag }));
        await refused("PreconditionFailed", 412, send(GetObjectCommand, { Key: "100k", IfMatch: '"0"' }));
        await refused("InvalidRange", 416, send(GetObjectCommand, { Key: "100k", Range: "bytes=102400-" }));
    },
    async "conditional put"() {
        await send(PutObjectCommand, { Key: "once", Body: "1", IfNoneMatch: "*" });
        await refused("PreconditionFailed", 412, send(PutObjectCommand, { Key: "once", Body: "2", IfNoneMatch: "*" }));
        assert.equal(String(await get("once")), "1");
    },
    async "copy"() {
        await send(CopyObjectCommand, { Key: "copy", CopySource: `${Bucket}/meta` });
        assert.deepEqual((await send(HeadObjectCommand, { Key: "copy" })).Metadata, { colour: "green" });
    },
    async "managed upload of a stream of unknown length"() {
        const Body = Readable.from(createReadStream(`${FILES}/large`));
        const upload = new Upload({ client: s3, partSize: 5 << 20, queueSize: 3, params: { Bucket, Key: "large", Body } });
        const { ETag } = await upload.done();
        assert.match(ETag, /-5"$/);
        assert.equal(md5(await get("large")), md5(file("large")));
    },
    async "multipart by hand"() {
        const named = { Key: "assembled", UploadId: (await send(CreateMultipartUploadCommand, { Key: "assembled" })).UploadId };
        const big = Buffer.alloc(5 << 20, "b");
        const Parts = [];
        for (const [PartNumber, Body] of [[1, big], [2, "tail"]]) {
            Parts.push({ PartNumber, ETag: (await send(UploadPartCommand, { ...named, PartNumber, Body })).ETag });
        }
        assert.deepEqual((await send(ListPartsCommand, named)).Parts.map((part) => part.Size), [5 << 20, 4]);
        const swapped = { Parts: [Parts[1], Parts[0]] };
        await refused("InvalidPartOrder", 400, send(CompleteMultipartUploadCommand, { ...named, MultipartUpload: swapped }));
        await send(CompleteMultipartUploadCommand, { ...named, MultipartUpload: { Parts } });
        assert.equal((await get("assembled")).length, (5 << 20) + 4);
        await refused("NoSuchUpload", 404, send(AbortMultipartUploadCommand, { Key: "assembled", UploadId: "none" }));
    },
    async "presigned URLs"() {
        const url = (Command, input) => getSignedUrl(s3, new Command({ Bucket, ...input }), { expiresIn: 60 });
        const put = await url(PutObjectCommand, { Key: "by url/ü+%", ContentType: "text/x-margay", Metadata: { colour: "blue" } });
        const sent = await fetch(put, { method: "PUT", body: file("100k"), headers: { "content-type": "text/x-margay" } });
        assert.equal(sent.status, 200, await sent.text());
        const head = await send(HeadObjectCommand, { Key: "by url/ü+%" });
        assert.deepEqual([head.ContentLength, head.ContentType, head.Metadata], [102400, "text/x-margay", { colour: "blue" }]);
        const got = await fetch(await url(GetObjectCommand, { Key: "by url/ü+%" }));
        assert.deepEqual(Buffer.from(await got.arrayBuffer()), file("100k"));
        assert.equal((await fetch(put.replace("by%20url", "by%20urn"), { method: "PUT", body: "x" })).status, 403);
        const { UploadId } = await send(CreateMultipartUploadCommand, { Key: "parts by url" });
        const part = await fetch(await url(UploadPartCommand, { Key: "parts by url", UploadId, PartNumber: 1 }), { method: "PUT", body: "part" });
        const Parts = [{ PartNumber: 1, ETag: part.headers.get("etag") }];
        await send(CompleteMultipartUploadCommand, { Key: "parts by url", UploadId, MultipartUpload: { Parts } });
        assert.equal(String(await get("parts by url")), "part");
    },
    async "presigned form"() {
        const { url, fields } = await createPresignedPost(s3, { Bucket, Key: "form/${filename}", Conditions: [["content-length-range", 1, 9]] });
        const upload = (text) => {
            const form = new FormData();
            for (const [name, value] of Object.entries(fields)) form.append(name, value);
            form.append("file", new Blob([text]), "cat.txt");
            return fetch(url, { method: "POST", body: form });
        };
        assert.equal((await upload("meow")).status, 204);
        assert.equal(String(await get("form/cat.txt")), "meow");
        assert.equal((await upload("meow meow meow")).status, 400);
    },
    async "errors"() {
        await refused("NoSuchKey", 404, send(GetObjectCommand, { Key: "nothing" }));
        await refused("NoSuchBucket", 404, send(GetObjectCommand, { Bucket: `${Bucket}-none`, Key: "x" }));
        await refused("BucketNotEmpty", 409, send(DeleteBucketCommand));
        const credentials = { accessKeyId: process.env.AWS_ACCESS_KEY_ID, secretAccessKey: "wrong" };
        const stranger = new S3Client({ ...settings, credentials });
        await refused("SignatureDoesNotMatch", 403, stranger.send(new GetObjectCommand({ Bucket, Key: "meta" })));
    },
    async "delete many, remove bucket"() {
        await send(DeleteObjectCommand, { Key: "meta" });
        const { Versions } = await send(ListObjectVersionsCommand);
        const Objects = Versions.map(({ Key }) => ({ Key }));
        const { Deleted, Errors } = await send(DeleteObjectsCommand, { Delete: { Objects } });
        assert.deepEqual([Deleted.length, Errors], [Objects.length, undefined]);
        assert.deepEqual(await keys({}), []);
        await send(DeleteBucketCommand);
    },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
    try {
        await check();
        console.log(`ok ${name}`);
    } catch (error) {
        failed += 1;
        console.log(`not ok ${name}`);
        console.log(String(error.stack).replace(/^/gm, "    "));
    }
}
process.exitCode = failed ? 1 : 0;
