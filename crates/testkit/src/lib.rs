//! Test doubles with real edges: a scripted model endpoint, a fake engine and a server for tests.
