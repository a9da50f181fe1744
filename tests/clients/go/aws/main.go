// AWS SDK for Go v2 against $ENDPOINT; started by run.sh. Prints one line per check, as the shell scripts do.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	. "margay/clients/checks"
)

var (
	all    = context.Background()
	bucket = aws.String("clients-go-aws")
	client = connect(os.Getenv("AWS_SECRET_ACCESS_KEY"))
)

func connect(secret string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint:     aws.String(os.Getenv("ENDPOINT")),
		Region:           "us-east-1",
		UsePathStyle:     true,
		RetryMaxAttempts: 1,
		Credentials:      credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), secret, ""),
	})
}

func put(key string, body []byte) (*s3.PutObjectOutput, error) {
	return client.PutObject(all, &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: bytes.NewReader(body)})
}

func holds(key string, expected []byte) error {
	answer, err := client.GetObject(all, &s3.GetObjectInput{Bucket: bucket, Key: &key})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return SameBytes(answer.Body, expected)
}

func keys(name, prefix string) (found []string, err error) {
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &name, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(all)
		if err != nil {
			return nil, err
		}
		for _, one := range page.Contents {
			found = append(found, *one.Key)
		}
	}
	return found, nil
}

func refused(err error, code string) error {
	var said smithy.APIError
	if !errors.As(err, &said) || said.ErrorCode() != code {
		return fmt.Errorf("%s was expected: %v", code, err)
	}
	return nil
}

func makeBucket() error {
	_, err := client.CreateBucket(all, &s3.CreateBucketInput{Bucket: bucket})
	if err != nil {
		return err
	}
	if err := s3.NewBucketExistsWaiter(client).Wait(all, &s3.HeadBucketInput{Bucket: bucket}, 5*time.Second); err != nil {
		return err
	}
	listed, err := client.ListBuckets(all, &s3.ListBucketsInput{})
	if err != nil {
		return err
	}
	for _, one := range listed.Buckets {
		if *one.Name == *bucket {
			return nil
		}
	}
	return errors.New("the bucket is not listed")
}

func putAndGet() error {
	for _, name := range []string{"empty", "one", "100k"} {
		answer, err := put(name, File(name))
		if err != nil {
			return err
		}
		head, err := client.HeadObject(all, &s3.HeadObjectInput{Bucket: bucket, Key: &name})
		if err = First(err, holds(name, File(name))); err != nil {
			return err
		}
		if err := First(Same(*head.ContentLength, len(File(name))), Same(*head.ETag, *answer.ETag)); err != nil {
			return err
		}
	}
	return nil
}

func odd() error {
	for _, key := range OddKeys {
		if _, err := put("odd/"+key, []byte(key)); err != nil {
			return fmt.Errorf("put [%s]: %w", key, err)
		}
	}
	expected := []string{}
	for _, key := range OddKeys {
		if err := holds("odd/"+key, []byte(key)); err != nil {
			return fmt.Errorf("get [%s]: %w", key, err)
		}
		expected = append(expected, "odd/"+key)
	}
	sort.Strings(expected)
	found, err := keys(*bucket, "odd/")
	return First(err, Same(found, expected))
}

func list() error {
	found, err := keys(os.Getenv("SEEDED"), "")
	if err = First(err, Same(len(found), 2500)); err != nil {
		return err
	}
	page, err := client.ListObjectsV2(all, &s3.ListObjectsV2Input{Bucket: aws.String(os.Getenv("SEEDED")), Delimiter: aws.String("/")})
	if err != nil {
		return err
	}
	old, err := client.ListObjects(all, &s3.ListObjectsInput{Bucket: aws.String(os.Getenv("SEEDED")), Marker: aws.String("many/000009"), MaxKeys: aws.Int32(1)})
	return First(err, Same(*page.CommonPrefixes[0].Prefix, "many/"), Same(*old.Contents[0].Key, "many/000010"))
}

func ranges() error {
	for text, part := range map[string][]byte{"bytes=1000-1999": File("100k")[1000:2000], "bytes=-5": File("100k")[102395:], "bytes=102399-": File("100k")[102399:]} {
		answer, err := client.GetObject(all, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("100k"), Range: &text})
		if err != nil {
			return err
		}
		if err := SameBytes(answer.Body, part); err != nil {
			return err
		}
	}
	_, err := client.GetObject(all, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("100k"), Range: aws.String("bytes=102400-")})
	return refused(err, "InvalidRange")
}

func metadata() error {
	_, err := client.PutObject(all, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("meta"), Body: bytes.NewReader([]byte("m")),
		ContentType: aws.String("text/x-margay"), CacheControl: aws.String("no-store"), Metadata: map[string]string{"colour": "green"}, Tagging: aws.String("kind=test")})
	if err != nil {
		return err
	}
	head, err := client.HeadObject(all, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("meta")})
	if err != nil {
		return err
	}
	tags, err := client.GetObjectTagging(all, &s3.GetObjectTaggingInput{Bucket: bucket, Key: aws.String("meta")})
	if err != nil {
		return err
	}
	return First(Same(*head.ContentType, "text/x-margay"), Same(*head.CacheControl, "no-store"), Same(head.Metadata, map[string]string{"colour": "green"}),
		Same(*tags.TagSet[0].Value, "test"))
}

