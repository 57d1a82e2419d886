//! Files: those of the session's sandbox, and those that go into an input.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use astrabox_client::{Client, text_part, v1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::exit::Failure;
use crate::out::{Column, Out};

const COLUMNS: &[Column] = &[
    ("NAME", "/name"),
    ("KIND", "/kind"),
    ("SIZE", "/size"),
    ("MODIFIED", "/modified_at"),
];

pub(super) async fn list(
    client: &Client,
    out: &Out,
    session_id: String,
    path: String,
) -> anyhow::Result<()> {
    let files = client
        .list_files(v1::ListFilesRequest { session_id, path })
        .await?
        .files;
    out.table(
        "files",
        files.iter().map(|file| out.message("File", file)).collect(),
        COLUMNS,
    )
}

pub(super) async fn cat(
    client: &Client,
    session_id: String,
    path: String,
    output: Option<PathBuf>,
) -> anyhow::Result<()> {
    let mut file = client
        .read_file(v1::ReadFileRequest { session_id, path })
        .await?;
    match output {
        None => copy(&mut file, &mut tokio::io::stdout()).await,
        Some(path) => {
            let target = tokio::fs::File::create(&path).await;
            let mut target =
                target.with_context(|| format!("{} cannot be written", path.display()))?;
            copy(&mut file, &mut target).await
        }
    }
}

async fn copy(
    file: &mut astrabox_client::FileReader,
    target: &mut (impl tokio::io::AsyncWrite + Unpin),
) -> anyhow::Result<()> {
    while let Some(piece) = file.next().await? {
        target.write_all(&piece).await?;
    }
    target.flush().await?;
    Ok(())
}

/// The content of an input: a text, `-` for standard input, and pictures.
pub(super) async fn content(
    text: &str,
    images: &[PathBuf],
) -> anyhow::Result<Vec<v1::ContentPart>> {
    let mut parts = vec![text_part(match text {
        "-" => read_stdin().await?,
        text => text.to_owned(),
    })];
    for path in images {
        parts.push(image(path).await?);
    }
    Ok(parts)
}

/// All of standard input, as a text.
pub(crate) async fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    tokio::io::stdin()
        .read_to_string(&mut text)
        .await
        .context("standard input is no text")?;
    Ok(text)
}

async fn image(path: &Path) -> anyhow::Result<v1::ContentPart> {
    let media_type = match path.extension().and_then(|extension| extension.to_str()) {
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some(_) | None => {
            return Err(Failure::usage(format!(
                "{} is no .png, .jpg, .gif or .webp",
                path.display()
            )));
        }
    };
    let data = tokio::fs::read(path)
        .await
        .with_context(|| format!("{} cannot be read", path.display()))?;
    let image = v1::Image {
        media_type: media_type.to_owned(),
        data: data.into(),
    };
    Ok(v1::ContentPart {
        part: Some(v1::content_part::Part::Image(image)),
    })
}
