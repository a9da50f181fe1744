//! S3's message about an event: the JSON document of event version 2.3.

use bytes::BytesMut;
use margay_volume::{EventKind, EventNumber, QueuedEvent};
use serde_json::json;

use super::name;
use crate::time::iso;
use crate::xml::write::percent_encode;

/// The message of one event. Principal and address of the caller are not recorded.
pub fn message(queued: &QueuedEvent, region: &str, owner: &str) -> Vec<u8> {
    let event = &queued.event;
    let mut key = BytesMut::new();
    percent_encode(&mut key, &event.key);
    let mut object = json!({
        "key": String::from_utf8_lossy(&key),
        "sequencer": sequencer(queued.number),
    });
    let is_gone = matches!(
        event.kind,
        EventKind::Delete | EventKind::DeleteMarkerCreated | EventKind::Expired | EventKind::ExpiredToMarker
    );
    if !is_gone {
        object["size"] = event.size.into();
        object["eTag"] = event.etag.to_string().into();
    }
    if !event.version.is_empty() {
        object["versionId"] = event.version.clone().into();
    }
    let record = json!({
        "eventVersion": "2.3",
        "eventSource": "aws:s3",
        "awsRegion": region,
        "eventTime": iso(event.at),
        "eventName": name(event.kind),
        "userIdentity": { "principalId": owner },
        "requestParameters": { "sourceIPAddress": "" },
        "responseElements": { "x-amz-request-id": "", "x-amz-id-2": "" },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": queued.rule,
            "bucket": {
                "name": event.bucket,
                "ownerIdentity": { "principalId": owner },
                "arn": format!("arn:aws:s3:::{}", event.bucket),
            },
            "object": object,
        },
    });
    json!({ "Records": [record] }).to_string().into_bytes()
}

/// Grows with the number: who compares two of them fills the shorter one up with zeros at its end. That of an event from
/// before numbers had two halves stays as it was.
fn sequencer(number: EventNumber) -> String {
    let all = format!("{number:032X}");
    match all.split_at(16) {
        (order, "0000000000000000") => order.to_owned(),
        _ => all,
    }
}

#[cfg(test)]
mod tests {
    use margay_env::Timestamp;
    use margay_volume::{ETag, Event};

    use super::*;

    #[test]
    fn a_message_has_what_clients_look_for() {
        let event = Event {
            kind: EventKind::Put,
            at: Timestamp(784_111_777_120_000_000),
            bucket: "photos".to_owned(),
            key: "a b/\"ü".to_owned(),
            size: 7,
            etag: ETag { digest: [0xab; 16], parts: 2 },
            version: "v1".to_owned(),
        };
        let mut queued = QueuedEvent { number: 0x2a << 64, event, rule: "r\"1".to_owned() };
        let read = |queued: &QueuedEvent| -> serde_json::Value {
            serde_json::from_slice(&message(queued, "us-east-1", "owner")).unwrap()
        };
        let record = &read(&queued)["Records"][0];
        assert_eq!(record["eventName"], "ObjectCreated:Put");
        assert_eq!(record["eventTime"], "1994-11-06T08:49:37.120Z");
        assert_eq!(record["s3"]["bucket"]["arn"], "arn:aws:s3:::photos");
        assert_eq!(record["s3"]["configurationId"], "r\"1");
        let object = &record["s3"]["object"];
        assert_eq!(object["key"], "a%20b/%22%C3%BC");
        assert_eq!((&object["size"], &object["versionId"]), (&7.into(), &"v1".into()));
        assert_eq!(
            (&object["eTag"], &object["sequencer"]),
            (&format!("{}-2", "ab".repeat(16)).into(), &"000000000000002A".into())
        );
        queued.number |= 0xb;
        let longer = &read(&queued)["Records"][0]["s3"]["object"]["sequencer"];
        assert_eq!(longer, "000000000000002A000000000000000B");
        queued.event.kind = EventKind::Delete;
        assert!(read(&queued)["Records"][0]["s3"]["object"].get("size").is_none());
    }
}
