//! Replays what real programs wrote. After new recordings `UPDATE_EXPECT=1 cargo test` writes the snapshots anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;

use astrabox_acp_protocol::Settings;
use astrabox_acp_protocol::harness::{Driver, choose, input, told};
use astrabox_engine::EmissionKind;
use astrabox_engine::line::{Piece, Splitter};
use astrabox_types::{EventPayload, InteractionAnswer};
use expect_test::expect_file;
use serde::Deserialize;
use serde_json::Value;

use crate::protocol::Any;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedLine {
    dir: String,
    line: String,
}

/// One thing that happened in a recording.
#[derive(Debug, Clone)]
enum Event {
    /// Our side said this.
    In(Value),
    /// The program said this.
    Out(String),
}

struct Recording {
    name: String,
    events: Vec<Event>,
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn recordings() -> Vec<Recording> {
    let files = fs::read_dir(folder("recordings")).expect("there are recordings");
    let mut paths: Vec<_> = files
        .map(|file| file.expect("it is listed").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "jsonl"));
    paths.sort();
    assert!(paths.len() >= 20, "the recordings are there");
    let read = |path: PathBuf| Recording {
        name: path
            .file_stem()
            .expect("it has a name")
            .to_string_lossy()
            .into_owned(),
        events: read(&fs::read_to_string(&path).expect("it is readable")),
    };
    paths.into_iter().map(read).collect()
}

fn read(text: &str) -> Vec<Event> {
    let lines = text.lines().map(|line| {
        serde_json::from_str::<RecordedLine>(line).expect("a recording's line is JSON")
    });
    let events = lines.filter_map(|line| match line.dir.as_str() {
        "in" => Some(Event::In(
            serde_json::from_str(&line.line).expect("ours is JSON"),
        )),
        "out" => Some(Event::Out(line.line)),
        "err" => None,
        other => panic!("unknown direction {other}"),
    });
    events.collect()
}

/// A replay: our side acts as in the recording, and the program's answers are led to our own requests.
struct Replay {
    driver: Driver<Any>,
    /// Recorded ids of requests to ours.
    ids: BTreeMap<String, String>,
    /// Our requests that the recording did not make yet, by method.
    open: BTreeMap<String, VecDeque<String>>,
    seen: usize,
    inputs: u64,
    expected: Option<String>,
}

impl Replay {
    fn new(recording: &Recording, restart: bool) -> Self {
        let sent = |methods: &[&str], parameter: &str| {
            recording.events.iter().find_map(|event| match event {
                Event::In(sent) if methods.iter().any(|method| sent["method"] == *method) => {
                    sent["params"][parameter].as_str().map(str::to_owned)
                }
                _ => None,
            })
        };
        let settings = Settings {
            cwd: "/workspace".to_owned(),
            mode: sent(&["session/set_mode"], "modeId"),
            serve: Some(BTreeMap::new()),
            ..Settings::default()
        };
        let mut driver = Driver::new(settings, Any::new("scripted-model".to_owned()));
        driver.restart = restart;
        Self {
            driver,
            ids: BTreeMap::new(),
            open: BTreeMap::new(),
            seen: 0,
            inputs: 0,
            expected: sent(&["session/resume", "session/load"], "sessionId"),
        }
    }

    fn note_requests(&mut self) {
        for sent in &self.driver.wrote[self.seen..] {
            if let (Some(method), Some(id)) = (sent["method"].as_str(), sent["id"].as_str()) {
                let open = self.open.entry(method_of(method)).or_default();
                open.push_back(id.to_owned());
            }
        }
        self.seen = self.driver.wrote.len();
    }

    fn act(&mut self, sent: &Value) {
        match sent["method"].as_str() {
            Some("initialize") => {
                let expected = self.expected.clone();
                self.driver.begin(expected.as_deref());
            }
            Some("session/prompt") => {
                self.inputs += 1;
                let text = sent["params"]["prompt"][0]["text"]
                    .as_str()
                    .expect("a text");
                self.driver
                    .deliver_input(&input(self.inputs, text))
                    .expect("it is taken");
            }
            Some("session/cancel") => self.driver.interrupt(),
            Some(_) => {}
            None => {
                // The protocol answers what is open at a stop by itself.
                if let Some(answer) = answer(&sent["result"]) {
                    let id = sent["id"].to_string();
                    self.driver.answer(&id, &answer).expect("it is open");
                }
            }
        }
        self.note_requests();
        if let (Some(method), Some(id)) = (sent["method"].as_str(), sent.get("id")) {
            let open = self.open.get_mut(&method_of(method));
            let ours = open.and_then(VecDeque::pop_front);
            let ours = ours.unwrap_or_else(|| panic!("we do not ask {method}"));
            self.ids.insert(id.to_string(), ours);
        }
    }

    /// The program's line with our id in place of the recorded one.
    fn translate(&self, line: &str) -> String {
        let value: Value = serde_json::from_str(line).expect("the program writes JSON");
        if value.get("method").is_some() {
            return line.to_owned();
        }
        let recorded = value["id"].to_string();
        let ours = self.ids.get(&recorded).expect("it answers a request");
        line.replacen(
            &format!("\"id\":{recorded}"),
            &format!("\"id\":\"{ours}\""),
            1,
        )
    }

