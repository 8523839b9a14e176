//! Tests `forebay graph`, which draws files without a server, and workflows and executions of a server.

use expect_test::expect;

use crate::support::Shared;
use crate::support::cli::Cli;
use crate::tidy::repository::root;

/// One of the examples, by its path.
fn example(name: &str) -> String {
    root().join("examples").join(name).display().to_string()
}

#[tokio::test]
async fn a_file_is_drawn_without_a_server() {
    let cli = Cli::new();
    expect![[r#"
        ●    reserve    TRANSFORM
        ●    charge     FAIL       ← reserve
        ├─╮
        ● │  ship       LOG        ← charge
        │ ●  apologise  LOG        ← charge.error
        │ ●  give_up    FAIL       ← apologise
        ├─╯
        ●    release    LOG        ← ship, give_up (all_done)
    "#]]
    .assert_eq(&cli.ok(&["graph", &example("failure.yaml")]).await);
    let hello = example("hello.yaml");
    let asked = cli.ok(&["graph", &hello, "--format", "json"]).await;
    let asked: serde_json::Value = serde_json::from_str(&asked).expect("JSON");
    assert_eq!(asked, cli.json(&["graph", &hello]).await, "as --format json says, so does -o json");
    let ascii = cli.ok(&["graph", &example("patience.yaml"), "--ascii"]).await;
    assert!(ascii.is_ascii() && ascii.contains("+-.-."), "{ascii}");
    for (file, start) in
        [("a.svg", "<svg "), ("a.mmd", "flowchart TD"), ("a.gv", "digraph "), ("a.txt", "●"), ("a.json", "{")]
    {
        let output = cli.run(&["graph", &example("branches.yaml"), "--out", file]).await;
        assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
        assert_eq!(output.stderr, format!("written: {file}\n"));
        let written = std::fs::read_to_string(cli.home().join(file)).expect("a file");
        assert!(written.starts_with(start) && written.ends_with('\n'), "{written}");
    }
}

#[tokio::test]
async fn apply_reports_the_problems_of_a_file_as_validate_does() {
    let cli = Cli::new();
    cli.file("bad.yaml", super::BAD);
    cli.file("slip.yaml", "nodes: [");
    let output = cli.run(&["graph", "bad.yaml"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output:?}");
    assert!(
        output.stderr.contains(" --> bad.yaml:5:13") && output.stderr.contains("nothing was drawn"),
        "{}",
        output.stderr
    );
    assert!(cli.run(&["graph", "slip.yaml"]).await.stderr.contains(" --> slip.yaml:1:"));
    assert_eq!(cli.run(&["graph", "./none.yaml"]).await.code, 1);
    for wrong in [&["graph", "a.yaml", "--format", "png"][..], &["graph", "a.yaml", "--version", "2"], &["graph"]] {
        assert_eq!(cli.run(wrong).await.code, 2, "{wrong:?}");
    }
}

#[tokio::test]
async fn workflows_and_executions_are_drawn_from_a_server() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    cli.file("greet.yaml", super::GOOD);
    cli.ok(&["apply", "greet.yaml"]).await;
    let before = cli.ok(&["graph", "greet"]).await;
    assert_eq!(before, cli.ok(&["graph", "greet.yaml"]).await, "the same from a file and from a server");
    cli.ok(&["run", "greet", "-i", "name=Ada", "--watch"]).await;
    expect![[r#"
        ✓    known  CONDITION  COMPLETED
        ├─╮
        ✓ │  hello  LOG        COMPLETED  ← known.true
          »  other  LOG        SKIPPED    ← known.false
    "#]]
    .assert_eq(&cli.ok(&["graph", "@latest:greet"]).await);
    let id = cli.json(&["get", "@latest"]).await["id"].as_str().expect("an id").to_owned();
    assert!(cli.ok(&["graph", &id, "--format", "svg"]).await.contains("data-status=\"SKIPPED\""));
    let workflow = cli.json(&["workflow", "get", "greet"]).await["id"].as_str().expect("an id").to_owned();
    assert_eq!(cli.ok(&["graph", &workflow]).await, before);
    assert_eq!(cli.ok(&["graph", "greet", "--version", "1"]).await, before);
    let nobody = "019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a";
    super::check(
        &cli,
        &[&["graph", "nobody"], &["graph", nobody], &["graph", "greet", "--version", "2"]],
        expect![[r#"
            $ forebay graph nobody
            ! error: there is no workflow nobody; list workflows: forebay workflow ls
            = 1
            $ forebay graph <id>
            ! error: draw the graph: there is no such execution
            = 1
            $ forebay graph greet --version 2
            ! error: draw the graph: there is no such version
            = 1
        "#]],
    )
    .await;
}
