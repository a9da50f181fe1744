//! The time of a file at growing numbers of files in its directory, in every order.
//!
//! Why:        an index makes it a level line and a search a climbing one; a single size shows neither.
//! Invariants: places are measured in turns, size by size. An operation that takes longer than the limit is cut, at that
//!             place and from that size on, with the files that were done until then.
//!             Nothing is remounted between creating and deleting.
//! Not here:   reports (curve_show).

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use margay_env::Env;
use serde::Serialize;

use super::order::Order;
use super::work::name;
use crate::error::BenchError;
use crate::progress::Progress;
use crate::rivals::Running;
use crate::stop::Stop;
use crate::summary::median;

/// Files between two looks at the clock.
const LOOK_EACH: u64 = 64;

/// What is timed, and the order of names it is done in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    CreateAtRandom,
    Delete,
    DeleteInReverse,
    DeleteAtRandom,
}

impl Serialize for Operation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Operation {
    pub(super) const ALL: [Operation; 5] = [
        Operation::Create,
        Operation::CreateAtRandom,
        Operation::Delete,
        Operation::DeleteInReverse,
        Operation::DeleteAtRandom,
    ];
    /// What is created how, and deleted how after it.
    const PASSES: [(Operation, Operation); 3] = [
        (Operation::Create, Operation::Delete),
        (Operation::Create, Operation::DeleteInReverse),
        (Operation::CreateAtRandom, Operation::DeleteAtRandom),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::CreateAtRandom => "create at random",
            Operation::Delete => "delete",
            Operation::DeleteInReverse => "delete in reverse",
            Operation::DeleteAtRandom => "delete at random",
        }
    }

    fn numbers(self, files: u64) -> Vec<u64> {
        match self {
            Operation::Create | Operation::Delete => Order::Forward.numbers(files),
            Operation::DeleteInReverse => Order::Reverse.numbers(files),
            Operation::CreateAtRandom => Order::Random { seed: 1 }.numbers(files),
            // Another order than that of creation, which a directory without an index keeps.
            Operation::DeleteAtRandom => Order::Random { seed: 2 }.numbers(files),
        }
    }

    fn run(self, path: &Path) -> io::Result<()> {
        match self {
            Operation::Create | Operation::CreateAtRandom => {
                File::options().write(true).create_new(true).open(path).map(drop)
            }
            Operation::Delete | Operation::DeleteInReverse | Operation::DeleteAtRandom => fs::remove_file(path),
        }
    }
}

/// Where it is measured.
#[derive(Debug)]
pub(super) struct MeasuredDirectory<'a> {
    pub(super) name: String,
    pub(super) directory: PathBuf,
    /// Who gives the directory, when it was started for the measurement, and how long it may take for one size.
    pub(super) rival: Option<(&'a mut Running, Duration)>,
    /// Why it was measured no further.
    pub(super) failure: Option<String>,
}

impl<'a> MeasuredDirectory<'a> {
    pub(super) fn given(directory: &Path) -> MeasuredDirectory<'a> {
        MeasuredDirectory {
            name: directory.display().to_string(),
            directory: directory.to_owned(),
            rival: None,
            failure: None,
        }
    }

    pub(super) fn of(rival: &'a mut Running, limit: Duration) -> MeasuredDirectory<'a> {
        let (name, directory) = (rival.name.clone(), rival.directory().to_owned());
        MeasuredDirectory { name, directory, rival: Some((rival, limit)), failure: None }
    }
}

/// One size of one line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    /// Files of the directory.
    pub(super) files: u64,
    /// Files that were done; fewer when it was cut.
    pub(super) done: u64,
    /// Seconds of all that were done, in each round.
    pub(super) rounds: Vec<f64>,
}

impl Point {
    /// The median round.
    pub(super) fn seconds(&self) -> f64 {
        median(self.rounds.iter().copied())
    }

    pub(super) fn us_each(&self) -> f64 {
        self.seconds() * 1e6 / self.done.max(1) as f64
    }

    pub(super) fn cut(&self) -> bool {
        self.done < self.files
    }
}

/// One operation of one place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    pub(super) place: String,
    pub(super) operation: Operation,
    pub(super) points: Vec<Point>,
}

impl Line {
    /// Whether a size is beyond what can be done within the limit.
    fn is_over(&self, files: u64) -> bool {
        self.points.iter().any(|point| point.cut() && point.files <= files)
    }

    fn add(&mut self, files: u64, done: u64, seconds: f64) {
        match self.points.iter_mut().find(|point| point.files == files) {
            // A size that is cut in a later round only is shown by that round.
            Some(point) if point.done == done => point.rounds.push(seconds),
            Some(point) => *point = Point { files, done, rounds: vec![seconds] },
            None => self.points.push(Point { files, done, rounds: vec![seconds] }),
        }
    }
}

pub(super) struct Curve<'a> {
    pub(super) env: &'a Env,
    pub(super) stop: &'a Stop,
    /// Numbers of files.
    pub(super) points: &'a [u64],
    pub(super) rounds: u16,
    /// The longest time of one operation at one size.
    pub(super) limit: Duration,
    /// fsync the directory at the end of each operation, inside its time.
    pub(super) sync: bool,
}

