//! Spans as OTLP's JSON, and what a collector answers.
//!
//! Why:        the protocol's JSON is stable and four objects deep; design/0047 says why no library makes it.
//! Layout:     opentelemetry-proto, `trace/v1/trace.proto`, in the JSON form of the OTLP specification: ids as hexadecimal digits, 64-bit
//!             numbers as text.
//! Not here:   sending it (`export`).

use serde_json::{Value, json};

use super::context::hex;
use super::{Attribute, Ended, Place};

/// `SPAN_KIND_SERVER`.
const KIND_SERVER: u8 = 2;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u8 = 2;

/// One request of the protocol.
pub(super) fn message(resource: &[(&str, String)], spans: &[Ended]) -> Vec<u8> {
    let resource: Vec<Value> =
        resource.iter().map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } })).collect();
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({ "name": "margay", "version": env!("CARGO_PKG_VERSION") });
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
    .to_string()
    .into_bytes()
}

fn span(ended: &Ended) -> Value {
    let Place { trace_id, span_id, parent_id, state } = &ended.place;
    let attributes: Vec<Value> = ended.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
    let mut span = json!({
        "traceId": hex(trace_id),
        "spanId": hex(span_id),
        "name": ended.name,
        "kind": KIND_SERVER,
        "startTimeUnixNano": ended.begun.to_string(),
        "endTimeUnixNano": ended.ended.to_string(),
        "attributes": attributes,
        "status": {},
    });
    if let Some(parent_id) = parent_id {
        span["parentSpanId"] = json!(hex(parent_id));
    }
    if !state.is_empty() {
        span["traceState"] = json!(state);
    }
    if ended.is_error {
        span["status"] = json!({ "code": STATUS_ERROR });
    }
    span
}

fn attribute(key: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({ "stringValue": text }),
        Attribute::Number(number) => json!({ "intValue": number.to_string() }),
        Attribute::Flag(flag) => json!({ "boolValue": flag }),
    };
    json!({ "key": key, "value": value })
}

/// How many spans of an accepted message the collector rejected.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else { return 0 };
    match &answer["partialSuccess"]["rejectedSpans"] {
        Value::String(text) => text.parse().unwrap_or(0),
        number => number.as_u64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_protocols_form() {
        let place = Place { trace_id: [0xab; 16], span_id: [1; 8], parent_id: Some([2; 8]), state: "a=1".to_owned() };
        let ended = Ended {
            place,
            name: "S3/PutObject".to_owned(),
            begun: 1,
            ended: u64::MAX,
            is_error: true,
            attributes: vec![("n", Attribute::Number(-5)), ("f", Attribute::Flag(true))],
        };
        let message: Value = serde_json::from_slice(&message(&[("service.name", "m".to_owned())], &[ended])).unwrap();
        let all = &message["resourceSpans"][0];
        assert_eq!(all["resource"]["attributes"][0], json!({ "key": "service.name", "value": { "stringValue": "m" } }));
        assert_eq!(
            all["scopeSpans"][0]["spans"][0],
            json!({
                "traceId": "ab".repeat(16), "spanId": "01".repeat(8), "parentSpanId": "02".repeat(8), "traceState": "a=1",
                "name": "S3/PutObject", "kind": 2, "startTimeUnixNano": "1", "endTimeUnixNano": "18446744073709551615",
                "attributes": [
                    { "key": "n", "value": { "intValue": "-5" } }, { "key": "f", "value": { "boolValue": true } },
                ],
                "status": { "code": 2 },
            })
        );
    }

    #[test]
    fn what_a_collector_rejects_is_counted_and_bad_answers_count_nothing() {
        for (answer, count) in [
            ("{}", 0),
            ("", 0),
            ("\u{0}[", 0),
            ("{\"partialSuccess\":{}}", 0),
            ("{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}", 3),
            ("{\"partialSuccess\":{\"rejectedSpans\":4}}", 4),
            ("{\"partialSuccess\":{\"rejectedSpans\":\"-1\"}}", 0),
            ("{\"partialSuccess\":[1]}", 0),
        ] {
            assert_eq!(rejected(answer.as_bytes()), count, "{answer}");
        }
    }
}
