//! docs/reference/settings.md: every setting, from the table that the program itself reads.

use std::fmt::Write;

use margay::settings::parse::{parse, show_bytes};
use margay::settings::table::{Kind, SETTINGS, Setting};

use super::{WRITTEN, cell, expect_page};

/// The tables of the settings file, with what each is about. A table that is not here fails the test.
const GROUPS: &[(&str, &str)] = &[
    ("", "The server"),
    ("auth", "Signatures"),
    ("oidc", "An identity provider"),
    ("encryption", "Encryption"),
    ("select", "S3 Select"),
    ("lifecycle", "Lifecycle"),
    ("limits", "Limits"),
    ("trial", "Trials"),
];

const EXAMPLE: &str = "The same setting in the file, in the environment and on the command line:

```toml
address = \"0.0.0.0:9000\"
domain = [\"s3.example.org\"]

[limits]
cache_bytes = \"1GiB\"
```

```sh
export MARGAY_ADDRESS=0.0.0.0:9000 MARGAY_DOMAIN=s3.example.org MARGAY_LIMITS_CACHE_BYTES=1GiB
margay config --set address=0.0.0.0:9000 --set domain=s3.example.org --set limits.cache_bytes=1GiB
```

A flag wins over the environment, that over the file, and that over the default. The file is named by `--config FILE` or `MARGAY_CONFIG`.
The variable of a setting is `MARGAY_` and its name in capitals, `.` as `_`. A list is separated by commas in variables and flags. A name
that does not exist, and a value that is out of range, end the start with code 2 and a line that says what would be right.
`margay config` shows the value of each setting and where it came from. Many have a flag of their own ([`margay serve`](commands.md#margay-serve)).
";

fn values(kind: Kind) -> String {
    let range = |min: String, max: String| format!("{min} to {max}");
    match kind {
        Kind::Path => "a path".to_owned(),
        Kind::Address => "HOST:PORT".to_owned(),
        Kind::AddressOrOff => "HOST:PORT, or `off`".to_owned(),
        Kind::List => "a list".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Choice(choices) => choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", "),
        Kind::Bytes { min, max } => format!("bytes, {}", range(show_bytes(min), show_bytes(max))),
        Kind::Count { min, max } => range(min.to_string(), max.to_string()),
        Kind::Seconds { min, max } => format!("seconds, {}", range(min.to_string(), max.to_string())),
        Kind::Ratio => "a number from 0 to 1".to_owned(),
    }
}

fn row(setting: &Setting) -> String {
    let default = parse(setting, setting.default).unwrap().show(setting.kind);
    let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
    format!("| `{}` | {} | {default} | {} |", setting.name, cell(&values(setting.kind)), cell(setting.about))
}

fn page() -> String {
    let mut out = format!("# Settings\n\n{WRITTEN}\n\n{EXAMPLE}");
    let group_of = |setting: &Setting| setting.name.split_once('.').map_or("", |(group, _)| group);
    for (group, title) in GROUPS {
        let name = if group.is_empty() { String::new() } else { format!(": `[{group}]`") };
        writeln!(out, "\n## {title}{name}\n\n| setting | values | default | what it does |\n| --- | --- | --- | --- |")
            .unwrap();
        for setting in SETTINGS.iter().filter(|setting| group_of(setting) == *group) {
            writeln!(out, "{}", row(setting)).unwrap();
        }
    }
    out
}

#[test]
fn the_settings_are_those_of_the_program() {
    let page = page();
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, SETTINGS.len(), "GROUPS lacks a table of the file");
    expect_page("settings.md", &page);
}
