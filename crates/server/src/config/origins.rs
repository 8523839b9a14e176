//! Checks the settings `http.cors_origins` (the origins of web pages) and `http.public_url` (the service's own URL).

use super::Invalid;

/// Forebay compares each origin literally with the header `Origin`, so origins must be written as browsers send them.
pub(super) fn check_origins(origins: &[String]) -> Result<(), Invalid> {
    match origins.iter().find(|origin| !is_origin(origin)) {
        None => Ok(()),
        Some(bad) => {
            let problem = format!("{bad:?} is not an origin: write scheme://host or scheme://host:port, in lower case");
            Err(Invalid { key: "http.cors_origins", problem })
        }
    }
}

/// Forebay appends paths to the public URL, so it must have no query and no fragment. It must have no credentials,
/// because links are shown to clients.
pub(super) fn check_public_url(base: Option<&str>) -> Result<(), Invalid> {
    let is_base = |text: &str| {
        url::Url::parse(text).is_ok_and(|url| {
            ["http", "https"].contains(&url.scheme())
                && url.has_host()
                && url.query().is_none()
                && url.fragment().is_none()
                && url.password().is_none()
                && url.username().is_empty()
        })
    };
    match base.filter(|text| !is_base(text)) {
        None => Ok(()),
        Some(bad) => {
            let problem = format!(
                "{bad:?} cannot begin a link: write https://host or https://host/path, without a query and \
                 without credentials"
            );
            Err(Invalid { key: "http.public_url", problem })
        }
    }
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-:[]".contains(c);
    ["http", "https"].contains(&scheme) && !host.is_empty() && host.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_has_a_host_and_no_query() {
        for good in [None, Some("https://forebay.example.com"), Some("http://localhost:7400/"), Some("https://a.b/c")] {
            assert!(check_public_url(good).is_ok(), "{good:?}");
        }
        for bad in ["forebay.example.com", "ftp://a.b", "https://a.b/?x", "https://a.b/#x", "https://u:p@a.b", ""] {
            assert_eq!(check_public_url(Some(bad)).expect_err(bad).key, "http.public_url");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for good in ["https://app.example.com", "http://localhost:3000", "http://[::1]:8080"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in
            ["*", "null", "", "https://", "app.example.com", "https://a.b/", "https://A.b", "ftp://a.b", "https://a b"]
        {
            assert_eq!(check_origins(&[bad.to_owned()]).expect_err(bad).key, "http.cors_origins");
        }
    }
}
