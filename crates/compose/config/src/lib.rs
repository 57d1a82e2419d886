//! Configuration layers: defaults, file, environment, command line.
