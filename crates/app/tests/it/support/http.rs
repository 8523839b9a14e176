//! A plain HTTP client, which returns a response with any status as a response and not as an error.

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;

/// A server, as one caller sees it.
#[derive(Clone)]
pub(crate) struct Api {
    http: Client,
    pub(crate) base: String,
    pub(crate) key: Option<String>,
}

/// An answer of any kind.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    /// The body if it is JSON, else null.
    pub(crate) body: Value,
}

impl Api {
    pub(crate) fn new(base: &str, key: Option<&str>) -> Api {
        let http = Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().expect("a client");
        Api { http, base: base.to_owned(), key: key.map(str::to_owned) }
    }

    /// The same server with another key.
    pub(crate) fn with_key(&self, key: &str) -> Api {
        Api { key: Some(key.to_owned()), ..self.clone() }
    }

    /// The same key at another server.
    pub(crate) fn at(&self, base: &str) -> Api {
        Api { base: base.to_owned(), ..self.clone() }
    }

    /// Paths are below `/api/v1/`, unless they start with a slash.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = match path.starts_with('/') {
            true => format!("{}{path}", self.base),
            false => format!("{}/api/v1/{path}", self.base),
        };
        let request = self.http.request(method, url);
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        send(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        send(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Reply {
        send(self.request(Method::PATCH, path).json(&body)).await
    }
}

/// Sends a request that is to be answered.
pub(crate) async fn send(request: RequestBuilder) -> Reply {
    read(request.send().await.expect("an answer")).await
}

async fn read(response: reqwest::Response) -> Reply {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.expect("a text");
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Reply { status, headers, text, body }
}

/// Sends a request whose answer does not end: of one that succeeds, what comes first.
pub(crate) async fn begin(request: RequestBuilder) -> Reply {
    let mut response = request.send().await.expect("an answer");
    if response.status() != 200 {
        return read(response).await;
    }
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let first = response.chunk().await.expect("a part").unwrap_or_default();
    Reply { status, headers, text: String::from_utf8_lossy(&first).into_owned(), body: Value::Null }
}

impl Reply {
    /// The body of an answer with this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The code of an answer that must be a problem as RFC 9457 has it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> &str {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        assert_eq!(self.body["status"], status, "{}", self.text);
        for field in ["type", "title", "detail"] {
            assert!(self.body[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {}", self.text);
        }
        self.body["code"].as_str().unwrap_or_default()
    }
}
