//! The files of a box in memory, with symbolic links that never lead outside.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_sandbox::{
    BoxPath, Error, ErrorKind, FileInfo, FileKind, HOME, Result, WORKSPACE, WriteOptions,
};
use astrabox_types::Timestamp;
use bytes::Bytes;

/// How many links one path may pass.
const MAX_LINKS: usize = 40;
/// Where anything can be written.
const WRITABLE: [&str; 3] = [WORKSPACE, HOME, "/tmp"];

/// The files of one box. A clone is the same files.
#[derive(Clone)]
pub struct MemoryFiles(Arc<Mutex<Tree>>);

type Tree = BTreeMap<String, Node>;

#[derive(Clone)]
struct Node {
    content: Content,
    modified_at: Timestamp,
}

#[derive(Clone)]
enum Content {
    File(Bytes),
    Directory,
    Link(String),
}

impl Node {
    fn new(content: Content) -> Self {
        Self {
            content,
            modified_at: Timestamp::now(),
        }
    }

    fn info(&self, path: &str) -> FileInfo {
        let (kind, size) = match &self.content {
            Content::File(bytes) => (FileKind::File, bytes.len() as u64),
            Content::Directory => (FileKind::Directory, 0),
            Content::Link(target) => (FileKind::Symlink, target.len() as u64),
        };
        FileInfo {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            kind,
            size,
            modified_at: self.modified_at,
        }
    }
}

impl Default for MemoryFiles {
    fn default() -> Self {
        let mut tree = Tree::new();
        for directory in ["", "/home", HOME, WORKSPACE, "/tmp", "/etc", "/usr"] {
            tree.insert(directory.to_owned(), Node::new(Content::Directory));
        }
        let passwd = Bytes::from_static(b"agent:x:1000:1000::/home/agent:/bin/sh\n");
        tree.insert("/etc/passwd".to_owned(), Node::new(Content::File(passwd)));
        Self(Arc::new(Mutex::new(tree)))
    }
}

impl MemoryFiles {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of these files that a session's volume holds, as files of their own.
    pub(super) fn of_volume(&self) -> Self {
        let mut tree = Self::default().tree().clone();
        let kept = [WORKSPACE, HOME];
        for (path, node) in &*self.tree() {
            if kept.iter().any(|root| is_within(path, root)) {
                tree.insert(path.clone(), node.clone());
            }
        }
        Self(Arc::new(Mutex::new(tree)))
    }

    /// Reads at most `limit` bytes from `offset`.
    ///
    /// # Errors
    /// `NotFound`, or `WrongState` for what is no file.
    pub fn read(&self, path: &BoxPath, offset: u64, limit: u64) -> Result<Bytes> {
        let tree = self.tree();
        let at = resolve(&tree, path.as_str(), true)?;
        match &node(&tree, &at)?.content {
            Content::File(bytes) => {
                let from = bytes
                    .len()
                    .min(usize::try_from(offset).unwrap_or(usize::MAX));
                let most = usize::try_from(limit).unwrap_or(usize::MAX);
                let to = from.saturating_add(most).min(bytes.len());
                Ok(bytes.slice(from..to))
            }
            _ => Err(wrong("read file", "it is not a file")),
        }
    }

    /// Writes a whole file and makes its parents.
    ///
    /// # Errors
    /// `AlreadyExists` when it must not exist, `Refused` outside of what can be written.
    pub fn write(&self, path: &BoxPath, content: Bytes, options: WriteOptions) -> Result<()> {
        let mut tree = self.tree();
        let at = resolve(&tree, path.as_str(), !options.exclusive)?;
        writable(&at)?;
        match tree.get(&at) {
            Some(_) if options.exclusive => {
                let text = "a file of this name is there";
                return Err(Error::new(ErrorKind::AlreadyExists, "write file", text));
            }
            Some(node) if matches!(node.content, Content::Directory) => {
                return Err(wrong("write file", "it is a directory"));
            }
            _ => {}
        }
        make_dirs(&mut tree, parent(&at))?;
        tree.insert(at, Node::new(Content::File(content)));
        Ok(())
    }

    /// Makes a symbolic link, which the workload interface has no call for: only programs make them.
    ///
    /// # Errors
    /// `Refused` outside of what can be written.
    pub fn link(&self, target: &str, path: &BoxPath) -> Result<()> {
        let mut tree = self.tree();
        let at = resolve(&tree, path.as_str(), false)?;
        writable(&at)?;
        make_dirs(&mut tree, parent(&at))?;
        tree.insert(at, Node::new(Content::Link(target.to_owned())));
        Ok(())
    }

    pub(super) fn list(&self, path: &BoxPath) -> Result<Vec<FileInfo>> {
        let tree = self.tree();
        let at = resolve(&tree, path.as_str(), true)?;
        if !matches!(node(&tree, &at)?.content, Content::Directory) {
            return Err(wrong("list files", "it is not a directory"));
        }
        let below = format!("{at}/");
        let direct = |path: &str| {
            path.strip_prefix(&below)
                .is_some_and(|rest| !rest.contains('/'))
        };
        Ok(tree
            .iter()
            .filter(|(path, _)| direct(path))
            .map(|(path, node)| node.info(path))
            .collect())
    }

