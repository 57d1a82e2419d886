//! Saving and restoring the files that hold an engine's own conversation.

use astrabox_engine::{Error, ErrorKind, NativeStateSpec, RecordFormat, from_sandbox};
use astrabox_sandbox::{BoxPath, FileKind, HOME, Workload, WriteOptions};
use astrabox_types::ProgramSpec;
use bytes::Bytes;

/// The largest state file that is saved (256 MiB).
const MAX_FILE: u64 = 256 << 20;
/// How deep the state directory is searched.
const MAX_DEPTH: usize = 8;
/// How much is read in one call.
const CHUNK: u64 = 4 << 20;
/// How often a file that changed while it was read is read again.
const READ_AGAIN: usize = 4;

/// One file of an engine's native state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeFile {
    /// Where it is below the home directory.
    pub path: String,
    /// Its content, whole records only.
    pub content: Bytes,
}

/// Where a native state is below home: the engine says, or for a program that the environment names, the environment.
/// `None` when nobody says.
fn directory<'a>(spec: &NativeStateSpec, program: Option<&'a ProgramSpec>) -> Option<&'a str> {
    match (spec.directory, program) {
        ("", program) => program?.state_directory.as_deref(),
        (directory, _) => Some(directory),
    }
}

/// Reads the native state of a conversation out of its sandbox, cut to whole records.
///
/// # Errors
/// `Detached` when the sandbox cannot be read; `ConversationLost` when a file is over the limit, or is not what it
/// should be.
pub async fn collect(
    workload: &dyn Workload,
    spec: &NativeStateSpec,
    program: Option<&ProgramSpec>,
    native_key: &str,
) -> Result<Vec<NativeFile>, Error> {
    let mut files = Vec::new();
    let Some(directory) = directory(spec, program) else {
        return Ok(files);
    };
    for (path, format) in find(workload, directory, spec, native_key).await? {
        let content = whole_records(read_settled(workload, &path, format).await?, format)?;
        let below = path
            .as_str()
            .trim_start_matches(HOME)
            .trim_start_matches('/')
            .to_owned();
        files.push(NativeFile {
            path: below,
            content,
        });
    }
    Ok(files)
}

/// Puts saved files in place before a resume. A file that the volume still has is newer than the saved one and
/// stays, but for a torn tail. Of a program of which nobody says where its state is, the program itself says whether
/// the conversation is there. Gives the files whose tails were cut, each below home, with how many bytes went.
///
/// # Errors
/// `ConversationLost` when neither the volume nor the store has any state, or when it is damaged.
pub(crate) async fn restore(
    workload: &dyn Workload,
    spec: &NativeStateSpec,
    program: Option<&ProgramSpec>,
    native_key: &str,
    saved: &[NativeFile],
) -> Result<Vec<String>, Error> {
    let mut cut = Vec::new();
    let Some(directory) = directory(spec, program) else {
        return Ok(cut);
    };
    let present = find(workload, directory, spec, native_key).await?;
    for (path, format) in &present {
        let content = read_all(workload, path).await?;
        let whole = whole_records(content.clone(), *format)?;
        if whole.len() < content.len() {
            let name = path.as_str().trim_start_matches(HOME);
            let bytes = content.len() - whole.len();
            cut.push(format!("{} ({bytes} bytes)", name.trim_start_matches('/')));
            write(workload, path, whole).await?;
        }
    }
    let mut any = !present.is_empty();
    for file in saved {
        let path = BoxPath::new(format!("{HOME}/{}", file.path)).map_err(|error| {
            Error::new(
                ErrorKind::ConversationLost,
                "restore",
                format!("a saved file has a bad name: {error}"),
            )
        })?;
        if !present.iter().any(|(there, _)| *there == path) {
            if let Some(format) = spec.format_of(&file.path) {
                whole_records(file.content.clone(), format)?;
            }
            write(workload, &path, file.content.clone()).await?;
            any = true;
        }
    }
    if any {
        return Ok(cut);
    }
    let text =
        "no native state is left of this conversation, neither in its volume nor in the store";
    Err(Error::new(ErrorKind::ConversationLost, "restore", text))
}

async fn write(workload: &dyn Workload, path: &BoxPath, content: Bytes) -> Result<(), Error> {
    let options = WriteOptions {
        private: true,
        durable: true,
        ..WriteOptions::default()
    };
    workload
        .write_file(path, content, options)
        .await
        .map_err(from_sandbox)
}

