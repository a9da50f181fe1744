//! Lifecycle, notifications and logging of a bucket: what is set is given back, and shows where S3 shows it.

mod server;

use server::Server;

const LIFECYCLE: &str = "<LifecycleConfiguration><Rule><ID>one day</ID><Filter><Prefix>a/</Prefix></Filter>\
    <Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";

#[tokio::test]
async fn lifecycle_rules_are_given_back_and_announced() {
    let server = Server::with_bucket().await;
    server.get("/bucket?lifecycle").await.refused(404, "NoSuchLifecycleConfiguration");
    server.put("/nowhere?lifecycle", LIFECYCLE).await.refused(404, "NoSuchBucket");
    server.put("/bucket?lifecycle", "<LifecycleConfiguration/>").await.refused(400, "MalformedXML");
    server.put("/bucket?lifecycle", LIFECYCLE).await.expect(200);
    let answer = server.get("/bucket?lifecycle").await.expect(200);
    let text = answer.text();
    assert!(text.contains("<ID>one day</ID><Filter><Prefix>a/</Prefix></Filter><Status>Enabled</Status>"), "{text}");
    let put = server.put("/bucket/a/k", "x").await.expect(200);
    let told = put.header("x-amz-expiration").to_owned();
    assert!(told.starts_with("expiry-date=\"") && told.ends_with(" 00:00:00 GMT\", rule-id=\"one%20day\""), "{told}");
    assert_eq!(server.get("/bucket/a/k").await.expect(200).header("x-amz-expiration"), told);
    let head = server.request("HEAD", "/bucket/a/k").send().await.expect(200);
    assert_eq!(head.header("x-amz-expiration"), told);
    assert_eq!(server.put("/bucket/b", "x").await.expect(200).header("x-amz-expiration"), "");
    server.delete("/bucket?lifecycle").await.expect(204);
    server.get("/bucket?lifecycle").await.refused(404, "NoSuchLifecycleConfiguration");
    assert_eq!(server.get("/bucket/a/k").await.expect(200).header("x-amz-expiration"), "");
}

#[tokio::test]
async fn notifications_name_a_target_of_the_server() {
    let server = Server::with_bucket().await;
    let rules = |name: &str| {
        format!(
            "<NotificationConfiguration><QueueConfiguration><Queue>arn:aws:sqs:r:a:{name}</Queue>\
             <Event>s3:ObjectCreated:*</Event></QueueConfiguration></NotificationConfiguration>"
        )
    };
    let empty = server.get("/bucket?notification").await.expect(200).body;
    assert!(String::from_utf8_lossy(&empty).contains("<NotificationConfiguration "));
    server.put("/bucket?notification", rules("other")).await.refused(400, "InvalidArgument");
    let skipped = server.request("PUT", "/bucket?notification").header("x-amz-skip-destination-validation", "true");
    skipped.body(rules("other")).send().await.expect(200);
    server.put("/bucket?notification", rules("orders")).await.expect(200);
    let answer = server.get("/bucket?notification").await.expect(200);
    let text = answer.text();
    assert!(text.contains("<Queue>arn:aws:sqs:r:a:orders</Queue><Event>s3:ObjectCreated:*</Event>"), "{text}");
    server.put("/bucket?notification", "<NotificationConfiguration/>").await.expect(200);
    assert_eq!(server.get("/bucket?notification").await.expect(200).body, empty);
}

#[tokio::test]
async fn logging_names_a_bucket_that_is_there() {
    let server = Server::with_bucket().await;
    let to = |bucket: &str| {
        format!(
            "<BucketLoggingStatus><LoggingEnabled><TargetBucket>{bucket}</TargetBucket><TargetPrefix>log/</TargetPrefix>\
             </LoggingEnabled></BucketLoggingStatus>"
        )
    };
    let off = server.get("/bucket?logging").await.expect(200).body;
    server.put("/bucket?logging", to("none")).await.refused(400, "InvalidTargetBucketForLogging");
    server.put("/bucket?logging", to("bucket")).await.expect(200);
    let answer = server.get("/bucket?logging").await.expect(200);
    let text = answer.text();
    assert!(text.contains("<TargetBucket>bucket</TargetBucket><TargetPrefix>log/</TargetPrefix>"), "{text}");
    server.put("/bucket?logging", "<BucketLoggingStatus/>").await.expect(200);
    assert_eq!(server.get("/bucket?logging").await.expect(200).body, off);
}
