//! Replays what the real program wrote. After new recordings `UPDATE_EXPECT=1 cargo test` writes the snapshots anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;

use astrabox_acp_protocol::Settings;
use astrabox_acp_protocol::harness::{Driver, choose, input, told};
use astrabox_engine::EmissionKind;
use astrabox_engine::line::{Line, Piece, Splitter};
use astrabox_types::{EventPayload, InteractionAnswer};
use expect_test::expect_file;
use serde::Deserialize;
use serde_json::Value;

use crate::protocol::DshDialect;

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
    driver: Driver<DshDialect>,
    /// Recorded ids of our requests, to ours.
    ids: Vec<(String, String)>,
    /// Our requests that the recording did not make yet, by method.
    open: BTreeMap<String, VecDeque<String>>,
    seen: usize,
    inputs: u64,
    /// Where the program's output is.
    offset: u64,
}

impl Replay {
    fn new(restart: bool, name: &str) -> Self {
        let settings = Settings {
            cwd: "/workspace".to_owned(),
            // The one that a resumed conversation is brought to.
            mode: (name == "resume").then(|| "ask".to_owned()),
            ..Settings::default()
        };
        let mut driver = Driver::new(settings, DshDialect::default());
        driver.restart = restart;
        Self {
            driver,
            ids: Vec::new(),
            open: BTreeMap::new(),
            seen: 0,
            inputs: 0,
            offset: 0,
        }
    }

    fn note_requests(&mut self) {
        for sent in &self.driver.wrote[self.seen..] {
            if let (Some(method), Some(id)) = (sent["method"].as_str(), sent["id"].as_str()) {
                let open = self.open.entry(method.to_owned()).or_default();
                open.push_back(id.to_owned());
            }
        }
        self.seen = self.driver.wrote.len();
    }

    fn act(&mut self, sent: &Value, events: &[Event]) {
        let method = sent["method"].as_str().unwrap_or_default();
        let params = &sent["params"];
        match method {
            "initialize" => {
                let resumed = events.iter().find_map(|event| match event {
                    Event::In(sent) if sent["method"] == "session/resume" => {
                        sent["params"]["sessionId"].as_str().map(str::to_owned)
                    }
                    _ => None,
                });
                self.driver.begin(resumed.as_deref());
            }
            "session/prompt" => {
                self.inputs += 1;
                let text = params["prompt"][0]["text"].as_str().expect("a text");
                self.driver
                    .deliver_input(&input(self.inputs, text))
                    .expect("it is taken");
            }
            "session/cancel" => self.driver.interrupt(),
            // That of an opening is the protocol's own.
            "session/set_mode" if self.open.get(method).is_none_or(VecDeque::is_empty) => {
                let mode = params["modeId"].as_str().expect("a mode");
                self.driver.set_mode(mode).expect("there is such a mode");
            }
            "_astrabox/stop" => {
                let child = params["id"].as_str().expect("a child run");
                self.driver.stop_child(child).expect("it runs");
            }
            "" => {
                let id = sent["id"].as_str().map(str::to_owned);
                let id = id.unwrap_or_else(|| sent["id"].to_string());
                if let Some(answer) = answer(&sent["result"]) {
                    self.driver.answer(&id, &answer).expect("it is open");
                }
            }
            _ => {}
        }
        self.note_requests();
        if let (false, Some(recorded)) = (method.is_empty(), sent["id"].as_str()) {
            let ours = self.open.get_mut(method).and_then(VecDeque::pop_front);
            let ours = ours.unwrap_or_else(|| panic!("we do not ask {method}"));
            self.ids.push((recorded.to_owned(), ours));
        }
    }

    /// The program's line with our ids in place of the recorded ones.
    fn translate(&self, line: &str) -> String {
        let quoted = |id: &str| format!("\"id\":\"{id}\"");
        self.ids.iter().fold(line.to_owned(), |line, (from, to)| {
            line.replace(&quoted(from), &quoted(to))
        })
    }

    fn run(mut self, recording: &Recording) -> Self {
        for event in &recording.events {
            match event {
                Event::In(sent) => self.act(sent, &recording.events),
                Event::Out(line) => {
                    let line = self.translate(line);
                    self.driver.text(&line);
                    self.note_requests();
                }
            }
        }
        self
    }

    /// As `run`, with each line as bytes in pieces of `chunk`, and a new splitter where a restart would make one.
    fn run_chunked(mut self, recording: &Recording, chunk: usize) -> Self {
        for event in &recording.events {
            match event {
                Event::In(sent) => self.act(sent, &recording.events),
                Event::Out(line) => {
                    let mut stream = self.translate(line).into_bytes();
                    stream.push(b'\n');
                    self.feed(&stream, chunk);
                }
            }
        }
        self
    }

    fn feed(&mut self, stream: &[u8], chunk: usize) {
        let begin = self.offset;
        let mut splitter = Splitter::new(begin, None);
        for (at, piece) in stream.chunks(chunk).enumerate() {
            splitter.feed(begin + (at * chunk) as u64, piece);
            while let Some(Piece::Line(line)) = splitter.next_piece() {
                let text = std::str::from_utf8(&line).expect("it is UTF-8");
                self.offset = splitter.offset();
                self.driver.line(Line::Text(text));
                self.note_requests();
            }
        }
        assert_eq!(self.offset, begin + stream.len() as u64);
    }
}

