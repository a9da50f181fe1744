// Hadoop's s3a connector against $ENDPOINT, as Spark, Hive and Flink use it; started by run.sh. The bucket is made with the AWS SDK.

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3Client;

public class S3aChecks {
    interface Check {
        void run() throws Exception;
    }

    static final String BUCKET = "clients-s3a", SEEDED = System.getenv("SEEDED");
    static FileSystem s3a;

    static Configuration configuration(String secret) {
        Configuration settings = new Configuration(false);
        settings.set("fs.s3a.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem");
        settings.set("fs.s3a.endpoint", System.getenv("ENDPOINT"));
        settings.set("fs.s3a.endpoint.region", "us-east-1");
        settings.set("fs.s3a.path.style.access", "true");
        settings.set("fs.s3a.connection.ssl.enabled", "false");
        settings.set("fs.s3a.access.key", System.getenv("AWS_ACCESS_KEY_ID"));
        settings.set("fs.s3a.secret.key", secret);
        settings.set("fs.s3a.aws.credentials.provider", "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider");
        settings.set("fs.s3a.attempts.maximum", "1");
        settings.set("fs.s3a.retry.limit", "1");
        settings.set("fs.s3a.multipart.size", "5M");
        settings.set("fs.s3a.multipart.threshold", "8M");
        settings.set("fs.s3a.fast.upload.buffer", "bytebuffer");
        settings.set("hadoop.tmp.dir", System.getenv("WORK"));
        return settings;
    }

    static FileSystem system(String bucket, String secret) throws Exception {
        return FileSystem.newInstance(URI.create("s3a://" + bucket), configuration(secret));
    }

    static void same(Object got, Object expected) {
        if (!Objects.equals(got, expected)) throw new AssertionError("got " + got + ", expected " + expected);
    }

    static void raises(Class<? extends Exception> kind, Check call) throws Exception {
        try {
            call.run();
        } catch (Exception error) {
            if (kind.isInstance(error)) return;
            throw error;
        }
        throw new AssertionError("succeeded, but " + kind.getSimpleName() + " was expected");
    }

    static byte[] file(String name) throws Exception {
        return Files.readAllBytes(java.nio.file.Path.of(System.getenv("FILES"), name));
    }

    static Path at(String key) {
        return new Path("s3a://" + BUCKET + "/" + key);
    }

    static void put(String key, byte[] body) throws Exception {
        try (FSDataOutputStream to = s3a.create(at(key), true)) {
            to.write(body);
        }
    }

    static byte[] get(String key) throws Exception {
        try (FSDataInputStream from = s3a.open(at(key))) {
            return from.readAllBytes();
        }
    }

    static void sameBytes(byte[] got, byte[] expected) {
        if (!Arrays.equals(got, expected)) throw new AssertionError(got.length + " bytes, not the " + expected.length + " expected");
    }

    static S3Client bare() {
        return S3Client.builder().endpointOverride(URI.create(System.getenv("ENDPOINT"))).region(Region.US_EAST_1).forcePathStyle(true).credentialsProvider(
                StaticCredentialsProvider.create(AwsBasicCredentials.create(System.getenv("AWS_ACCESS_KEY_ID"), System.getenv("AWS_SECRET_ACCESS_KEY")))).build();
    }

    static void makeBucket() throws Exception {
        try (S3Client made = bare()) {
            made.createBucket(of -> of.bucket(BUCKET));
        }
        s3a = system(BUCKET, System.getenv("AWS_SECRET_ACCESS_KEY"));
        same(s3a.getFileStatus(at("")).isDirectory(), true);
        same(s3a.listStatus(at("")).length, 0);
    }

    static void putAndGet() throws Exception {
        for (String name : new String[] {"empty", "one", "100k"}) {
            put("dir/" + name, file(name));
            sameBytes(get("dir/" + name), file(name));
            same(s3a.getFileStatus(at("dir/" + name)).getLen(), (long) file(name).length);
        }
        same(s3a.getFileStatus(at("dir")).isDirectory(), true);
    }

    static void noOverwrite() throws Exception {
        raises(FileAlreadyExistsException.class, () -> s3a.create(at("dir/one"), false));
        raises(FileAlreadyExistsException.class, () -> s3a.create(at("dir"), true));
    }

    static void multipart() throws Exception {
        try (FSDataOutputStream to = s3a.create(at("large"), true)) {
            to.write(file("large"));
            raises(FileNotFoundException.class, () -> s3a.getFileStatus(at("large")));
        }
        sameBytes(get("large"), file("large"));
        s3a.copyFromLocalFile(new Path("file://" + System.getenv("FILES") + "/large"), at("copied from here"));
        sameBytes(get("copied from here"), file("large"));
    }

