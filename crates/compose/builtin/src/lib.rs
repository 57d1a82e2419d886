//! Links the adapters that ship with AstraBox, one feature each.
