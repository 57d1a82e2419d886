//! The local sandbox provider: one astrabox-runner per sandbox on this host.
