//! The runner as its callers meet it: the real program, real boxes, one for each test.

mod files;
mod life;
mod limits;
mod processes;
mod support;
