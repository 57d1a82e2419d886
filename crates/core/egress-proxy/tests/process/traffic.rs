//! What needs a process to itself: memory, descriptors, another network.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;

use astrabox_egress_proxy::{EgressConfig, EgressRole, StaticHosts, SystemResolver};
use astrabox_sandbox::EgressGate;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};
use tokio_util::sync::CancellationToken;

use super::Test;
use super::stand::{PATIENCE, Stand, ask, connect_to, is_root, say, status, until};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_large_body_needs_no_memory_in_either_direction",
        a_large_body_needs_no_memory_in_either_direction,
    ),
    (
        "opening_and_closing_leaks_no_descriptor",
        opening_and_closing_leaks_no_descriptor,
    ),
    (
        "a_listener_in_another_network_is_served",
        a_listener_in_another_network_is_served,
    ),
];

pub(crate) fn good_test_is(address: SocketAddr) -> EgressConfig {
    let mut static_hosts = StaticHosts::default();
    static_hosts
        .insert("good.test", &address.to_string())
        .unwrap();
    EgressConfig {
        static_hosts,
        ..EgressConfig::default()
    }
}

const LARGE: usize = 200 * 1024 * 1024;
const PIECE: usize = 64 * 1024;
const WAYS: [&str; 3] = ["length", "tunnel", "chunked"];

/// A signal for the runtime may interrupt a read.
fn read(stream: &mut TcpStream, piece: &mut [u8]) -> usize {
    loop {
        match stream.read(piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result.unwrap(),
        }
    }
}

/// Reads to the end of the first head; gives what came behind it.
pub(crate) fn read_head(stream: &mut TcpStream) -> usize {
    let mut head = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        let length = read(stream, &mut piece);
        assert!(length > 0, "the connection ended in the head");
        head.extend_from_slice(&piece[..length]);
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            return head.len() - at - 4;
        }
    }
}

fn read_rest(stream: &mut TcpStream, had: usize, wanted: usize) {
    let mut piece = vec![0; PIECE];
    let mut left = wanted - had;
    while left > 0 {
        let length = read(stream, &mut piece);
        assert!(length > 0, "{left} bytes are missing");
        left -= length;
    }
}

/// Reads chunks, in whatever sizes, up to the last one.
fn read_chunks(stream: &mut TcpStream) {
    let mut piece = vec![0; PIECE];
    let mut end = Vec::new();
    while !end.ends_with(b"0\r\n\r\n") {
        let length = read(stream, &mut piece);
        assert!(length > 0, "the last chunk is missing");
        end.extend_from_slice(&piece[..length]);
        end.drain(..end.len().saturating_sub(5));
    }
}

fn write_large(stream: &mut TcpStream) {
    let piece = vec![b'x'; PIECE];
    for _ in 0..LARGE / PIECE {
        stream.write_all(&piece).unwrap();
    }
}

