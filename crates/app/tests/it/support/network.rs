//! A separate network for a test. Every address leads to this machine, where each connection is counted. The test
//! decides how names resolve.
//!
//! Invariants
//! - A process in this network can connect to every address. So if no connection arrives, the guard prevented it.
//! - If the system does not permit such a network, the test fails, unless a setting allows it to run without one.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::until;

/// Set in the process that runs within.
const INSIDE: &str = "FOREBAY_TEST_INSIDE_NETWORK";
/// Set by whoever knows that this system permits none.
const WITHOUT: &str = "FOREBAY_TEST_WITHOUT_NETWORKS";
/// Where something listens, at every address.
const PORTS: [u16; 8] = [80, 8080, 443, 8443, 22, 25, 5432, 7233];

/// An address that is connected to by the test alone.
pub(crate) const SETTLED: &str = "169.254.1.1";

/// Runs an ignored test of this binary in a network of its own.
pub(crate) fn run_inside(test: &str) {
    let enter = || {
        let mut command = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "--mount", "--"]);
        command
    };
    let permitted = enter().args(["ip", "link", "set", "lo", "up"]).output();
    if !permitted.as_ref().is_ok_and(|output| output.status.success()) {
        let why = format!("a network of its own cannot be made (unshare, ip): {permitted:?}");
        assert!(std::env::var_os(WITHOUT).is_some(), "{why}; set {WITHOUT}=1 to leave {test} out");
        let mut out = std::io::stderr().lock();
        writeln!(out, "SKIPPED, NOTHING WAS SHOWN: {test}: {why}").expect("stderr is there");
        return;
    }
    let binary = std::env::current_exe().expect("this binary");
    let mut command = enter();
    command.arg(binary).args(["--exact", test, "--ignored", "--nocapture"]).env(INSIDE, "1");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let all = format!("{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{all}");
}

/// Is this process within?
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The network, seen from within.
pub(crate) struct Network {
    /// How often each address was connected to.
    hits: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    _resolver: tempfile::NamedTempFile,
}

impl Network {
    pub(crate) async fn start(names: Names) -> Network {
        assert!(is_inside(), "only for a process in a network of its own");
        run("ip", &["link", "set", "lo", "up"]);
        run("ip", &["route", "add", "local", "0.0.0.0/0", "dev", "lo"]);
        run("ip", &["-6", "route", "add", "local", "::/0", "dev", "lo"]);
        let mut resolver = tempfile::NamedTempFile::new().expect("a file");
        writeln!(resolver, "nameserver 127.0.0.1\noptions timeout:2 attempts:2").expect("written");
        run("mount", &["--bind", &resolver.path().display().to_string(), "/etc/resolv.conf"]);
        let network = Network { hits: Arc::default(), _resolver: resolver };
        for port in PORTS {
            let listener = TcpListener::bind(("::", port)).await.expect("every address of a port");
            tokio::spawn(listen(listener, Arc::clone(&network.hits)));
        }
        tokio::spawn(names.answer(UdpSocket::bind(("127.0.0.1", 53)).await.expect("the port of names")));
        network
    }

    /// Waits until every connection made before this call is counted: each port takes them in their order.
    pub(crate) async fn settled(&self) {
        let before = self.hits(SETTLED);
        for port in PORTS {
            TcpStream::connect((SETTLED, port)).await.expect("every address answers");
        }
        until("all are counted", async || (self.hits(SETTLED) >= before + PORTS.len()).then_some(())).await;
    }

    /// How often any address but these was connected to, by address.
    pub(crate) fn hits_beside(&self, public: &BTreeSet<IpAddr>) -> BTreeMap<IpAddr, usize> {
        let hits = self.hits.lock();
        hits.iter().filter(|(address, _)| !public.contains(address)).map(|(address, n)| (*address, *n)).collect()
    }

