//! Replays what the real program wrote. After new recordings `UPDATE_EXPECT=1 cargo test` writes the snapshots anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;

use astrabox_engine::EmissionKind;
use astrabox_engine::line::{Line, Piece, Splitter};
use astrabox_types::{EventPayload, InteractionAnswer, MessageKind};
use expect_test::expect_file;
use serde::Deserialize;
use serde_json::Value;

use super::harness::{Driver, choose, decline, input, told};

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
    driver: Driver,
    /// Recorded ids of requests to ours.
    ids: BTreeMap<String, String>,
    /// Our requests that the recording did not make yet, by method.
    open: BTreeMap<String, VecDeque<String>>,
    seen: usize,
    inputs: u64,
    expected: Option<String>,
    /// Where the program's output is.
    offset: u64,
}

impl Replay {
    fn new(recording: &Recording, restart: bool) -> Self {
        let mut driver = Driver::new();
        driver.restart = restart;
        let resumed = recording.events.iter().find_map(|event| match event {
            Event::In(sent) if sent["method"] == "thread/resume" => {
                sent["params"]["threadId"].as_str().map(str::to_owned)
            }
            _ => None,
        });
        Self {
            driver,
            ids: BTreeMap::new(),
            open: BTreeMap::new(),
            seen: 0,
            inputs: 0,
            expected: resumed,
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

    fn act(&mut self, sent: &Value) {
        match sent["method"].as_str() {
            Some("initialize") => {
                let expected = self.expected.clone();
                self.driver.begin(expected.as_deref());
            }
            Some("turn/start") => {
                self.inputs += 1;
                let text = sent["params"]["input"][0]["text"].as_str().expect("a text");
                self.driver
                    .deliver_input(&input(self.inputs, text))
                    .expect("it is taken");
            }
            Some("turn/interrupt") => self.driver.interrupt(),
            Some(_) => {}
            None => {
                let id = format!("1.{}", sent["id"]);
                let answer = answer(&sent["result"]);
                self.driver.answer(&id, &answer).expect("it is open");
            }
        }
        self.note_requests();
        if let (Some(method), Some(id)) = (sent["method"].as_str(), sent.get("id")) {
            let ours = self.open.get_mut(method).and_then(VecDeque::pop_front);
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

    fn line(&mut self, line: &str) {
        self.offset += line.len() as u64 + 1;
        self.driver.line(Line::Text(line), self.offset);
        self.note_requests();
    }

    fn run(mut self, recording: &Recording) -> Self {
        for event in &recording.events {
            match event {
                Event::In(sent) => self.act(sent),
                Event::Out(line) => {
                    let line = self.translate(line);
                    self.line(&line);
                }
            }
        }
        self
    }

    /// As `run`, with the output as bytes in pieces of `chunk`, and a new splitter where a restart would make one.
    fn run_chunked(mut self, recording: &Recording, chunk: usize) -> Self {
        let mut stream = Vec::new();
        for (at, event) in recording.events.iter().enumerate() {
            match event {
                Event::In(sent) => self.act(sent),
                Event::Out(line) => {
                    stream.extend(self.translate(line).as_bytes());
                    stream.push(b'\n');
                    // Several lines may come at once, but none past what we say next.
                    let next = recording.events.get(at + 1);
                    let answers = line.starts_with("{\"id\"");
                    if matches!(next, Some(Event::Out(next)) if !answers && !next.starts_with("{\"id\""))
                    {
                        continue;
                    }
                    self.feed(&stream, chunk);
                    stream.clear();
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
                self.driver.line(Line::Text(text), self.offset);
                self.note_requests();
            }
        }
        assert_eq!(self.offset, begin + stream.len() as u64);
    }
}

fn answer(result: &Value) -> InteractionAnswer {
    let word = result["decision"]
        .as_str()
        .or_else(|| result["action"].as_str());
    match word {
        Some("decline") => decline(),
        Some(word) => choose(word),
        None => panic!("not an answer: {result}"),
    }
}

#[test]
fn every_recording_is_told_as_its_snapshot_says() {
    for recording in recordings() {
        let replay = Replay::new(&recording, false).run(&recording);
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
        let plain = Replay::new(&recording, false).run(&recording).driver;
        let restarted = Replay::new(&recording, true).run(&recording).driver;
        assert_eq!(plain.said, restarted.said, "{}", recording.name);
        assert_eq!(plain.wrote, restarted.wrote, "{}", recording.name);
        for chunk in [1, 13, 1000, 1 << 20] {
            let replay = Replay::new(&recording, true);
            let chunked = replay.run_chunked(&recording, chunk).driver;
            assert_eq!(plain.said, chunked.said, "{} by {chunk}", recording.name);
        }
    }
}

#[test]
fn every_recording_keeps_the_promises_of_a_turn() {
    for recording in recordings() {
        let replay = Replay::new(&recording, false).run(&recording);
        let name = &recording.name;
        let said = &replay.driver.said;
        let (mut open, mut ends) = (false, 0);
        let mut keys = BTreeSet::new();
        let mut lengths: BTreeMap<&str, u64> = BTreeMap::new();
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for kind in said {
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
                    let told = lengths.entry(&delta.key).or_default();
                    assert_eq!(*told, delta.offset, "{name}: {}", delta.key);
                    *told += delta.text.len() as u64;
                    texts.entry(&delta.key).or_default().push_str(&delta.text);
                    assert!(open || delta.child_run.is_some(), "{name}: {}", delta.key);
                }
                EmissionKind::PublicEvent(draft) => {
                    assert!(
                        keys.insert(draft.key.clone()),
                        "{name}: {} twice",
                        draft.key
                    );
                    let late = matches!(draft.payload, EventPayload::ToolResult { .. });
                    assert!(
                        open || late || draft.child_run.is_some(),
                        "{name}: {}",
                        draft.key
                    );
                    if let EventPayload::MessageCompleted { text, kind, .. } = &draft.payload {
                        let built = texts.get(draft.key.as_str());
                        assert_eq!(built, Some(text), "{name}: {}", draft.key);
                        assert!(matches!(kind, MessageKind::Text | MessageKind::Reasoning));
                    }
                }
                EmissionKind::Diagnostic(draft) => {
                    assert!(
                        keys.insert(draft.key.clone()),
                        "{name}: {} twice",
                        draft.key
                    );
                    let unknown = ["unknown", "garbage", "late"];
                    let EventPayload::DiagnosticRaw { topic, .. } = &draft.payload else {
                        panic!("{draft:?}");
                    };
                    let foreign = unknown.iter().any(|word| topic.starts_with(word));
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
