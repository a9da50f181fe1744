//! Connections of a load, driven by a few threads with a runtime each.
//!
//! Why:        a client with one thread is slower than the servers that it measures.
//! Invariants: every runtime is there before the first thread starts, so an error leaves none of them at work.

use crate::error::BenchError;

/// How many threads: as asked for, or half of the processors, and not more than there are connections.
pub(crate) fn count(asked: Option<u64>, connections: u64) -> u64 {
    let half = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64 / 2);
    asked.unwrap_or_else(half).clamp(1, connections)
}

/// Their number in words.
pub(crate) fn named(threads: u64) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// Runs `work` on so many threads, each with its share of the numbers of the connections; what came of each.
pub(crate) async fn run<T, Work>(
    threads: u64,
    connections: u64,
    work: impl Fn(Vec<u64>) -> Work,
) -> Result<Vec<T>, BenchError>
where
    T: Send + 'static,
    Work: Future<Output = T> + Send + 'static,
{
    let runtimes = (0..threads).map(|_| crate::runtime()).collect::<Result<Vec<_>, _>>()?;
    let start = |(runtime, thread): (tokio::runtime::Runtime, u64)| {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let work = work((thread..connections).step_by(threads as usize).collect());
        // Nobody waits for what came of a run that was given up.
        std::thread::spawn(move || drop(sender.send(runtime.block_on(work))));
        receiver
    };
    let running: Vec<_> = runtimes.into_iter().zip(0..).map(start).collect();
    let mut all = Vec::with_capacity(running.len());
    for ended in running {
        all.push(ended.await.expect("a thread ends by telling what came of it"));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_connection_has_one_thread() {
        let mut numbers = run(3, 8, std::future::ready::<Vec<u64>>).await.unwrap();
        assert_eq!(numbers.len(), 3);
        numbers.sort();
        assert_eq!(numbers, [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        assert_eq!((count(Some(9), 4), count(Some(2), 4), count(None, 1)), (4, 2, 1));
    }
}
