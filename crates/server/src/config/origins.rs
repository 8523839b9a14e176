//! Origins of pages in a browser, and this service's own address, as settings name them.

use super::Invalid;

/// An origin is compared letter by letter with what a browser sends, so it is written as browsers do.
pub(super) fn check(origins: &[String]) -> Result<(), Invalid> {
    match origins.iter().find(|origin| !is_origin(origin)) {
        None => Ok(()),
        Some(bad) => {
            let problem = format!("{bad:?} is no origin: write scheme://host or scheme://host:port, in small letters");
            Err(Invalid { key: "http.cors_origins", problem })
        }
    }
}

/// What links begin with: an address without query and fragment.
pub(super) fn check_base(base: Option<&str>) -> Result<(), Invalid> {
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
            let problem = format!("{bad:?} is no address to begin links with: write https://host or https://host/path");
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
    fn a_base_is_an_address_to_write_behind() {
        for good in [None, Some("https://forebay.example.com"), Some("http://localhost:7400/"), Some("https://a.b/c")] {
            assert!(check_base(good).is_ok(), "{good:?}");
        }
        for bad in ["forebay.example.com", "ftp://a.b", "https://a.b/?x", "https://a.b/#x", "https://u:p@a.b", ""] {
            assert_eq!(check_base(Some(bad)).expect_err(bad).key, "http.public_url");
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
            assert_eq!(check(&[bad.to_owned()]).expect_err(bad).key, "http.cors_origins");
        }
    }
}
