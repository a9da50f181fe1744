// minio-go against $ENDPOINT; started by run.sh. Prints one line per check, as the shell scripts do.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"

	. "margay/clients/checks"
)

const bucket = "clients-go-minio"

var (
	all    = context.Background()
	client = connect(os.Getenv("AWS_SECRET_ACCESS_KEY"), false)
)

func connect(secret string, trailers bool) *minio.Client {
	made, err := minio.New(Host(), &minio.Options{
		Creds:           credentials.NewStaticV4(os.Getenv("AWS_ACCESS_KEY_ID"), secret, ""),
		Region:          "us-east-1",
		MaxRetries:      1,
		TrailingHeaders: trailers,
	})
	if err != nil {
		panic(err)
	}
	return made
}

func put(key string, body []byte, options minio.PutObjectOptions) error {
	_, err := client.PutObject(all, bucket, key, bytes.NewReader(body), int64(len(body)), options)
	return err
}

func holds(key string, expected []byte) error {
	answer, err := client.GetObject(all, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer answer.Close()
	return SameBytes(answer, expected)
}

func keys(name string, options minio.ListObjectsOptions) (found []string, err error) {
	for one := range client.ListObjects(all, name, options) {
		if one.Err != nil {
			return nil, one.Err
		}
		found = append(found, one.Key)
	}
	return found, nil
}

func refused(err error, code string) error {
	if minio.ToErrorResponse(err).Code != code {
		return fmt.Errorf("%s was expected: %v", code, err)
	}
	return nil
}

func makeBucket() error {
	if err := client.MakeBucket(all, bucket, minio.MakeBucketOptions{}); err != nil {
		return err
	}
	found, err := client.BucketExists(all, bucket)
	absent, err2 := client.BucketExists(all, "clients-no-such-bucket")
	return First(err, err2, Same(found, true), Same(absent, false))
}

func putAndGet() error {
	for _, name := range []string{"empty", "one", "100k"} {
		sent, err := client.PutObject(all, bucket, name, bytes.NewReader(File(name)), int64(len(File(name))), minio.PutObjectOptions{})
		if err != nil {
			return err
		}
		stat, err := client.StatObject(all, bucket, name, minio.StatObjectOptions{})
		if err = First(err, Same(stat.Size, len(File(name))), Same(stat.ETag, sent.ETag), holds(name, File(name))); err != nil {
			return err
		}
	}
	return nil
}

func files() error {
	from, back := filepath.Join(os.Getenv("FILES"), "large"), filepath.Join(os.Getenv("WORK"), "back")
	_, err := client.FPutObject(all, bucket, "large", from, minio.PutObjectOptions{PartSize: 5 << 20})
	if err = First(err, client.FGetObject(all, bucket, "large", back, minio.GetObjectOptions{})); err != nil {
		return err
	}
	got, err := os.ReadFile(back)
	return First(err, SameBytes(bytes.NewReader(got), File("large")))
}

func unknownLength() error {
	for key, how := range map[string]minio.PutObjectOptions{"streamed": {PartSize: 5 << 20}, "streamed concurrently": {PartSize: 5 << 20, ConcurrentStreamParts: true, NumThreads: 3}} {
		if _, err := client.PutObject(all, bucket, key, io.MultiReader(bytes.NewReader(File("large"))), -1, how); err != nil {
			return err
		}
		if err := holds(key, File("large")); err != nil {
			return err
		}
	}
	return nil
}

func odd() error {
	expected := []string{}
	for _, key := range OddKeys {
		if err := put("odd/"+key, []byte(key), minio.PutObjectOptions{}); err != nil {
			return fmt.Errorf("put [%s]: %w", key, err)
		}
		expected = append(expected, "odd/"+key)
	}
	for _, key := range OddKeys {
		if err := holds("odd/"+key, []byte(key)); err != nil {
			return fmt.Errorf("get [%s]: %w", key, err)
		}
	}
	sort.Strings(expected)
	found, err := keys(bucket, minio.ListObjectsOptions{Prefix: "odd/", Recursive: true})
	return First(err, Same(found, expected))
}

func list() error {
	for _, old := range []bool{false, true} {
		found, err := keys(os.Getenv("SEEDED"), minio.ListObjectsOptions{Recursive: true, UseV1: old, MaxKeys: 700})
		if err = First(err, Same(len(found), 2500)); err != nil {
			return err
		}
		found, err = keys(os.Getenv("SEEDED"), minio.ListObjectsOptions{UseV1: old})
		if err = First(err, Same(found, []string{"many/"})); err != nil {
			return err
		}
	}
	found, err := keys(os.Getenv("SEEDED"), minio.ListObjectsOptions{Recursive: true, StartAfter: "many/002490"})
	return First(err, Same(len(found), 9))
}

func ranges() error {
	options := minio.GetObjectOptions{}
	if err := options.SetRange(1000, 1999); err != nil {
		return err
	}
	answer, err := client.GetObject(all, bucket, "100k", options)
	if err = First(err, SameBytes(answer, File("100k")[1000:2000])); err != nil {
		return err
	}
	whole, err := client.GetObject(all, bucket, "100k", minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer whole.Close()
	piece := make([]byte, 100)
	if _, err := whole.ReadAt(piece, 50_000); err != nil {
		return err
	}
	_, err = whole.Seek(-5, io.SeekEnd)
	return First(err, Same(piece, File("100k")[50_000:50_100]), SameBytes(whole, File("100k")[102_395:]))
}

func metadata() error {
	err := put("meta", []byte("m"), minio.PutObjectOptions{ContentType: "text/x-margay", CacheControl: "no-store", UserMetadata: map[string]string{"colour": "green"},
		UserTags: map[string]string{"kind": "test"}, StorageClass: "STANDARD"})
	if err != nil {
		return err
	}
	stat, err := client.StatObject(all, bucket, "meta", minio.StatObjectOptions{})
	if err = First(err, Same(stat.ContentType, "text/x-margay"), Same(stat.Metadata.Get("Cache-Control"), "no-store"), Same(stat.UserMetadata["Colour"], "green")); err != nil {
		return err
	}
	found, err := client.GetObjectTagging(all, bucket, "meta", minio.GetObjectTaggingOptions{})
	if err = First(err, Same(found.ToMap(), map[string]string{"kind": "test"})); err != nil {
		return err
	}
	set, err := tags.MapToObjectTags(map[string]string{"kind": "other"})
	return First(err, client.PutObjectTagging(all, bucket, "meta", set, minio.PutObjectTaggingOptions{}), client.RemoveObjectTagging(all, bucket, "meta", minio.RemoveObjectTaggingOptions{}))
}

// A listing has the metadata and tags of each object, as at MinIO.
func listedMetadata() error {
	tagged := map[string]string{"a": "1", "b c": "d+e"}
	options := minio.PutObjectOptions{ContentType: "text/html", UserMetadata: map[string]string{"mode": "0100644", "Long-name": "<&>"}, UserTags: tagged}
	if err := put("listed/tagged", []byte("x"), options); err != nil {
		return err
	}
	if err := put("listed/typed", []byte("x"), minio.PutObjectOptions{ContentType: "text/plain"}); err != nil {
		return err
	}
	var found []minio.ObjectInfo
	for one := range client.ListObjects(all, bucket, minio.ListObjectsOptions{Prefix: "listed/", Recursive: true, WithMetadata: true}) {
		if one.Err != nil {
			return one.Err
		}
		found = append(found, one)
	}
	if len(found) != 2 {
		return fmt.Errorf("%d objects", len(found))
	}
	first, second := found[0], found[1]
	metadata := fmt.Sprint(first.UserMetadata, second.UserMetadata)
	expected := fmt.Sprint(
		map[string]string{"X-Amz-Meta-Long-Name": "<&>", "X-Amz-Meta-Mode": "0100644", "content-type": "text/html"},
		map[string]string{"content-type": "text/plain"})
	if metadata != expected {
		return fmt.Errorf("metadata %s", metadata)
	}
	return Same(fmt.Sprint(first.UserTags, len(second.UserTags)), fmt.Sprint(tagged, 0))
}

func conditions() error {
	once := minio.PutObjectOptions{}
	once.SetMatchETagExcept("*")
	if err := put("once", []byte("1"), once); err != nil {
		return err
	}
	stale := minio.GetObjectOptions{}
	if err := stale.SetMatchETag("00000000000000000000000000000000"); err != nil {
		return err
	}
	_, err := client.StatObject(all, bucket, "once", stale)
	return First(refused(put("once", []byte("2"), once), "PreconditionFailed"), Same(err != nil, true), holds("once", []byte("1")))
}

func copies() error {
	if err := put("source +%", []byte("content"), minio.PutObjectOptions{ContentType: "text/x-margay"}); err != nil {
		return err
	}
	source := minio.CopySrcOptions{Bucket: bucket, Object: "source +%"}
	_, err := client.CopyObject(all, minio.CopyDestOptions{Bucket: bucket, Object: "copied", ReplaceMetadata: true, UserMetadata: map[string]string{"a": "b"}}, source)
	if err = First(err, holds("copied", []byte("content"))); err != nil {
		return err
	}
	_, err = client.ComposeObject(all, minio.CopyDestOptions{Bucket: bucket, Object: "composed"},
		minio.CopySrcOptions{Bucket: bucket, Object: "large"}, minio.CopySrcOptions{Bucket: bucket, Object: "100k", MatchRange: true, Start: 10, End: 19})
	_, missing := client.CopyObject(all, minio.CopyDestOptions{Bucket: bucket, Object: "x"}, minio.CopySrcOptions{Bucket: bucket, Object: "nothing"})
	return First(err, holds("composed", append(File("large"), File("100k")[10:20]...)), refused(missing, "NoSuchKey"))
}

func checksums() error {
	summed := connect(os.Getenv("AWS_SECRET_ACCESS_KEY"), true)
	for _, kind := range []minio.ChecksumType{minio.ChecksumCRC32, minio.ChecksumCRC32C, minio.ChecksumCRC64NVME, minio.ChecksumSHA1, minio.ChecksumSHA256} {
		for name, size := range map[string]uint64{"100k": 0, "large": 5 << 20} {
			key := "sum/" + kind.String() + "/" + name
			sent, err := summed.PutObject(all, bucket, key, bytes.NewReader(File(name)), int64(len(File(name))), minio.PutObjectOptions{Checksum: kind, PartSize: size})
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			stat, err := summed.StatObject(all, bucket, key, minio.StatObjectOptions{Checksum: true})
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if err := First(Same(stat.ChecksumCRC32+stat.ChecksumCRC32C+stat.ChecksumCRC64NVME+stat.ChecksumSHA1+stat.ChecksumSHA256 != "", true), Same(stat.Size, sent.Size), holds(key, File(name))); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return put("md5", File("100k"), minio.PutObjectOptions{SendContentMd5: true})
}

func presigned() error {
	get, err := client.PresignedGetObject(all, bucket, "100k", time.Minute, nil)
	if err != nil {
		return err
	}
	send, err := client.PresignedPutObject(all, bucket, "handed in", time.Minute)
	return First(err, Fetch(http.MethodGet, get.String(), nil, 200, File("100k")), Fetch(http.MethodPut, send.String(), []byte("handed in"), 200, nil),
		holds("handed in", []byte("handed in")))
}

func form() error {
	policy := minio.NewPostPolicy()
	sum := minio.ChecksumCRC32C.ChecksumBytes(File("100k"))
	err := First(policy.SetBucket(bucket), policy.SetKey("posted"), policy.SetExpires(time.Now().Add(time.Minute)), policy.SetContentType("text/x-margay"),
		policy.SetContentLengthRange(1, 1<<20), policy.SetUserMetadata("colour", "green"), policy.SetChecksum(sum))
	if err != nil {
		return err
	}
	link, fields, err := client.PresignedPostPolicy(all, policy)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	for name, value := range fields {
		if err := writer.WriteField(name, value); err != nil {
			return err
		}
	}
	field, err := writer.CreateFormFile("file", "100k")
	if err != nil {
		return err
	}
	field.Write(File("100k"))
	writer.Close()
	answer, err := http.Post(link.String(), writer.FormDataContentType(), &body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != 204 {
		return fmt.Errorf("status %d: %s", answer.StatusCode, said)
	}
	stat, err := client.StatObject(all, bucket, "posted", minio.StatObjectOptions{Checksum: true})
	return First(err, Same(stat.ChecksumCRC32C, base64.StdEncoding.EncodeToString(sum.Raw())), Same(stat.UserMetadata["Colour"], "green"), holds("posted", File("100k")))
}

func versions() error {
	name := bucket + "-versions"
	if err := First(client.MakeBucket(all, name, minio.MakeBucketOptions{ObjectLocking: true})); err != nil {
		return err
	}
	for _, body := range []string{"one", "two"} {
		if _, err := client.PutObject(all, name, "k", bytes.NewReader([]byte(body)), 3, minio.PutObjectOptions{}); err != nil {
			return err
		}
	}
	found := []minio.ObjectInfo{}
	for one := range client.ListObjects(all, name, minio.ListObjectsOptions{WithVersions: true, Recursive: true}) {
		if one.Err != nil {
			return one.Err
		}
		found = append(found, one)
	}
	if err := Same(len(found), 2); err != nil {
		return err
	}
	held := minio.LegalHoldEnabled
	if err := client.PutObjectLegalHold(all, name, "k", minio.PutObjectLegalHoldOptions{Status: &held, VersionID: found[1].VersionID}); err != nil {
		return err
	}
	locked := client.RemoveObject(all, name, "k", minio.RemoveObjectOptions{VersionID: found[1].VersionID})
	held = minio.LegalHoldDisabled
	if err := First(refused(locked, "AccessDenied"), client.PutObjectLegalHold(all, name, "k", minio.PutObjectLegalHoldOptions{Status: &held, VersionID: found[1].VersionID})); err != nil {
		return err
	}
	for _, one := range found {
		if err := client.RemoveObject(all, name, "k", minio.RemoveObjectOptions{VersionID: one.VersionID}); err != nil {
			return err
		}
	}
	return client.RemoveBucket(all, name)
}

func refusals() error {
	_, noKey := client.StatObject(all, bucket, "nothing", minio.StatObjectOptions{})
	_, noBucket := client.StatObject(all, "clients-no-such-bucket", "x", minio.StatObjectOptions{})
	_, wrong := connect("wrong-secret", false).ListBuckets(all)
	return First(refused(noKey, "NoSuchKey"), refused(noBucket, "NoSuchKey"), refused(wrong, "SignatureDoesNotMatch"), refused(client.RemoveBucket(all, bucket), "BucketNotEmpty"))
}

func removeEverything() error {
	objects := client.ListObjects(all, bucket, minio.ListObjectsOptions{Recursive: true})
	for failed := range client.RemoveObjects(all, bucket, objects, minio.RemoveObjectsOptions{}) {
		return failed.Err
	}
	for one := range client.ListIncompleteUploads(all, bucket, "", true) {
		return fmt.Errorf("an upload is left: %v", one)
	}
	return client.RemoveBucket(all, bucket)
}

func main() {
	Run([]Check{
		{"make bucket", makeBucket}, {"put and get", putAndGet}, {"files, multipart", files}, {"streams of unknown length", unknownLength}, {"odd keys", odd},
		{"list", list}, {"ranges", ranges}, {"metadata and tags", metadata}, {"metadata of a listing", listedMetadata}, {"conditions", conditions}, {"copies and compose", copies},
		{"checksums in trailers", checksums}, {"presigned", presigned}, {"form", form}, {"versions and locks", versions}, {"refusals", refusals},
		{"remove everything", removeEverything},
	})
}
