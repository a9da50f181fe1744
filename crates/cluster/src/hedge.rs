//! A second one is asked while the first is silent.
//!
//! Why:        a store that hangs answers nothing, and is not known to hang before its time is over: a read does not wait for that.
//! Not here:   who is asked (margay-volume), asking (peers).

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

/// The first good answer, else the last bad one; `None`: nobody answers. `second` is called if `first` is silent for so long, and says
/// whether it asks anybody. Each sends one answer, or drops the sender.
pub(crate) fn first_good<T, E>(
    silent_for: Duration,
    first: impl FnOnce(Sender<Result<T, E>>),
    second: impl FnOnce(Sender<Result<T, E>>),
) -> Option<Result<T, E>> {
    let (sender, answers) = mpsc::channel();
    first(sender.clone());
    if let Ok(answer) = answers.recv_timeout(silent_for) {
        return Some(answer);
    }
    second(sender);
    let mut last = None;
    for answer in answers {
        if answer.is_ok() {
            return Some(answer);
        }
        last = Some(answer);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;
    const LATER: Duration = Duration::from_secs(3600);

    fn send(answer: Result<u8, u8>) -> impl FnOnce(Sender<Result<u8, u8>>) {
        move |sender| sender.send(answer).unwrap()
    }

    #[test]
    fn a_silent_one_is_not_waited_for_if_another_one_has_it() {
        let mut silent = None;
        let answer = first_good(NOW, |sender| silent = Some(sender), send(Ok(2)));
        assert_eq!(answer, Some(Ok(2)), "the first one has not answered yet");
        assert!(silent.is_some());
        // It answers last, and the other one has nothing.
        let thread = std::cell::Cell::new(None);
        let answer = first_good(
            NOW,
            |sender| thread.set(Some(sender)),
            |sender| {
                sender.send(Err(2)).unwrap();
                thread.take().unwrap().send(Ok(1)).unwrap();
            },
        );
        assert_eq!(answer, Some(Ok(1)));
    }

    #[test]
    fn one_that_answers_is_the_only_one_that_is_asked() {
        let nobody = |_| panic!("nobody else is asked");
        assert_eq!(first_good(LATER, send(Ok(1)), nobody), Some(Ok(1)));
        assert_eq!(first_good(LATER, send(Err(1)), nobody), Some(Err(1)));
        assert_eq!(first_good::<u8, u8>(NOW, drop, drop), None);
        assert_eq!(first_good(NOW, drop, send(Err(2))), Some(Err(2)));
    }
}
