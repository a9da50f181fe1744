//! What machine this is, in a line each.

use std::fs;

/// Figures of a build for developers say nothing of the other, and must not pass for them.
const BUILD: &str = if cfg!(debug_assertions) { ", development build" } else { "" };

/// Names and values, as Linux tells them; what it does not tell is left out.
pub(super) fn facts() -> Vec<(&'static str, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processors = std::thread::available_parallelism().map(|count| count.to_string()).ok();
    let memory = field(&read("/proc/meminfo"), "MemTotal").map(|text| gibibytes(&text).unwrap_or(text));
    let found = [
        ("margay", Some(format!("{}{BUILD}", env!("CARGO_PKG_VERSION")))),
        ("processor", field(&read("/proc/cpuinfo"), "model name")),
        ("cores", processors),
        ("memory", memory),
        ("kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned()).filter(|text| !text.is_empty())),
        ("load at the end", read("/proc/loadavg").split(' ').next().map(str::to_owned).filter(|text| !text.is_empty())),
    ];
    found.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn gibibytes(text: &str) -> Option<String> {
    let kibibytes: f64 = text.strip_suffix(" kB")?.parse().ok()?;
    Some(format!("{:.0} GiB", kibibytes / f64::from(1 << 20)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_kernel() {
        let facts = facts();
        assert!(facts.iter().any(|(name, value)| *name == "kernel" && value.contains('.')), "{facts:?}");
        assert_eq!(gibibytes("25165824 kB").as_deref(), Some("24 GiB"));
    }
}
