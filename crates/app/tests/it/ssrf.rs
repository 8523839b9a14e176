//! No workflow reaches a forbidden address. The whole service runs in a network in which every address answers.
//!
//! Not here: the rules one by one (the tests of `engine`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};
use store::testing::Database;

use crate::support::network::{Names, Network, SETTLED, run_inside};
use crate::support::tenant::text;
use crate::support::{Server, Tenant};

/// Public addresses, at which names of the test really are.
const PUBLIC: [&str; 2] = ["1.1.1.1", "2606:4700:4700::1111"];

/// What no URL may name, in every way to write it. Each is tried alone, and as where five kinds of redirects lead.
const FORBIDDEN: &[&str] = &[
    // Loopback.
    "http://127.0.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://0x7f.1/",
    "http://127.0.0.1./",
    "http:127.0.0.1/",
    "http:/127.0.0.1/",
    "http:\\\\127.0.0.1/",
    "http://127。0。0。1/",
    "http://１２７.０.0.1/",
    "https://127.0.0.1:8443/",
    "http://127.0.0.1:8080/",
    "http://127.255.255.254/",
    // Unspecified: reaches the machine itself.
    "http://0/",
    "http://0.0.0.0/",
    "http://[::]/",
    // IPv6, and IPv4 within it.
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::a9fe:a9fe]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[fec0::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/",
    "http://[fe80::1%lo]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    // What clouds answer on.
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://168.63.129.16/",
    "http://metadata.google.internal/",
    "http://metadata.google.internal./",
    "http://METADATA.Google.Internal/",
    // Private, shared, reserved, documentation, multicast, broadcast.
    "http://10.0.0.5/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://192.0.0.1/",
    "http://198.18.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://224.0.0.1/",
    "http://192.0.2.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    // Who a URL seems to name, and whom it does.
    "http://foo@127.0.0.1/",
    "http://good.example@127.0.0.1/",
    "http://127.0.0.1#@good.example/",
    "http://127.0.0.1?@good.example/",
    "http://127.0.0.1\\@good.example/",
    "http://1.1.1.1 &@127.0.0.1/",
    "http://user:password@good.example/",
    "http://good.example%00.127.0.0.1/",
    // Names of the machine, and names that resolve to what must not be reached.
    "http://localhost/",
    "http://localhost./",
    "http://LOCALHOST/",
    "http://a.localhost/",
    "http://postgres/",
    "http://loopback.example/",
    "http://private.example/",
    "http://metadata.example/",
    "http://loopback6.example/",
    "http://mapped.example/",
    "http://nat64.example/",
    "http://mixed.example/",
    "http://mixed-too.example/",
    "http://alias.example/",
    "http://private.example:8080/",
    // Other protocols, and ports of other protocols.
    "file:///etc/passwd",
    "gopher://127.0.0.1:80/",
    "ftp://good.example/",
    "data:text/plain,hello",
    "http://good.example:22/",
    "http://good.example:25/",
    "http://good.example:5432/",
    "http://good.example:7233/",
    "http://good.example:0/",
    // Beside what the operator opened.
    "http://10.20.0.5/",
    "http://10.20.0.6:8080/",
    "http://[::ffff:10.20.0.5]:8080/",
    "http://opened.example:8080/",
    "http://10.30.255.255/",
    "http://10.29.255.255:8080/",
    "http://10.31.0.0:8080/",
    "http://db.corp.internal/",
    "http://other.corp.internal:8080/",
];

/// What the operator opened: an address, a range, a name.
const ALLOW: &str = "outbound.allow=10.20.0.5:8080,10.30.0.0/16:8080,db.corp.internal:8080";

fn names() -> Names {
    Names::default()
        .with("good.example", &["1.1.1.1"])
        .with("good6.example", &["2606:4700:4700::1111"])
        .with("both.example", &["1.1.1.1 2606:4700:4700::1111"])
        .with("alias-good.example", &[">good.example 1.1.1.1"])
        .with("loopback.example", &["127.0.0.1"])
        .with("private.example", &["10.0.0.5"])
        .with("metadata.example", &["169.254.169.254"])
        .with("loopback6.example", &["::1"])
        .with("mapped.example", &["::ffff:127.0.0.1"])
        .with("nat64.example", &["64:ff9b::a9fe:a9fe"])
        .with("mixed.example", &["1.1.1.1 10.0.0.1"])
        .with("mixed-too.example", &["1.1.1.1 ::1"])
        .with("alias.example", &[">inside.example 10.0.0.1"])
        .with("rebinding.example", &["1.1.1.1", "127.0.0.1"])
        .with("opened.example", &["10.20.0.5"])
        .with("db.corp.internal", &["10.40.0.7"])
        .with("other.corp.internal", &["10.40.0.8"])
        .with("metadata.google.internal", &["169.254.169.254"])
        .with("localhost", &["127.0.0.1"])
        .with("postgres", &["10.0.0.1"])
}

