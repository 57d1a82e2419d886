//! The real engines: what the platform adds to the bare program's time, in the same run against the same model.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use astrabox_engine::Registration;
use astrabox_images::{ImageStore, image_name};
use astrabox_sandbox::registry::Registry;
use astrabox_testkit::model::ScriptedModel;

use crate::bare::{Bare, DIALECTS, Dialect};
use crate::figure::{Effort, Found, Row, Statistic, Unit, median};
use crate::sessions::{Served, Session};

/// An engine that can be measured: it is linked and its image is built.
pub(crate) struct Subject {
    pub(crate) dialect: &'static dyn Dialect,
    pub(crate) root: PathBuf,
    /// The size of its image.
    pub(crate) bytes: u64,
}

/// The engines asked for; notes what is missing of the others.
pub(crate) async fn subjects(effort: &Effort, found: &mut Found) -> Result<Vec<Subject>> {
    let linked = Registry::<Registration>::linked()?;
    let store = ImageStore::open(&ImageStore::default_dir()?).await?;
    let mut subjects = Vec::new();
    for dialect in DIALECTS {
        let kind = dialect.kind();
        if !effort.engines.is_empty() && !effort.engines.iter().any(|name| name == kind) {
            continue;
        }
        let Some(engine) = linked.get(kind) else {
            found
                .notes
                .push(format!("{kind} is not measured: it is not linked"));
            continue;
        };
        let name = image_name(kind, &engine.adapter().image_recipe());
        match store.find(&name).await? {
            Some(image) => subjects.push(Subject {
                dialect: *dialect,
                root: image.root,
                bytes: image.bytes,
            }),
            None => found.notes.push(format!(
                "{kind} is not measured: its image is not built; run `astrabox image build {kind}`"
            )),
        }
    }
    for name in &effort.engines {
        let known = DIALECTS.iter().any(|dialect| dialect.kind() == name);
        ensure!(known, "there is no engine {name} here");
    }
    Ok(subjects)
}

/// CreateSession to READY.
pub(crate) async fn ready(effort: Effort) -> Result<Found> {
    let mut found = Found::default();
    for subject in subjects(&effort, &mut found).await? {
        let kind = subject.dialect.kind();
        let model = ScriptedModel::builder().start().await?;
        let served = Served::real(kind, &model).await?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first of each only warms the caches.
        for n in 0..=effort.times(16) {
            let (bare, bare_time) = Bare::start(subject.dialect, &subject.root, &model).await?;
            bare.end().await?;
            let (session, time) = served.session().await?;
            session.delete().await?;
            if n > 0 {
                theirs.push(bare_time);
                ours.push(time);
            }
        }
        served.clear().await?;
        model.shutdown().await;
        push_difference(
            &mut found,
            kind,
            ["CreateSession to READY", "bare handshake"],
            &ours,
            &theirs,
            30.0,
        );
    }
    Ok(found)
}

/// A prompt to the first piece of its answer on a warm session.
pub(crate) async fn first_token(effort: Effort) -> Result<Found> {
    let mut found = Found::default();
    for subject in subjects(&effort, &mut found).await? {
        let kind = subject.dialect.kind();
        let mut pair = Pair::start(&subject).await?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for n in 0..effort.times(48) + 2 {
            let prompt = "DELTAS: 3\nSLOW: 20";
            let bare = pair.bare.timed(prompt).await?.first;
            let own = pair.session.timed(prompt).await?.first;
            if n >= 2 {
                theirs.push(bare);
                ours.push(own);
            }
        }
        pair.end().await?;
        push_difference(
            &mut found,
            kind,
            ["prompt to first piece", "bare"],
            &ours,
            &theirs,
            5.0,
        );
    }
    found.notes.push("from the call of SendInput to the client's watch; bare: from the line written to the line read".to_owned());
    Ok(found)
}

/// An answer of 100 pieces.
pub(crate) async fn answer(effort: Effort) -> Result<Found> {
    let mut found = Found::default();
    for subject in subjects(&effort, &mut found).await? {
        let kind = subject.dialect.kind();
        let mut pair = Pair::start(&subject).await?;
        let paces = [
            (
                "a piece every 10 ms",
                "DELTAS: 100\nSLOW: 10",
                8,
                Some(1.05),
            ),
            ("all at once", "DELTAS: 100", 16, None),
        ];
        for (pace, prompt, times, goal) in paces {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for n in 0..=effort.times(times) {
                let bare = pair.bare.timed(prompt).await?.whole;
                let own = pair.session.timed(prompt).await?.whole;
                if n > 0 {
                    theirs.push(bare);
                    ours.push(own);
                }
            }
            found
                .rows
                .push(Row::times(format!("{kind}: {pace}"), &ours));
            found
                .rows
                .push(Row::times(format!("{kind}: {pace}, bare"), &theirs));
            let ratio = median(&ours) / median(&theirs);
            let mut row = Row::value(format!("{kind}: {pace}, ratio"), Unit::Times, ratio);
            if let Some(goal) = goal {
                row = row.at_most(Statistic::Value, goal);
            }
            found.rows.push(row);
        }
        pair.end().await?;
    }
    found.notes.push(
        "from the prompt to the end of the turn; 100 pieces a second are as fast as a fast model"
            .to_owned(),
    );
    Ok(found)
}

/// The bare program and a session of the same engine, over one model.
struct Pair {
    model: ScriptedModel,
    served: Served,
    session: Session,
    bare: Bare,
}

impl Pair {
    async fn start(subject: &Subject) -> Result<Self> {
        let model = ScriptedModel::builder().start().await?;
        let served = Served::real(subject.dialect.kind(), &model).await?;
        let (session, _) = served.session().await?;
        let (bare, _) = Bare::start(subject.dialect, &subject.root, &model)
            .await
            .context("the bare program")?;
        Ok(Self {
            model,
            served,
            session,
            bare,
        })
    }

    async fn end(self) -> Result<()> {
        self.bare.end().await?;
        drop(self.session);
        self.served.clear().await?;
        self.model.shutdown().await;
        Ok(())
    }
}

fn push_difference(
    found: &mut Found,
    kind: &str,
    names: [&str; 2],
    ours: &[Duration],
    theirs: &[Duration],
    goal: f64,
) {
    let difference = median(ours) - median(theirs);
    found
        .rows
        .push(Row::times(format!("{kind}: {}", names[0]), ours));
    found
        .rows
        .push(Row::times(format!("{kind}: {}", names[1]), theirs));
    found.rows.push(
        Row::value(
            format!("{kind}: p50 over p50"),
            Unit::Milliseconds,
            difference,
        )
        .at_most(Statistic::Value, goal),
    );
}