func conditions() error {
	once := func(key string, more s3.PutObjectInput) error {
		more.Bucket, more.Key, more.Body = bucket, &key, bytes.NewReader([]byte("x"))
		_, err := client.PutObject(all, &more)
		return err
	}
	if err := once("once", s3.PutObjectInput{IfNoneMatch: aws.String("*")}); err != nil {
		return err
	}
	_, stale := client.GetObject(all, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("once"), IfMatch: aws.String(`"0"`)})
	return First(refused(once("once", s3.PutObjectInput{IfNoneMatch: aws.String("*")}), "PreconditionFailed"),
		refused(once("once", s3.PutObjectInput{IfMatch: aws.String(`"0"`)}), "PreconditionFailed"), refused(stale, "PreconditionFailed"))
}

func copies() error {
	_, err := put("source +%", []byte("content"))
	if err != nil {
		return err
	}
	_, err = client.CopyObject(all, &s3.CopyObjectInput{Bucket: bucket, Key: aws.String("copied"), CopySource: aws.String(*bucket + "/source%20%2B%25")})
	_, missing := client.CopyObject(all, &s3.CopyObjectInput{Bucket: bucket, Key: aws.String("copied"), CopySource: aws.String(*bucket + "/nothing")})
	return First(err, holds("copied", []byte("content")), refused(missing, "NoSuchKey"))
}

func multipart() error {
	uploader := manager.NewUploader(client, func(settings *manager.Uploader) { settings.PartSize = 5 << 20 })
	// The reader is no Seeker, so each part is buffered and its checksum sent in a trailer.
	if _, err := uploader.Upload(all, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("large"), Body: io.MultiReader(bytes.NewReader(File("large")))}); err != nil {
		return err
	}
	got := manager.NewWriteAtBuffer(nil)
	if _, err := manager.NewDownloader(client).Download(all, got, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("large")}); err != nil {
		return err
	}
	head, err := client.HeadObject(all, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("large"), PartNumber: aws.Int32(2)})
	if err != nil {
		return err
	}
	return First(SameBytes(bytes.NewReader(got.Bytes()), File("large")), Same(*head.PartsCount, 5), Same(*head.ContentLength, 5<<20))
}

func multipartByHand() error {
	key := aws.String("assembled")
	upload, err := client.CreateMultipartUpload(all, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c})
	if err != nil {
		return err
	}
	big := make([]byte, 5<<20)
	rand.Read(big)
	done := []types.CompletedPart{}
	for number, body := range [][]byte{big, []byte("tail")} {
		number := aws.Int32(int32(number + 1))
		part, err := client.UploadPart(all, &s3.UploadPartInput{Bucket: bucket, Key: key, UploadId: upload.UploadId, PartNumber: number, Body: bytes.NewReader(body),
			ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c})
		if err != nil {
			return err
		}
		done = append(done, types.CompletedPart{PartNumber: number, ETag: part.ETag, ChecksumCRC32C: part.ChecksumCRC32C})
	}
	copied, err := client.UploadPartCopy(all, &s3.UploadPartCopyInput{Bucket: bucket, Key: key, UploadId: upload.UploadId, PartNumber: aws.Int32(2),
		CopySource: aws.String(*bucket + "/100k"), CopySourceRange: aws.String("bytes=0-9")})
	if err != nil {
		return err
	}
	done[1].ETag, done[1].ChecksumCRC32C = copied.CopyPartResult.ETag, copied.CopyPartResult.ChecksumCRC32C
	listed, err := client.ListParts(all, &s3.ListPartsInput{Bucket: bucket, Key: key, UploadId: upload.UploadId})
	if err = First(err); err != nil {
		return err
	}
	_, err = client.CompleteMultipartUpload(all, &s3.CompleteMultipartUploadInput{Bucket: bucket, Key: key, UploadId: upload.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done}})
	_, gone := client.AbortMultipartUpload(all, &s3.AbortMultipartUploadInput{Bucket: bucket, Key: key, UploadId: aws.String("nothing")})
	return First(err, Same(len(listed.Parts), 2), holds("assembled", append(big, File("100k")[:10]...)), refused(gone, "NoSuchUpload"))
}

