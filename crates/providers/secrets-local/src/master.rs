//! The master key: the operator's, or one of our own in a file, and the ring that it opens.

use std::io;
use std::path::{Path, PathBuf};

use astrabox_secrets::Error;

use crate::config::{Config, format_key, parse_key};
use crate::error::{damaged, io as failed};
use crate::files;
use crate::ring::Ring;
use crate::seal::SealKey;

/// The key that the store made itself, and the one that takes its place while a change goes on.
const OWN: &str = "master.key";
const NEXT: &str = "master.key.next";
const RING: &str = "ring";

/// Where the master key comes from.
pub(crate) struct Master {
    folder: PathBuf,
    key: SealKey,
    /// Whether it is the store's own, which it may replace.
    own: bool,
}

impl Master {
    /// Finds the master key and opens the ring; makes both when the store is new.
    ///
    /// # Errors
    /// `Damaged` when the ring does not open with any key that there is, or is missing although there are values.
    pub(crate) fn open(folder: &Path, config: Config, used: bool) -> Result<(Self, Ring), Error> {
        let cannot = |error| failed("build", "read the key ring")(error);
        let kept = files::read(&folder.join(RING)).map_err(cannot)?;
        match (kept, config.key) {
            (None, _) if used => Err(damaged(
                "build",
                "there are values and no key ring: restore the whole folder of the store from one backup",
            )),
            (None, given) => Self::make(folder, given),
            (Some(kept), Some(key)) => Self::with_given(folder, key, config.previous, &kept),
            (Some(kept), None) => Self::with_own(folder, &kept),
        }
    }

    fn make(folder: &Path, given: Option<SealKey>) -> Result<(Self, Ring), Error> {
        let make = || {
            let own = given.is_none();
            let key = match given {
                Some(key) => key,
                None => {
                    let key = SealKey::random()?;
                    files::write(folder, OWN, format_key(&key).as_bytes())?;
                    key
                }
            };
            let master = Self {
                folder: folder.to_owned(),
                key,
                own,
            };
            let ring = Ring::first()?;
            master.keep(&ring)?;
            Ok((master, ring))
        };
        make().map_err(failed("build", "make the key ring"))
    }

    fn with_given(
        folder: &Path,
        key: SealKey,
        previous: Option<SealKey>,
        kept: &[u8],
    ) -> Result<(Self, Ring), Error> {
        let master = Self {
            folder: folder.to_owned(),
            key,
            own: false,
        };
        let failed = |error| failed("build", "keep the key ring")(error);
        if let Ok(ring) = Ring::open(&master.key, kept) {
            // A key of the store's own opens nothing any more.
            master.forget_own().map_err(failed)?;
            return Ok((master, ring));
        }
        let own = read_own(folder, OWN).map_err(failed)?;
        let ring = previous
            .into_iter()
            .chain(own)
            .find_map(|before| Ring::open(&before, kept).ok());
        let ring = ring.ok_or_else(|| {
            damaged(
                "build",
                "the key ring does not open with secrets.local.key or key_file: give the right one, or the one \
                 before as previous_key_file",
            )
        })?;
        master.keep(&ring).map_err(failed)?;
        master.forget_own().map_err(failed)?;
        Ok((master, ring))
    }

    fn with_own(folder: &Path, kept: &[u8]) -> Result<(Self, Ring), Error> {
        let cannot = |error| failed("build", "read the master key")(error);
        for name in [OWN, NEXT] {
            let Some(key) = read_own(folder, name).map_err(cannot)? else {
                continue;
            };
            let Ok(ring) = Ring::open(&key, kept) else {
                continue;
            };
            let master = Self {
                folder: folder.to_owned(),
                key,
                own: true,
            };
            // The end of a change that was cut off, before or behind its ring.
            let settle = || match name {
                NEXT => master.settle(),
                _ => files::remove(folder, NEXT),
            };
            settle().map_err(cannot)?;
            return Ok((master, ring));
        }
        Err(damaged(
            "build",
            "the key ring does not open with the store's own master key, or there is none: set \
             secrets.local.key_file to the key that it was made with",
        ))
    }

    /// Keeps the ring.
    pub(crate) fn keep(&self, ring: &Ring) -> io::Result<()> {
        files::write(&self.folder, RING, &ring.close(&self.key)?)
    }

    /// Keeps the ring, closed with a new master key where the key is the store's own. `step` is called between any
    /// two changes on disk and may end it there.
    pub(crate) fn replace(
        &mut self,
        ring: &Ring,
        step: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let cannot = |error| failed("rotate_key", "keep the key ring")(error);
        if !self.own {
            return self.keep(ring).map_err(cannot);
        }
        let key = SealKey::random().map_err(cannot)?;
        files::write(&self.folder, NEXT, format_key(&key).as_bytes()).map_err(cannot)?;
        step()?;
        self.key = key;
        self.keep(ring).map_err(cannot)?;
        step()?;
        self.settle().map_err(cannot)
    }

    /// The next key becomes the key.
    fn settle(&self) -> io::Result<()> {
        files::write(&self.folder, OWN, format_key(&self.key).as_bytes())?;
        files::remove(&self.folder, NEXT)
    }

    fn forget_own(&self) -> io::Result<()> {
        files::remove(&self.folder, OWN)?;
        files::remove(&self.folder, NEXT)
    }
}

/// A key that the store made; one that cannot be read counts as none.
fn read_own(folder: &Path, name: &str) -> io::Result<Option<SealKey>> {
    let text = files::read(&folder.join(name))?;
    Ok(text.and_then(|text| parse_key(&text)))
}
