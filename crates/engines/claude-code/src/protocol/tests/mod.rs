mod handshake;
mod harness;
mod machine;
mod recordings;
mod requests;
mod turns;
