//! The state of a far mount, for people: what is wrong comes first, with what to do.
//!
//! Not here:   the values (running).

use std::fmt::Write;

use margay_upstream::reason::{advice, code_of};
use serde_json::Value;

/// Conflicts that are named without being asked for.
const CONFLICTS_SHOWN: usize = 5;
pub(super) const FULL_DISK_ADVICE: &str = "make room on it; what is in the cache is kept";

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

/// `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1 << 10 {
        return format!("{count} bytes");
    }
    let mut size = count as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    format!("{size:.1} {}", units[unit])
}

/// `3 min`: to about two digits.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

pub(super) fn full_disk(cache: &str, free: u64, reserve: u64) -> String {
    let (free, reserve) = (bytes(free), bytes(reserve));
    format!("the disk of the cache {cache} is full: it has {free} free, and the cache leaves {reserve} of it free")
}

pub fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// What waits, in a line.
pub fn waiting(status: &Value) -> String {
    let waiting = &status["waiting"];
    let files = number(waiting, "files");
    if files == 0 {
        return "everything is in the bucket".to_owned();
    }
    let mut line = format!("{}, {} to send", count(files, "file"), bytes(number(waiting, "bytes")));
    let (speed, objects) = (number(waiting, "bytes_per_second"), waiting["objects_per_second"].as_f64().unwrap_or(0.0));
    if speed >= 1 << 10 {
        let _ = write!(line, ", {}/s", bytes(speed));
    } else if objects >= 1.0 {
        let _ = write!(line, ", {objects:.0} files/s");
    }
    if let Some(left) = waiting["left_seconds"].as_u64() {
        let _ = write!(line, ", about {} left", span(left));
    }
    line
}

/// What is wrong, each with what to do about it.
pub fn troubles(status: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let health = text(status, "health");
    if !matches!(health, "" | "ok") {
        found.push((health.to_owned(), "unmount and mount again; what is in the cache is kept".to_owned()));
    }
    if let Some(path) = status["dead"].as_str() {
        let next = format!("margay unmount {path} frees it; mount again, and what is in the cache is sent");
        found.push((format!("the process of the mount at {path} is gone"), next));
    }
    let (free, reserve) = (number(&status["disk"], "free_bytes"), number(&status["disk"], "reserve_bytes"));
    if free < reserve {
        found.push((full_disk(text(status, "cache"), free, reserve), FULL_DISK_ADVICE.to_owned()));
    }
    let connection = &status["connection"];
    if connection["answers"] == false {
        let (since, age) = (text(connection, "offline_since"), span(number(connection, "offline_seconds")));
        found.push((
            format!("the bucket has not answered since {since} ({age}): {}", text(connection, "error")),
            "look at the network and at the endpoint; what is written is kept in the cache and sent later".to_owned(),
        ));
    }
    if let Some(why) = connection["refused"].as_str() {
        let what = format!("the bucket refuses to be listed, so what is shown of it is old: {why}");
        found.push((what, advice(code_of(why)).to_owned()));
    }
    for failure in status["failures"].as_array().into_iter().flatten() {
        let (key, code, reason) = (text(failure, "key"), text(failure, "code"), text(failure, "reason"));
        let verb = if failure["refused"] == true { "is refused" } else { "is not sent" };
        let again = span(number(failure, "again_seconds"));
        found.push((format!("{key} {verb}: {code}: {reason} (again in {again})"), text(failure, "advice").to_owned()));
    }
    let shown = status["failures"].as_array().map_or(0, Vec::len) as u64;
    let failing = number(status, "failing");
    if failing > shown {
        let more = format!("and {} more fail", count(failing - shown, "file"));
        found.push((more, "the log names them".to_owned()));
    }
    found
}

