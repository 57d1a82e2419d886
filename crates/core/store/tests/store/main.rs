//! The store through its public face, on real files.

mod commits;
mod crash;
mod groups;
mod keys;
mod model;
mod pages;
mod parts;
mod reopen;
mod resources;
mod support;
mod vaults;
