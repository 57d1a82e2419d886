//! Changes of files.

use astrabox_client::v1;

use super::style::{Style, printable};

/// A change of a file: a line with its path and counts, then its diff, of which at most `limit` lines.
pub(crate) fn lines(change: &v1::FileChanged, style: Style, limit: usize) -> Vec<String> {
    let (mark, what) = match change.kind() {
        v1::FileChangeKind::Added => (style.green("+"), "new"),
        v1::FileChangeKind::Deleted => (style.red("-"), "removed"),
        v1::FileChangeKind::Modified | v1::FileChangeKind::Unspecified => {
            (style.yellow("~"), "changed")
        }
    };
    let path = style.bold(&printable(&change.path));
    let counts =
        counts(&change.diff).map_or_else(|| what.to_owned(), |counts| format!("{what}, {counts}"));
    let mut lines = vec![format!("{mark} {path} ({counts})")];
    let diff: Vec<&str> = change.diff.lines().collect();
    // A single hidden line takes as much room as the word that it is hidden.
    let shown = if diff.len() <= limit.saturating_add(1) {
        diff.len()
    } else {
        limit
    };
    for line in &diff[..shown] {
        let text = printable(line);
        lines.push(format!(
            "  {}",
            match line.as_bytes().first() {
                Some(b'+') => style.green(&text),
                Some(b'-') => style.red(&text),
                Some(b'@') => style.cyan(&text),
                _ => text.into_owned(),
            }
        ));
    }
    if shown < diff.len() {
        let more = format!("  ... {} more lines", diff.len() - shown);
        lines.push(style.dim(&more));
    }
    lines
}

fn counts(diff: &str) -> Option<String> {
    let begins = |sign: char, header: &str| {
        diff.lines()
            .filter(|line| line.starts_with(sign) && !line.starts_with(header))
            .count()
    };
    let (added, removed) = (begins('+', "+++ "), begins('-', "--- "));
    (added + removed > 0).then(|| format!("+{added} -{removed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: v1::FileChangeKind, diff: &str) -> v1::FileChanged {
        v1::FileChanged {
            path: "/workspace/a".to_owned(),
            kind: kind.into(),
            diff: diff.to_owned(),
        }
    }

    #[test]
    fn a_diff_is_shown_with_its_counts_and_cut_where_it_is_long() {
        let told = change(
            v1::FileChangeKind::Modified,
            "@@ -1,2 +1,2 @@\n same\n-old\n+new\n+more\n",
        );
        let all = lines(&told, Style::default(), 40);
        assert_eq!(all[0], "~ /workspace/a (changed, +2 -1)");
        assert_eq!(
            all[1..],
            [
                "  @@ -1,2 +1,2 @@",
                "   same",
                "  -old",
                "  +new",
                "  +more"
            ]
        );
        let cut = lines(&told, Style::default(), 2);
        assert_eq!(cut[2..], ["   same", "  ... 3 more lines"]);
        assert_eq!(lines(&told, Style::default(), 4), all);
    }

    #[test]
    fn a_change_without_a_diff_is_one_line() {
        let told = change(v1::FileChangeKind::Added, "");
        assert_eq!(lines(&told, Style::default(), 9), ["+ /workspace/a (new)"]);
    }
}
