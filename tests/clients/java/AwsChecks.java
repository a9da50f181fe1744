// AWS SDK for Java v2 against $ENDPOINT; started by run.sh. Prints one line per check, as the shell scripts do.

import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.stream.Collectors;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentialsProvider;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.async.AsyncRequestBody;
import software.amazon.awssdk.core.async.AsyncResponseTransformer;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.core.sync.ResponseTransformer;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3AsyncClient;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.S3Configuration;
import software.amazon.awssdk.services.s3.model.*;
import software.amazon.awssdk.services.s3.presigner.S3Presigner;
import software.amazon.awssdk.transfer.s3.S3TransferManager;

public class AwsChecks {
    interface Check {
        void run() throws Exception;
    }

    static final String BUCKET = "clients-java", SEEDED = System.getenv("SEEDED");
    static final URI ENDPOINT = URI.create(System.getenv("ENDPOINT"));
    static final List<String> ODD_KEYS = List.of("with space", " leading", "trailing ", "plus+plus", "per%cent", "per%2Fcent", "ünïcödé/日本語", "emoji-🐈",
            "amp&and=equals", "semi;colon,comma", "hash#tag", "question?mark=1", "quote'single\"double", "at@colon:tilde~bang!", "<xml>&amp;", "a", "a/", "a/b",
            "a//b", "a-b", "a0", "back\\slash");
    static final S3Client s3 = client(System.getenv("AWS_SECRET_ACCESS_KEY"));

    static AwsCredentialsProvider keys(String secret) {
        return StaticCredentialsProvider.create(AwsBasicCredentials.create(System.getenv("AWS_ACCESS_KEY_ID"), secret));
    }

    static S3Client client(String secret) {
        return S3Client.builder().endpointOverride(ENDPOINT).region(Region.US_EAST_1).forcePathStyle(true).credentialsProvider(keys(secret))
                .overrideConfiguration(settings -> settings.retryStrategy(retry -> retry.maxAttempts(1))).build();
    }

    static S3AsyncClient async(boolean multipart) {
        var made = S3AsyncClient.builder().endpointOverride(ENDPOINT).region(Region.US_EAST_1).forcePathStyle(true)
                .credentialsProvider(keys(System.getenv("AWS_SECRET_ACCESS_KEY"))).multipartEnabled(multipart);
        if (multipart) made.multipartConfiguration(parts -> parts.minimumPartSizeInBytes(5L << 20).thresholdInBytes(8L << 20));
        return made.build();
    }

    static void same(Object got, Object expected) {
        if (!Objects.equals(got, expected)) throw new AssertionError("got " + got + ", expected " + expected);
    }

    static void sameBytes(byte[] got, byte[] expected) {
        if (!Arrays.equals(got, expected)) throw new AssertionError(got.length + " bytes, not the " + expected.length + " expected");
    }

    static void refused(String code, int status, Check call) throws Exception {
        try {
            call.run();
        } catch (S3Exception error) {
            same(error.awsErrorDetails().errorCode() + " " + error.statusCode(), code + " " + status);
            return;
        }
        throw new AssertionError("succeeded, but " + code + " was expected");
    }

    static byte[] file(String name) throws Exception {
        return Files.readAllBytes(Path.of(System.getenv("FILES"), name));
    }

    static PutObjectResponse put(String key, byte[] body) {
        return s3.putObject(to -> to.bucket(BUCKET).key(key), RequestBody.fromBytes(body));
    }

    static byte[] get(String key) {
        return s3.getObject(from -> from.bucket(BUCKET).key(key), ResponseTransformer.toBytes()).asByteArray();
    }

    static List<String> keysBelow(String bucket, String prefix) {
        return s3.listObjectsV2Paginator(of -> of.bucket(bucket).prefix(prefix)).contents().stream().map(S3Object::key).collect(Collectors.toList());
    }

    static void makeBucket() {
        s3.createBucket(to -> to.bucket(BUCKET));
        s3.waiter().waitUntilBucketExists(of -> of.bucket(BUCKET));
        same(s3.listBuckets().buckets().stream().anyMatch(one -> one.name().equals(BUCKET)), true);
        same(s3.getBucketLocation(of -> of.bucket(BUCKET)).locationConstraintAsString(), "");
    }

