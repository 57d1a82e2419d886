//! Connects to one of a few addresses, and to no other.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::answer::Reason;

/// How long an address is tried alone before the next one is tried beside it (RFC 8305 names 250 ms).
const STAGGER: Duration = Duration::from_millis(250);

/// The most addresses that are tried.
const MAX_ATTEMPTS: usize = 8;

/// A connection to the first address that accepts.
pub(crate) async fn dial(
    addresses: &[SocketAddr],
    connect_timeout: Duration,
) -> Result<TcpStream, Reason> {
    match timeout(connect_timeout, race(alternate(addresses))).await {
        Ok(Some(stream)) => {
            // A byte of a stream is worth a packet: events come one by one.
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
        Ok(None) => Err(Reason::Unreachable),
        Err(_) => Err(Reason::Timeout),
    }
}

async fn race(mut addresses: VecDeque<SocketAddr>) -> Option<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            Some(result) = attempts.join_next(), if !attempts.is_empty() => match result {
                Ok(Ok(stream)) => return Some(stream),
                _ => next = Instant::now(),
            },
            () = sleep_until(next), if !addresses.is_empty() => {
                if let Some(address) = addresses.pop_front() {
                    attempts.spawn(TcpStream::connect(address));
                    next = Instant::now() + STAGGER;
                }
            }
            else => return None,
        }
    }
}

/// IPv6 and IPv4 in turn, in the resolver's order.
fn alternate(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut one, mut other): (VecDeque<_>, VecDeque<_>) = addresses
        .iter()
        .copied()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let mut mixed = VecDeque::new();
    while mixed.len() < MAX_ATTEMPTS {
        let Some(address) = one.pop_front().or_else(|| other.pop_front()) else {
            break;
        };
        mixed.push_back(address);
        std::mem::swap(&mut one, &mut other);
    }
    mixed
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn families_take_turns() {
        let addresses = ["[2::1]:1", "[2::2]:1", "1.1.1.1:1", "[2::3]:1"];
        let parsed: Vec<SocketAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let order: Vec<_> = alternate(&parsed).iter().map(ToString::to_string).collect();
        assert_eq!(order, ["[2::1]:1", "1.1.1.1:1", "[2::2]:1", "[2::3]:1"]);
        assert!(alternate(&[]).is_empty());
        assert_eq!(alternate(&parsed.repeat(5)).len(), MAX_ATTEMPTS);
    }

    #[tokio::test]
    async fn the_next_address_is_tried_when_one_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = listener.local_addr().unwrap();
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap()
        };
        let wait = Duration::from_secs(10);
        let stream = dial(&[closed, good], wait).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert_eq!(dial(&[closed], wait).await.err(), Some(Reason::Unreachable));
        assert_eq!(dial(&[], wait).await.err(), Some(Reason::Unreachable));
    }

    #[tokio::test]
    async fn an_address_that_is_silent_times_out_and_does_not_stop_the_others() {
        // The kernel leaves connections unanswered when a listener's queue is full.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = listener.local_addr().unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let short = Duration::from_millis(200);
        let mut waiting = Vec::new();
        let reason = loop {
            match dial(&[silent], short).await {
                Ok(stream) => waiting.push(stream),
                Err(reason) => break reason,
            }
            assert!(waiting.len() < 100, "the queue does not fill");
        };
        assert_eq!(reason, Reason::Timeout);
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = other.local_addr().unwrap();
        let stream = dial(&[silent, good], Duration::from_secs(10))
            .await
            .unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
    }
}