    /// `chunk` is in how large pieces the program's output comes.
    fn run(mut self, recording: &Recording, chunk: usize) -> Self {
        for event in &recording.events {
            match event {
                Event::In(sent) => self.act(sent),
                Event::Out(line) => {
                    let line = self.translate(line) + "\n";
                    let mut splitter = Splitter::new(0, None);
                    for (at, piece) in line.as_bytes().chunks(chunk).enumerate() {
                        splitter.feed((at * chunk) as u64, piece);
                        while let Some(Piece::Line(line)) = splitter.next_piece() {
                            let text = std::str::from_utf8(&line).expect("it is UTF-8");
                            self.driver.text(text);
                            self.note_requests();
                        }
                    }
                }
            }
        }
        self
    }
}

/// One name for both ways to open the same conversation.
fn method_of(method: &str) -> String {
    match method {
        "session/load" => "session/resume".to_owned(),
        method => method.to_owned(),
    }
}

fn answer(result: &Value) -> Option<InteractionAnswer> {
    if let Some(option) = result["outcome"]["optionId"].as_str() {
        return Some(choose(option));
    }
    let content = result["content"].as_object()?;
    let answers = content.iter().map(|(id, value)| {
        let text = value.as_str().unwrap_or_default().to_owned();
        (id.clone(), vec![text])
    });
    Some(InteractionAnswer::Reply {
        answers: answers.collect(),
    })
}

#[test]
fn every_recording_is_told_as_its_snapshot_says() {
    for recording in recordings() {
        let replay = Replay::new(&recording, false).run(&recording, usize::MAX);
        let mut text: String = replay
            .driver
            .said
            .iter()
            .map(|kind| told(kind) + "\n")
            .collect();
        let asked = replay.driver.wrote.iter().map(|sent| {
            let what = sent["method"].as_str().map(str::to_owned);
            format!("> {}\n", what.unwrap_or_else(|| sent.to_string()))
        });
        text.extend(asked);
        let path = folder("snapshots").join(format!("{}.txt", recording.name));
        expect_file![path].assert_eq(&text);
    }
}

#[test]
fn a_restart_after_every_line_and_any_chunking_change_nothing() {
    for recording in recordings() {
        let plain = Replay::new(&recording, false).run(&recording, usize::MAX);
        for chunk in [1, 13, 1000, usize::MAX] {
            let other = Replay::new(&recording, true).run(&recording, chunk);
            assert_eq!(plain.driver.said, other.driver.said, "{}", recording.name);
            assert_eq!(plain.driver.wrote, other.driver.wrote, "{}", recording.name);
        }
    }
}

#[test]
fn every_recording_keeps_the_promises_of_a_turn() {
    for recording in recordings() {
        let replay = Replay::new(&recording, false).run(&recording, usize::MAX);
        let name = &recording.name;
        let (mut open, mut ends) = (false, 0);
        let mut keys = BTreeSet::new();
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for kind in &replay.driver.said {
            match kind {
                EmissionKind::InputConsumed(_) => {
                    assert!(!open, "{name}: consumed in a turn");
                    open = true;
                }
                EmissionKind::Terminal(_) => {
                    assert!(open, "{name}: an end without a begin");
                    open = false;
                    ends += 1;
                }
                EmissionKind::Delta(delta) => {
                    let text = texts.entry(&delta.key).or_default();
                    assert_eq!(text.len() as u64, delta.offset, "{name}: {}", delta.key);
                    text.push_str(&delta.text);
                    assert!(open || delta.child_run.is_some(), "{name}: {}", delta.key);
                }
                EmissionKind::PublicEvent(draft) => {
                    let key = &draft.key;
                    assert!(keys.insert(key.clone()), "{name}: {key} twice");
                    let late = matches!(draft.payload, EventPayload::ToolResult { .. });
                    assert!(open || late || draft.child_run.is_some(), "{name}: {key}");
                    if let EventPayload::MessageCompleted { text, .. } = &draft.payload {
                        let built = texts.get(draft.key.as_str());
                        assert_eq!(built, Some(text), "{name}: {key}");
                    }
                }
                EmissionKind::Diagnostic(draft) => {
                    assert!(keys.insert(draft.key.clone()), "{name}: {}", draft.key);
                    let EventPayload::DiagnosticRaw { topic, .. } = &draft.payload else {
                        panic!("{draft:?}");
                    };
                    let foreign = ["unknown", "garbage", "late"];
                    let foreign = foreign.iter().any(|word| topic.starts_with(word));
                    assert!(!foreign, "{name}: {}", told(kind));
                }
                _ => {}
            }
        }
        assert!(!open, "{name}: a turn without an end");
        assert_eq!(ends, replay.inputs, "{name}");
        let state = serde_json::to_string(&replay.driver.protocol).expect("it is JSON");
        assert!(state.len() < 3000, "{name}: {} bytes: {state}", state.len());
    }
}