/// All of it; `names`: every conflict.
pub fn status(status: &Value, names: bool) -> String {
    let mut out = String::new();
    for (what, advice) in troubles(status) {
        let _ = writeln!(out, "WRONG: {what}\n       {advice}");
    }
    let conflicts: Vec<&str> = status["conflicts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !conflicts.is_empty() {
        let many = count(conflicts.len() as u64, "file");
        let _ = writeln!(out, "CONFLICT: {many} changed here and in the bucket: both are kept");
        let shown = if names { conflicts.len() } else { CONFLICTS_SHOWN.min(conflicts.len()) };
        for name in &conflicts[..shown] {
            let _ = writeln!(out, "       {name}");
        }
        if shown < conflicts.len() {
            let _ = writeln!(out, "       and more: margay status --conflicts");
        }
        out.push_str("       merge each with the file of the name before `.conflict-`, then remove it\n");
    }
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<13} {value}");
    };
    line("source", text(status, "source").to_owned());
    line("endpoint", text(status, "endpoint").to_owned());
    line("cache", text(status, "cache").to_owned());
    let path = text(status, "path");
    match status["running"] == false {
        true if path.is_empty() => {}
        true => line("was at", path.to_owned()),
        false => {
            places(status).into_iter().for_each(|(name, value)| line(name, value));
            let up = span(number(status, "uptime_seconds"));
            line("process", format!("{}, up since {} ({up})", number(status, "process"), text(status, "began")));
        }
    }
    line("waiting", waiting(status));
    let waits = &status["waiting"];
    if let Some(since) = waits["oldest_since"].as_str() {
        let earlier = if waits["oldest_is_of_an_earlier_process"] == true { " or earlier" } else { "" };
        line("oldest", format!("since {since}{earlier}; {} in progress", number(waits, "in_progress")));
    }
    if let Some(told) = fsync(status) {
        line("fsync", told);
    }
    if status["running"] == false {
        let next = match number(waits, "files") {
            0 => String::new(),
            _ => format!(": margay sync --cache {} sends what waits", text(status, "cache")),
        };
        line("process", format!("none runs{next}"));
        return out;
    }
    if let Some(told) = opens(status) {
        line("open", told.to_owned());
    }
    line("store", store(&status["store"]));
    line("conditions", honoured(&status["honoured"], status["writers"] == "one"));
    match status["lists_attributes"].as_bool() {
        Some(true) => line("listings", "have the attributes of files".to_owned()),
        Some(false) => {
            line("listings", "have no attributes: each file is asked for when its directory is listed".to_owned())
        }
        None => {}
    }
    if let Some(requests) = requests(&status["requests"]) {
        line("requests", requests);
    }
    let last = status["connection"]["last_answer_seconds"].as_u64();
    line("last answer", last.map_or("none yet".to_owned(), |seconds| format!("{} ago", span(seconds))));
    out
}

/// Where a running process shows it.
fn places(status: &Value) -> Vec<(&'static str, String)> {
    let (path, served) = (text(status, "path"), served(status));
    let gone = match (status["mounted"] == true, served.is_empty()) {
        (true, _) => "",
        (false, false) => " (unmounted)",
        (false, true) => " (unmounted, sending what is left)",
    };
    let mounted = match (path.is_empty(), served.is_empty()) {
        (false, _) => format!("{path}{gone}"),
        (true, true) => "none: it only sends".to_owned(),
        (true, false) => "none".to_owned(),
    };
    let mut places = vec![("mount point", mounted)];
    if !served.is_empty() {
        places.push(("S3", served));
    }
    places
}

/// Where S3 clients find it; empty: nowhere.
fn served(status: &Value) -> String {
    let served = &status["served"];
    match served.is_object() {
        true => format!("{} at {}", text(served, "bucket"), text(served, "endpoint")),
        false => String::new(),
    }
}

/// What `open` asks for; `None`: of a process that does not tell.
fn opens(status: &Value) -> Option<&'static str> {
    Some(match status["open"].as_str()? {
        "ttl" => "asks for nothing until the listing of the directory is old (open=ttl)",
        "always" => "asks the bucket for each file (open=always)",
        _ => "asks the bucket where the listing is older than 3 s (open=3s)",
    })
}

/// Who answers.
fn store(told: &Value) -> String {
    let Some(told) = told.as_object() else { return "has not answered yet".to_owned() };
    match (told["name"].as_str(), told["server"].as_str()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(server)) => format!("unknown S3 store (it calls itself {server:?})"),
        (None, None) => "unknown S3 store".to_owned(),
    }
}

/// What `fsync` waits for; `None`: of a cache that nobody has open.
fn fsync(status: &Value) -> Option<String> {
    let syncs = number(&status["waiting"], "syncs");
    let next = "; the bucket gets";
    let order = if syncs > 0 { format!("{next} {} one after the other", count(syncs, "sync")) } else { String::new() };
    match status["fsync"].as_str() {
        Some("local") => Some(format!("waits for the cache alone{order}")),
        Some(_) => Some(format!("waits for the bucket{order}")),
        None => (syncs > 0).then(|| format!("waits for the bucket{order}")),
    }
}

/// `None`: of a process that does not tell.
fn requests(flow: &Value) -> Option<String> {
    let (limit, most) = (flow["limit"].as_u64()?, number(flow, "limit_max"));
    let busy = match limit < most {
        true => format!(": the store answers that it is too busy, otherwise {most}"),
        false => String::new(),
    };
    Some(format!("{} in progress, {limit} at most{busy}", number(flow, "in_progress")))
}

fn honoured(known: &Value, is_alone: bool) -> String {
    let asked = match is_alone {
        true => "no key is asked for before it is changed: writers=one",
        false => "each key is asked for before it is changed",
    };
    let Some(known) = known.as_object() else { return format!("not known yet: {asked}") };
    let names = |wanted: bool| {
        let some: Vec<&str> = known.iter().filter(|(_, is)| **is == wanted).map(|(name, _)| name.as_str()).collect();
        some.join(", ")
    };
    match (names(true), names(false)) {
        (yes, no) if no.is_empty() => format!("honoured: {yes}"),
        (yes, no) => {
            let yes = if yes.is_empty() { "none".to_owned() } else { yes };
            format!("honoured: {yes}; ignored: {no} ({asked})")
        }
    }
}

