//! `trace`: each request as it ends, as lines of JSON.
//!
//! Why:        the filter runs here, so that a busy server does not send what nobody wants.
//! Not here:   where the events come from (`trace`).

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::lines::{self, Gone, Lines, PULSE};
use super::{NotDone, WorkAnswer};
use crate::server::Server;
use crate::trace::{Trace, TraceEvent, Watcher};

/// Which requests are wanted.
#[derive(Debug)]
struct Filter {
    /// Only statuses of 400 and more.
    errors: bool,
    operation: Option<String>,
    bucket: Option<String>,
    slower_than_us: u64,
}

impl Filter {
    fn of(wish: &Value) -> Filter {
        let text = |name: &str| wish[name].as_str().map(str::to_owned);
        Filter {
            errors: wish["errors"] == true,
            operation: text("operation"),
            bucket: text("bucket"),
            slower_than_us: wish["slower_than_ms"].as_u64().unwrap_or_default().saturating_mul(1000),
        }
    }

    fn wants(&self, event: &TraceEvent) -> bool {
        (!self.errors || event.status >= 400)
            && self.operation.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(event.operation))
            && self.bucket.as_ref().is_none_or(|wanted| *wanted == event.bucket)
            && event.total_us >= self.slower_than_us
    }
}

pub(super) async fn answer(server: &Arc<Server>, wish: Value) -> Result<WorkAnswer, NotDone> {
    show_requests(&server.trace, &wish)
}

/// Begins to show the requests that end; the error is one line.
pub fn show_requests(trace: &Arc<Trace>, wish: &Value) -> Result<WorkAnswer, NotDone> {
    let (filter, watcher) = (Filter::of(wish), trace.watch()?);
    let (lines, response) = lines::open();
    tokio::spawn(async move {
        // A client that is gone needs no error.
        let _ = show(filter, watcher, lines).await;
    });
    Ok(WorkAnswer::Stream(response))
}

async fn show(filter: Filter, mut watcher: Watcher, lines: Lines) -> Result<(), Gone> {
    lines.pulse().await?;
    loop {
        match tokio::time::timeout(PULSE, watcher.events.recv()).await {
            Err(_) => lines.pulse().await?,
            Ok(Ok(event)) if filter.wants(&event) => lines.send(&event.line).await?,
            Ok(Ok(_)) => {}
            Ok(Err(RecvError::Lagged(count))) => lines.send(&json!({ "lost": count })).await?,
            Ok(Err(RecvError::Closed)) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_choose() {
        let event = TraceEvent {
            operation: "GetObject",
            status: 404,
            bucket: "b".to_owned(),
            total_us: 5000,
            line: Arc::default(),
        };
        for (wish, wants) in [
            (json!({}), true),
            (json!({ "errors": true, "operation": "getobject", "bucket": "b", "slower_than_ms": 5 }), true),
            (json!({ "slower_than_ms": 6 }), false),
            (json!({ "bucket": "c" }), false),
            (json!({ "operation": "PutObject" }), false),
        ] {
            assert_eq!(Filter::of(&wish).wants(&event), wants, "{wish}");
        }
        assert!(!Filter::of(&json!({ "errors": true })).wants(&TraceEvent { status: 206, ..event }));
    }
}
