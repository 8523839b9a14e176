//! A proxy to a server that a test can cut, or lead to another server.

use parking_lot::Mutex;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes connections on until it is dropped.
pub(crate) struct Relay {
    pub(crate) base: String,
    to: Arc<Mutex<String>>,
    /// Changes to cut what is open.
    cut: watch::Sender<u64>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn to(base: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let to = Arc::new(Mutex::new(host(base)));
        let (cut, cuts) = watch::channel(0);
        let there = Arc::clone(&to);
        let task = tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let to = there.lock().clone();
                let mut cuts = cuts.clone();
                cuts.borrow_and_update();
                tokio::spawn(async move {
                    let Ok(mut to) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Relay { base: format!("http://{address}"), to, cut, task }
    }

    /// Cuts what is open; new connections get through.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// From now on connections lead there.
    pub(crate) fn lead_to(&self, base: &str) {
        *self.to.lock() = host(base);
        self.cut();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn host(base: &str) -> String {
    base.trim_start_matches("http://").trim_end_matches('/').to_owned()
}
