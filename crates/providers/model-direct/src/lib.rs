//! The direct model endpoint provider: one configured base URL and model list.
