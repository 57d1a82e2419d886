mod children;
mod handshake;
mod harness;
mod items;
mod machine;
mod recordings;
mod requests;
mod turns;