    pub(super) fn stat(&self, path: &BoxPath) -> Result<FileInfo> {
        let tree = self.tree();
        let at = resolve(&tree, path.as_str(), false)?;
        Ok(node(&tree, &at)?.info(&at))
    }

    pub(super) fn make_dir(&self, path: &BoxPath) -> Result<()> {
        let mut tree = self.tree();
        let at = resolve(&tree, path.as_str(), true)?;
        writable(&at)?;
        make_dirs(&mut tree, &at)
    }

    pub(super) fn remove(&self, path: &BoxPath) -> Result<()> {
        let mut tree = self.tree();
        let Ok(at) = resolve(&tree, path.as_str(), false) else {
            return Ok(());
        };
        if !tree.contains_key(&at) {
            return Ok(());
        }
        writable(&at)?;
        tree.retain(|path, _| !is_within(path, &at));
        Ok(())
    }

    pub(super) fn rename(&self, from: &BoxPath, to: &BoxPath) -> Result<()> {
        let mut tree = self.tree();
        let old = resolve(&tree, from.as_str(), false)?;
        let new = resolve(&tree, to.as_str(), false)?;
        node(&tree, &old)?;
        writable(&old)?;
        writable(&new)?;
        if !matches!(node(&tree, parent(&new))?.content, Content::Directory) {
            return Err(wrong("rename", "the new parent is not a directory"));
        }
        let moved: Vec<_> = tree
            .keys()
            .filter(|path| is_within(path, &old))
            .cloned()
            .collect();
        tree.retain(|path, _| !is_within(path, &new) || is_within(path, &old));
        for path in moved {
            if let Some(node) = tree.remove(&path) {
                tree.insert(format!("{new}{}", &path[old.len()..]), node);
            }
        }
        Ok(())
    }
}

fn is_within(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn wrong(operation: &'static str, text: &str) -> Error {
    Error::new(ErrorKind::WrongState, operation, text)
}

fn node<'a>(tree: &'a Tree, path: &str) -> Result<&'a Node> {
    tree.get(path)
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "file", "no such file"))
}

fn writable(path: &str) -> Result<()> {
    // The roots themselves stay.
    if WRITABLE
        .iter()
        .any(|root| is_within(path, root) && path.len() > root.len())
    {
        return Ok(());
    }
    let text = "only /workspace, /home/agent and /tmp can be written";
    Err(Error::new(ErrorKind::Refused, "file", text))
}

fn make_dirs(tree: &mut Tree, path: &str) -> Result<()> {
    let mut at = String::new();
    for part in path.split('/').skip(1) {
        at.push('/');
        at.push_str(part);
        match tree.get(&at) {
            None => {
                tree.insert(at.clone(), Node::new(Content::Directory));
            }
            Some(node) if matches!(node.content, Content::Directory) => {}
            Some(_) => return Err(wrong("make directory", "a parent is not a directory")),
        }
    }
    Ok(())
}

/// The place that a path means: links are followed within the box, at the end only when told to.
fn resolve(tree: &Tree, path: &str, follow_last: bool) -> Result<String> {
    let mut todo: VecDeque<String> = path.split('/').map(str::to_owned).collect();
    let (mut at, mut links) = (String::new(), 0);
    while let Some(part) = todo.pop_front() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                at.truncate(parent(&at).len());
                continue;
            }
            _ => {}
        }
        let next = format!("{at}/{part}");
        let last = todo.iter().all(|part| part.is_empty());
        match tree.get(&next).map(|node| &node.content) {
            Some(Content::Link(target)) if follow_last || !last => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(wrong("file", "too many links"));
                }
                if target.starts_with('/') {
                    at.clear();
                }
                for part in target.rsplit('/') {
                    todo.push_front(part.to_owned());
                }
            }
            _ => at = next,
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> BoxPath {
        BoxPath::new(text).expect(text)
    }

    #[test]
    fn a_link_is_followed_inside_the_box_and_never_out_of_it() {
        let files = MemoryFiles::default();
        files
            .link("../../../../etc", &path("/workspace/up"))
            .expect("it is writable");
        files
            .link("loop", &path("/workspace/loop"))
            .expect("it is writable");
        let passwd = files
            .read(&path("/workspace/up/passwd"), 0, 6)
            .expect("the box has one");
        assert_eq!(passwd, "agent:");
        assert!(files.read(&path("/workspace/loop"), 0, 1).is_err());
        let refused = files.write(
            &path("/workspace/up/passwd"),
            Bytes::new(),
            WriteOptions::default(),
        );
        assert_eq!(
            refused.expect_err("it is read-only").kind(),
            ErrorKind::Refused
        );
    }

    #[test]
    fn a_tree_moves_with_everything_below_it() {
        let files = MemoryFiles::default();
        let text = Bytes::from_static(b"x");
        files
            .write(&path("/workspace/a/b/c"), text, WriteOptions::default())
            .expect("it is writable");
        files
            .rename(&path("/workspace/a"), &path("/workspace/z"))
            .expect("it is there");
        assert_eq!(
            files.read(&path("/workspace/z/b/c"), 0, 9).expect("moved"),
            "x"
        );
        assert!(files.stat(&path("/workspace/a")).is_err());
    }
}
