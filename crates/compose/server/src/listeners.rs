//! The sockets of the API.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use astrabox_config::Config;
use astrabox_grpc::Listener;
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::{Error, folders};

/// Where an App can be reached.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// The unix socket that this App made; it removes it.
    pub(crate) socket: Option<OwnSocket>,
    /// The TCP address, with the port that the system chose.
    pub(crate) tcp: Option<SocketAddr>,
}

/// A socket file that goes when this is dropped, unless somebody else's is in its place by then.
#[derive(Debug)]
pub(crate) struct OwnSocket {
    path: PathBuf,
    inode: (u64, u64),
}

impl OwnSocket {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        let same = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.inode);
        if same && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the socket could not be removed");
        }
    }
}

/// Makes the listeners that the configuration names. They queue connections from now on.
///
/// # Errors
/// When an address is taken.
pub(crate) async fn bind(config: &Config) -> Result<(Vec<Listener>, Addresses), Error> {
    let (listener, socket) = unix(&config.socket()).await?;
    let mut listeners = vec![Listener::Unix(listener)];
    let mut addresses = Addresses {
        socket: Some(socket),
        tcp: None,
    };
    if let Some(address) = config.server.tcp {
        let listener = TcpListener::bind(address)
            .await
            .map_err(Error::io(format!("listen at server.tcp, {address}")))?;
        addresses.tcp = listener.local_addr().ok();
        listeners.push(Listener::Tcp(listener));
    }
    Ok((listeners, addresses))
}

/// Where the listeners that an embedder made are.
pub(crate) fn given(listeners: &[Listener]) -> Addresses {
    let tcp = listeners.iter().find_map(|listener| match listener {
        Listener::Tcp(listener) => listener.local_addr().ok(),
        Listener::Unix(_) => None,
    });
    Addresses { socket: None, tcp }
}

/// A socket of mode 0600. It takes its place by a rename, so it is never there with another mode, and what a dead
/// server left there goes in the same step.
async fn unix(path: &Path) -> Result<(UnixListener, OwnSocket), Error> {
    let what = || format!("listen at {}", path.display());
    if let Some(folder) = path.parent() {
        folders::private("the folder of server.socket", folder)?;
    }
    refuse_living(path).await?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new).map_err(Error::io(what()))?;
    let placed = fs::set_permissions(&new, fs::Permissions::from_mode(0o600))
        .and_then(|()| fs::symlink_metadata(&new))
        .and_then(|found| fs::rename(&new, path).map(|()| found));
    let found = placed.map_err(|error| {
        let _ = fs::remove_file(&new);
        Error::io(what())(error)
    })?;
    Ok((
        listener,
        OwnSocket {
            path: path.to_owned(),
            inode: (found.dev(), found.ino()),
        },
    ))
}

async fn refuse_living(path: &Path) -> Result<(), Error> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(format!("look at {}", path.display()))(error)),
    };
    if !found.file_type().is_socket() {
        return Err(Error::NotASocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(Error::SocketInUse {
            socket: path.to_owned(),
        }),
        // Nobody listens there any more.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::ConnectionRefused | ErrorKind::NotFound
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(Error::io(format!("ask who listens at {}", path.display()))(
            error,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_servers_socket_makes_way_and_a_living_ones_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("it binds"));
        assert!(path.exists(), "a closed socket leaves its file");
        let (listener, own) = unix(&path).await.expect("nobody listens");
        assert_eq!(
            fs::metadata(&path).expect("it is there").mode() & 0o777,
            0o600
        );
        assert!(matches!(unix(&path).await, Err(Error::SocketInUse { .. })));
        drop((listener, own));
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }

    #[tokio::test]
    async fn a_file_in_the_way_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        fs::write(&path, "precious").expect("it is written");
        assert!(matches!(unix(&path).await, Err(Error::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
    }

    #[tokio::test]
    async fn a_socket_that_replaced_ours_is_not_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        let (_listener, own) = unix(&path).await.expect("it is free");
        fs::remove_file(&path).expect("it is ours");
        let _other = std::os::unix::net::UnixListener::bind(&path).expect("it binds");
        drop(own);
        assert!(path.exists());
    }
}
