//! Reads the operator's roots on the server's side: the role itself opens no file that a setting names.

use std::path::PathBuf;

/// The most that all files together may hold, in bytes, as they go to the role in one message.
const MOST: usize = 512 * 1024;

/// Every file, one after the other.
///
/// # Errors
/// A text that says which of them is wrong, by its number.
pub(super) async fn read(paths: &[PathBuf]) -> Result<String, String> {
    let mut roots = String::new();
    for (number, path) in (1..).zip(paths) {
        let text = tokio::fs::read_to_string(path).await.map_err(|error| {
            format!(
                "egress.extra_roots: file {number} cannot be read: {}",
                error.kind()
            )
        })?;
        if !text.contains("-----BEGIN CERTIFICATE-----") {
            return Err(format!(
                "egress.extra_roots: file {number} holds no certificate in PEM"
            ));
        }
        roots.push_str(&text);
        roots.push('\n');
        if roots.len() > MOST {
            return Err(
                "egress.extra_roots: the files are larger than 512 KiB together".to_owned(),
            );
        }
    }
    Ok(roots)
}
