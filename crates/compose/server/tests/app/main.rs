//! Apps put together from doubles, called over their sockets.

mod api;
mod doubles;
mod sessions;
mod start;