/// The answer of a person that led to this result; none when the question was closed by an interrupt.
fn answer(result: &Value) -> Option<InteractionAnswer> {
    if let Some(option) = result["outcome"]["optionId"].as_str() {
        return Some(choose(option));
    }
    if result["declined"] == true {
        let comment = result["comment"].as_str().map(str::to_owned);
        return Some(InteractionAnswer::Decline { comment });
    }
    let answers = result["answers"].as_array()?.iter().map(|answer| {
        let id = answer["id"].as_str().expect("an id").to_owned();
        let selected = answer["selected"].as_array().into_iter().flatten();
        let selected = selected.filter_map(Value::as_str).map(str::to_owned);
        (id, selected.collect())
    });
    Some(InteractionAnswer::Reply {
        answers: answers.collect(),
    })
}

#[test]
fn every_recording_is_told_as_its_snapshot_says() {
    for recording in recordings() {
        let replay = Replay::new(false, &recording.name).run(&recording);
        let mut text: String = replay
            .driver
            .said
            .iter()
            .map(|kind| told(kind) + "\n")
            .collect();
        let asked = replay.driver.wrote.iter().map(|sent| {
            let what = match sent["method"].as_str() {
                Some(method) => method.to_owned(),
                None => sent["result"].to_string(),
            };
            format!("> {what}\n")
        });
        text.extend(asked);
        let path = folder("snapshots").join(format!("{}.txt", recording.name));
        expect_file![path].assert_eq(&text);
    }
}

#[test]
fn a_restart_after_every_line_and_any_chunking_change_nothing() {
    for recording in recordings() {
        let replay = |restart| Replay::new(restart, &recording.name);
        let plain = replay(false).run(&recording).driver;
        let restarted = replay(true).run(&recording).driver;
        assert_eq!(plain.said, restarted.said, "{}", recording.name);
        assert_eq!(plain.wrote, restarted.wrote, "{}", recording.name);
        for chunk in [1, 13, 1000, 1 << 20] {
            let chunked = replay(true).run_chunked(&recording, chunk).driver;
            assert_eq!(plain.said, chunked.said, "{} by {chunk}", recording.name);
        }
    }
}

#[test]
fn every_recording_keeps_the_promises_of_a_turn() {
    for recording in recordings() {
        let replay = Replay::new(false, &recording.name).run(&recording);
        let name = &recording.name;
        let (mut open, mut began, mut ends) = (false, 0, 0);
        let mut keys = BTreeSet::new();
        let mut lengths: BTreeMap<&str, u64> = BTreeMap::new();
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for kind in &replay.driver.said {
            match kind {
                EmissionKind::InputConsumed(_) => {
                    assert!(!open, "{name}: consumed in a turn");
                    (open, began) = (true, began + 1);
                }
                EmissionKind::Terminal(_) => {
                    assert!(open, "{name}: an end without a begin");
                    open = false;
                    ends += 1;
                }
                EmissionKind::Delta(delta) => {
                    let told = lengths.entry(&delta.key).or_default();
                    assert_eq!(*told, delta.offset, "{name}: {}", delta.key);
                    *told += delta.text.len() as u64;
                    texts.entry(&delta.key).or_default().push_str(&delta.text);
                    if !open && delta.child_run.is_none() {
                        // The program begins to speak by itself.
                        (open, began) = (true, began + 1);
                    }
                }
                EmissionKind::PublicEvent(draft) => {
                    assert!(
                        keys.insert(draft.key.clone()),
                        "{name}: {} twice",
                        draft.key
                    );
                    let late = matches!(
                        draft.payload,
                        EventPayload::ToolResult { .. } | EventPayload::Usage { .. }
                    );
                    let told = open || late || draft.child_run.is_some();
                    assert!(told, "{name}: {}", draft.key);
                    if let EventPayload::MessageCompleted { text, .. } = &draft.payload {
                        let built = texts.get(draft.key.as_str());
                        assert_eq!(built, Some(text), "{name}: {}", draft.key);
                    }
                }
                EmissionKind::Diagnostic(draft) => {
                    assert!(
                        keys.insert(draft.key.clone()),
                        "{name}: {} twice",
                        draft.key
                    );
                    let EventPayload::DiagnosticRaw { topic, .. } = &draft.payload else {
                        panic!("{draft:?}");
                    };
                    let unknown = ["unknown", "garbage", "late"];
                    let foreign = unknown.iter().any(|word| topic.starts_with(word));
                    assert!(!foreign, "{name}: {}", told(kind));
                }
                _ => {}
            }
        }
        // One process was killed in its turn.
        assert_eq!(
            open,
            name == "before_resume",
            "{name}: a turn without an end"
        );
        assert_eq!(ends + u64::from(open), began, "{name}");
        assert!(began >= replay.inputs, "{name}: an input without a turn");
        let state = serde_json::to_string(&replay.driver.protocol).expect("it is JSON");
        assert!(state.len() < 3000, "{name}: {} bytes: {state}", state.len());
    }
}