    static void putAndGet() throws Exception {
        for (String name : List.of("empty", "one", "100k")) {
            var answer = put(name, file(name));
            sameBytes(get(name), file(name));
            var head = s3.headObject(of -> of.bucket(BUCKET).key(name));
            same(head.contentLength(), (long) file(name).length);
            same(head.eTag(), answer.eTag());
        }
        s3.putObject(to -> to.bucket(BUCKET).key("from a file"), Path.of(System.getenv("FILES"), "100k"));
        sameBytes(get("from a file"), file("100k"));
    }

    static void streams() throws Exception {
        try (InputStream from = Files.newInputStream(Path.of(System.getenv("FILES"), "large"))) {
            s3.putObject(to -> to.bucket(BUCKET).key("streamed"), RequestBody.fromInputStream(from, file("large").length));
        }
        sameBytes(get("streamed"), file("large"));
        s3.putObject(to -> to.bucket(BUCKET).key("provided"), RequestBody.fromContentProvider(() -> new java.io.ByteArrayInputStream(new byte[70_000]), "text/plain"));
        same(get("provided").length, 70_000);
    }

    static void oddKeys() {
        for (String key : ODD_KEYS) put("odd/" + key, key.getBytes(StandardCharsets.UTF_8));
        for (String key : ODD_KEYS) same(new String(get("odd/" + key), StandardCharsets.UTF_8), key);
        var expected = ODD_KEYS.stream().map(key -> "odd/" + key)
                .sorted((left, right) -> Arrays.compareUnsigned(left.getBytes(StandardCharsets.UTF_8), right.getBytes(StandardCharsets.UTF_8))).collect(Collectors.toList());
        same(keysBelow(BUCKET, "odd/"), expected);
    }

    static void list() {
        same(keysBelow(SEEDED, "").size(), 2500);
        same(s3.listObjectsV2(of -> of.bucket(SEEDED).delimiter("/")).commonPrefixes().get(0).prefix(), "many/");
        same(s3.listObjects(of -> of.bucket(SEEDED).marker("many/000009").maxKeys(1)).contents().get(0).key(), "many/000010");
    }

    static void ranges() throws Exception {
        byte[] part = s3.getObject(from -> from.bucket(BUCKET).key("100k").range("bytes=1000-1999"), ResponseTransformer.toBytes()).asByteArray();
        sameBytes(part, Arrays.copyOfRange(file("100k"), 1000, 2000));
        part = s3.getObject(from -> from.bucket(BUCKET).key("100k").range("bytes=-5"), ResponseTransformer.toBytes()).asByteArray();
        sameBytes(part, Arrays.copyOfRange(file("100k"), 102_395, 102_400));
        refused("InvalidRange", 416, () -> s3.getObject(from -> from.bucket(BUCKET).key("100k").range("bytes=102400-"), ResponseTransformer.toBytes()));
    }

    static void metadata() {
        s3.putObject(to -> to.bucket(BUCKET).key("meta").contentType("text/x-margay").cacheControl("no-store").metadata(Map.of("colour", "green"))
                .tagging(Tagging.builder().tagSet(Tag.builder().key("kind").value("test").build()).build()), RequestBody.fromString("m"));
        var head = s3.headObject(of -> of.bucket(BUCKET).key("meta"));
        same(List.of(head.contentType(), head.cacheControl(), head.metadata()), List.of("text/x-margay", "no-store", Map.of("colour", "green")));
        same(s3.getObjectTagging(of -> of.bucket(BUCKET).key("meta")).tagSet().get(0).value(), "test");
    }

    static void conditions() throws Exception {
        s3.putObject(to -> to.bucket(BUCKET).key("once").ifNoneMatch("*"), RequestBody.fromString("1"));
        refused("PreconditionFailed", 412, () -> s3.putObject(to -> to.bucket(BUCKET).key("once").ifNoneMatch("*"), RequestBody.fromString("2")));
        refused("PreconditionFailed", 412, () -> s3.getObject(from -> from.bucket(BUCKET).key("once").ifMatch("\"0\""), ResponseTransformer.toBytes()));
        same(new String(get("once")), "1");
    }

