//! The runner: makes one sandbox, holds its processes, their stdio offsets and spools.
