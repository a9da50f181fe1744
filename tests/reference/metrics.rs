//! docs/reference/metrics.md: every family of the pages /metrics, found in the sources that write them.
//!
//! Why:      no process writes all families: those of copies, disks, far buckets and mounts come only with these. So the sources are
//!           read; tests/watching.py compares this page with that of a running server: names, types and labels.
//! Not here: alerts and the board (packaging/).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::{WRITTEN, cell, expect_page};

/// The parts of the page and the sources of each. A source of metrics that is not here fails the test.
const PARTS: &[(&str, &str, &[&str])] = &[
    ("The server", "On every page.", &["src/server.rs", "src/process.rs"]),
    (
        "Requests and connections",
        "Of the S3 address.",
        &["crates/metrics/src/requests.rs", "crates/listener/src/traffic.rs"],
    ),
    ("Space, buckets, checks", "", &["src/watching.rs", "src/wiring.rs", "src/checks.rs"]),
    (
        "Metadata",
        "`margay_log_...`, `margay_checkpoint...`, `margay_overlay_...` and `margay_tree_...` only with the embedded engine.",
        &["src/rows.rs"],
    ),
    ("Mounts", "Of the mounts that this process made.", &["src/mounts/metrics.rs"]),
    ("Lifecycle and the clock", "", &["crates/jobs/src/lifecycle.rs", "crates/jobs/src/lifecycle/clock.rs"]),
    ("Notifications and access logs", "", &["crates/jobs/src/notify.rs", "crates/jobs/src/access_log.rs"]),
    ("Administration and tracing", "", &["src/audit.rs", "src/spans.rs"]),
    ("Several disks", "Only of a volume with several disks.", &["src/disks.rs"]),
    ("Copies at other servers", "Only of a volume that several servers share.", &["src/wiring/copy_metrics.rs"]),
    (
        "Buckets of other stores",
        "Of `margay mount s3://...` and `margay serve --upstream`.",
        &["src/far_mount/metrics.rs"],
    ),
];

/// What a source is made of, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    Word(String),
    Mark(char),
}

/// The tokens of a source without its comments and its tests.
fn tokens(source: &str) -> Vec<Token> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut chars = lines.chars().peekable();
    let mut found = Vec::new();
    while let Some(char) = chars.next() {
        if char == '"' {
            let mut text = String::new();
            while let Some(char) = chars.next().filter(|char| *char != '"') {
                text.push(if char == '\\' { chars.next().unwrap_or(char) } else { char });
            }
            found.push(Token::Text(text));
        } else if char.is_alphanumeric() || char == '_' {
            let mut word = String::from(char);
            while let Some(next) = chars.next_if(|next| next.is_alphanumeric() || *next == '_') {
                word.push(next);
            }
            found.push(Token::Word(word));
        } else if !char.is_whitespace() {
            found.push(Token::Mark(char));
        }
    }
    found
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Family {
    kind: &'static str,
    labels: Vec<String>,
    help: String,
}

fn is_name(text: &str) -> bool {
    let known = text.starts_with("margay_") || text.starts_with("process_");
    known && text.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_')
}

/// The tokens from `begin` to the end of the brackets that it stands in.
fn within(tokens: &[Token], begin: usize) -> &[Token] {
    let mut depth = 0_i32;
    for (index, token) in tokens.iter().enumerate().skip(begin) {
        match token {
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return &tokens[begin..index];
        }
    }
    &tokens[begin..]
}

fn word_before(tokens: &[Token], index: usize) -> &str {
    match (index.checked_sub(2).map(|at| &tokens[at]), index.checked_sub(1).map(|at| &tokens[at])) {
        (Some(Token::Word(word)), Some(Token::Mark('('))) => word,
        _ => "",
    }
}

/// The names in `("name", ...)` pairs, but for the bound of a histogram's bucket.
fn labels_in(tokens: &[Token]) -> Vec<String> {
    let pairs = tokens.windows(3).filter_map(|three| match three {
        [Token::Mark('('), Token::Text(label), Token::Mark(',')] if label != "le" && !is_name(label) => {
            Some(label.clone())
        }
        _ => None,
    });
    pairs.collect()
}

/// The labels of a call of `sample` or `histogram` whose name is at `index`; a list that is named is looked up before it.
fn labels_of_call(tokens: &[Token], index: usize) -> Vec<String> {
    let call = within(tokens, index);
    if !call.contains(&Token::Word("labels".to_owned())) {
        return labels_in(call);
    }
    let is_list = |two: &[Token]| two == [Token::Word("labels".to_owned()), Token::Mark('=')];
    let begin = (0..index).rev().find(|at| is_list(&tokens[*at..at + 2]));
    begin.map(|begin| labels_in(within(tokens, begin + 3))).unwrap_or_default()
}