func checksums() error {
	for _, kind := range []types.ChecksumAlgorithm{types.ChecksumAlgorithmCrc32, types.ChecksumAlgorithmCrc32c, types.ChecksumAlgorithmCrc64nvme,
		types.ChecksumAlgorithmSha1, types.ChecksumAlgorithmSha256} {
		if _, err := client.PutObject(all, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("sum"), Body: bytes.NewReader(File("100k")), ChecksumAlgorithm: kind}); err != nil {
			return err
		}
		answer, err := client.GetObject(all, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("sum"), ChecksumMode: types.ChecksumModeEnabled})
		if err != nil {
			return err
		}
		if err := SameBytes(answer.Body, File("100k")); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	parts, err := client.GetObjectAttributes(all, &s3.GetObjectAttributesInput{Bucket: bucket, Key: aws.String("sum"),
		ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesChecksum, types.ObjectAttributesObjectSize}})
	if err != nil {
		return err
	}
	return First(Same(*parts.ObjectSize, 102400), Same(parts.Checksum.ChecksumSHA256 != nil, true))
}

func presigned() error {
	sign := s3.NewPresignClient(client)
	get, err := sign.PresignGetObject(all, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("100k")}, s3.WithPresignExpires(time.Minute))
	if err != nil {
		return err
	}
	send, err := sign.PresignPutObject(all, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("handed in")})
	if err != nil {
		return err
	}
	return First(Fetch(http.MethodGet, get.URL, nil, 200, File("100k")), Fetch(http.MethodPut, send.URL, []byte("handed in"), 200, nil), holds("handed in", []byte("handed in")))
}

func versions() error {
	name := aws.String(*bucket + "-versions")
	_, err := client.CreateBucket(all, &s3.CreateBucketInput{Bucket: name})
	if err != nil {
		return err
	}
	_, err = client.PutBucketVersioning(all, &s3.PutBucketVersioningInput{Bucket: name, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	if err != nil {
		return err
	}
	for _, body := range []string{"one", "two"} {
		if _, err := client.PutObject(all, &s3.PutObjectInput{Bucket: name, Key: aws.String("k"), Body: bytes.NewReader([]byte(body))}); err != nil {
			return err
		}
	}
	if _, err := client.DeleteObject(all, &s3.DeleteObjectInput{Bucket: name, Key: aws.String("k")}); err != nil {
		return err
	}
	listed, err := client.ListObjectVersions(all, &s3.ListObjectVersionsInput{Bucket: name})
	if err = First(err, Same(len(listed.Versions), 2), Same(len(listed.DeleteMarkers), 1)); err != nil {
		return err
	}
	rest := []types.ObjectIdentifier{{Key: aws.String("k"), VersionId: listed.DeleteMarkers[0].VersionId}}
	for _, one := range listed.Versions {
		rest = append(rest, types.ObjectIdentifier{Key: one.Key, VersionId: one.VersionId})
	}
	_, err = client.DeleteObjects(all, &s3.DeleteObjectsInput{Bucket: name, Delete: &types.Delete{Objects: rest}})
	_, err2 := client.DeleteBucket(all, &s3.DeleteBucketInput{Bucket: name})
	return First(err, err2)
}

func refusals() error {
	_, noKey := client.GetObject(all, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("nothing")})
	var typed *types.NoSuchKey
	if !errors.As(noKey, &typed) {
		return fmt.Errorf("NoSuchKey was expected: %v", noKey)
	}
	_, noHead := client.HeadObject(all, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("nothing")})
	_, noBucket := client.GetObject(all, &s3.GetObjectInput{Bucket: aws.String("clients-no-such-bucket"), Key: aws.String("x")})
	_, wrong := connect("wrong-secret").ListBuckets(all, &s3.ListBucketsInput{})
	_, full := client.DeleteBucket(all, &s3.DeleteBucketInput{Bucket: bucket})
	_, again := client.GetObject(all, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("one"), VersionId: aws.String("no-such-version")})
	return First(refused(noHead, "NotFound"), refused(noBucket, "NoSuchBucket"), refused(wrong, "SignatureDoesNotMatch"), refused(full, "BucketNotEmpty"),
		refused(again, "InvalidArgument"))
}

func removeEverything() error {
	found, err := keys(*bucket, "")
	if err != nil {
		return err
	}
	rest := []types.ObjectIdentifier{}
	for _, key := range found {
		rest = append(rest, types.ObjectIdentifier{Key: &key})
	}
	answer, err := client.DeleteObjects(all, &s3.DeleteObjectsInput{Bucket: bucket, Delete: &types.Delete{Objects: rest}})
	if err = First(err, Same(len(answer.Errors), 0)); err != nil {
		return err
	}
	if _, err := client.DeleteBucket(all, &s3.DeleteBucketInput{Bucket: bucket}); err != nil {
		return err
	}
	return s3.NewBucketNotExistsWaiter(client).Wait(all, &s3.HeadBucketInput{Bucket: bucket}, 5*time.Second)
}

func main() {
	Run([]Check{
		{"make bucket", makeBucket}, {"put and get", putAndGet}, {"odd keys", odd}, {"list", list}, {"ranges", ranges},
		{"metadata and tags", metadata}, {"conditions", conditions}, {"copies", copies}, {"multipart", multipart},
		{"multipart by hand", multipartByHand}, {"checksums", checksums}, {"presigned", presigned}, {"versions", versions},
		{"refusals", refusals}, {"remove everything", removeEverything},
	})
}
