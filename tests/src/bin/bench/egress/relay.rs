//! A plain CONNECT relay, made as well as one can: it looks at nothing but the first head, and copies.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The longest head.
const HEAD: usize = 4096;
/// How much it holds of each direction: what a relay in production has.
const PIECE: usize = 64 * 1024;

/// Relays every tunnel to the upstream, on a port of its own, which it prints, until its input ends. It has as many
/// threads as the egress role.
pub(crate) fn run(upstream: SocketAddr) -> Result<()> {
    super::ends_with_its_input();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        super::print_address(&listener)?;
        let mut tasks = JoinSet::new();
        loop {
            let (client, _) = listener.accept().await?;
            while tasks.try_join_next().is_some() {}
            // A peer may go at any time.
            tasks.spawn(async move {
                let _ = relay(client, upstream).await;
            });
        }
    })
}

async fn relay(mut client: TcpStream, upstream: SocketAddr) -> Result<()> {
    client.set_nodelay(true)?;
    let mut head = Vec::with_capacity(HEAD);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD || client.read_buf(&mut head).await? == 0 {
            bail!("no head");
        }
    }
    if !head.starts_with(b"CONNECT ") {
        bail!("no tunnel");
    }
    let mut upstream = TcpStream::connect(upstream).await?;
    upstream.set_nodelay(true)?;
    client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await?;
    tokio::io::copy_bidirectional_with_sizes(&mut client, &mut upstream, PIECE, PIECE).await?;
    Ok(())
}
