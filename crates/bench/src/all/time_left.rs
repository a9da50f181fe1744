//! How long the suites that are not done yet may still take.
//!
//! Why:   the suites differ by ten times, so counting them says little. What each took on two cores stands here; how much
//!        slower this machine is, and how many more directories are measured, shows in those that are done.

use std::time::Duration;

use crate::progress::short_time;

/// Seconds of a suite that is not in the table.
const SECONDS: f64 = 30.0;
/// Seconds of each suite with a directory and a mount, on two cores.
const SUITES: [(&str, f64); 11] = [
    ("ls", 25.0),
    ("growth", 25.0),
    ("ls-mounts", 60.0),
    ("load-put", 12.0),
    ("load-get", 13.0),
    ("auth", 20.0),
    ("dirops", 25.0),
    ("dirops-curve", 40.0),
    ("goofys", 15.0),
    ("mdtest", 40.0),
    ("stream", 15.0),
];

fn usual(name: &str) -> f64 {
    SUITES.iter().find(|(known, _)| *known == name).map_or(SECONDS, |(_, seconds)| *seconds)
}

/// Where a run of several suites is.
#[derive(Clone, Debug)]
pub(super) struct TimeLeft {
    /// The suites in their order.
    names: Vec<&'static str>,
    /// Seconds that those which are done took.
    took: Vec<f64>,
}

impl TimeLeft {
    pub(super) fn new(names: Vec<&'static str>) -> TimeLeft {
        TimeLeft { names, took: Vec::new() }
    }

    pub(super) fn done(&mut self, seconds: f64) {
        self.took.push(seconds);
    }

    /// The rest when the suite that runs has run for so long.
    fn rest(&self, elapsed: Duration) -> Duration {
        let mut usual = self.names.iter().map(|name| usual(name));
        let before: f64 = usual.by_ref().take(self.took.len()).sum();
        let slower = if before > 0.0 { self.took.iter().sum::<f64>() / before } else { 1.0 };
        let current = usual.next().map_or(0.0, |seconds| (seconds * slower - elapsed.as_secs_f64()).max(0.0));
        Duration::from_secs_f64(current + usual.sum::<f64>() * slower)
    }

    /// The line of a suite that has run for so long.
    pub(super) fn line(&self, elapsed: Duration) -> String {
        let (number, count) = (self.took.len() + 1, self.names.len());
        let name = self.names.get(self.took.len()).unwrap_or(&"");
        format!(
            "{number} of {count}: {name} for {}, about {} left",
            short_time(elapsed),
            short_time(self.rest(elapsed))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_follows_the_pace_of_this_machine() {
        let mut left = TimeLeft::new(vec!["auth", "mdtest", "stream"]);
        assert_eq!(left.line(Duration::from_secs(5)), "1 of 3: auth for 0:05, about 1:10 left");
        assert_eq!(left.rest(Duration::from_secs(60)), Duration::from_secs(55), "late, and it may end at any moment");
        left.done(40.0);
        assert_eq!(left.line(Duration::from_secs(10)), "2 of 3: mdtest for 0:10, about 1:40 left");
        left.done(40.0);
        left.done(40.0);
        assert_eq!(left.rest(Duration::ZERO), Duration::ZERO);
    }
}
