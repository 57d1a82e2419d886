//! The egress proxy: decides each connection that leaves a sandbox.
