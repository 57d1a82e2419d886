//! A look at an endpoint's URL, as far as clauses speak of it.

/// Why a text is not the root of an endpoint, as `https://models.example`; `None` when it is.
pub(crate) fn why_not_a_root(url: &str) -> Option<&'static str> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Some("it has another scheme than http or https");
    };
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.is_empty() {
        Some("it has no host")
    } else if url.contains(['?', '#', ' ', '@']) {
        Some("it has a query, a fragment, a user or a space")
    } else if url.ends_with('/') {
        Some("it ends with a slash")
    } else if rest.ends_with("/v1") {
        Some("it ends with /v1, which engines add")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::why_not_a_root;

    #[test]
    fn the_root_of_an_endpoint_is_plain() {
        for good in [
            "https://m.example",
            "http://127.0.0.1:80",
            "https://m.example/api",
        ] {
            assert_eq!(why_not_a_root(good), None, "{good}");
        }
        for bad in [
            "",
            "m.example",
            "https://",
            "https:///x",
            "https://m.example/",
            "https://m.example/v1",
            "https://u@m.example",
            "https://m.example?x",
            "ftp://m.example",
        ] {
            assert!(why_not_a_root(bad).is_some(), "{bad}");
        }
    }
}
