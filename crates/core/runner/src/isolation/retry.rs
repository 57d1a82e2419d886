//! Waits for what the kernel does a moment after it was asked to, and tells nobody.

use std::time::{Duration, Instant};

/// Tries until there is an answer or the time is over. The first pauses are short.
pub(super) fn until<T>(deadline: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_micros(100);
    loop {
        if let Some(answer) = attempt() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        rest(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "cgroups and loop devices announce no end to wait for"
)]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_the_wait_and_so_does_the_deadline() {
        let mut attempts = 0;
        let third = until(Duration::from_secs(10), || {
            attempts += 1;
            (attempts == 3).then_some(attempts)
        });
        assert_eq!(third, Some(3));
        assert_eq!(until(Duration::from_millis(1), || None::<()>), None);
    }
}
