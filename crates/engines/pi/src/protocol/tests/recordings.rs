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

use super::harness::{Driver, choose, decline, input, kind_of, reply, told};

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

/// A replay: our side acts as in the recording, and the program's answers are led to our own commands.
struct Replay {
    driver: Driver,
    /// Recorded ids of our commands, to ours.
    ids: Vec<(String, String)>,
    /// Our commands that the recording did not make yet, by type.
    open: BTreeMap<String, VecDeque<String>>,
    seen: usize,
    inputs: u64,
    /// Where the program's output is.
    offset: u64,
}

impl Replay {
    fn new(restart: bool) -> Self {
        let mut driver = Driver::new();
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

    fn note_commands(&mut self) {
        for sent in &self.driver.wrote[self.seen..] {
            let id = sent["id"].as_str().expect("all have ids");
            let open = self.open.entry(kind_of(sent)).or_default();
            open.push_back(id.to_owned());
        }
        self.seen = self.driver.wrote.len();
    }

    fn act(&mut self, sent: &Value) {
        let kind = kind_of(sent);
        let recorded = sent["id"].as_str().expect("all have ids");
        match kind.as_str() {
            "get_state" => self.driver.begin(None),
            "prompt" => {
                self.inputs += 1;
                let text = sent["message"].as_str().expect("a text");
                self.driver
                    .deliver_input(&input(self.inputs, text))
                    .expect("it is taken");
            }
            "abort" => self.driver.interrupt(),
            "extension_ui_response" => {
                self.driver
                    .answer(recorded, &answer(sent))
                    .expect("it is open");
            }
            other => panic!("unknown command {other}"),
        }
        self.note_commands();
        let ours = self.open.get_mut(&kind).and_then(VecDeque::pop_front);
        let ours = ours.unwrap_or_else(|| panic!("we do not say {kind}"));
        self.ids.push((recorded.to_owned(), ours));
    }

    /// The program's line with our ids in place of the recorded ones.
    fn translate(&self, line: &str) -> String {
        let quoted = |id: &str| format!("\"{id}\"");
        self.ids.iter().fold(line.to_owned(), |line, (from, to)| {
            line.replace(&quoted(from), &quoted(to))
        })
    }

    fn line(&mut self, line: &str) {
        self.offset += line.len() as u64 + 1;
        self.driver.line(Line::Text(line), self.offset);
        self.note_commands();
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

    /// As `run`, with each line as bytes in pieces of `chunk`, and a new splitter where a restart would make one.
    fn run_chunked(mut self, recording: &Recording, chunk: usize) -> Self {
        for event in &recording.events {
            match event {
                Event::In(sent) => self.act(sent),
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
                self.driver.line(Line::Text(text), self.offset);
                self.note_commands();
            }
        }
        assert_eq!(self.offset, begin + stream.len() as u64);
    }
}

fn answer(sent: &Value) -> InteractionAnswer {
    let value = sent["value"].as_str().unwrap_or_default();
    let verdict: Value = serde_json::from_str(value).unwrap_or_default();
    match (verdict["choice"].as_str(), &sent["confirmed"]) {
        (Some(choice), _) => InteractionAnswer::Choose {
            choice_id: choice.to_owned(),
            comment: verdict["comment"].as_str().map(str::to_owned),
            input: verdict["input"]
                .is_object()
                .then(|| verdict["input"].to_string()),
        },
        (None, Value::Bool(true)) => choose("yes"),
        (None, Value::Bool(false)) => choose("no"),
        (None, _) if sent["cancelled"] == true => decline(),
        (None, _) => reply(value),
    }
}

#[test]
fn every_recording_is_told_as_its_snapshot_says() {
    for recording in recordings() {
        let replay = Replay::new(false).run(&recording);
        let mut text: String = replay
            .driver
            .said
            .iter()
            .map(|kind| told(kind) + "\n")
            .collect();
        let asked = replay.driver.wrote.iter().map(|sent| {
            let mut members = sent.clone();
            let what = match kind_of(sent).as_str() {
                "extension_ui_response" => {
                    let members = members.as_object_mut().expect("an object");
                    members.retain(|key, _| key != "id" && key != "type");
                    sent_told(members)
                }
                kind => kind.to_owned(),
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
        let plain = Replay::new(false).run(&recording).driver;
        let restarted = Replay::new(true).run(&recording).driver;
        assert_eq!(plain.said, restarted.said, "{}", recording.name);
        assert_eq!(plain.wrote, restarted.wrote, "{}", recording.name);
        for chunk in [1, 13, 1000, 1 << 20] {
            let replay = Replay::new(true);
            let chunked = replay.run_chunked(&recording, chunk).driver;
            assert_eq!(plain.said, chunked.said, "{} by {chunk}", recording.name);
        }
    }
}

#[test]
fn every_recording_keeps_the_promises_of_a_turn() {
    for recording in recordings() {
        let replay = Replay::new(false).run(&recording);
        let name = &recording.name;
        let said = &replay.driver.said;
        let (mut open, mut began, mut ends) = (false, 0, 0);
        let mut keys = BTreeSet::new();
        let mut lengths: BTreeMap<&str, u64> = BTreeMap::new();
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for kind in said {
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
                    assert!(open, "{name}: {}", delta.key);
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
                    assert!(open || late, "{name}: {}", draft.key);
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

fn sent_told(members: &serde_json::Map<String, Value>) -> String {
    Value::Object(members.clone()).to_string()
}
