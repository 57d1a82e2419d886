//! The contract of a sandbox provider and of the workload that runs inside a sandbox.
