//! The contract of an engine: how one agent program is installed, started, spoken to and understood.
