//! Servers that give keys, and a store that takes only some: STS, a container's server, a machine's metadata, in one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use margay_client::Target;
use margay_env::sim::SimClock;
use margay_env::{Clock, Timestamp};

use crate::listen::{Answer, Lost, answer, listen, refusal, text};

/// How long given keys are valid.
pub(crate) const VALID: Duration = Duration::from_secs(3600);

pub(crate) struct Giver {
    pub(crate) clock: Arc<SimClock>,
    /// Keys that were given; they are named KIND-1, KIND-2 and so on.
    pub(crate) given: AtomicUsize,
    /// Each request for keys fails.
    pub(crate) is_down: AtomicBool,
    /// The access key and the session token that the store takes.
    pub(crate) taken: Mutex<(String, Option<String>)>,
    /// What the store says to others.
    pub(crate) refusal: Mutex<(u16, &'static str)>,
    /// Requests to the store.
    pub(crate) requests: AtomicUsize,
}

impl Giver {
    /// Also returns the URL of all of them.
    pub(crate) async fn start() -> (Arc<Giver>, String, Arc<Target>) {
        let giver = Arc::new(Giver {
            clock: Arc::new(SimClock::new(Timestamp(1_800_000_000_000_000_000))),
            given: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            taken: Mutex::default(),
            refusal: Mutex::new((403, "InvalidAccessKeyId")),
            requests: AtomicUsize::new(0),
        });
        let target = listen(Arc::clone(&giver), |giver, request| async move { giver.serve(request).await }).await;
        (giver, target.url(), target)
    }

    pub(crate) fn given(&self) -> usize {
        self.given.load(Ordering::SeqCst)
    }

    async fn serve(&self, request: Request<Incoming>) -> Result<Answer, Lost> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = head.uri.path();
        if path.starts_with("/far") {
            return Ok(self.store(&head));
        }
        if self.is_down.load(Ordering::SeqCst) {
            return Ok(answer(503, "later"));
        }
        let is_named = text(&head.headers, "x-aws-ec2-metadata-token") == Some("the-token");
        Ok(match (&head.method, path) {
            (&Method::PUT, "/latest/api/token") => {
                assert!(text(&head.headers, "x-aws-ec2-metadata-token-ttl-seconds").is_some());
                answer(200, "the-token")
            }
            (&Method::GET, "/latest/meta-data/iam/security-credentials/") if is_named => answer(200, "a-role\n"),
            (&Method::GET, "/latest/meta-data/iam/security-credentials/a-role") if is_named => {
                answer(200, self.json("machine"))
            }
            (&Method::GET, "/container") if text(&head.headers, "authorization") == Some("Bearer one") => {
                answer(200, self.json("container"))
            }
            (&Method::POST, "/") => self.sts(std::str::from_utf8(&body).unwrap()),
            _ => answer(401, "who are you"),
        })
    }

    fn end(&self) -> String {
        margay_s3::iso_time(Timestamp(self.clock.now().0 + VALID.as_nanos() as i64))
    }

    fn json(&self, kind: &str) -> String {
        let (number, end) = (self.given.fetch_add(1, Ordering::SeqCst) + 1, self.end());
        format!(
            r#"{{"Code":"Success","AccessKeyId":"{kind}-{number}","SecretAccessKey":"secret","Token":"token-{number}","Expiration":"{end}"}}"#
        )
    }

    fn sts(&self, form: &str) -> Answer {
        let has = |pair: &str| form.split('&').any(|one| one == pair);
        assert!(
            has("Action=AssumeRoleWithWebIdentity")
                && has("Version=2011-06-15")
                && has("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr")
        );
        if !has("WebIdentityToken=good%2Ftoken") {
            let said =
                "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>No</Message></Error></ErrorResponse>";
            return answer(400, said);
        }
        let (number, end) = (self.given.fetch_add(1, Ordering::SeqCst) + 1, self.end());
        answer(
            200,
            format!(
                "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
                 <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>web-{number}</AccessKeyId>\
                 <SecretAccessKey>secret</SecretAccessKey><SessionToken>token-{number}</SessionToken>\
                 <Expiration>{end}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
                 </AssumeRoleWithWebIdentityResponse>"
            ),
        )
    }

    fn store(&self, head: &http::request::Parts) -> Answer {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let authorization = text(&head.headers, "authorization").unwrap();
        let (access_key, token) = self.taken.lock().unwrap().clone();
        let is_signed = authorization.contains(&format!("Credential={access_key}/"));
        // The token is signed, or somebody could take it from one request to another.
        let is_covered = token.is_none() || authorization.contains("x-amz-security-token");
        if is_signed && is_covered && text(&head.headers, "x-amz-security-token") == token.as_deref() {
            return answer(204, "");
        }
        let (status, code) = *self.refusal.lock().unwrap();
        if head.method == Method::HEAD { answer(status, "") } else { refusal(status, code) }
    }
}
