//! Pages are limited in bytes: a page of large rows ends early, and the next page continues after the last row.

use std::collections::BTreeSet;

use kernel::change::Topic;
use kernel::change::cursor::{Cursor, Position};
use store::event::EventFilter;
use store::feed::MissedQuery;
use store::job::JobRequest;
use store::page::MAX_PAGE_BYTES;

use crate::support::{World, eventually};

/// The size of one row: a page has about sixteen of them.
const LARGE: usize = MAX_PAGE_BYTES / 16;
const MANY: usize = 60;

/// The size of one row such that a read of the change log has about sixteen of them.
const LARGE_CHANGE: usize = 256 * 1024;

/// Events of one workspace with data of this many bytes, and their jobs.
async fn large(world: &World, size: usize) -> kernel::ids::WorkspaceId {
    let workspace = world.workspace("PRO").await;
    let events =
        "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
        SELECT $1, gen_random_uuid(), 's', 1, 'large', jsonb_build_object('n', n, 'data', repeat('x', $2::int))
          FROM generate_series(1, $3::int) n";
    let (size, many) = (i32::try_from(size).expect("a size"), i32::try_from(MANY).expect("a number"));
    world.run_sql(events, &[&workspace.0, &size, &many]).await;
    let jobs = "INSERT INTO workflow_queue_projection (event_id, event_type, event_data, stream_id, stream_type)
        SELECT e.id, e.event_type, e.event_data, e.stream_id, e.stream_type FROM domain_events e WHERE e.event_type = 'large'";
    world.run_sql(jobs, &[]).await;
    workspace
}

#[tokio::test]
async fn pages_of_large_rows_are_cut_and_together_they_are_the_list() {
    let world = World::new().await;
    let workspace = large(&world, LARGE).await;
    for of in [None, Some(workspace)] {
        let (mut before, mut seen, mut pages) = (None, BTreeSet::new(), 0);
        loop {
            let which = EventFilter { workspace: of, event_type: Some("large"), before, ..EventFilter::default() };
            let page = world.store.events(&which, 200).await.expect("a page");
            let bytes: usize = page.rows.iter().map(|row| row.event.data.to_string().len()).sum();
            assert!(bytes < MAX_PAGE_BYTES + 2 * LARGE, "a page of {bytes} bytes");
            before = page.rows.last().map(|row| row.sequence);
            seen.extend(page.rows.iter().map(|row| row.sequence));
            pages += 1;
            if !page.cut {
                break;
            }
        }
        assert_eq!((seen.len(), pages), (MANY, 4), "of {of:?}");
    }
}

#[tokio::test]
async fn the_change_log_is_read_a_few_megabytes_at_a_time() {
    let world = World::new().await;
    let from = world.store.open_log().await.expect("a log").horizon;
    large(&world, LARGE_CHANGE).await;
    let (mut cursor, mut outcome, mut reads) = (Cursor::new(from), BTreeSet::new(), 0);
    loop {
        let drained = world.store.drain_log(cursor.low(), &cursor.drained(), 100_000).await.expect("a drain");
        let rows = drained.changes.iter().filter(|change| change.topic == Topic::Job);
        assert!(rows.clone().count() <= 17, "{} large rows at once", rows.count());
        let places: Vec<(Position, Position)> =
            drained.changes.iter().map(|change| (change.position, change.position)).collect();
        outcome.extend(places.iter().map(|(place, _)| *place));
        cursor.advance(&places, drained.extent.horizon, drained.all);
        reads += 1;
        if drained.all {
            break;
        }
    }
    assert_eq!((outcome.len(), reads), (MANY, 4));
    // Other tests use the same server, and their transactions hold the horizon back for a while.
    let written = outcome.last().expect("changes").xid;
    eventually("the horizon passes", async || world.store.log_extent().await.expect("an extent").horizon > written)
        .await;
    let (mut after, mut missed) = (Position::start_of(from), BTreeSet::new());
    loop {
        let below = world.store.log_extent().await.expect("an extent").horizon;
        let asked = MissedQuery { after, below, workspace: None, topics: &[Topic::Job], id: None };
        let page = world.store.missed_changes(&asked, 100_000).await.expect("a page");
        assert!(page.changes.len() <= 17, "{} large rows at once", page.changes.len());
        missed.extend(page.changes.iter().map(|change| change.position));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(missed, outcome);
}

#[tokio::test]
async fn a_claim_of_large_jobs_ends_where_it_becomes_large() {
    let world = World::new().await;
    let workspace = large(&world, LARGE).await;
    let mut claimed = BTreeSet::new();
    for types in [None, Some(["large".to_owned()])] {
        let event_types = types.as_ref().map(<[String; 1]>::as_slice);
        let wanted =
            JobRequest { workspace: Some(workspace), event_types, id: None, worker: "w", lease_s: None, limit: 100 };
        let held = world.store.claim_jobs(&wanted).await.expect("a claim");
        let bytes: usize = held.iter().map(|held| held.job.event_data.to_string().len()).sum();
        assert!(bytes > MAX_PAGE_BYTES && bytes < MAX_PAGE_BYTES + 2 * LARGE, "a claim of {bytes} bytes");
        claimed.extend(held.iter().map(|held| held.job.id));
    }
    assert_eq!(claimed.len(), 2 * 16, "no job is claimed twice, and none that did not fit");
    assert_eq!(world.count("workflow_queue_projection WHERE status = 'processing'").await, 2 * 16);
}
