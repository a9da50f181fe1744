//! The same work for many numbers, in turns by several jobs at once.
//!
//! Not here: clients that are timed together (side_by_side), requests of many connections (scratch, load).

use std::io;
use std::thread::ScopedJoinHandle;

/// Works on every number below `count`, each once: job J on J, J + jobs, J + 2 * jobs and so on, in this order.
/// A job ends at its first error; the first such error is told when all have ended.
pub(crate) fn share(count: u64, jobs: usize, work: &(dyn Fn(u64) -> io::Result<()> + Sync)) -> io::Result<()> {
    if jobs == 1 {
        return (0..count).try_for_each(work);
    }
    std::thread::scope(|scope| {
        let spawn = |job| scope.spawn(move || (job..count).step_by(jobs).try_for_each(work));
        let running: Vec<_> = (0..count.min(jobs as u64)).map(spawn).collect();
        let join = |job: ScopedJoinHandle<'_, io::Result<()>>| {
            job.join().unwrap_or_else(|_| Err(io::Error::other("a job panicked")))
        };
        running.into_iter().map(join).fold(Ok(()), io::Result::and)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_number_has_one_job() {
        for (count, jobs) in [(0, 1), (7, 1), (7, 3), (3, 7), (100, 100)] {
            let seen = Mutex::new(Vec::new());
            let see = |number| {
                seen.lock().unwrap().push(number);
                Ok(())
            };
            share(count, jobs, &see).unwrap();
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count), "{count} by {jobs}");
        }
    }

    #[test]
    fn the_error_of_any_job_is_told() {
        let fail = |number| if number == 5 { Err(io::Error::other("five")) } else { Ok(()) };
        assert_eq!(share(9, 4, &fail).unwrap_err().to_string(), "five");
    }
}
