//! How quick boxes are: `cargo test --release --test isolation -- measure`, and with `measure ways` how
//! many there can be in a second. Only on a quiet machine do the numbers mean anything.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::host::{self, Plan};

const ROUNDS: usize = 50;
const WAYS: usize = 8;

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let plans = || {
        let plan = if host::am_root() {
            Plan::root()
        } else {
            Plan::rootless()
        };
        plan.with_volume_of(1 << 30)
    };
    let mut plan = Some(plans());
    let times: Vec<_> = (0..ROUNDS).map(|_| once(&mut plan)).collect();
    drop(plan);
    let total: Vec<_> = times.iter().map(|(first, _)| *first).collect();
    let ends: Vec<_> = times.iter().map(|(_, end)| *end).collect();
    println_now(&format!(
        "process start to first byte from the box: {}",
        quantiles(&total)
    ));
    println_now(&format!(
        "destroy and end of the process: {}",
        quantiles(&ends)
    ));
    if arguments.iter().any(|argument| argument == "ways") {
        println_now(&in_parallel(plans));
    }
    host::remove_shared();
    ExitCode::SUCCESS
}

fn in_parallel(plans: impl Fn() -> Plan + Sync) -> String {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..WAYS {
            scope.spawn(|| {
                let mut plan = Some(plans());
                for _ in 0..ROUNDS {
                    once(&mut plan);
                }
            });
        }
    });
    let rate = (WAYS * ROUNDS) as f64 / start.elapsed().as_secs_f64();
    format!("{WAYS} at a time, made and destroyed: {rate:.0}/s")
}

fn once(plan: &mut Option<Plan>) -> (Duration, Duration) {
    let start = Instant::now();
    let mut made = plan.take().expect("is there").start();
    assert_eq!(made.run(&["echo", "x"]).stdout, "x\n");
    let first = start.elapsed();
    let end = Instant::now();
    *plan = Some(made.destroy());
    (first, end.elapsed())
}

fn quantiles(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    format!(
        "p50 {:.2} ms, p95 {:.2} ms, most {:.2} ms",
        at(0.5),
        at(0.95),
        at(1.0)
    )
}

fn println_now(text: &str) {
    use std::io::Write;
    writeln!(std::io::stdout(), "{text}").expect("writes");
}
