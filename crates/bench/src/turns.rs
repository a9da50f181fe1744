//! Measuring several in turns, round by round.
//!
//! Why:        a noisy minute of a shared machine hits all of them.
//! Invariants: a rival that fails is not measured again, and the others go on; one that was given fails the whole.
//! Not here:   what a round does (`side_by_side` in directories, `frame` against S3 servers).

use std::time::Duration;

use margay_env::Env;

use crate::comparison::{self, Comparison, Entrant, RivalFacts, Row};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::rivals::{Rivals, Running};
use crate::stop::Stop;

/// Who takes part, and where each is measured: a directory or a server.
#[derive(Debug)]
pub(crate) struct Turns<'a, P> {
    /// Name and place: first those that were given, then the rivals.
    places: Vec<(String, P)>,
    rivals: Rivals,
    /// Of each rival.
    failures: Vec<Option<String>>,
    pub(crate) rounds: u16,
    /// Of one round of a rival.
    limit: Duration,
    stop: &'a Stop,
    progress: Option<Progress>,
    rows: Vec<Row>,
}

impl<'a, P> Turns<'a, P> {
    pub(crate) fn new(
        given: Vec<(String, P)>,
        rivals: Rivals,
        place_of: impl Fn(&Running) -> Result<P, BenchError>,
        rounds: u16,
        stop: &'a Stop,
    ) -> Result<Turns<'a, P>, BenchError> {
        let mut places = given;
        for rival in &rivals.running {
            places.push((rival.name.clone(), place_of(rival)?));
        }
        if places.is_empty() {
            return Err(BenchError::Usage("none of the rivals can run here".to_owned()));
        }
        let (failures, limit) = (vec![None; rivals.running.len()], rivals.limit);
        Ok(Turns { places, rivals, failures, rounds, limit, stop, progress: None, rows: Vec::new() })
    }

    /// Shows on a terminal how many of the rounds are done, when there will be so many series of them.
    pub(crate) fn show_progress(&mut self, env: &Env, label: &str, series: usize) {
        let count = series * usize::from(self.rounds) * self.places.len();
        self.progress = Some(Progress::new(env, format!("{label}, rounds of all"), count as u64));
    }

    /// All rounds of all, with so many clients each.
    pub(crate) fn measure(
        &mut self,
        clients: usize,
        measure: &mut dyn FnMut(&P, &mut Entrant) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let given = self.places.len() - self.rivals.running.len();
        let mut entrants: Vec<Entrant> = self.places.iter().map(|(name, _)| Entrant::new(name)).collect();
        for _ in 0..self.rounds {
            for (index, ((_, place), entrant)) in self.places.iter().zip(&mut entrants).enumerate() {
                self.stop.check()?;
                let _counted = self.progress.as_ref().map(Progress::step);
                let Some(rival) = index.checked_sub(given) else {
                    measure(place, entrant)?;
                    continue;
                };
                if self.failures[rival].is_some() {
                    continue;
                }
                let running = &mut self.rivals.running[rival];
                match running.watched(self.limit, self.stop, || measure(place, entrant)) {
                    Ok(()) => {}
                    Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                    Err(error) => self.failures[rival] = Some(error.to_string()),
                }
            }
        }
        for (entrant, failure) in entrants[given..].iter_mut().zip(&self.failures) {
            entrant.failure.clone_from(failure);
        }
        self.rows.extend(comparison::rows(clients, &entrants));
        Ok(())
    }

    /// Ends the rivals.
    pub(crate) fn compare(mut self, benchmark: &'static str, title: String) -> Comparison {
        let mut rivals = RivalFacts::of(&self.rivals.running);
        for (facts, failure) in rivals.iter_mut().zip(self.failures) {
            facts.failure = failure;
        }
        rivals.extend(RivalFacts::of(&self.rivals.clients));
        let title = match self.rivals.latency {
            Some(latency) => format!("{title}, {latency:?} added to each round trip"),
            None => title,
        };
        let absent = std::mem::take(&mut self.rivals.absent);
        Comparison { benchmark, title, rounds: self.rounds, rivals, absent, rows: self.rows }
    }
}
