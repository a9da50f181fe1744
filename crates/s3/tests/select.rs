//! SelectObjectContent: events, errors before and within them, keys of customers, ranges.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod server;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use md5::{Digest, Md5};
use server::{Answer, Server};

const PATH: &str = "/bucket/k?select&select-type=2";

/// A request for CSV with a header.
fn document(expression: &str, more: &str) -> String {
    format!(
        "<SelectObjectContentRequest><Expression>{expression}</Expression><ExpressionType>SQL</ExpressionType>{more}\
         <InputSerialization><CSV><FileHeaderInfo>USE</FileHeaderInfo></CSV></InputSerialization>\
         <OutputSerialization><CSV/></OutputSerialization></SelectObjectContentRequest>"
    )
}

/// The events of an answer: the value of the first header that names them, and their payload.
fn events(answer: &Answer) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = answer.body.as_slice();
    while !rest.is_empty() {
        let number = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let (len, headers_len) = (number(0), number(4));
        let crc = |bytes: &[u8]| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as usize;
        assert_eq!((number(8), number(len - 4)), (crc(&rest[..8]), crc(&rest[..len - 4])));
        let headers = String::from_utf8_lossy(&rest[12..12 + headers_len]).into_owned();
        let payload = String::from_utf8(rest[12 + headers_len..len - 4].to_vec()).unwrap();
        let name = ["Records", "Cont", "Progress", "Stats", "End", ":error-code"]
            .into_iter()
            .find(|name| headers.contains(name));
        all.push((name.unwrap().to_owned(), if name == Some(":error-code") { headers } else { payload }));
        rest = &rest[len..];
    }
    all
}

/// The result, of an answer that is complete.
fn result(answer: &Answer) -> String {
    let events = events(answer);
    assert_eq!(events.last().unwrap().0, "End", "{events:?}");
    events.into_iter().filter(|(name, _)| name == "Records").map(|(_, payload)| payload).collect()
}

#[tokio::test]
async fn records_progress_stats_and_end() {
    let server = Server::with_bucket().await;
    let object: String = "name,n\n".to_owned() + &"ann,1\nbob,2\n".repeat(60_000);
    server.request("PUT", "/bucket/k").body(object.clone()).send().await.expect(200);
    let progress = "<RequestProgress><Enabled>true</Enabled></RequestProgress>";
    let statement = document("select s.n from s3object s", "");
    let all = server.request("POST", PATH).body(statement).send().await.expect(200);
    assert!(result(&all) == "1\n2\n".repeat(60_000), "every record is there once");
    let sum = document("select sum(int(n)), count(*) from s3object", progress);
    let answer = server.request("POST", PATH).body(sum).send().await.expect(200);
    let events = events(&answer);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Records", "Progress", "Stats", "End"]);
    assert_eq!(events[0].1, "180000,120000\n");
    let size = object.len();
    let counts = format!(
        "<BytesScanned>{size}</BytesScanned><BytesProcessed>{size}</BytesProcessed><BytesReturned>14</BytesReturned>"
    );
    assert!(events[1].1.contains(&counts) && events[2].1.contains(&counts), "{events:?}");
    let few = document("select name from s3object limit 1", "");
    assert_eq!(result(&server.request("POST", PATH).body(few).send().await.expect(200)), "ann\n");
}

#[tokio::test]
async fn errors_before_and_within_the_answer() {
    let server = Server::with_bucket().await;
    let object = "n\n".to_owned() + &"1\n".repeat(200_000) + "x\n";
    server.request("PUT", "/bucket/k").body(object).send().await.expect(200);
    let ask = async |text: String| server.request("POST", PATH).body(text).send().await;
    ask(document("select", "")).await.refused(400, "ParseUnexpectedToken");
    ask(document("select m from s3object", "")).await.refused(400, "ProcessingTimeError");
    ask(document("select int('y') from s3object", "")).await.refused(400, "CastFailed");
    ask(document("select n from s3object", "<ScanRange><Start>5</Start><End>4</End></ScanRange>"))
        .await
        .refused(400, "InvalidScanRange");
    ask("<SelectObjectContentRequest/>".to_owned()).await.refused(400, "MissingRequiredParameter");
    ask("<Other><X/></Other>".to_owned()).await.refused(400, "MalformedXML");
    let absent =
        server.request("POST", "/bucket/none?select&select-type=2").body(document("select n from s3object", ""));
    absent.send().await.refused(404, "NoSuchKey");
    // The last record does not fit, long after the first events have left.
    let late = ask(document("select int(n) from s3object", "")).await.expect(200);
    let ends_with_error = |events: &[(String, String)]| {
        let (name, headers) = events.last().unwrap();
        assert!(name == ":error-code" && headers.contains("CastFailed") && headers.contains("error"), "{headers}");
        assert!(events[..events.len() - 1].iter().all(|(name, _)| name == "Records"));
        events[..events.len() - 1].iter().map(|(_, payload)| payload.as_str()).collect::<String>()
    };
    assert!(ends_with_error(&events(&late)) == "1\n".repeat(200_000), "every record before the error is there");
    // In the first step already.
    server.request("PUT", "/bucket/k").body("n\n1\n2\nx\n3\n").send().await.expect(200);
    let early = ask(document("select int(n), n from s3object", "")).await.expect(200);
    assert_eq!(ends_with_error(&events(&early)), "1,1\n2,2\n");
}

#[tokio::test]
async fn ranges_share_the_records_of_an_object() {
    let server = Server::with_bucket().await;
    let object = "name,n\n".to_owned() + &(0..50).map(|n| format!("row{n},{n}\n")).collect::<String>();
    server.request("PUT", "/bucket/k").body(object.clone()).send().await.expect(200);
    let mut all = String::new();
    for start in (0..object.len()).step_by(97) {
        let range = format!("<ScanRange><Start>{start}</Start><End>{}</End></ScanRange>", start + 96);
        let answer = server.request("POST", PATH).body(document("select n from s3object", &range)).send().await;
        all += &result(&answer.expect(200));
    }
    assert_eq!(all, (0..50).map(|n| format!("{n}\n")).collect::<String>());
}

#[tokio::test]
async fn an_encrypted_object_needs_its_key() {
    let server = Server::with_bucket().await;
    let keyed = |method: &str, path: &str, number: u8| {
        let prefix = "x-amz-server-side-encryption-customer";
        server
            .request(method, path)
            .header(&format!("{prefix}-algorithm"), "AES256")
            .header(&format!("{prefix}-key"), &BASE64_STANDARD.encode([number; 32]))
            .header(&format!("{prefix}-key-md5"), &BASE64_STANDARD.encode(Md5::digest([number; 32])))
    };
    keyed("PUT", "/bucket/k", 1).body("n\n1\n2\n").send().await.expect(200);
    let statement = document("select n from s3object where n = 2", "");
    let answer = keyed("POST", PATH, 1).body(statement.clone()).send().await.expect(200);
    assert_eq!(result(&answer), "2\n");
    assert_eq!(answer.header("x-amz-server-side-encryption-customer-algorithm"), "AES256");
    keyed("POST", PATH, 2).body(statement.clone()).send().await.refused(403, "AccessDenied");
    server.request("POST", PATH).body(statement).send().await.refused(400, "InvalidRequest");
}
