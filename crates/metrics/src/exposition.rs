//! The Prometheus text exposition format, version 0.0.4.
//!
//! Invariants: P1 each family is declared once, before its samples.
//! Not here:   the values.

use std::fmt::{Display, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The page being written.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Declares a family.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all text");
    }

    /// One sample of a family.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.0, "{open}{label}=\"{text}\"").expect("a string takes all text");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{close} {value}").expect("a string takes all text");
    }

    /// A family with a single sample.
    pub fn value(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The samples of one histogram of durations: counts per bucket (not cumulative) with upper bounds in seconds, then
    /// the total count and the sum in seconds.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (f64, u64)>,
        (count, seconds): (u64, f64),
    ) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (end, inside) in buckets {
            below += inside;
            self.sample(&bucket, &[labels, &[("le", &end.to_string())]].concat(), below);
        }
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), count);
        self.sample(&format!("{name}_sum"), labels, seconds);
        self.sample(&format!("{name}_count"), labels, count);
    }

    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut out = Exposition::default();
        out.value("a", Kind::Gauge, "An a.", 1.5);
        out.sample("b", &[("x", "q\"\\\n")], 2);
        assert_eq!(out.finish(), "# HELP a An a.\n# TYPE a gauge\na 1.5\nb{x=\"q\\\"\\\\\\n\"} 2\n");
    }
}
