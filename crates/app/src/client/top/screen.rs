//! A terminal screen that the command redraws, and the keys that the user presses.
//!
//! Invariants
//! - However the command ends, the terminal is restored: echo, line editing, cursor and contents.
//!
//! Not here: what is drawn (`client::top`).

use std::io::{self, Read, Write};

use anyhow::Context;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// `ENTER` switches to the alternate screen, without cursor and line wrapping. `LEAVE` switches back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
const REST_OF_LINE: &str = "\u{1b}[K";
const REST_OF_SCREEN: &str = "\u{1b}[J";

/// What the user wants, by a key press or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScreenCommand {
    Quit,
    Interrupt,
}

#[derive(Debug)]
pub(super) struct Screen {
    /// The terminal's settings before the command changed them. None: stdin is not a terminal.
    before: Option<Termios>,
    pressed: UnboundedReceiver<u8>,
}

impl Screen {
    pub(super) fn open() -> anyhow::Result<Screen> {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut keys = before.clone();
            keys.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            tcsetattr(io::stdin(), SetArg::TCSANOW, &keys).context("read keys")?;
        }
        let screen = Screen { before, pressed: listen() };
        write(ENTER)?;
        Ok(screen)
    }

    /// Replaces the contents of the screen.
    pub(super) fn draw(&self, text: &str) -> anyhow::Result<()> {
        let lines: String = text.lines().map(|line| format!("{line}{REST_OF_LINE}\n")).collect();
        write(&format!("{HOME}{lines}{REST_OF_SCREEN}"))
    }

    /// Waits for a key that has a function. None: `over` completed first.
    pub(super) async fn wait(&mut self, over: impl Future<Output = ()>) -> anyhow::Result<Option<ScreenCommand>> {
        tokio::pin!(over);
        let mut ended = signal(SignalKind::terminate()).context("handle signals")?;
        loop {
            tokio::select! {
                () = &mut over => return Ok(None),
                _ = tokio::signal::ctrl_c() => return Ok(Some(ScreenCommand::Interrupt)),
                _ = ended.recv() => return Ok(Some(ScreenCommand::Quit)),
                Some(key) = self.pressed.recv() => {
                    if matches!(key, b'q' | b'Q') {
                        return Ok(Some(ScreenCommand::Quit));
                    }
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error is ignored: the command ends anyway, and if the write fails, the terminal no longer exists.
        let _ = write(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}

/// Reads keys as they are pressed. The thread blocks in a read and ends with the process.
fn listen() -> UnboundedReceiver<u8> {
    let (pressed, keys) = unbounded_channel();
    std::thread::spawn(move || {
        for key in io::stdin().lock().bytes().map_while(Result::ok) {
            if pressed.send(key).is_err() {
                break;
            }
        }
    });
    keys
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("write to stdout")
}
