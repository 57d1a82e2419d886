//! Composes configuration and registries into a running App.
