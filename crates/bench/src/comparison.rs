//! The figures of several that were measured in turns, beside those of the first.
//!
//! Why:        ratios of one run travel better than figures; their spread over the rounds says how far to trust them.
//! Not here:   measuring (`side_by_side` directories, `frame` S3 servers).

use std::borrow::Cow;
use std::path::Path;

use margay_env::Env;
use serde::Serialize;

use crate::bars::{self, Bar, Group};
use crate::error::BenchError;
use crate::report::{self, Report};
use crate::rivals::{Absent, Running};
use crate::summary::{Table, median};

pub(crate) const PER_SECOND: &str = "per second";
pub(crate) const MB_PER_SECOND: &str = "MB/s";
pub(crate) const SECONDS: &str = "s";
pub(crate) const MILLISECONDS: &str = "ms";

/// Whether more of a unit is better.
fn is_rate(unit: &str) -> bool {
    [PER_SECOND, MB_PER_SECOND].contains(&unit)
}

/// Somebody who is measured.
#[derive(Debug, Default)]
pub(crate) struct Entrant {
    /// The rival's name, or the path or address that was given.
    pub(crate) name: String,
    pub(crate) figures: Vec<Figure>,
    /// Why it was measured no further.
    pub(crate) failure: Option<String>,
}

/// A phase of one entrant, of all rounds.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) phase: Cow<'static, str>,
    pub(crate) unit: &'static str,
    pub(crate) rounds: Vec<f64>,
}

/// What was measured, and how it compares.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) benchmark: &'static str,
    pub(crate) title: String,
    pub(crate) rounds: u16,
    /// Those among the entrants that were started for this.
    pub(crate) rivals: Vec<RivalFacts>,
    /// Those that could not be.
    pub(crate) absent: Vec<Absent>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RivalFacts {
    name: String,
    title: String,
    version: Option<String>,
    store: Option<String>,
    /// Why it was measured no further.
    pub(crate) failure: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) clients: usize,
    pub(crate) phase: Cow<'static, str>,
    pub(crate) unit: &'static str,
    pub(crate) rounds: Vec<f64>,
    /// None when no round got so far, or the phase is not there for it.
    pub(crate) median: Option<f64>,
    /// Of the medians, to that of the first.
    pub(crate) ratio: Option<f64>,
    /// Least and most of the rounds' own ratios.
    pub(crate) ratio_min: Option<f64>,
    pub(crate) ratio_max: Option<f64>,
    pub(crate) failure: Option<String>,
}

impl Row {
    fn bar(&self) -> Bar {
        match (self.median, &self.failure) {
            (Some(median), _) => Bar::To(median),
            (None, Some(_)) => Bar::Failed,
            (None, None) => Bar::Nothing,
        }
    }
}

impl RivalFacts {
    pub(crate) fn of(running: &[Running]) -> Vec<RivalFacts> {
        let facts = |rival: &Running| RivalFacts {
            name: rival.name.clone(),
            title: rival.title.clone(),
            version: rival.version.clone(),
            store: rival.store.clone(),
            failure: None,
        };
        running.iter().map(facts).collect()
    }
}

impl Entrant {
    pub(crate) fn new(name: &str) -> Entrant {
        Entrant { name: name.to_owned(), ..Entrant::default() }
    }

    pub(crate) fn add(&mut self, phase: Cow<'static, str>, unit: &'static str, value: f64) {
        match self.figures.iter_mut().find(|figure| figure.phase == phase) {
            Some(figure) => figure.rounds.push(value),
            None => self.figures.push(Figure { phase, unit, rounds: vec![value] }),
        }
    }

    fn rounds(&self, phase: &str) -> &[f64] {
        self.figures.iter().find(|figure| figure.phase == phase).map_or(&[], |figure| &figure.rounds)
    }
}

/// In as many digits as it takes to be told from 0.
fn ratio(value: f64) -> String {
    let decimals = if value >= 0.095 {
        2
    } else if value >= 0.0095 {
        3
    } else {
        5
    };
    format!("{value:.decimals$}")
}

/// A row for each phase and entrant; phases in the order in which they were met.
pub(crate) fn rows(clients: usize, entrants: &[Entrant]) -> Vec<Row> {
    let mut phases: Vec<&Figure> = Vec::new();
    for figure in entrants.iter().flat_map(|entrant| &entrant.figures) {
        if phases.iter().all(|known| known.phase != figure.phase) {
            phases.push(figure);
        }
    }
    let row = |phase: &Figure, entrant: &Entrant| {
        let (rounds, first) = (entrant.rounds(&phase.phase), entrants[0].rounds(&phase.phase));
        let ratio = |value: f64, of: f64| (of > 0.0).then(|| value / of);
        let middle = (!rounds.is_empty()).then(|| median(rounds.iter().copied()));
        let ratios = || rounds.iter().zip(first).filter_map(|(value, of)| ratio(*value, *of));
        Row {
            name: entrant.name.clone(),
            clients,
            phase: phase.phase.clone(),
            unit: phase.unit,
            rounds: rounds.to_vec(),
            median: middle,
            ratio: middle.and_then(|middle| ratio(middle, median(first.iter().copied()))),
            ratio_min: ratios().min_by(f64::total_cmp),
            ratio_max: ratios().max_by(f64::total_cmp),
            failure: entrant.failure.clone(),
        }
    };
    phases.iter().flat_map(|phase| entrants.iter().map(|entrant| row(phase, entrant))).collect()
}