/// A line of `margay mounts`, and what is wrong below it.
pub fn row(status: &Value) -> String {
    let way = if status["read_only"] == true { "ro" } else { "rw" };
    let (source, path) = (text(status, "source"), text(status, "path"));
    if let Some(why) = status["unknown"].as_str() {
        return format!("{source} on {path}: {why}\n");
    }
    let process = number(status, "process");
    let place = match (status["running"] == false, status["mounted"] == true, served(status)) {
        (true, _, _) => format!("{source} has no process (cache {})", text(status, "cache")),
        (false, true, served) if served.is_empty() => format!("{source} on {path} ({way}, process {process})"),
        (false, true, served) => format!("{source} on {path} and as {served} ({way}, process {process})"),
        (false, false, served) if !served.is_empty() => format!("{source} as {served} (process {process})"),
        (false, false, _) => format!("{source} was on {path}, process {process} sends the rest"),
    };
    let mut out = format!("{place}: {}\n", waiting(status));
    for (what, advice) in troubles(status) {
        let _ = writeln!(out, "  WRONG: {what}; {advice}");
    }
    if status["running"] == false && number(&status["waiting"], "files") > 0 {
        let _ = writeln!(out, "  send it with: margay sync --cache {}", text(status, "cache"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong_comes_first() {
        let value = json!({
            "source": "s3://b/p", "endpoint": "http://h", "cache": "/c", "path": "/m", "mounted": true, "process": 7,
            "began": "2026-11-26T10:00:00Z", "uptime_seconds": 300, "health": "ok",
            "conflicts": ["a.conflict-20261122T101500Z-h"],
            "honoured": { "create": true, "remove": false }, "open": "3s", "fsync": "upstream",
            "store": { "name": null, "server": "nginx" }, "lists_attributes": false,
            "connection": { "answers": false, "offline_since": "2026-11-26T10:01:00Z", "offline_seconds": 240, "error": "refused" },
            "waiting": { "files": 2, "bytes": 1536, "in_progress": 1, "bytes_per_second": 1024, "left_seconds": 2,
                         "oldest_since": "2026-11-26T10:00:30Z" },
            "failing": 3, "disk": { "free_bytes": 1024, "reserve_bytes": 2048 },
            "requests": { "in_progress": 5, "limit": 8, "limit_max": 64 },
            "failures": [{ "key": "p/a", "code": "AccessDenied", "reason": "no", "refused": true, "again_seconds": 250,
                           "advice": "ask for rights" }],
        });
        let shown = status(&value, false);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[2].starts_with("WRONG: the bucket has not answered since 2026-11-26T10:01:00Z (4 min)"),
            "{shown}"
        );
        let full =
            "WRONG: the disk of the cache /c is full: it has 1.0 KiB free, and the cache leaves 2.0 KiB of it free";
        assert_eq!((lines[0], lines[1].trim()), (full, FULL_DISK_ADVICE));
        assert_eq!(lines[4], "WRONG: p/a is refused: AccessDenied: no (again in 4 min)");
        assert_eq!(lines[5].trim(), "ask for rights");
        for line in [
            "waiting       2 files, 1.5 KiB to send, 1.0 KiB/s, about 2 s left",
            "fsync         waits for the bucket",
            "open          asks the bucket where the listing is older than 3 s (open=3s)",
            "store         unknown S3 store (it calls itself \"nginx\")",
            "conditions    honoured: create; ignored: remove (each key is asked for before it is changed)",
            "listings      have no attributes: each file is asked for when its directory is listed",
            "requests      5 in progress, 8 at most: the store answers that it is too busy, otherwise 64",
            "process       7, up since 2026-11-26T10:00:00Z (5 min)",
        ] {
            assert!(lines.contains(&line), "{line} is missing in\n{shown}");
        }
        let mut local = value.clone();
        (local["fsync"], local["waiting"]["syncs"]) = (json!("local"), json!(3));
        let told = "\nfsync         waits for the cache alone; the bucket gets 3 syncs one after the other\n";
        assert!(status(&local, false).contains(told), "{}", status(&local, false));
        assert!(row(&value).starts_with("s3://b/p on /m (rw, process 7): 2 files, 1.5 KiB to send"));
        let mut served = value.clone();
        served["served"] = json!({ "endpoint": "http://h:9", "bucket": "b" });
        assert!(row(&served).starts_with("s3://b/p on /m and as b at http://h:9 (rw, process 7): 2 files"));
        served["mounted"] = json!(false);
        assert!(row(&served).starts_with("s3://b/p as b at http://h:9 (process 7): 2 files"));
        let rest =
            json!({ "running": false, "source": "s3://b", "cache": "/c", "waiting": { "files": 1, "bytes": 0 } });
        assert!(status(&rest, false).contains("margay sync --cache /c sends what waits"));
        assert!(row(&rest).contains("s3://b has no process (cache /c): 1 file, 0 bytes to send\n  send it with"));
    }
}