    static void copies() throws Exception {
        put("source +%", "content".getBytes());
        s3.copyObject(of -> of.sourceBucket(BUCKET).sourceKey("source +%").destinationBucket(BUCKET).destinationKey("copied"));
        same(new String(get("copied")), "content");
        refused("NoSuchKey", 404, () -> s3.copyObject(of -> of.sourceBucket(BUCKET).sourceKey("nothing").destinationBucket(BUCKET).destinationKey("copied")));
    }

    static void multipartByHand() {
        String upload = s3.createMultipartUpload(of -> of.bucket(BUCKET).key("assembled").checksumAlgorithm(ChecksumAlgorithm.CRC32_C)).uploadId();
        byte[] big = new byte[5 << 20];
        new Random(1).nextBytes(big);
        List<CompletedPart> done = new ArrayList<>();
        for (byte[] body : List.of(big, "tail".getBytes())) {
            int number = done.size() + 1;
            var part = s3.uploadPart(of -> of.bucket(BUCKET).key("assembled").uploadId(upload).partNumber(number).checksumAlgorithm(ChecksumAlgorithm.CRC32_C), RequestBody.fromBytes(body));
            done.add(CompletedPart.builder().partNumber(number).eTag(part.eTag()).checksumCRC32C(part.checksumCRC32C()).build());
        }
        same(s3.listParts(of -> of.bucket(BUCKET).key("assembled").uploadId(upload)).parts().size(), 2);
        s3.completeMultipartUpload(of -> of.bucket(BUCKET).key("assembled").uploadId(upload).multipartUpload(all -> all.parts(done)));
        byte[] expected = Arrays.copyOf(big, big.length + 4);
        System.arraycopy("tail".getBytes(), 0, expected, big.length, 4);
        sameBytes(get("assembled"), expected);
    }

    static void checksums() throws Exception {
        for (var kind : List.of(ChecksumAlgorithm.CRC32, ChecksumAlgorithm.CRC32_C, ChecksumAlgorithm.CRC64_NVME, ChecksumAlgorithm.SHA1, ChecksumAlgorithm.SHA256)) {
            if (kind == ChecksumAlgorithm.CRC64_NVME) continue; // computed by the SDK's native library only
            s3.putObject(to -> to.bucket(BUCKET).key("sum").checksumAlgorithm(kind), RequestBody.fromBytes(file100k()));
            sameBytes(s3.getObject(from -> from.bucket(BUCKET).key("sum").checksumMode(ChecksumMode.ENABLED), ResponseTransformer.toBytes()).asByteArray(), file("100k"));
        }
        same(s3.headObject(of -> of.bucket(BUCKET).key("sum").checksumMode(ChecksumMode.ENABLED)).checksumSHA256() != null, true);
        same(s3.getObjectAttributes(of -> of.bucket(BUCKET).key("sum").objectAttributes(ObjectAttributes.OBJECT_SIZE)).objectSize(), 102_400L);
    }

