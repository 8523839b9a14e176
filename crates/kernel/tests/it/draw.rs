//! Tests the drawing of graphs: what each format looks like, and what is true for every graph.

mod hostile;
mod properties;

use expect_test::{Expect, expect};
use kernel::definition::Definition;
use kernel::definition::parse;
use kernel::definition::plan::Plan;
use kernel::draw::{Drawing, Format, NodeState, NodeStates, Page, text};
use kernel::ids::{Label, NodeKey};
use kernel::run::node::Status;
use serde_json::{Value, json};

fn read(document: &Value) -> (Definition, Plan) {
    parse::check(document).expect("the test's graph is acceptable")
}

/// A decision, a join, and a line that passes others.
fn orders() -> Value {
    json!({ "name": "orders", "nodes": {
        "order": { "kind": "TRANSFORM", "with": { "value": 1 } },
        "is_large": { "kind": "CONDITION", "needs": "order", "with": { "if": "inputs.total > 1000" } },
        "review": { "kind": "LOG", "needs": "is_large.true", "with": { "message": "m" } },
        "approve": { "kind": "LOG", "needs": "is_large.false", "with": { "message": "m" } },
        "ship": { "kind": "HTTP_REQUEST", "needs": ["review", "approve", "order"], "when": "any_success",
            "with": { "url": "https://e.test" } },
    } })
}

/// Statuses in words: `review COMPLETED`, `is_large COMPLETED true`, `ship RETRYING 2`.
fn standings(all: &[&str]) -> NodeStates {
    let standing = |text: &&str| {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let (key, status, more) = (NodeKey::new(next()), Status::parse(next()), next());
        let attempt = more.parse().unwrap_or(1);
        let took = Label::new(more).ok();
        (key.expect("a key"), NodeState { status: status.expect("a status"), attempt, took })
    };
    all.iter().map(standing).collect()
}

fn draw(document: &Value, statuses: Option<&[&str]>) -> Drawing {
    let (definition, plan) = read(document);
    Drawing::new(&definition, &plan, statuses.map(standings).as_ref())
}

fn check(document: &Value, statuses: Option<&[&str]>, format: Format, expected: Expect) {
    expected.assert_eq(&draw(document, statuses).render(format));
}

const RUN: &[&str] =
    &["order COMPLETED", "is_large COMPLETED true", "review COMPLETED", "approve SKIPPED", "ship RETRYING 2"];

