//! The rules for credentials as their caller uses them: judge a request, then its headers, then its body.

mod bodies;
mod headers;
mod properties;
mod support;
mod verdicts;
