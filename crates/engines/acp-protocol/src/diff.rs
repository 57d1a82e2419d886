//! Changes of files, as tool calls tell them.

use astrabox_types::FileChangeKind;
use serde::{Deserialize, Serialize};

use crate::wire::Fields;

/// How long a diff that is kept may be (256 KiB); of a longer one only the file is told.
const KEPT_DIFF: usize = 256 << 10;
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// A file that a tool call changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) path: String,
    pub(crate) kind: FileChangeKind,
    pub(crate) diff: Option<String>,
}

/// The changes in a call's `content`: its items of type `diff`, one change a path. `deletes` is whether the call is
/// one that deletes.
pub(crate) fn changes(content: &[&str], deletes: bool) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for item in content.iter().map(|item| Fields::of(item)) {
        if item.text("type").as_deref() != Some("diff") {
            continue;
        }
        let (Some(path), Some(new)) = (item.text("path"), item.text("newText")) else {
            continue;
        };
        let old = item.text("oldText");
        let kind = match &old {
            None => FileChangeKind::Added,
            Some(_) if deletes && new.is_empty() => FileChangeKind::Deleted,
            Some(_) => FileChangeKind::Modified,
        };
        let diff = Some(unified(old.as_deref().unwrap_or_default(), &new))
            .filter(|diff| diff.len() <= KEPT_DIFF);
        match changes.iter_mut().find(|change| change.path == path) {
            // Programs tell each place of a file for itself.
            Some(known) => {
                let joined = match (known.diff.take(), diff) {
                    (Some(known), Some(more)) => Some(known + &more),
                    _ => None,
                };
                known.diff = joined.filter(|diff| diff.len() <= KEPT_DIFF);
            }
            None => changes.push(Change { path, kind, diff }),
        }
    }
    changes
}

/// A unified diff of one hunk. Line numbers count from the text that was given, which may be a part of the file.
fn unified(old: &str, new: &str) -> String {
    if old == new {
        return String::new();
    }
    let (before, after) = (lines(old), lines(new));
    let shorter = before.len().min(after.len());
    let head = (0..shorter)
        .take_while(|at| before[*at] == after[*at])
        .count();
    let tail = (0..shorter - head)
        .take_while(|at| before[before.len() - 1 - at] == after[after.len() - 1 - at])
        .count();
    let begin = head.saturating_sub(CONTEXT);
    let end = tail.min(CONTEXT);
    let removed = &before[head..before.len() - tail];
    let added = &after[head..after.len() - tail];
    let shown = |middle: usize| head - begin + middle + end;
    let range = |count: usize| match count {
        0 => "0,0".to_owned(),
        count => format!("{},{count}", begin + 1),
    };
    let mut diff = format!(
        "@@ -{} +{} @@\n",
        range(shown(removed.len())),
        range(shown(added.len()))
    );
    let mut put = |mark: char, lines: &[&str]| {
        for line in lines {
            diff.push(mark);
            diff.push_str(line);
            if !line.ends_with('\n') {
                diff.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    put(' ', &before[begin..head]);
    put('-', removed);
    put('+', added);
    put(' ', &before[before.len() - tail..before.len() - tail + end]);
    diff
}

/// Lines with their ends.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_one_hunk_with_its_surroundings() {
        for (old, new, expected) in [
            ("", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
            ("a\n", "", "@@ -1,1 +0,0 @@\n-a\n"),
            (
                "a",
                "b",
                "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
            ),
            (
                "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
                "1\n2\n3\n4\nx\n6\n7\n8\n9\n",
                "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n",
            ),
            ("a\na\n", "a\n", "@@ -1,2 +1,1 @@\n a\n-a\n"),
            ("same", "same", ""),
        ] {
            assert_eq!(unified(old, new), expected, "{old:?} to {new:?}");
        }
    }

    #[test]
    fn each_path_is_one_change() {
        let content = [
            r#"{"type":"diff","path":"/w/a","oldText":null,"newText":"x\n"}"#,
            r#"{"type":"content","content":{"type":"text","text":"y"}}"#,
            r#"{"type":"diff","path":"/w/b","oldText":"1\n","newText":"2\n"}"#,
            r#"{"type":"diff","path":"/w/b","oldText":"3\n","newText":"4\n"}"#,
            r#"{"type":"diff","path":"/w/c"}"#,
        ];
        let told = changes(&content, false);
        let told: Vec<_> = told
            .iter()
            .map(|change| (change.path.as_str(), change.kind, change.diff.as_deref()))
            .collect();
        let both = "@@ -1,1 +1,1 @@\n-1\n+2\n@@ -1,1 +1,1 @@\n-3\n+4\n";
        assert_eq!(
            told,
            [
                ("/w/a", FileChangeKind::Added, Some("@@ -0,0 +1,1 @@\n+x\n")),
                ("/w/b", FileChangeKind::Modified, Some(both)),
            ]
        );
        let gone = [r#"{"type":"diff","path":"/w/a","oldText":"x","newText":""}"#];
        assert_eq!(changes(&gone, true)[0].kind, FileChangeKind::Deleted);
        assert_eq!(changes(&gone, false)[0].kind, FileChangeKind::Modified);
    }

    #[test]
    fn a_diff_that_is_too_long_is_left_out_and_its_file_is_told() {
        let text = "x".repeat(KEPT_DIFF);
        let item = format!(r#"{{"type":"diff","path":"/w/a","newText":"{text}"}}"#);
        let told = changes(&[&item], false);
        assert_eq!((told.len(), &told[0].diff), (1, &None));
    }
}