fn labels_of(tokens: &[Token], index: usize, name: &str) -> Vec<String> {
    // A histogram that is written sample by sample has its count under this name.
    let count = format!("{name}_count");
    let is_named = |at: usize| matches!(&tokens[at], Token::Text(text) if *text == name || *text == count);
    let is_call = |at: &usize, named: &dyn Fn(usize) -> bool| {
        named(*at) && ["sample", "histogram"].contains(&word_before(tokens, *at))
    };
    let call = match word_before(tokens, index) {
        "family" => (index..tokens.len()).find(|at| is_call(at, &is_named)),
        // A closure before it writes the samples.
        "each" => (0..index).rev().find(|at| is_call(at, &|at| tokens[at] == Token::Word("name".to_owned()))),
        _ => None,
    };
    call.map(|call| labels_of_call(tokens, call)).unwrap_or_default()
}

/// The families that a source declares.
fn families(source: &str) -> BTreeMap<String, Family> {
    let tokens = tokens(source);
    let mut found = BTreeMap::new();
    for (index, token) in tokens.iter().enumerate() {
        let Token::Text(name) = token else { continue };
        if !is_name(name) || ["sample", "histogram"].contains(&word_before(&tokens, index)) {
            continue;
        }
        let declared = within(&tokens, index + 1);
        let is_sentence =
            |token: &&Token| matches!(token, Token::Text(text) if text.contains(' ') || text.ends_with('.'));
        let help = declared.iter().find(is_sentence).or_else(|| tokens[..index].iter().rev().find(is_sentence));
        let Some(Token::Text(help)) = help else { continue };
        let kind = match () {
            () if declared.contains(&Token::Word("Histogram".to_owned())) => "histogram",
            () if name.ends_with("_total") => "counter",
            () => "gauge",
        };
        let family = Family { kind, labels: labels_of(&tokens, index, name), help: help.clone() };
        found.entry(name.clone()).or_insert(family);
    }
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

const HEAD: &str = "On the admin address, `/metrics`, in Prometheus' text format, without a password:

```sh
curl -s http://127.0.0.1:9001/metrics | grep -v '^#'
```

What to watch, alerts and a board: [administration.md](../administration.md#watching), [Prometheus](../how-to/prometheus.md). A value that
cannot be read at the moment is left out, and so is a family whose part is not in use. A histogram `NAME` has `NAME_bucket`, `NAME_sum` and
`NAME_count`.
";

fn page() -> String {
    let mut out = format!("# Metrics\n\n{WRITTEN}\n\n{HEAD}");
    let mut shown: Vec<String> = Vec::new();
    for (title, about, sources) in PARTS {
        writeln!(out, "\n## {title}\n").unwrap();
        if !about.is_empty() {
            writeln!(out, "{about}\n").unwrap();
        }
        writeln!(out, "| metric | type | labels | meaning |\n| --- | --- | --- | --- |").unwrap();
        for (name, family) in sources.iter().flat_map(|source| families(&read(source))) {
            // A far mount has the server's own.
            if !shown.contains(&name) {
                let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
                writeln!(out, "| `{name}` | {} | {} | {} |", family.kind, labels.join(", "), cell(&family.help))
                    .unwrap();
                shown.push(name);
            }
        }
    }
    out
}

/// Sources that write families, by path.
fn sources() -> Vec<String> {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut waiting = vec![root.join("src"), root.join("crates")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().unwrap() != "tests" {
                    waiting.push(path);
                }
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                if text.contains("Exposition") && !families(&text).is_empty() {
                    found.push(path.strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
    }
    found
}

#[test]
fn the_metrics_are_those_of_the_sources() {
    let listed: Vec<&str> = PARTS.iter().flat_map(|(_, _, sources)| *sources).copied().collect();
    let lacking: Vec<String> = sources().into_iter().filter(|source| !listed.contains(&source.as_str())).collect();
    assert!(lacking.is_empty(), "PARTS lacks {lacking:?}");
    expect_page("metrics.md", &page());
}

#[test]
fn each_way_to_declare_a_family_is_read() {
    let source = r#"
        out.value("margay_a", Kind::Gauge, "An a.", 1);
        let help = "A b.";
        out.value("margay_b_total", counter, help, 1);
        out.family("margay_c_seconds", Kind::Histogram, "A c.");
        let labels = [("operation", *operation), ("status", &status)];
        out.histogram("margay_c_seconds", &labels, buckets, sums);
        for (name, help, value) in [("margay_d_total", "A d.", 1), ("margay_e_total", "An e (\"e\").", 2)] {}
        let mut each = |name, help, value| { out.family(name, Kind::Gauge, help); out.sample(name, &[("bucket", b)], v); };
        each("margay_f", "An f.", &|bucket| Some(bucket.bytes));
        // out.value("margay_not", Kind::Gauge, "Nothing.", 1);
#[cfg(test)]
mod tests {
        out.value("margay_test", Kind::Gauge, "Nothing.", 1);
    "#;
    let found = families(source)
        .into_iter()
        .map(|(name, family)| format!("{name} {} {:?} {}", family.kind, family.labels, family.help));
    let right = [
        "margay_a gauge [] An a.",
        "margay_b_total counter [] A b.",
        "margay_c_seconds histogram [\"operation\", \"status\"] A c.",
        "margay_d_total counter [] A d.",
        "margay_e_total counter [] An e (\"e\").",
        "margay_f gauge [\"bucket\"] An f.",
    ];
    assert_eq!(found.collect::<Vec<_>>(), right);
}