    static void seeks() throws Exception {
        byte[] body = file("large"), piece = new byte[1000];
        try (FSDataInputStream from = s3a.open(at("large"))) {
            for (int start : new int[] {20_000_000, 5, 12_345_678, body.length - 1000}) {
                from.seek(start);
                from.readFully(piece);
                sameBytes(piece, Arrays.copyOfRange(body, start, start + 1000));
            }
            from.readFully(1_000_000, piece);
            sameBytes(piece, Arrays.copyOfRange(body, 1_000_000, 1_001_000));
        }
    }

    static void directories() throws Exception {
        same(s3a.mkdirs(at("made/deep/er")), true);
        same(s3a.getFileStatus(at("made/deep")).isDirectory(), true);
        put("made/deep/er/file", "x".getBytes());
        same(s3a.listStatus(at("made/deep")).length, 1);
        raises(PathIOException.class, () -> s3a.delete(at("made"), false));
        same(s3a.delete(at("made/deep/er/file"), false), true);
        same(s3a.getFileStatus(at("made/deep/er")).isDirectory(), true);
        same(s3a.delete(at("made"), true), true);
        same(s3a.exists(at("made")), false);
    }

    static void renames() throws Exception {
        for (int number = 0; number < 20; number++) put("job/_temporary/" + number + "/part-" + number, ("part " + number).getBytes());
        put("job/_temporary/space and +%", "odd".getBytes());
        same(s3a.rename(at("job/_temporary"), at("job/done")), true);
        same(s3a.exists(at("job/_temporary")), false);
        same(new String(get("job/done/7/part-7")), "part 7");
        same(new String(get("job/done/space and +%")), "odd");
        same(s3a.rename(at("large"), at("renamed")), true);
        sameBytes(get("renamed"), file("large"));
    }

    static void lists() throws Exception {
        FileSystem seeded = system(SEEDED, System.getenv("AWS_SECRET_ACCESS_KEY"));
        same(seeded.listStatus(new Path("s3a://" + SEEDED + "/many")).length, 2500);
        var each = seeded.listFiles(new Path("s3a://" + SEEDED + "/"), true);
        int count = 0;
        while (each.hasNext()) {
            each.next();
            count++;
        }
        same(count, 2500);
        same(seeded.globStatus(new Path("s3a://" + SEEDED + "/many/00001*")).length, 10);
        same(seeded.getContentSummary(new Path("s3a://" + SEEDED + "/many")).getFileCount(), 2500L);
        seeded.close();
    }

    static void attributes() throws Exception {
        var how = s3a.createFile(at("meta"));
        how.opt("fs.s3a.create.header.colour", "green");
        try (FSDataOutputStream to = how.build()) {
            to.write('m');
        }
        same(new String(s3a.getXAttr(at("meta"), "header.colour"), StandardCharsets.UTF_8), "green");
        same(s3a.hasPathCapability(at("meta"), CommonPathCapabilities.ETAGS_AVAILABLE), true);
    }

    static void refusals() throws Exception {
        raises(FileNotFoundException.class, () -> s3a.open(at("nothing")).read());
        raises(FileNotFoundException.class, () -> s3a.listStatus(at("nothing")));
        raises(IOException.class, () -> system("clients-no-such-bucket", System.getenv("AWS_SECRET_ACCESS_KEY")).listStatus(new Path("s3a://clients-no-such-bucket/")));
        raises(java.nio.file.AccessDeniedException.class, () -> system(BUCKET, "wrong-secret").listStatus(at("")));
    }

    static void removeEverything() throws Exception {
        for (var one : s3a.listStatus(at(""))) s3a.delete(one.getPath(), true);
        same(s3a.listStatus(at("")).length, 0);
        s3a.close();
        try (S3Client made = bare()) {
            made.deleteBucket(of -> of.bucket(BUCKET));
        }
    }

    public static void main(String[] arguments) {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("make bucket", S3aChecks::makeBucket);
        checks.put("put and get", S3aChecks::putAndGet);
        checks.put("no overwrite", S3aChecks::noOverwrite);
        checks.put("multipart", S3aChecks::multipart);
        checks.put("seeks", S3aChecks::seeks);
        checks.put("directories", S3aChecks::directories);
        checks.put("renames", S3aChecks::renames);
        checks.put("lists", S3aChecks::lists);
        checks.put("attributes", S3aChecks::attributes);
        checks.put("refusals", S3aChecks::refusals);
        checks.put("remove everything", S3aChecks::removeEverything);
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