    static byte[] file100k() {
        try {
            return file("100k");
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void asynchronous() throws Exception {
        try (S3AsyncClient plain = async(false)) {
            plain.putObject(to -> to.bucket(BUCKET).key("async"), AsyncRequestBody.fromBytes(file("100k"))).join();
            sameBytes(plain.getObject(from -> from.bucket(BUCKET).key("async"), AsyncResponseTransformer.toBytes()).join().asByteArray(), file("100k"));
        }
    }

    static void transferManager() throws Exception {
        Path from = Path.of(System.getenv("FILES"), "large"), back = Path.of(System.getenv("WORK"), "back");
        try (S3AsyncClient parts = async(true); S3TransferManager manager = S3TransferManager.builder().s3Client(parts).build()) {
            manager.uploadFile(of -> of.source(from).putObjectRequest(to -> to.bucket(BUCKET).key("large"))).completionFuture().join();
            manager.downloadFile(of -> of.destination(back).getObjectRequest(at -> at.bucket(BUCKET).key("large"))).completionFuture().join();
            sameBytes(Files.readAllBytes(back), file("large"));
            var done = manager.uploadDirectory(of -> of.source(Path.of(System.getenv("FILES"), "tree")).bucket(BUCKET).s3Prefix("tree")).completionFuture().join();
            same(done.failedTransfers().size(), 0);
            manager.copy(of -> of.copyObjectRequest(copy -> copy.sourceBucket(BUCKET).sourceKey("large").destinationBucket(BUCKET).destinationKey("large copy"))).completionFuture().join();
            sameBytes(get("large copy"), file("large"));
        }
    }

    static void presigned() throws Exception {
        try (S3Presigner sign = S3Presigner.builder().endpointOverride(ENDPOINT).region(Region.US_EAST_1).credentialsProvider(keys(System.getenv("AWS_SECRET_ACCESS_KEY")))
                .serviceConfiguration(S3Configuration.builder().pathStyleAccessEnabled(true).build()).build()) {
            URL link = sign.presignGetObject(of -> of.signatureDuration(Duration.ofMinutes(1)).getObjectRequest(from -> from.bucket(BUCKET).key("100k"))).url();
            sameBytes(link.openStream().readAllBytes(), file("100k"));
            URL to = sign.presignPutObject(of -> of.signatureDuration(Duration.ofMinutes(1)).putObjectRequest(put -> put.bucket(BUCKET).key("handed in"))).url();
            HttpURLConnection connection = (HttpURLConnection) to.openConnection();
            connection.setDoOutput(true);
            connection.setRequestMethod("PUT");
            connection.getOutputStream().write("handed in".getBytes());
            same(connection.getResponseCode(), 200);
            same(new String(get("handed in")), "handed in");
        }
    }

    static void refusals() throws Exception {
        try {
            get("nothing");
            throw new AssertionError("NoSuchKeyException was expected");
        } catch (NoSuchKeyException expected) {
            same(expected.statusCode(), 404);
        }
        refused("NoSuchBucket", 404, () -> s3.getObject(from -> from.bucket("clients-no-such-bucket").key("x"), ResponseTransformer.toBytes()));
        refused("SignatureDoesNotMatch", 403, () -> client("wrong-secret").listBuckets());
        refused("BucketNotEmpty", 409, () -> s3.deleteBucket(of -> of.bucket(BUCKET)));
    }

    static void removeEverything() {
        var rest = keysBelow(BUCKET, "").stream().map(key -> ObjectIdentifier.builder().key(key).build()).collect(Collectors.toList());
        same(s3.deleteObjects(of -> of.bucket(BUCKET).delete(all -> all.objects(rest))).errors().size(), 0);
        same(s3.listMultipartUploads(of -> of.bucket(BUCKET)).uploads().size(), 0);
        s3.deleteBucket(of -> of.bucket(BUCKET));
        s3.waiter().waitUntilBucketNotExists(of -> of.bucket(BUCKET));
    }

    public static void main(String[] arguments) {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("make bucket", AwsChecks::makeBucket);
        checks.put("put and get", AwsChecks::putAndGet);
        checks.put("streams", AwsChecks::streams);
        checks.put("odd keys", AwsChecks::oddKeys);
        checks.put("list", AwsChecks::list);
        checks.put("ranges", AwsChecks::ranges);
        checks.put("metadata and tags", AwsChecks::metadata);
        checks.put("conditions", AwsChecks::conditions);
        checks.put("copies", AwsChecks::copies);
        checks.put("multipart by hand", AwsChecks::multipartByHand);
        checks.put("checksums", AwsChecks::checksums);
        checks.put("asynchronous client", AwsChecks::asynchronous);
        checks.put("transfer manager", AwsChecks::transferManager);
        checks.put("presigned", AwsChecks::presigned);
        checks.put("refusals", AwsChecks::refusals);
        checks.put("remove everything", AwsChecks::removeEverything);
        int failed = 0;
        for (var check : checks.entrySet()) {
            try {
                check.getValue().run();
                System.out.println("ok " + check.getKey());
            } catch (Throwable error) {
                failed++;
                String text = String.valueOf(error);
                System.out.println("not ok " + check.getKey() + "\n    " + text.substring(0, Math.min(600, text.length())));
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }
}