fn a_large_body_needs_no_memory_in_either_direction() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stand = Stand::new(good_test_is(listener.local_addr().unwrap()));
    let pid = i32::try_from(stand.start_role().pid).unwrap();
    let gate = stand.gate();
    let sandbox = stand.open(
        &gate,
        &["good.test"],
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    let peak = || -> usize {
        let text = status(pid, "VmHWM");
        text.trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    let before = peak();
    // A body in a length, in chunks, and in a tunnel; each there and back.
    let upstream = thread::spawn(move || {
        for way in WAYS {
            let (mut stream, _) = listener.accept().unwrap();
            let had = read_head(&mut stream);
            match way {
                "chunked" => read_chunks(&mut stream),
                _ => read_rest(&mut stream, had, LARGE),
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            write_large(&mut stream);
        }
    });
    let post = |target: &str, framing: &str| {
        format!("POST {target} HTTP/1.1\r\nHost: good.test\r\n{framing}\r\n\r\n")
    };
    let length = format!("Content-Length: {LARGE}");
    let coded = |stream: &mut TcpStream| {
        let piece = [b"10000\r\n".as_slice(), &vec![b'x'; PIECE], b"\r\n"].concat();
        for _ in 0..LARGE / PIECE {
            stream.write_all(&piece).unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    };
    for way in WAYS {
        let mut client = TcpStream::connect(sandbox.proxy).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        if way == "tunnel" {
            client
                .write_all(connect_to("good.test:443").as_bytes())
                .unwrap();
            assert_eq!(read_head(&mut client), 0);
        }
        let request = match way {
            "length" => post("http://good.test/", &length),
            "tunnel" => post("/", &length),
            _ => post("http://good.test/", "Transfer-Encoding: chunked"),
        };
        client.write_all(request.as_bytes()).unwrap();
        match way {
            "chunked" => coded(&mut client),
            _ => write_large(&mut client),
        }
        let had = read_head(&mut client);
        read_rest(&mut client, had, LARGE);
    }
    upstream.join().unwrap();
    let grown = peak() - before;
    assert!(grown < 16 * 1024, "it took {grown} kB for {LARGE} bytes");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn opening_and_closing_leaks_no_descriptor() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    let echo = thread::spawn(move || {
        for stream in upstream.incoming() {
            let mut stream = stream.unwrap();
            let mut piece = [0; 16];
            match stream.read(&mut piece) {
                Ok(read) if piece[..read] == *b"last" => return,
                Ok(read) => stream.write_all(&piece[..read]).unwrap(),
                Err(_) => {}
            }
        }
    });
    // Role and gate are both in this process, so each descriptor of either counts.
    let stand = Stand::new(good_test_is(address));
    let role =
        EgressRole::build_embedded(stand.config.clone(), Arc::new(SystemResolver::default()))
            .unwrap();
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn_on(
        async move { role.run(stop).await.unwrap() },
        stand.runtime.handle(),
    );
    let gate = stand.gate();
    let cycle = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sandbox = stand.open(&gate, &["good.test"], listener);
        let denied = ask(sandbox.proxy, &connect_to("evil.test:443"));
        assert!(denied.contains("host_not_allowed"), "{denied}");
        let mut client = TcpStream::connect(sandbox.proxy).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
            .write_all(connect_to("good.test:443").as_bytes())
            .unwrap();
        read_head(&mut client);
        stand.runtime.block_on(gate.close(sandbox.id)).unwrap();
        drop(client);
    };
    for _ in 0..10 {
        cycle();
    }
    let before = descriptors();
    for _ in 0..500 {
        cycle();
    }
    // The upstream's thread may still hold the last connection.
    until("every descriptor is given back", || descriptors() <= before);
    let mut last = TcpStream::connect(address).unwrap();
    last.write_all(b"last").unwrap();
    echo.join().unwrap();
    shutdown.cancel();
    stand.runtime.block_on(tasks.join_next());
}

fn a_listener_in_another_network_is_served() {
    if !is_root() {
        say("skipped: only root makes a network namespace");
        return;
    }
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    let stand = Stand::new(good_test_is(address));
    stand.start_role();
    let serve = thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        read_head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    });
    let inside = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .arg("be-a-sandbox")
        .arg(&stand.folder)
        .arg(address.to_string())
        .output();
    let inside = match inside {
        Ok(inside) => inside,
        Err(error) => panic!("unshare(1) of util-linux: {error}"),
    };
    let errors = String::from_utf8_lossy(&inside.stderr);
    assert!(inside.status.success(), "{errors}");
    serve.join().unwrap();
}

/// Inside a network of its own, which has nothing but a loopback interface.
pub(crate) fn be_a_sandbox(folder: &str, upstream: &str) -> ExitCode {
    bring_loopback_up();
    let address: SocketAddr = upstream.parse().unwrap();
    assert!(
        TcpStream::connect(address).is_err(),
        "the outside is in reach"
    );
    let stand = Stand::at(folder, good_test_is(address));
    let gate = stand.gate();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 3128)).unwrap();
    let sandbox = stand.open(&gate, &["good.test"], listener);
    let denied = ask(sandbox.proxy, &connect_to("evil.test:443"));
    assert!(denied.contains("host_not_allowed"), "{denied}");
    let request = "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n";
    let answer = ask(sandbox.proxy, request);
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    stand.runtime.block_on(gate.close(sandbox.id)).unwrap();
    ExitCode::SUCCESS
}

/// Asks the kernel by rtnetlink(7) to set IFF_UP on interface 1, which is the loopback.
fn bring_loopback_up() {
    const RTM_NEWLINK: u16 = 16;
    const REQUEST_AND_ACK: u16 = 1 | 4;
    const IFF_UP: u32 = 1;
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend(1_u32.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    let socket = rustix::net::socket(
        AddressFamily::NETLINK,
        SocketType::RAW,
        // NETLINK_ROUTE is protocol 0.
        None,
    )
    .unwrap();
    rustix::net::send(&socket, &message, SendFlags::empty()).unwrap();
    let mut answer = [0_u8; 256];
    rustix::net::recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
    // An acknowledgement is an error message with the code 0.
    assert_eq!(answer[16..20], [0; 4], "the loopback interface stays down");
}
