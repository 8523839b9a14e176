//! Tests of the private server with real processes: started, stopped, killed and started again.
//!
//! Two of the tests are the main functions of other processes. This program runs itself with `--exact` and the name of
//! such a test; the arguments after `--` are for that test.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, getegid, geteuid},
};
use private_postgres::{Error, Launcher, Options, PrivatePostgres, child_main};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

#[test]
#[ignore = "the body of a process that becomes postgres"]
fn child() {
    let args = passed_args();
    if !args.is_empty() {
        panic!("{}", child_main(args).expect_err("exec does not return"));
    }
}

#[tokio::test]
#[ignore = "the body of a process that runs a server until it is killed"]
async fn host() {
    let Some(data) = passed_args().pop() else { return };
    let server = PrivatePostgres::start(options(data)).await.expect("start");
    io::stdout().write_all(b"\nready\n").expect("tell the test");
    // Returns when the test ends, in case the test did not kill this process.
    io::stdin().read_to_end(&mut Vec::new()).expect("wait");
    drop(server);
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart() {
    let dir = dir();
    let data = dir.path().join("data");
    let server = PrivatePostgres::start(options(&data)).await.expect("start");
    insert_row(&server).await;
    assert_eq!(server.url(), format!("postgresql:///forebay?host={}/s&user=forebay", data.display()));
    assert_eq!(server.psql_url(), format!("{}&port=5432", server.url()));
    server.stop().await.expect("stop");
    assert_eq!(processes(&data), Vec::<String>::new());

    let server = PrivatePostgres::start(options(&data)).await.expect("start again");
    assert_eq!(count_rows(&server).await, 1);
    let client = connect(&server).await;
    drop(server); // A client is still connected, and `stop` was not called.
    assert_eq!(processes(&data), Vec::<String>::new());
    assert!(client.simple_query("SELECT").await.is_err());
}

#[tokio::test]
async fn the_server_outlives_the_thread_that_asked_for_it() {
    let dir = dir();
    let options = options(dir.path().join("data"));
    let start = || tokio::runtime::Runtime::new().expect("start a runtime").block_on(PrivatePostgres::start(options));
    let server = thread::spawn(start).join().expect("join").expect("start");
    insert_row(&server).await;
    server.stop().await.expect("it was still running");
}

#[tokio::test]
async fn settings_are_as_asked() {
    let dir = dir();
    let options = Options { max_connections: 17, ephemeral: true, ..options(dir.path()) };
    let server = PrivatePostgres::start(options).await.expect("start");
    let client = connect(&server).await;
    for (name, value) in [
        ("max_connections", "17"),
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("synchronous_commit", "off"),
        ("jit", "off"),
        ("max_wal_size", "4GB"),
        ("checkpoint_timeout", "15min"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("server_encoding", "UTF8"),
    ] {
        let row = client.query_one("SELECT current_setting($1)", &[&name]).await.expect("read setting");
        assert_eq!(row.get::<_, &str>(0), value, "{name}");
    }
    server.stop().await.expect("stop");
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let dir = dir();
    let data = dir.path().join("data");
    let server = PrivatePostgres::start(options(&data)).await.expect("start");
    let error = PrivatePostgres::start(options(&data)).await.expect_err("the directory is in use");
    assert!(matches!(error, Error::InUse { pid, .. } if pid == Some(std::process::id())), "{error}");
    assert!(error.to_string().contains(&format!("in use by process {}", std::process::id())), "{error}");
    insert_row(&server).await;
    server.stop().await.expect("stop");
}

#[tokio::test]
async fn the_server_ends_with_the_process_that_started_it() {
    let dir = dir();
    let data = dir.path().join("data");
    let mut host = start_host(&data);
    let url = format!("postgresql:///forebay?host={}/s&user=forebay", data.display());
    let client = connect_to(&url).await;
    client.batch_execute("CREATE TABLE kept (); INSERT INTO kept DEFAULT VALUES").await.expect("insert");
    let asleep = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(60)").await });

    host.kill().expect("kill the host");
    host.wait().expect("reap the host");
    wait_until_gone(&data);
    asleep.await.expect("join").expect_err("the server is gone");

    let server = PrivatePostgres::start(options(&data)).await.expect("start again");
    assert_eq!(count_rows(&server).await, 1);
    server.stop().await.expect("stop");
}

#[tokio::test]
async fn a_start_right_after_a_kill_waits_for_the_old_server() {
    let dir = dir();
    let data = dir.path().join("data");
    let mut host = start_host(&data);
    host.kill().expect("kill the host");
    host.wait().expect("reap the host");
    let server = PrivatePostgres::start(options(&data)).await.expect("start again");
    insert_row(&server).await;
    server.stop().await.expect("stop");
}

#[tokio::test]
async fn a_killed_server_recovers_at_the_next_start() {
    let dir = dir();
    let data = dir.path().join("data");
    let server = PrivatePostgres::start(options(&data)).await.expect("start");
    insert_row(&server).await;
    kill_server(&data);
    match server.stop().await.expect_err("it had ended by itself") {
        Error::Exited { program: "postgres", .. } => (),
        other => panic!("{other}"),
    }
    assert!(data.join("pg/postmaster.pid").exists());

    let server = PrivatePostgres::start(options(&data)).await.expect("start again");
    assert_eq!(count_rows(&server).await, 1);
    server.stop().await.expect("stop");
}

#[tokio::test]
async fn an_orphan_that_does_not_stop_is_killed() {
    let dir = dir();
    let data = dir.path().join("data");
    let server = PrivatePostgres::start(options(&data)).await.expect("start");
    insert_row(&server).await;
    server.stop().await.expect("stop");

    // The orphan is a child of this process and is reaped only at the end of the test, so it also becomes a zombie.
    let mut orphan = start_orphan(&data);
    let server = PrivatePostgres::start(options(&data)).await.expect("start again");
    assert_eq!(count_rows(&server).await, 1);
    server.stop().await.expect("stop");
    assert!(orphan.wait().expect("reap the orphan").success(), "it was stopped in order");
}

#[tokio::test]
async fn a_pid_file_that_names_another_program_is_stale() {
    let dir = dir();
    let data = dir.path().join("data");
    PrivatePostgres::start(options(&data)).await.expect("start").stop().await.expect("stop");
    let pid_file = format!("{}\n{}\n", std::process::id(), data.join("pg").display());
    fs::write(data.join("pg/postmaster.pid"), pid_file).expect("write a stale pid file");
    PrivatePostgres::start(options(&data)).await.expect("start again").stop().await.expect("stop");
}

#[tokio::test]
async fn leftovers_of_a_killed_initdb_are_removed() {
    let dir = dir();
    let data = dir.path().join("data");
    fs::create_dir_all(data.join("pg.tmp-left/base")).expect("make leftovers");
    fs::write(data.join("forebay.lock"), "1\n").expect("make it ours");
    let server = PrivatePostgres::start(options(&data)).await.expect("start");
    assert!(!data.join("pg.tmp-left").exists());
    server.stop().await.expect("stop");
}

#[tokio::test]
async fn an_ephemeral_cluster_removes_its_directory_and_those_of_killed_ones() {
    let dir = dir();
    let abandoned = dir.path().join("forebay-ephemeral-killed");
    fs::create_dir(&abandoned).expect("make directory");
    fs::write(abandoned.join("forebay.lock"), "1\n").expect("name its holder");

    let server = PrivatePostgres::start(Options { ephemeral: true, ..options(dir.path()) }).await.expect("start");
    let other =
        PrivatePostgres::start(Options { ephemeral: true, ..options(dir.path()) }).await.expect("start another");
    assert_ne!(server.data_dir(), other.data_dir());
    insert_row(&server).await;
    insert_row(&other).await;
    server.stop().await.expect("stop");
    drop(other);
    let left: Vec<_> = fs::read_dir(dir.path()).expect("list").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn data_of_another_version_is_refused() {
    let dir = dir();
    let data = dir.path().join("data");
    PrivatePostgres::start(options(&data)).await.expect("start").stop().await.expect("stop");
    fs::write(data.join("pg/PG_VERSION"), "14\n").expect("change the version");
    let error = PrivatePostgres::start(options(&data)).await.expect_err("there is no such version");
    let Error::Version { data: 14, found, .. } = &error else { panic!("{error}") };
    let expected = format!("the data in {} is from PostgreSQL 14, but only {found} is installed: ", data.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_works_too() {
    let dir = dir();
    let data = dir.path().join("d".repeat(100));
    let server = PrivatePostgres::start(options(&data)).await.expect("start");
    insert_row(&server).await;
    let url = server.url();
    let socket_dir = url.split(['=', '&']).nth(1).expect("the first parameter is the directory");
    let mode = fs::metadata(socket_dir).expect("look at it").permissions().mode();
    assert!(socket_dir.starts_with("/tmp/forebay-"), "{url}");
    assert_eq!(mode & 0o777, 0o700);
    server.stop().await.expect("stop");
    assert!(!Path::new(socket_dir).exists());
}

#[tokio::test]
async fn a_directory_with_files_of_others_is_left_alone() {
    let dir = dir();
    fs::write(dir.path().join("thesis.tex"), "").expect("write");
    let before = fs::metadata(dir.path()).expect("look").permissions();
    let error = PrivatePostgres::start(options(dir.path())).await.expect_err("it is not ours");
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
    assert_eq!(fs::metadata(dir.path()).expect("look").permissions(), before);
    assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1);
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let dir = dir();
    let data = dir.path().join("data");
    PrivatePostgres::start(options(&data)).await.expect("start").stop().await.expect("stop");
    let mut config = fs::OpenOptions::new().append(true).open(data.join("pg/postgresql.conf")).expect("open");
    config.write_all(b"no_such_setting = 1\n").expect("break it");
    let error = PrivatePostgres::start(options(&data)).await.expect_err("the configuration is broken");
    assert!(error.to_string().contains("unrecognized configuration parameter \"no_such_setting\""), "{error}");
}

#[tokio::test]
async fn a_named_directory_without_binaries_is_refused() {
    let dir = dir();
    let options = Options { postgres_bin: Some("/nowhere".into()), ..options(dir.path()) };
    let error = PrivatePostgres::start(options).await.expect_err("nothing is there");
    assert_eq!(
        error.to_string(),
        "no postgres and initdb of version 15 or later in /nowhere: correct FOREBAY_PG_BIN, or unset it"
    );
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing_running() {
    let dir = dir();
    let data = dir.path().join("data");
    let start = PrivatePostgres::start(options(&data));
    assert!(tokio::time::timeout(Duration::from_millis(1), start).await.is_err(), "initdb takes longer");
    // The keeper has finished when the lock is released.
    let deadline = Instant::now() + Duration::from_secs(30);
    let server = loop {
        match PrivatePostgres::start(options(&data)).await {
            Ok(server) => break server,
            Err(Error::InUse { .. }) => assert!(Instant::now() < deadline, "still in use"),
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    server.stop().await.expect("stop");
}

/// A temporary directory that the server's user can enter. The default one could be in root's home directory.
fn dir() -> TempDir {
    let dir = tempfile::Builder::new().prefix("forebay-it-").tempdir_in("/tmp").expect("make directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("open it");
    dir
}

fn options(data: impl Into<PathBuf>) -> Options {
    let launcher = Launcher { program: this_program(), args: run_args("child") };
    Options { search_path: env::var_os("PATH"), ..Options::new(data, launcher) }
}

fn this_program() -> PathBuf {
    env::current_exe().expect("we know our own path")
}

fn run_args(body: &str) -> Vec<OsString> {
    ["--exact", body, "--ignored", "--nocapture", "--"].map(OsString::from).into()
}

fn passed_args() -> Vec<OsString> {
    env::args_os().skip_while(|arg| arg != "--").skip(1).collect()
}

fn start_host(data: &Path) -> Child {
    let mut command = Command::new(this_program());
    command.args(run_args("host")).arg(data).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut host = command.spawn().expect("start a host");
    let output = BufReader::new(host.stdout.take().expect("it is piped"));
    output.lines().map_while(Result::ok).find(|line| line == "ready").expect("the host gets ready");
    host
}

/// Starts a server of this data directory that no process with the lock owns.
fn start_orphan(data: &Path) -> Child {
    let (uid, gid) = match User::from_name("postgres").expect("look up") {
        Some(user) if geteuid().is_root() => (user.uid, user.gid),
        _ => (geteuid(), getegid()),
    };
    let opts = fs::read_to_string(data.join("pg/postmaster.opts")).expect("it was started before");
    let postgres = opts.split(' ').next().expect("it begins with the program");
    let mut command = Command::new(this_program());
    command.args(run_args("child")).args([std::process::id().to_string(), uid.to_string(), gid.to_string()]);
    command.arg(postgres).arg("-D").arg(data.join("pg")).args(["-c", "listen_addresses="]);
    command.arg("-c").arg(format!("unix_socket_directories={}", data.join("s").display()));
    let orphan = command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start");
    wait_for("the orphan to be ready", || {
        fs::read_to_string(data.join("pg/postmaster.pid")).is_ok_and(|text| text.contains("ready"))
    });
    orphan
}

fn kill_server(data: &Path) {
    let text = fs::read_to_string(data.join("pg/postmaster.pid")).expect("it is running");
    let pid = text.lines().next().and_then(|line| line.parse().ok()).expect("the first line is its id");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
    wait_until_gone(data);
}

fn wait_until_gone(data: &Path) {
    wait_for("the server to be gone", || processes(data).is_empty());
}

/// Polls until the condition holds, because nothing signals what other processes do.
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The living processes that have the cluster as an argument or as their working directory.
fn processes(data: &Path) -> Vec<String> {
    let pg = data.join("pg");
    let is_in = |process: &Path| {
        let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
        fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == pg)
            || String::from_utf8_lossy(&arguments).split('\0').any(|argument| Path::new(argument) == pg)
    };
    let entries = fs::read_dir("/proc").expect("list processes").flatten().map(|entry| entry.path());
    entries.filter(|process| is_in(process)).map(|process| process.display().to_string()).collect()
}

async fn connect(server: &PrivatePostgres) -> Client {
    connect_to(&server.url()).await
}

async fn connect_to(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}

async fn insert_row(server: &PrivatePostgres) {
    let client = connect(server).await;
    client.batch_execute("CREATE TABLE kept (); INSERT INTO kept DEFAULT VALUES").await.expect("insert");
}

async fn count_rows(server: &PrivatePostgres) -> i64 {
    connect(server).await.query_one("SELECT count(*) FROM kept", &[]).await.expect("count").get(0)
}