/// The service, and workflows that call whatever they are given.
struct Service {
    tenant: Tenant,
    network: Network,
    _server: Server,
    _database: Database,
}

impl Service {
    async fn start() -> Service {
        let network = Network::start(names()).await;
        let database = Database::new().await;
        let server = Server::start(&database.url, &[ALLOW.to_owned()]).await;
        let tenant = Tenant::new(server.api(), "ENTERPRISE").await;
        Service { tenant, network, _server: server, _database: database }
    }

    async fn workflow(&self, name: &str, with: Value) -> String {
        let node = json!({ "kind": "HTTP_REQUEST", "timeout": "10s", "retry": { "max_attempts": 1 }, "with": with });
        self.tenant.apply(name, json!({ "call": node })).await
    }

    /// How a run with this input ends: nothing if well, else the class and message of its error.
    async fn run(&self, definition: &str, input: Value) -> Result<(), (String, String)> {
        let body = json!({ "workflowDefinitionId": definition, "input": input });
        let started = self.tenant.api.post("workflow/executions/start", body).await.expect(202);
        let ended = self.tenant.ended(&text(&started["executionId"])).await;
        match ended["status"].as_str() {
            Some("COMPLETED") => Ok(()),
            _ => Err((text(&ended["error"]["type"]), text(&ended["error"]["message"]))),
        }
    }

    /// Runs many, some at a time; answers those that were not refused as they must be.
    async fn not_denied(&self, definition: &str, inputs: &[(String, Value)]) -> Vec<String> {
        let mut wrong = Vec::new();
        for some in inputs.chunks(16) {
            let runs = some.iter().map(|(_, input)| self.run(definition, input.clone()));
            for ((what, _), ended) in some.iter().zip(futures_util::future::join_all(runs).await) {
                let denied = ended
                    .as_ref()
                    .is_err_and(|(class, message)| class == "SECURITY_ERROR" && message.starts_with("egress_denied: "));
                if !denied {
                    wrong.push(format!("{what}: {ended:?}"));
                }
            }
        }
        wrong
    }

    async fn nothing_was_reached(&self, but: &[&str]) {
        self.network.settled().await;
        let public: BTreeSet<IpAddr> =
            PUBLIC.iter().chain(&[SETTLED]).chain(but).map(|address| address.parse().expect("an address")).collect();
        let hits = self.network.hits_beside(&public);
        assert!(hits.is_empty(), "forbidden addresses were connected to: {hits:?}");
    }
}

#[test]
fn no_workflow_reaches_an_address_that_it_must_not() {
    run_inside("ssrf::inside::the_corpus_is_refused_without_a_connection");
}

#[test]
fn what_is_public_or_opened_is_reached_and_nothing_beside_it() {
    run_inside("ssrf::inside::what_may_be_called_is");
}

mod inside {
    use super::*;

    #[tokio::test]
    #[ignore = "started in a network of its own by the test above"]
    async fn the_corpus_is_refused_without_a_connection() {
        let service = Service::start().await;
        let any = service.workflow("any", json!({ "url": "${{ inputs.url }}" })).await;
        // Forbidden addresses do answer, and are counted.
        service.network.settled().await;
        let direct: Vec<_> = FORBIDDEN.iter().map(|url| ((*url).to_owned(), json!({ "url": url }))).collect();
        assert_eq!(service.not_denied(&any, &direct).await, [""; 0]);
        service.nothing_was_reached(&[]).await;
        let mut redirects = Vec::new();
        for status in [301, 302, 303, 307, 308] {
            for url in
                FORBIDDEN.iter().copied().filter(|url| is_elsewhere(url)).chain(["//127.0.0.1/", "http://", "//"])
            {
                let to: String = url.bytes().map(|byte| format!("%{byte:02X}")).collect();
                let url_of = format!("http://good.example/redirect/{status}?to={to}");
                redirects.push((format!("{status} to {url}"), json!({ "url": url_of })));
            }
        }
        assert_eq!(service.not_denied(&any, &redirects).await, [""; 0]);
        assert!(service.network.hits("1.1.1.1") >= redirects.len(), "each was redirected");
        service.nothing_was_reached(&[]).await;
    }