    pub(crate) fn hits(&self, address: &str) -> usize {
        let hits = self.hits.lock();
        hits.get(&address.parse().expect("an address")).copied().unwrap_or(0)
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

async fn listen(listener: TcpListener, hits: Arc<Mutex<BTreeMap<IpAddr, usize>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let address = stream.local_addr().expect("an address").ip().to_canonical();
        *hits.lock().entry(address).or_default() += 1;
        tokio::spawn(serve(stream));
    }
}

/// Says hello, or redirects as the path asks: `/redirect/STATUS?to=URL`.
async fn serve(mut stream: TcpStream) {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut some = [0; 4_096];
        match stream.read(&mut some).await {
            Ok(count) if count > 0 => request.extend_from_slice(&some[..count]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let url = reqwest::Url::parse(&format!("http://here{path}")).expect("a path");
    let answer = match url.path().strip_prefix("/redirect/") {
        Some(status) => {
            let to = url.query_pairs().find(|(name, _)| name == "to").map(|(_, to)| to.into_owned());
            format!("HTTP/1.1 {status} Elsewhere\r\nLocation: {}\r\n", to.unwrap_or_default())
        }
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    let answer = format!("{answer}Content-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    let _gone = stream.write_all(answer.as_bytes()).await;
}

/// What names resolve to: each question takes the next answer, and the last one stays.
#[derive(Clone, Default)]
pub(crate) struct Names(BTreeMap<String, Vec<Vec<Record>>>);

#[derive(Clone)]
pub(crate) enum Record {
    Address(IpAddr),
    Alias(&'static str),
}

impl Names {
    /// A name with its answers, one after the other; each is addresses, or `>` and another name before them.
    pub(crate) fn with(mut self, name: &str, answers: &[&'static str]) -> Names {
        let record = |word: &'static str| match word.strip_prefix('>') {
            Some(alias) => Record::Alias(alias),
            None => Record::Address(word.parse().expect("an address")),
        };
        let answers = answers.iter().map(|answer| answer.split(' ').map(record).collect());
        self.0.insert(name.to_owned(), answers.collect());
        self
    }

    async fn answer(mut self, socket: UdpSocket) {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            if let Some(reply) = self.reply(&packet[..length]) {
                let _gone = socket.send_to(&reply, from).await;
            }
        }
    }

    fn reply(&mut self, question: &[u8]) -> Option<Vec<u8>> {
        let (mut name, mut at) = (Vec::new(), 12);
        while *question.get(at)? != 0 {
            let end = at + 1 + usize::from(question[at]);
            name.push(String::from_utf8_lossy(question.get(at + 1..end)?).to_lowercase());
            at = end;
        }
        let wanted = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
        let asked = question.get(12..at + 5)?;
        let known = self.0.get_mut(&name.join("."));
        let code: u8 = if known.is_some() { 0 } else { 3 };
        let records = match known {
            None => Vec::new(),
            // Addresses of both kinds are asked for, and only those of the first take the next answer.
            Some(answers) if wanted == 1 && answers.len() > 1 => answers.remove(0),
            Some(answers) => answers[0].clone(),
        };
        let records: Vec<Vec<u8>> = records.iter().filter_map(|record| record.written(wanted)).collect();
        let mut reply = vec![question[0], question[1], 0x81, 0x80 | code, 0, 1, 0, u8::try_from(records.len()).ok()?];
        reply.extend([0; 4]);
        reply.extend_from_slice(asked);
        let mut owner = vec![0xc0, 12];
        for record in records {
            reply.extend_from_slice(&owner);
            if record[..2] == [0, 5] {
                // What follows an alias belongs to the name it leads to.
                owner = record[10..].to_vec();
            }
            reply.extend_from_slice(&record);
        }
        Some(reply)
    }
}

impl Record {
    /// Kind, class, time to live, length and data, if it is of that kind or an alias.
    fn written(&self, wanted: u16) -> Option<Vec<u8>> {
        let (kind, data): (u16, Vec<u8>) = match self {
            Record::Address(IpAddr::V4(address)) => (1, address.octets().to_vec()),
            Record::Address(IpAddr::V6(address)) => (28, address.octets().to_vec()),
            Record::Alias(name) => {
                let labels = name.split('.').flat_map(|label| {
                    let length = u8::try_from(label.len()).expect("a label");
                    [&[length], label.as_bytes()].concat()
                });
                (5, labels.chain([0]).collect())
            }
        };
        let length = u16::try_from(data.len()).ok()?;
        let head = [kind.to_be_bytes(), [0, 1], [0, 0], [0, 0], length.to_be_bytes()].concat();
        (kind == wanted || kind == 5).then(|| [head, data].concat())
    }
}
