//! A proxy in front of the database that makes each statement fail in each way, once in every round.
//!
//!     armed, a statement's 1st use ──▶ lock timeout   2nd ──▶ cut, its reply lost   3rd ──▶ cut before it was sent   then ──▶ carried
//!     a connection after a cut ──▶ every other one: too many connections
//!
//! Invariants
//! - A statement that is reported as failed never reached the server. A statement whose reply is lost was carried out.
//! - Statements that renew a lease never fail, because a process that loses its lease must drop its runs.
//! - A connection with outstanding replies gets no fault, because the client would take the saboteur's error for the
//!   reply to an earlier statement.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;

use super::wire::{self, Group, Message, Statements};

/// Texts of statements that never fail: heartbeats, and LISTEN.
const SPARED: [&str; 4] = ["heartbeat(", "LISTEN", "INTO forebay.process", "UPDATE forebay.process"];

const LOCK_TIMEOUT: &str = "55P03";
/// The SQLSTATE of a violated CHECK.
const REFUSED: &str = "23514";
/// How often a mutated statement fails in a round.
const MOST_HITS: usize = 10;

/// The classes of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    LockTimeout,
    /// Carried out, but its reply is lost.
    LostReply,
    /// Cut before it was carried out.
    LostRequest,
    FullSlots,
}

impl Class {
    pub(super) const ALL: [Class; 4] = [Class::LockTimeout, Class::LostReply, Class::LostRequest, Class::FullSlots];
    /// The faults for a statement, in this order.
    const OF_STATEMENTS: [Class; 3] = [Class::LockTimeout, Class::LostReply, Class::LostRequest];

    pub(super) fn name(self) -> &'static str {
        match self {
            Class::LockTimeout => "lock_timeout",
            Class::LostReply => "lost_reply",
            Class::LostRequest => "lost_request",
            Class::FullSlots => "full_slots",
        }
    }
}

/// The saboteur. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::chaos) struct Saboteur {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    listener: Mutex<Option<TcpListener>>,
    port: u16,
    armed: AtomicBool,
    /// The statement whose lock timeouts are reported as CHECK violations, each time. This is what the mutant does.
    mutated: Option<&'static str>,
    /// How often each statement was sabotaged in this round.
    hits: Mutex<HashMap<String, usize>>,
    injected: Mutex<BTreeMap<Class, usize>>,
    /// Every statement that was sabotaged at all.
    statements: Mutex<BTreeMap<String, usize>>,
    /// Connections that were cut and are not yet matched by a "too many connections".
    cuts: AtomicUsize,
}

impl Saboteur {
    /// Listens. Starts to serve once it knows the server. `mutated` is the statement whose errors are reported as
    /// answers.
    pub(super) async fn new(mutated: Option<&'static str>) -> anyhow::Result<Saboteur> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen in front of the database")?;
        let port = listener.local_addr()?.port();
        let shared = Shared {
            listener: Mutex::new(Some(listener)),
            port,
            armed: AtomicBool::new(false),
            mutated,
            hits: Mutex::default(),
            injected: Mutex::default(),
            statements: Mutex::default(),
            cuts: AtomicUsize::new(0),
        };
        Ok(Saboteur { shared: Arc::new(shared) })
    }

