mod dialogs;
mod handshake;
mod harness;
mod machine;
mod recordings;
mod turns;
