//! Why a change is not in the bucket, as a short code and as advice.
//!
//! Not here:   when it is tried again (send).

/// In the text of a refusal, before the status and the code.
const ANSWERED: &str = "the server answered ";

/// The S3 code of a refusal, or a word of the same form for other causes.
pub fn code_of(why: &str) -> &str {
    if let Some((_, answer)) = why.split_once(ANSWERED) {
        let code = answer.split(':').next().unwrap_or_default();
        // `403 AccessDenied`; a HEAD has the phrase of the status, which may have blanks.
        let code = code.split_once(' ').map_or(code, |(status, code)| if code.contains(' ') { status } else { code });
        return code.trim();
    }
    let causes = [
        ("cannot connect to ", "Unreachable"),
        ("the connection to ", "ConnectionBroke"),
        ("no answer within ", "NoAnswer"),
        ("somebody else removed or replaced", "Gone"),
    ];
    let is_word = !why.is_empty() && why.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match causes.iter().find(|(text, _)| why.contains(text)) {
        Some((_, code)) => code,
        // Removals of many keys have a code each.
        None if is_word => why,
        None => "NotReadable",
    }
}

/// What a person can do about it.
pub fn advice(code: &str) -> &'static str {
    match code {
        "AccessDenied" | "Forbidden" | "403" | "AllAccessDisabled" | "AccountProblem" => {
            "give these keys the right to read, write and remove below the prefix, then: margay sync"
        }
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken" | "Unauthorized" | "401" => {
            "the keys are wrong or have expired: unmount, and mount again with valid ones"
        }
        "RequestTimeTooSkewed" => "set the clock of this machine",
        "NoSuchBucket" | "404" => "the bucket is gone: make it again, or look at the endpoint",
        "KeyTooLongError" | "KeyTooLong" => "give the file or its directory a shorter name",
        "XMinioInvalidObjectName" | "InvalidObjectName" => {
            "the store takes no such name, however often it is tried: rename it, or remove it"
        }
        "EntityTooLarge" => "the store takes no object of this size: move the file away",
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage" | "507" => "make room in the bucket",
        "Unreachable" | "ConnectionBroke" | "NoAnswer" => {
            "look at the network and at the endpoint; it is tried again by itself"
        }
        "SlowDown" | "ServiceUnavailable" | "InternalError" | "RequestTimeout" | "503" | "500" | "429" => {
            "the store is busy or broken; it is tried again by itself"
        }
        "NotReadable" => "look at the log, and at the disk of the cache",
        _ => "look at the log; it is tried again by itself, and at once by: margay sync",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_a_code() {
        for (why, code) in [
            ("PUT /b/k: the server answered 403 AccessDenied: not you", "AccessDenied"),
            ("PUT /b/a: b: the server answered 503 SlowDown: ", "SlowDown"),
            ("HEAD /b/k: the server answered 403 Forbidden: ", "Forbidden"),
            ("HEAD /b/k: the server answered 503 Service Unavailable: ", "503"),
            ("cannot connect to h:1: refused; is the server running?", "Unreachable"),
            ("the connection to h:1 broke: closed", "ConnectionBroke"),
            ("GET /b/k: no answer within 30 s", "NoAnswer"),
            ("AccessDenied", "AccessDenied"),
            ("b/k comes and goes", "NotReadable"),
            ("", "NotReadable"),
        ] {
            assert_eq!(code_of(why), code, "{why}");
            assert!(!advice(code).is_empty());
        }
    }
}
