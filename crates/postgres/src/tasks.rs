//! The threads of an engine, on which all its calls run.
//!
//! Why:        a call goes on when nobody waits for it any more, and whoever blocks may have no runtime.
//! Not here:   what the calls do.

use std::future::Future;

use margay_meta::{EngineError, EngineFuture};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

const THREADS: usize = 2;

/// The threads of an engine.
#[derive(Debug)]
pub(crate) struct Tasks {
    /// Taken when it ends, which must not wait for its tasks: the last owner may be one of them.
    runtime: Option<Runtime>,
}

impl Tasks {
    pub(crate) fn start() -> Result<Tasks, EngineError> {
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("postgres").enable_all().build()?;
        Ok(Tasks { runtime: Some(runtime) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.runtime.as_ref().expect("it ends with its last owner").handle().clone()
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let runtime = self.runtime.as_ref().expect("it ends with its last owner");
        runtime.spawn(async move {
            // Nobody may wait any more.
            drop(sender.send(task.await));
        });
        receiver
    }

    /// Runs a task, and waits for it on this thread.
    pub(crate) fn block<T: Send + 'static, E: From<EngineError> + Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let runtime = self.runtime.as_ref().expect("it ends with its last owner");
        runtime.spawn(async move { drop(sender.send(task.await)) });
        receiver.recv().unwrap_or_else(|_| Err(ended().into()))
    }

    /// As `block`, without blocking the thread.
    pub(crate) fn begin<T: Send + 'static, E: From<EngineError> + Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> EngineFuture<'static, Result<T, E>> {
        let receiver = self.spawn(task);
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(ended().into())) })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// A task that panicked.
pub(crate) fn ended() -> EngineError {
    EngineError::Poisoned("a call of PostgreSQL has ended without an answer".to_owned())
}