impl Curve<'_> {
    /// The lines of every place; `name` is a directory to make in each.
    pub(super) fn measure(&self, places: &mut [MeasuredDirectory<'_>], name: &str) -> Result<Vec<Line>, BenchError> {
        let line = |place: &MeasuredDirectory<'_>, operation| Line {
            place: place.name.clone(),
            operation,
            points: Vec::new(),
        };
        let lines_of = |place: &MeasuredDirectory<'_>| Operation::ALL.map(|operation| line(place, operation));
        let mut lines: Vec<[Line; 5]> = places.iter().map(lines_of).collect();
        for _ in 0..self.rounds {
            for &files in self.points {
                for (place, lines) in places.iter_mut().zip(&mut lines).filter(|(place, _)| place.failure.is_none()) {
                    self.watched(place, name, files, lines)?;
                }
            }
        }
        Ok(lines.into_iter().flatten().collect())
    }

    /// One size at one place; a rival that fails is measured no further, a directory that fails ends it all.
    fn watched(
        &self,
        place: &mut MeasuredDirectory<'_>,
        name: &str,
        files: u64,
        lines: &mut [Line; 5],
    ) -> Result<(), BenchError> {
        let root = place.directory.join(name);
        let Some((rival, limit)) = &mut place.rival else {
            return self.point(&root, files, lines);
        };
        match rival.watched(*limit, self.stop, || self.point(&root, files, lines)) {
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => place.failure = Some(error.to_string()),
            Ok(()) => {}
        }
        Ok(())
    }

    fn point(&self, root: &Path, files: u64, lines: &mut [Line; 5]) -> Result<(), BenchError> {
        let failed = BenchError::file(root);
        for (create, delete) in Operation::PASSES {
            if lines[create as usize].is_over(files) {
                continue;
            }
            fs::create_dir(root).map_err(&failed)?;
            let outcome = self.run(root, files, create, lines).and_then(|done| {
                let whole = done == files && !lines[delete as usize].is_over(files);
                if whole { self.run(root, files, delete, lines).map(drop) } else { Ok(()) }
            });
            let removed = fs::remove_dir_all(root).map_err(&failed);
            outcome.and(removed)?;
        }
        Ok(())
    }

    /// Times an operation until its end or the limit; the number of files done.
    fn run(&self, folder: &Path, files: u64, operation: Operation, lines: &mut [Line; 5]) -> Result<u64, BenchError> {
        let failed = BenchError::file(folder);
        let (numbers, mut done) = (operation.numbers(files), 0);
        let line = &mut lines[operation as usize];
        let progress = Progress::new(self.env, format!("{}: {}", line.place, operation.name()), files);
        let began = self.env.clock.monotonic();
        for number in numbers {
            operation.run(&folder.join(name(number))).map_err(&failed)?;
            done += 1;
            if done % LOOK_EACH == 0 {
                self.stop.check()?;
                progress.add(LOOK_EACH);
                if self.env.clock.monotonic() - began > self.limit {
                    break;
                }
            }
        }
        if self.sync {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(&failed)?;
        }
        let took = self.env.clock.monotonic() - began;
        line.add(files, done, took.as_secs_f64());
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(points: &[u64], limit: Duration) -> Vec<Line> {
        let folder = tempfile::tempdir().unwrap();
        let (env, stop) = (Env::real(), Stop::default());
        let curve = Curve { env: &env, stop: &stop, points, rounds: 2, limit, sync: true };
        let place = |name: &str| {
            let directory = folder.path().join(name);
            fs::create_dir(&directory).unwrap();
            MeasuredDirectory { name: name.to_owned(), ..MeasuredDirectory::given(&directory) }
        };
        let lines = curve.measure(&mut [place("a"), place("b")], "x").unwrap();
        for name in ["a", "b"] {
            assert_eq!(fs::read_dir(folder.path().join(name)).unwrap().count(), 0, "{name} is left empty");
        }
        lines
    }

    #[test]
    fn every_place_has_a_line_for_each_operation() {
        let lines = measure(&[3, 70], Duration::MAX);
        assert_eq!(lines.len(), 10);
        for (index, line) in lines.iter().enumerate() {
            assert_eq!(line.operation, Operation::ALL[index % 5]);
            assert_eq!(line.place, if index < 5 { "a" } else { "b" });
            // Two of the three passes create in the order of names.
            let rounds = if line.operation == Operation::Create { 4 } else { 2 };
            let shape: Vec<_> = line.points.iter().map(|point| (point.files, point.done, point.rounds.len())).collect();
            assert_eq!(shape, [(3, 3, rounds), (70, 70, rounds)]);
            assert!(line.points.iter().all(|point| point.us_each() > 0.0 && !point.cut()));
        }
    }

    #[test]
    fn what_takes_too_long_is_cut_and_left_out_from_there_on() {
        // Looked at after 64 files only, so the first size is never cut.
        for line in measure(&[10, 200, 300], Duration::ZERO) {
            let shape: Vec<_> = line.points.iter().map(|point| (point.files, point.done)).collect();
            match line.operation {
                Operation::Create | Operation::CreateAtRandom => assert_eq!(shape, [(10, 10), (200, LOOK_EACH)]),
                _ => assert_eq!(shape, [(10, 10)]),
            }
        }
    }

    #[test]
    fn a_stop_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (env, stop) = (Env::real(), Stop::default());
        stop.set();
        let curve = Curve { env: &env, stop: &stop, points: &[100], rounds: 1, limit: Duration::MAX, sync: false };
        assert!(matches!(
            curve.measure(&mut [MeasuredDirectory::given(folder.path())], "x"),
            Err(BenchError::Interrupted)
        ));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