/// A line for each rival: what it is, or why it was left out; an empty line before them.
pub(crate) fn who(rivals: &[RivalFacts], absent: &[Absent]) -> String {
    let mut out = String::new();
    if !rivals.is_empty() || !absent.is_empty() {
        out.push('\n');
    }
    for RivalFacts { name, title, version, store, failure } in rivals {
        let version = version.as_ref().map(|version| format!(" ({version})")).unwrap_or_default();
        let store = store.as_ref().map(|store| format!(", data in {store}")).unwrap_or_default();
        let failure = failure.as_ref().map(|failure| format!("; failed: {failure}")).unwrap_or_default();
        out.push_str(&format!("  {name}: {title}{version}{store}{failure}\n"));
    }
    for Absent { name, reason } in absent {
        out.push_str(&format!("  {name}: left out, {reason}\n"));
    }
    out
}

impl Comparison {
    pub(crate) fn table(&self) -> Table {
        // Numbers of clients are told where they matter.
        let one = self.rows.iter().all(|row| row.clients == 1);
        let columns = ["clients", "phase", "name", "median", "unit", "of the first", "spread"];
        let mut table = Table::new(&columns[usize::from(one)..]);
        for row in &self.rows {
            let number = |value: Option<f64>, decimals: usize| {
                value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
            };
            let decimals = if row.median.is_some_and(|median| median >= 100.0) { 0 } else { 2 };
            let mut spread = match (row.ratio_min, row.ratio_max) {
                (Some(least), Some(most)) => format!("{}-{}", ratio(least), ratio(most)),
                _ => String::new(),
            };
            match &row.failure {
                Some(_) if row.median.is_some() => spread.push_str(", then failed"),
                Some(failure) => spread = format!("failed: {failure}"),
                None => {}
            }
            let cells = [
                row.clients.to_string(),
                row.phase.to_string(),
                row.name.clone(),
                number(row.median, decimals),
                row.unit.to_owned(),
                row.ratio.map_or("-".to_owned(), ratio),
                spread,
            ];
            table.row(cells[usize::from(one)..].to_vec());
        }
        table
    }

    /// The medians of each number of clients as bars: the number, and the picture.
    fn pictures(&self) -> Vec<(usize, String)> {
        let mut clients: Vec<usize> = self.rows.iter().map(|row| row.clients).collect();
        clients.dedup();
        clients.into_iter().map(|clients| (clients, self.picture(clients))).collect()
    }

    fn picture(&self, clients: usize) -> String {
        let (mut names, mut groups) = (Vec::new(), Vec::<Group>::new());
        for row in self.rows.iter().filter(|row| row.clients == clients) {
            if !names.contains(&row.name) {
                names.push(row.name.clone());
            }
            match groups.last_mut() {
                Some(group) if group.name == row.phase => group.bars.push(row.bar()),
                _ => groups.push(Group {
                    name: row.phase.to_string(),
                    unit: row.unit,
                    more_is_better: is_rate(row.unit),
                    bars: vec![row.bar()],
                }),
            }
        }
        let title = match clients {
            1 => format!("{}: {}", self.benchmark, self.title),
            _ => format!("{}: {}, {clients} at once", self.benchmark, self.title),
        };
        bars::svg(&title, &names, &groups)
    }
}

impl Report for Comparison {
    /// The table, and what its names stand for.
    fn text(&self) -> String {
        let mut out = format!("margay bench {}: {}, medians of {}\n\n", self.benchmark, self.title, self.rounds);
        out.push_str(&self.table().text());
        out.push_str(&who(&self.rivals, &self.absent));
        out
    }

    /// Writes `NAME.json`, `NAME.csv`, and `NAME-CLIENTS.svg` for each number of clients.
    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError> {
        let name = self.benchmark;
        let mut files = vec![(format!("{name}.json"), report::json(self)), (format!("{name}.csv"), self.table().csv())];
        files.extend(self.pictures().into_iter().map(|(clients, picture)| (format!("{name}-{clients}.svg"), picture)));
        report::write_files(env, directory, &files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrant(name: &str, phases: &[(&'static str, &[f64])]) -> Entrant {
        let mut entrant = Entrant::new(name);
        for (phase, rounds) in phases {
            rounds.iter().for_each(|value| entrant.add((*phase).into(), "s", *value));
        }
        entrant
    }

    #[test]
    fn ratios_are_to_the_first_and_their_spread_is_that_of_rounds() {
        let one = entrant("one", &[("make", &[1.0, 2.0, 4.0]), ("remove", &[1.0, 1.0, 1.0])]);
        let other = Entrant { failure: Some("gone".to_owned()), ..entrant("other", &[("make", &[2.0, 2.0])]) };
        let rows = rows(1, &[one, other]);
        let names: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.phase, &*row.name)).collect();
        assert_eq!(names, [("make", "one"), ("make", "other"), ("remove", "one"), ("remove", "other")]);
        let made = &rows[1];
        assert_eq!(
            (made.median, made.ratio, made.ratio_min, made.ratio_max),
            (Some(2.0), Some(1.0), Some(1.0), Some(2.0))
        );
        assert_eq!((rows[3].median, rows[3].ratio, rows[3].ratio_min), (None, None, None));
        let absent = vec![Absent { name: "away".to_owned(), reason: "not on PATH: away".to_owned() }];
        let (title, rivals) = (String::new(), Vec::new());
        let text = Comparison { benchmark: "x", title, rounds: 3, rivals, absent, rows }.text();
        for part in ["1.00-2.00, then failed", "failed: gone", "away: left out, not on PATH"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