async fn find(
    workload: &dyn Workload,
    directory: &str,
    spec: &NativeStateSpec,
    native_key: &str,
) -> Result<Vec<(BoxPath, RecordFormat)>, Error> {
    let root = BoxPath::new(format!("{HOME}/{directory}")).map_err(|error| {
        Error::new(
            ErrorKind::InvalidConfiguration,
            "native state",
            error.to_string(),
        )
    })?;
    let (mut found, mut open) = (Vec::new(), vec![(root, 0, !spec.named_by_key)]);
    while let Some((directory, depth, belongs)) = open.pop() {
        let entries = match workload.list_files(&directory).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == astrabox_sandbox::ErrorKind::NotFound => continue,
            Err(error) => return Err(from_sandbox(error)),
        };
        for entry in entries {
            let Ok(path) = directory.join(&entry.name) else {
                continue;
            };
            let belongs = belongs || entry.name.contains(native_key);
            let format = spec.format_of(&entry.name).filter(|_| belongs);
            match (entry.kind, format) {
                (FileKind::Directory, _) if depth < MAX_DEPTH => {
                    open.push((path, depth + 1, belongs));
                }
                (FileKind::File, Some(_)) if entry.size > MAX_FILE => {
                    let text = format!("the native state is over {MAX_FILE} bytes");
                    return Err(Error::new(
                        ErrorKind::ConversationLost,
                        "native state",
                        text,
                    ));
                }
                (FileKind::File, Some(format)) => found.push((path, format)),
                _ => {}
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Reads a file that a newer one may take the place of meanwhile: of a long one, parts of both could be read.
async fn read_settled(
    workload: &dyn Workload,
    path: &BoxPath,
    format: RecordFormat,
) -> Result<Bytes, Error> {
    let mut content = read_all(workload, path).await?;
    if format != RecordFormat::Sqlite || (content.len() as u64) < CHUNK {
        return Ok(content);
    }
    for _ in 0..READ_AGAIN {
        let again = read_all(workload, path).await?;
        if again == content {
            return Ok(content);
        }
        content = again;
    }
    let text = "the native state changes faster than it can be read";
    Err(Error::new(ErrorKind::Detached, "native state", text))
}

async fn read_all(workload: &dyn Workload, path: &BoxPath) -> Result<Bytes, Error> {
    let mut content = Vec::new();
    loop {
        let chunk = workload
            .read_file(path, content.len() as u64, CHUNK)
            .await
            .map_err(from_sandbox)?;
        if chunk.is_empty() {
            return Ok(content.into());
        }
        content.extend_from_slice(&chunk);
    }
}

/// Cuts a torn tail: the program may be killed in the middle of a write.
fn whole_records(content: Bytes, format: RecordFormat) -> Result<Bytes, Error> {
    Ok(match format {
        RecordFormat::Opaque => content,
        RecordFormat::Sqlite => {
            if let Err(what) = whole_database(&content) {
                let text = format!("the native state's database is damaged: {what}");
                let kind = ErrorKind::ConversationLost;
                return Err(Error::new(kind, "native state", text));
            }
            content
        }
        RecordFormat::JsonLines => {
            let end = content
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            content.slice(..end)
        }
    })
}

/// Checks what the header of a SQLite database tells of its file, by the format's own description
/// (`fileformat2.html`, section 1.3).
fn whole_database(content: &[u8]) -> Result<(), &'static str> {
    let Some(header) = content.first_chunk::<100>() else {
        return Err("it has no header");
    };
    if !header.starts_with(b"SQLite format 3\0") {
        return Err("it is no database");
    }
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 1 << 16,
        size => u64::from(size),
    };
    // 2 would be a write-ahead log, which is another file.
    if header[18..20] != [1, 1] {
        return Err("a part of it is in a log beside it");
    }
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    if page < 512 || u64::from(pages) * page != content.len() as u64 {
        return Err("its length is not that of its pages");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_where_the_engine_or_the_environment_says() {
        let spec = |directory| NativeStateSpec {
            directory,
            files: &[],
            named_by_key: false,
        };
        let program = |state: Option<&str>| ProgramSpec {
            command: "x".to_owned(),
            arguments: Vec::new(),
            env: std::collections::BTreeMap::new(),
            model_wire: String::new(),
            state_directory: state.map(str::to_owned),
        };
        let named = program(Some(".named"));
        for (engine, program, expected) in [
            (".own", None, Some(".own")),
            (".own", Some(&named), Some(".own")),
            ("", Some(&named), Some(".named")),
            ("", Some(&program(None)), None),
            ("", None, None),
        ] {
            assert_eq!(directory(&spec(engine), program), expected);
        }
    }

    #[test]
    fn a_torn_tail_is_cut_to_the_last_whole_record() {
        for (content, whole) in [
            ("", ""),
            ("{\"a\":1}\n", "{\"a\":1}\n"),
            ("{\"a\":1}\n{\"b\"", "{\"a\":1}\n"),
            ("{\"a\"", ""),
        ] {
            let cut = |format| whole_records(content.into(), format).expect("it has a whole part");
            assert_eq!(cut(RecordFormat::JsonLines), whole);
            assert_eq!(cut(RecordFormat::Opaque), content);
        }
    }

    fn database(pages: u32, logged: u8) -> Vec<u8> {
        let mut content = vec![0; pages as usize * 512];
        content[..16].copy_from_slice(b"SQLite format 3\0");
        content[16..18].copy_from_slice(&512_u16.to_be_bytes());
        content[18..20].fill(logged);
        content[28..32].copy_from_slice(&pages.to_be_bytes());
        content
    }

    #[test]
    fn a_torn_database_is_refused_and_never_cut() {
        let whole = database(4, 1);
        let mut longer = whole.clone();
        longer.push(0);
        let mut other = whole.clone();
        other[0] = b'x';
        for (content, damaged) in [
            (whole.clone(), false),
            (whole[..1024].to_vec(), true),
            (longer, true),
            (other, true),
            (database(4, 2), true),
            (Vec::new(), true),
        ] {
            let length = content.len();
            let checked = whole_records(content.into(), RecordFormat::Sqlite);
            match checked {
                Ok(kept) => assert!(!damaged && kept.len() == length),
                Err(error) => {
                    assert!(damaged, "{error}");
                    assert_eq!(error.kind(), ErrorKind::ConversationLost);
                }
            }
        }
    }
}
