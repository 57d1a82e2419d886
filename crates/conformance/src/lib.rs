//! The conformance suites that every engine and provider must pass, as a library.