    /// Relative to an http URL, these lead elsewhere; the others mean a path of the same host.
    fn is_elsewhere(url: &str) -> bool {
        !url.starts_with("http:127") && !url.starts_with("http:/1")
    }

    #[tokio::test]
    #[ignore = "started in a network of its own by the test above"]
    async fn what_may_be_called_is() {
        let service = Service::start().await;
        let any = service.workflow("any", json!({ "url": "${{ inputs.url }}" })).await;
        for (url, address) in [
            ("http://good.example/", "1.1.1.1"),
            ("http://good.example:8080/", "1.1.1.1"),
            ("http://1.1.1.1/", "1.1.1.1"),
            ("http://good6.example/", "2606:4700:4700::1111"),
            ("http://[2606:4700:4700::1111]/", "2606:4700:4700::1111"),
            ("http://alias-good.example/", "1.1.1.1"),
            ("http://good.example\\@127.0.0.1/", "1.1.1.1"),
            ("http://good.example/redirect/302?to=http://good6.example/", "2606:4700:4700::1111"),
            ("http://10.20.0.5:8080/", "10.20.0.5"),
            ("http://10.30.0.0:8080/", "10.30.0.0"),
            ("http://10.30.255.255:8080/", "10.30.255.255"),
            ("http://db.corp.internal:8080/", "10.40.0.7"),
            ("http://good.example/redirect/307?to=http://10.20.0.5:8080/", "10.20.0.5"),
        ] {
            let before = service.network.hits(address);
            assert_eq!(service.run(&any, json!({ "url": url })).await, Ok(()), "{url}");
            assert_eq!(service.network.hits(address), before + 1, "{url}");
        }
        rebinding(&service, &any).await;
        loops(&service, &any).await;
        parts(&service).await;
        service.nothing_was_reached(&["10.20.0.5", "10.30.0.0", "10.30.255.255", "10.40.0.7"]).await;
    }

    /// A name that is public when it is first asked for, and is not when it is asked for again.
    async fn rebinding(service: &Service, any: &str) {
        let input = json!({ "url": "http://rebinding.example/" });
        assert_eq!(service.run(any, input.clone()).await, Ok(()));
        let (class, message) = service.run(any, input).await.expect_err("another answer");
        assert!(class == "SECURITY_ERROR" && message.starts_with("egress_denied: "), "{message}");
        assert!(!message.contains("127.0.0.1"), "what a name resolves to is nobody's business: {message}");
    }

    /// A redirect that leads to itself is followed three times.
    async fn loops(service: &Service, any: &str) {
        let before = service.network.hits("1.1.1.1");
        let url = "http://good.example/redirect/302?to=/redirect/302";
        let (class, message) = service.run(any, json!({ "url": url })).await.expect_err("no end");
        assert!(class == "VALIDATION_ERROR" && message.contains("redirects more than 3 times"), "{message}");
        assert_eq!(service.network.hits("1.1.1.1"), before + 4);
    }

    /// URLs of which a workflow's author wrote one part and somebody else the other.
    async fn parts(service: &Service) {
        let path = service.workflow("path", json!({ "url": "http://good.example/${{ inputs.part }}" })).await;
        for part in
            ["@127.0.0.1/", "//127.0.0.1/", "\\@127.0.0.1/", "../../", "..//127.0.0.1", "#@127.0.0.1", "?@127.0.0.1"]
        {
            let before = service.network.hits("1.1.1.1");
            assert_eq!(service.run(&path, json!({ "part": part })).await, Ok(()), "{part}");
            assert_eq!(service.network.hits("1.1.1.1"), before + 1, "{part}");
        }
        let host = service.workflow("host", json!({ "url": "http://${{ inputs.part }}.good.example/x" })).await;
        let hosts =
            ["127.0.0.1/", "127.0.0.1#", "127.0.0.1?", "127.0.0.1\\", "x@127.0.0.1/", "127.0.0.1:80/", "[::1]/"];
        let hosts: Vec<_> = hosts.map(|part| (part.to_owned(), json!({ "part": part }))).into();
        assert_eq!(service.not_denied(&host, &hosts).await, [""; 0]);
        let header = json!({ "url": "http://good.example/", "headers": { "Host": "${{ inputs.host }}" } });
        let header = service.workflow("header", header).await;
        let input = vec![("host".to_owned(), json!({ "host": "169.254.169.254" }))];
        assert_eq!(service.not_denied(&header, &input).await, [""; 0]);
    }
}
