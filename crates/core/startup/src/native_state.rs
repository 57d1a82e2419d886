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
/// `Detached` when the sandbox cannot be read; `ConversationLost` when a file is over the limit.
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
        let content = whole_records(read_all(workload, &path).await?, format);
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
/// the conversation is there.
///
/// # Errors
/// `ConversationLost` when neither the volume nor the store has any state.
pub(crate) async fn restore(
    workload: &dyn Workload,
    spec: &NativeStateSpec,
    program: Option<&ProgramSpec>,
    native_key: &str,
    saved: &[NativeFile],
) -> Result<(), Error> {
    let Some(directory) = directory(spec, program) else {
        return Ok(());
    };
    let present = find(workload, directory, spec, native_key).await?;
    for (path, format) in &present {
        let content = read_all(workload, path).await?;
        let whole = whole_records(content.clone(), *format);
        if whole.len() < content.len() {
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
            write(workload, &path, file.content.clone()).await?;
            any = true;
        }
    }
    if any {
        return Ok(());
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
fn whole_records(content: Bytes, format: RecordFormat) -> Bytes {
    match format {
        RecordFormat::Opaque => content,
        RecordFormat::JsonLines => {
            let end = content
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            content.slice(..end)
        }
    }
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
            assert_eq!(
                whole_records(content.into(), RecordFormat::JsonLines),
                whole
            );
            assert_eq!(whole_records(content.into(), RecordFormat::Opaque), content);
        }
    }
}
