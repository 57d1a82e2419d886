//! Measures figures one after the other and prints each when it is known.

use std::time::Instant;

use anyhow::Result;

use crate::figure::{Effort, Figure, Found};
use crate::machine::{Machine, load};
use crate::report::{Measured, Report};

/// Measures these figures. One that cannot be measured says why, and the others go on.
pub(crate) async fn all(
    figures: &[&'static Figure],
    quick: bool,
    engines: &[String],
) -> Result<Report> {
    let begun = Instant::now();
    let machine = Machine::look()?;
    println!("{machine}");
    if quick {
        println!("quick: a quarter of the repetitions; not for the record");
    }
    let mut measured = Vec::new();
    for figure in figures {
        let (start, load_before) = (Instant::now(), load());
        let found = (figure.measure)(Effort::new(quick, engines)).await;
        let (found, error) = match found {
            Ok(found) => (found, None),
            Err(error) => (Found::default(), Some(format!("{error:#}"))),
        };
        let one = Measured {
            figure,
            found,
            error,
            seconds: start.elapsed().as_secs_f64(),
            load: (load_before, load()),
        };
        print!("\n{one}");
        measured.push(one);
    }
    let report = Report {
        machine,
        quick,
        measured,
        seconds: begun.elapsed().as_secs_f64(),
    };
    println!("\n{}", report.summary());
    Ok(report)
}