#[test]
fn text_has_a_line_for_each_node_and_rails_beside_them() {
    check(
        &orders(),
        None,
        Format::Text,
        expect![[r#"
        ●      order     TRANSFORM
        ├─╮
        ◆ │    is_large  CONDITION     ← order
        ├─│─╮
        ● │ │  review    LOG           ← is_large.true
        ╰─┤ │
          │ ●  approve   LOG           ← is_large.false
          ├─╯
          ●    ship      HTTP_REQUEST  ← review, approve, order (any_success)
    "#]],
    );
    check(
        &orders(),
        Some(RUN),
        Format::Text,
        expect![[r#"
        ✓      order     TRANSFORM     COMPLETED
        ├─╮
        ✓ │    is_large  CONDITION     COMPLETED    ← order
        ├─│─╮
        ✓ │ │  review    LOG           COMPLETED    ← is_large.true
        ╰─┤ │
          │ »  approve   LOG           SKIPPED      ← is_large.false
          ├─╯
          ↻    ship      HTTP_REQUEST  RETRYING ×2  ← review, approve, order (any_success)
    "#]],
    );
}

#[test]
fn text_does_with_ascii_and_with_little_room() {
    let page = Page { width: 60, is_ascii: true, paint: None };
    expect![[r#"
        +      order     TRANSFORM     COMPLETED
        +-.
        + |    is_large  CONDITION     COMPLETED    <- order
        +-|-.
        + | |  review    LOG           COMPLETED    <- is_large.true
        '-+ |
          | -  approve   LOG           SKIPPED      <- is_large.fal.
          +-'
          ~    ship      HTTP_REQUEST  RETRYING x2  <- review, appr.
    "#]]
    .assert_eq(&text(&draw(&orders(), Some(RUN)), &page));
    let paint = |status: Status, text: &str| format!("<{}>{text}</>", status.name().to_lowercase());
    let page = Page { width: 100, is_ascii: true, paint: Some(paint) };
    expect![[r#"
        <completed>+</>      order     TRANSFORM     <completed>COMPLETED</>
        +-.
        <completed>+</> |    is_large  CONDITION     <completed>COMPLETED</>    <- order
        +-|-.
        <completed>+</> | |  review    LOG           <completed>COMPLETED</>    <- is_large.true
        '-+ |
          | <skipped>-</>  approve   LOG           <skipped>SKIPPED</>      <- is_large.false
          +-'
          <retrying>~</>    ship      HTTP_REQUEST  <retrying>RETRYING x2</>  <- review, approve, order (any_success)
    "#]]
    .assert_eq(&text(&draw(&orders(), Some(RUN)), &page));
}

#[test]
fn no_line_of_text_is_longer_than_its_page() {
    let drawing = draw(&orders(), Some(RUN));
    for width in 0..100 {
        let drawn = text(&drawing, &Page { width, is_ascii: false, paint: None });
        assert!(drawn.lines().all(|line| line.chars().count() <= width), "{width}:\n{drawn}");
        assert!(drawn.lines().count() >= 5, "{width}:\n{drawn}");
    }
}

#[test]
fn a_graph_too_wide_for_rails_is_listed_by_layers() {
    let mut nodes = serde_json::Map::new();
    let log = |needs: Value| json!({ "kind": "LOG", "needs": needs, "with": { "message": "m" } });
    nodes.insert("begin".to_owned(), log(json!([])));
    let all: Vec<String> = (0..9).map(|at| format!("part_{at}")).collect();
    for name in &all {
        nodes.insert(name.clone(), log(json!("begin")));
    }
    nodes.insert("end".to_owned(), log(json!(all)));
    let drawing = draw(&json!({ "nodes": nodes }), None);
    let page = |width| Page { width, is_ascii: false, paint: None };
    expect![[r#"
        ●                  begin   LOG
        ├─┬─┬─┬─┬─┬─┬─┬─╮
        ● │ │ │ │ │ │ │ │  part_0  LOG  ← begin
        │ ● │ │ │ │ │ │ │  part_1  LOG  ← begin
        ├─╯ │ │ │ │ │ │ │
        │   ● │ │ │ │ │ │  part_2  LOG  ← begin
        ├───╯ │ │ │ │ │ │
        │     ● │ │ │ │ │  part_3  LOG  ← begin
        ├─────╯ │ │ │ │ │
        │       ● │ │ │ │  part_4  LOG  ← begin
        ├───────╯ │ │ │ │
        │         ● │ │ │  part_5  LOG  ← begin
        ├─────────╯ │ │ │
        │           ● │ │  part_6  LOG  ← begin
        ├───────────╯ │ │
        │             ● │  part_7  LOG  ← begin
        ├─────────────╯ │
        │               ●  part_8  LOG  ← begin
        ├───────────────╯
        ●                  end     LOG  ← part_0, part_1, part_2, p…
    "#]]
    .assert_eq(&text(&drawing, &page(60)));
    expect![[r#"
        1   ●  begin   LOG
        2   ●  part_0  LOG  ← begin
        2   ●  part_1  LOG  ← begin
        2   ●  part_2  LOG  ← begin
        2   ●  part_3  LOG  ← begin
        2   ●  part_4  LOG  ← begin
        2   ●  part_5  LOG  ← begin
        2   ●  part_6  LOG  ← begin
        2   ●  part_7  LOG  ← begin
        2   ●  part_8  LOG  ← begin
        3   ●  end     LOG  ← part_0, part_1, p…
    "#]]
    .assert_eq(&text(&drawing, &page(40)));
}

#[test]
fn text_joins_and_parts_as_the_graph_does() {
    let log = |needs: Value| json!({ "kind": "LOG", "needs": needs, "with": { "message": "m" } });
    let switch = json!({ "kind": "SWITCH", "needs": "a", "with": { "value": "${{ inputs.x }}",
        "cases": [{ "equals": 1, "label": "one" }, { "equals": 2, "label": "two" }], "default": "other" } });
    let document = json!({ "nodes": {
        "a": log(json!([])), "which": switch, "first": log(json!("which.one")), "second": log(json!("which.two")),
        "third": log(json!("which.other")), "side": log(json!("a")), "again": log(json!(["first", "second"])),
        "root": log(json!([])), "end": log(json!(["again", "side", "third", "root"])), "after": log(json!("end")),
    } });
    check(
        &document,
        None,
        Format::Text,
        expect![[r#"
        ●        a       LOG
        ├─╮
        ◆ │      which   SWITCH  ← a
        ├─│─┬─╮
        │ ● │ │  side    LOG     ← a
        ● │ │ │  first   LOG     ← which.one
        │ │ ● │  second  LOG     ← which.two
        ├─│─╯ │
        │ │   ●  third   LOG     ← which.other
        │ ├───╯
        ● │      again   LOG     ← first, second
        ╰─┤
        ● │      root    LOG
        ╰─┤
          ●      end     LOG     ← again, side, third, root
          ●      after   LOG     ← end
    "#]],
    );
}

#[test]
fn mermaid_says_the_same() {
    check(
        &orders(),
        None,
        Format::Mermaid,
        expect![[r#"
        flowchart TD
          accTitle: orders
          n0["order<br/>TRANSFORM"]
          n1{{"is_large<br/>CONDITION"}}
          n2["review<br/>LOG"]
          n3["approve<br/>LOG"]
          n4["ship<br/>HTTP_REQUEST<br/>when any_success"]
          n0 --> n1
          n1 -->|"true"| n2
          n1 -->|"false"| n3
          n2 --> n4
          n3 --> n4
          n0 --> n4
    "#]],
    );
    check(
        &orders(),
        Some(RUN),
        Format::Mermaid,
        expect![[r#"
        flowchart TD
          accTitle: orders
          n0["order<br/>TRANSFORM<br/>✓ COMPLETED"]
          n1{{"is_large<br/>CONDITION<br/>✓ COMPLETED"}}
          n2["review<br/>LOG<br/>✓ COMPLETED"]
          n3["approve<br/>LOG<br/>» SKIPPED"]
          n4["ship<br/>HTTP_REQUEST<br/>when any_success<br/>↻ RETRYING ×2"]
          n0 ==> n1
          n1 ==>|"true"| n2
          n1 -.->|"false"| n3
          n2 ==> n4
          n3 -.-> n4
          n0 ==> n4
          classDef retrying fill:#fef3c7,stroke:#b45309,color:#111827
          class n4 retrying
          classDef completed fill:#dcfce7,stroke:#15803d,color:#111827
          class n0,n1,n2 completed
          classDef skipped fill:#f3f4f6,stroke:#6b7280,color:#111827,stroke-dasharray:5 3
          class n3 skipped
    "#]],
    );
}

#[test]
fn dot_says_the_same() {
    check(
        &orders(),
        None,
        Format::Dot,
        expect![[r##"
        digraph "orders" {
          graph [rankdir=TB, fontname="sans-serif"]
          node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="sans-serif"]
          edge [fontname="sans-serif"]
          {
            rank=same
            "order" [label="order\nTRANSFORM", tooltip="order: TRANSFORM"]
          }
          {
            rank=same
            "is_large" [label="is_large\nCONDITION", tooltip="is_large: CONDITION", shape=hexagon, style=filled]
          }
          {
            rank=same
            "review" [label="review\nLOG", tooltip="review: LOG"]
            "approve" [label="approve\nLOG", tooltip="approve: LOG"]
          }
          {
            rank=same
            "ship" [label="ship\nHTTP_REQUEST\nwhen any_success", tooltip="ship: HTTP_REQUEST, when any_success"]
          }
          "order" -> "is_large"
          "is_large" -> "review" [label="true"]
          "is_large" -> "approve" [label="false"]
          "review" -> "ship"
          "approve" -> "ship"
          "order" -> "ship"
        }
    "##]],
    );
    check(
        &orders(),
        Some(RUN),
        Format::Dot,
        expect![[r##"
        digraph "orders" {
          graph [rankdir=TB, fontname="sans-serif"]
          node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="sans-serif"]
          edge [fontname="sans-serif"]
          {
            rank=same
            "order" [label="order\nTRANSFORM\n✓ COMPLETED", tooltip="order: TRANSFORM, COMPLETED", fillcolor="#dcfce7", color="#15803d"]
          }
          {
            rank=same
            "is_large" [label="is_large\nCONDITION\n✓ COMPLETED", tooltip="is_large: CONDITION, COMPLETED, took true", shape=hexagon, style=filled, fillcolor="#dcfce7", color="#15803d"]
          }
          {
            rank=same
            "review" [label="review\nLOG\n✓ COMPLETED", tooltip="review: LOG, COMPLETED", fillcolor="#dcfce7", color="#15803d"]
            "approve" [label="approve\nLOG\n» SKIPPED", tooltip="approve: LOG, SKIPPED", fillcolor="#f3f4f6", color="#6b7280", style="filled,dashed"]
          }
          {
            rank=same
            "ship" [label="ship\nHTTP_REQUEST\nwhen any_success\n↻ RETRYING ×2", tooltip="ship: HTTP_REQUEST, RETRYING, attempt 2, when any_success", fillcolor="#fef3c7", color="#b45309"]
          }
          "order" -> "is_large" [style=bold]
          "is_large" -> "review" [label="true", style=bold]
          "is_large" -> "approve" [label="false", style=dashed]
          "review" -> "ship" [style=bold]
          "approve" -> "ship" [style=dashed]
          "order" -> "ship" [style=bold]
        }
    "##]],
    );
}

#[test]
fn json_has_every_place() {
    let drawing: Value = serde_json::from_str(&draw(&orders(), Some(RUN)).render(Format::Json)).expect("JSON");
    let lines = |name: &str| drawing[name].as_array().expect("a list").iter().map(|item| format!("{item}\n"));
    let size = format!("{} {} {}\n", drawing["name"], drawing["width"], drawing["height"]);
    expect![[r#"
        "orders" 504 390
        {"key":"order","kind":"TRANSFORM","when":"all_success","layer":0,"x":252,"y":16,"width":208,"height":52,"status":"COMPLETED","attempt":1}
        {"key":"is_large","kind":"CONDITION","branches":["true","false"],"when":"all_success","layer":1,"x":176,"y":112,"width":208,"height":52,"status":"COMPLETED","attempt":1,"took":"true"}
        {"key":"review","kind":"LOG","when":"all_success","layer":2,"x":16,"y":226,"width":208,"height":52,"status":"COMPLETED","attempt":1}
        {"key":"approve","kind":"LOG","when":"all_success","layer":2,"x":248,"y":226,"width":208,"height":52,"status":"SKIPPED","attempt":1}
        {"key":"ship","kind":"HTTP_REQUEST","when":"any_success","layer":3,"x":214,"y":322,"width":208,"height":52,"status":"RETRYING","attempt":2}
        {"from":"order","to":"is_large","points":[{"x":356,"y":68},{"x":280,"y":112}],"taken":true}
        {"from":"is_large","to":"review","label":"true","labelAt":{"x":120,"y":195},"points":[{"x":280,"y":164},{"x":120,"y":186},{"x":120,"y":226}],"taken":true}
        {"from":"is_large","to":"approve","label":"false","labelAt":{"x":352,"y":195},"points":[{"x":280,"y":164},{"x":352,"y":186},{"x":352,"y":226}],"taken":false}
        {"from":"review","to":"ship","points":[{"x":120,"y":278},{"x":318,"y":322}],"taken":true}
        {"from":"approve","to":"ship","points":[{"x":352,"y":278},{"x":318,"y":322}],"taken":false}
        {"from":"order","to":"ship","points":[{"x":356,"y":68},{"x":484,"y":112},{"x":484,"y":278},{"x":318,"y":322}],"taken":true}
    "#]].assert_eq(&std::iter::once(size).chain(lines("nodes")).chain(lines("edges")).collect::<String>());
}

#[test]
fn svg_stands_by_itself() {
    let drawn = draw(&orders(), Some(RUN)).render(Format::Svg);
    let (before, rest) = drawn.split_once("<style>").expect("a style");
    let (_, after) = rest.split_once("</style>").expect("its end");
    expect![[r##"
        <svg xmlns="http://www.w3.org/2000/svg" class="forebay-graph" role="graphics-document document" viewBox="0 0 504 390" width="504" height="390">
        <title>orders</title>
        <desc>From top to bottom; nodes: 5, edges: 6, RETRYING 1, COMPLETED 3, SKIPPED 1</desc>
        <style>…</style>
        <rect class="back" width="504" height="390"/>
        <g class="edges">
        <g class="edge" data-from="order" data-to="is_large" data-taken="true">
        <title>order to is_large, taken</title>
        <path d="M356 68C356 90 280 90 280 112"/>
        <path class="head" d="M280 112l-4 -8h8z"/>
        </g>
        <g class="edge" data-from="is_large" data-to="review" data-taken="true">
        <title>is_large to review on true, taken</title>
        <path d="M280 164C280 175 120 175 120 186V226"/>
        <path class="head" d="M120 226l-4 -8h8z"/>
        <rect class="back" x="104" y="187" width="32" height="16"/>
        <text x="120" y="199">true</text>
        </g>
        <g class="edge" data-from="is_large" data-to="approve" data-taken="false">
        <title>is_large to approve on false, not taken</title>
        <path d="M280 164C280 175 352 175 352 186V226"/>
        <path class="head" d="M352 226l-4 -8h8z"/>
        <rect class="back" x="333" y="187" width="39" height="16"/>
        <text x="352" y="199">false</text>
        </g>
        <g class="edge" data-from="review" data-to="ship" data-taken="true">
        <title>review to ship, taken</title>
        <path d="M120 278C120 300 318 300 318 322"/>
        <path class="head" d="M318 322l-4 -8h8z"/>
        </g>
        <g class="edge" data-from="approve" data-to="ship" data-taken="false">
        <title>approve to ship, not taken</title>
        <path d="M352 278C352 300 318 300 318 322"/>
        <path class="head" d="M318 322l-4 -8h8z"/>
        </g>
        <g class="edge" data-from="order" data-to="ship" data-taken="true">
        <title>order to ship, taken</title>
        <path d="M356 68C356 90 484 90 484 112V278C484 300 318 300 318 322"/>
        <path class="head" d="M318 322l-4 -8h8z"/>
        </g>
        </g>
        <g class="nodes">
        <a id="node-order" class="node" href="#node-order" data-status="COMPLETED">
        <title>order: TRANSFORM, COMPLETED</title>
        <rect x="252" y="16" width="208" height="52" rx="6"/>
        <text class="key" x="266" y="38">order</text>
        <path class="sign" transform="translate(266 46)" d="M1 6.5l3.5 3.5L11 2"/>
        <text class="status" x="284" y="56">COMPLETED</text>
        <text class="kind" x="446" y="56" text-anchor="end">TRANSFORM</text>
        </a>
        <a id="node-is_large" class="node" href="#node-is_large" data-status="COMPLETED">
        <title>is_large: CONDITION, COMPLETED, took true</title>
        <rect x="176" y="112" width="208" height="52" rx="26"/>
        <text class="key" x="190" y="134">is_large</text>
        <path class="sign" transform="translate(190 142)" d="M1 6.5l3.5 3.5L11 2"/>
        <text class="status" x="208" y="152">COMPLETED</text>
        <text class="kind" x="370" y="152" text-anchor="end">CONDITION</text>
        </a>
        <a id="node-review" class="node" href="#node-review" data-status="COMPLETED">
        <title>review: LOG, COMPLETED</title>
        <rect x="16" y="226" width="208" height="52" rx="6"/>
        <text class="key" x="30" y="248">review</text>
        <path class="sign" transform="translate(30 256)" d="M1 6.5l3.5 3.5L11 2"/>
        <text class="status" x="48" y="266">COMPLETED</text>
        <text class="kind" x="210" y="266" text-anchor="end">LOG</text>
        </a>
        <a id="node-approve" class="node" href="#node-approve" data-status="SKIPPED">
        <title>approve: LOG, SKIPPED</title>
        <rect x="248" y="226" width="208" height="52" rx="6"/>
        <text class="key" x="262" y="248">approve</text>
        <path class="sign" transform="translate(262 256)" d="M1 2l4 4l-4 4M6.5 2l4 4l-4 4"/>
        <text class="status" x="280" y="266">SKIPPED</text>
        <text class="kind" x="442" y="266" text-anchor="end">LOG</text>
        </a>
        <a id="node-ship" class="node" href="#node-ship" data-status="RETRYING">
        <title>ship: HTTP_REQUEST, RETRYING, attempt 2, when any_success</title>
        <rect x="214" y="322" width="208" height="52" rx="6"/>
        <text class="key" x="228" y="344">ship</text>
        <path class="sign" transform="translate(228 352)" d="M10.5 7a4.7 4.7 0 1 1 -.6 -3.4M10.4 .8v3.2h-3.2"/>
        <text class="status" x="246" y="362">RETRYING ×2</text>
        <text class="kind" x="408" y="362" text-anchor="end">HTTP_REQUEST</text>
        </a>
        </g>
        </svg>
    "##]].assert_eq(&format!("{before}<style>…</style>{after}"));
}

#[test]
fn an_empty_graph_is_an_empty_drawing() {
    let document = json!({ "name": "nothing", "nodes": {} });
    let drawing = draw(&document, None);
    assert_eq!((drawing.nodes.len(), drawing.width, drawing.height), (0, 32, 32));
    assert_eq!(drawing.render(Format::Text), "");
    assert_eq!(drawing.render(Format::Mermaid), "flowchart TD\n  accTitle: nothing\n");
}

#[test]
fn a_run_moves_nothing_and_decides_only_what_is_decided() {
    let (before, begun) = (draw(&orders(), None), draw(&orders(), Some(&["order COMPLETED", "is_large RUNNING"])));
    for (before, begun) in before.nodes.iter().zip(&begun.nodes) {
        assert_eq!((&before.key, before.x, before.y), (&begun.key, begun.x, begun.y));
    }
    assert!(before.edges.iter().all(|edge| edge.taken.is_none()));
    let taken: Vec<String> =
        begun.edges.iter().map(|edge| format!("{} {} {:?}", edge.from, edge.to, edge.taken)).collect();
    expect![[r#"
        order is_large Some(true)
        is_large review None
        is_large approve None
        review ship None
        approve ship None
        order ship Some(true)"#]]
    .assert_eq(&taken.join("\n"));
}