    /// Serves in front of the server at this URL, which names its socket's directory.
    pub(in crate::chaos) fn serve(&self, url: &str) -> anyhow::Result<()> {
        let directory = url.split("host=").nth(1).and_then(|rest| rest.split('&').next());
        let socket = PathBuf::from(directory.context("the server's socket")?).join(".s.PGSQL.5432");
        let listener = lock(&self.shared.listener).take().context("it serves already")?;
        let saboteur = self.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (saboteur, socket) = (saboteur.clone(), socket.clone());
                // Any error ends this connection, which the service must tolerate.
                tokio::spawn(async move { drop(saboteur.carry(client, socket).await) });
            }
        });
        Ok(())
    }

    /// Where the processes connect.
    pub(in crate::chaos) fn url(&self) -> String {
        format!("postgresql://forebay@127.0.0.1:{}/forebay?sslmode=disable", self.shared.port)
    }

    /// Begins a round: from now on each statement fails again, once with each fault.
    pub(super) fn arm(&self) {
        lock(&self.shared.hits).clear();
        self.shared.armed.store(true, Ordering::SeqCst);
    }

    pub(super) fn disarm(&self) {
        self.shared.armed.store(false, Ordering::SeqCst);
    }

    /// How often each class was injected.
    pub(super) fn injected(&self) -> BTreeMap<Class, usize> {
        lock(&self.shared.injected).clone()
    }

    /// How many different statements were sabotaged.
    pub(super) fn statements(&self) -> usize {
        lock(&self.shared.statements).len()
    }

    fn note(&self, class: Class) {
        *lock(&self.shared.injected).entry(class).or_default() += 1;
    }

    /// The next fault for this statement in this round. None if it has failed with every fault.
    fn next(&self, sql: &str) -> Option<Class> {
        if !self.shared.armed.load(Ordering::SeqCst) || SPARED.iter().any(|spared| sql.contains(spared)) {
            return None;
        }
        let mut hits = lock(&self.shared.hits);
        let hit = hits.entry(sql.to_owned()).or_default();
        let class = if self.is_mutated(sql) { Class::LockTimeout } else { Class::OF_STATEMENTS.get(*hit).copied()? };
        if *hit >= MOST_HITS {
            return None;
        }
        *hit += 1;
        *lock(&self.shared.statements).entry(sql.to_owned()).or_default() += 1;
        Some(class)
    }

    fn is_mutated(&self, sql: &str) -> bool {
        self.shared.mutated.is_some_and(|mutated| sql.contains(mutated))
    }

    /// True if a new connection is refused. After each cut, every other one is.
    fn is_full(&self) -> bool {
        let owed = |cuts: usize| cuts.checked_sub(1);
        let order = Ordering::SeqCst;
        let armed = self.shared.armed.load(order);
        armed && self.shared.cuts.fetch_update(order, order, owed).is_ok_and(|cuts| cuts.is_multiple_of(2))
    }

    async fn carry(&self, mut client: TcpStream, socket: PathBuf) -> anyhow::Result<()> {
        client.set_nodelay(true)?;
        let first = Message::read_first(&mut client).await?;
        if self.is_full() {
            self.note(Class::FullSlots);
            client.write_all(&wire::error("53300", "sorry, too many clients already", true)).await?;
            return Ok(());
        }
        let server = UnixStream::connect(&socket).await?;
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        to_server.write_all(&first).await?;
        // Until the first ReadyForQuery (start-up and authentication), bytes are forwarded unchanged.
        let outstanding = Arc::new(AtomicUsize::new(1));
        let (orders, mut received) = mpsc::unbounded_channel();
        let answering = Answering { outstanding: Arc::clone(&outstanding) };
        let answers = tokio::spawn(async move { answering.run(&mut from_server, &mut to_client, &mut received).await });
        let (mut statements, mut group) = (Statements::default(), Group::default());
        while let Some(message) = Message::read(&mut from_client).await? {
            if !statements.gather(&mut group, message) {
                continue;
            }
            let whole = std::mem::take(&mut group);
            let idle = outstanding.load(Ordering::SeqCst) == 0;
            let class = whole.executes.as_deref().filter(|_| idle).and_then(|sql| self.next(sql));
            if let Some(class) = class {
                self.note(class);
            }
            match class {
                Some(Class::LockTimeout) => {
                    let wrong = whole.executes.as_deref().is_some_and(|sql| self.is_mutated(sql));
                    let code = if wrong { REFUSED } else { LOCK_TIMEOUT };
                    let mut bytes = wire::error(code, "canceling statement due to lock timeout", false);
                    bytes.extend(wire::READY);
                    orders.send(Order::Say(bytes))?;
                    continue;
                }
                Some(Class::LostRequest) => break,
                Some(_) => {
                    orders.send(Order::Withhold)?;
                    outstanding.fetch_add(1, Ordering::SeqCst);
                    to_server.write_all(&whole.bytes).await?;
                    self.shared.cuts.fetch_add(1, Ordering::SeqCst);
                    drop(answers.await);
                    return Ok(());
                }
                None => {}
            }
            if whole.answered {
                outstanding.fetch_add(1, Ordering::SeqCst);
            }
            to_server.write_all(&whole.bytes).await?;
        }
        self.shared.cuts.fetch_add(1, Ordering::SeqCst);
        answers.abort();
        Ok(())
    }
}

/// Instructions for the task that forwards answers.
enum Order {
    /// Send this instead of the server's answer.
    Say(Vec<u8>),
    /// Withhold the server's next answer, and end after it.
    Withhold,
}

/// Carries answers from the server to the client.
struct Answering {
    outstanding: Arc<AtomicUsize>,
}

impl Answering {
    async fn run(
        &self,
        server: &mut OwnedReadHalf,
        client: &mut OwnedWriteHalf,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> anyhow::Result<()> {
        let (read, mut messages) = mpsc::channel(64);
        let reading = async move {
            while let Ok(Some(message)) = Message::read(server).await {
                if read.send(message).await.is_err() {
                    break;
                }
            }
            drop(read);
            // Bytes that were already read must still be forwarded.
            std::future::pending::<()>().await;
        };
        let answering = async {
            let mut withheld = false;
            loop {
                tokio::select! {
                    biased;
                    order = orders.recv() => match order {
                        Some(Order::Say(bytes)) => client.write_all(&bytes).await?,
                        Some(Order::Withhold) => withheld = true,
                        None => return anyhow::Ok(()),
                    },
                    message = messages.recv() => {
                        let Some(message) = message else { return Ok(()) };
                        if message.is_ready() {
                            self.outstanding.fetch_sub(1, Ordering::SeqCst);
                        }
                        match withheld {
                            true if message.is_ready() => return Ok(()),
                            true => {}
                            false => client.write_all(&message.bytes).await?,
                        }
                    }
                }
            }
        };
        tokio::select! {
            done = answering => done,
            () = reading => Ok(()),
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    of.lock()
}
