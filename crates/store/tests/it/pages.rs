//! Pages are bounded in bytes: a list of large rows is cut, and the next page goes on behind it.

use std::collections::BTreeSet;

use kernel::change::Topic;
use kernel::change::cursor::{Cursor, Place};
use store::event::Which;
use store::feed::Missed;
use store::job::Wanted;
use store::page::MOST_BYTES;

use crate::support::World;

/// The size of one row: a page has about sixteen of them.
const LARGE: usize = MOST_BYTES / 16;
const MANY: usize = 60;

/// The size of one row where a read of the log of changes has about sixteen of them.
const LARGE_CHANGE: usize = 256 * 1024;

/// Events of one workspace whose data has so many bytes, and their jobs.
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
            let which = Which { workspace: of, event_type: Some("large"), before, ..Which::default() };
            let page = world.store.events(&which, 200).await.expect("a page");
            let bytes: usize = page.rows.iter().map(|row| row.event.data.to_string().len()).sum();
            assert!(bytes < MOST_BYTES + 2 * LARGE, "a page of {bytes} bytes");
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
async fn the_log_of_changes_is_read_a_few_megabytes_at_a_time() {
    let world = World::new().await;
    let from = world.store.open_log().await.expect("a log").horizon;
    large(&world, LARGE_CHANGE).await;
    let (mut cursor, mut told, mut reads) = (Cursor::new(from), BTreeSet::new(), 0);
    loop {
        let drained = world.store.drain(cursor.low(), &cursor.drained(), 100_000).await.expect("a drain");
        let rows = drained.changes.iter().filter(|change| change.topic == Topic::Projection);
        assert!(rows.clone().count() <= 17, "{} large rows at once", rows.count());
        let places: Vec<(Place, Place)> = drained.changes.iter().map(|change| (change.place, change.place)).collect();
        told.extend(places.iter().map(|(place, _)| *place));
        cursor.take(&places, drained.extent.horizon, drained.all);
        reads += 1;
        if drained.all {
            break;
        }
    }
    assert_eq!((told.len(), reads), (MANY, 4));
    let (mut after, mut missed) = (Place::before(from), BTreeSet::new());
    loop {
        let below = world.store.log_extent().await.expect("an extent").horizon;
        let asked = Missed { after, below, workspace: None, topics: &[Topic::Projection], id: None };
        let page = world.store.missed(&asked, 100_000).await.expect("a page");
        assert!(page.changes.len() <= 17, "{} large rows at once", page.changes.len());
        missed.extend(page.changes.iter().map(|change| change.place));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(missed, told);
}

#[tokio::test]
async fn a_claim_of_large_jobs_ends_where_it_becomes_large() {
    let world = World::new().await;
    let workspace = large(&world, LARGE).await;
    let mut claimed = BTreeSet::new();
    for types in [None, Some(["large".to_owned()])] {
        let event_types = types.as_ref().map(<[String; 1]>::as_slice);
        let wanted =
            Wanted { workspace: Some(workspace), event_types, id: None, worker: "w", lease_s: None, limit: 100 };
        let held = world.store.claim_jobs(&wanted).await.expect("a claim");
        let bytes: usize = held.iter().map(|held| held.job.event_data.to_string().len()).sum();
        assert!(bytes > MOST_BYTES && bytes < MOST_BYTES + 2 * LARGE, "a claim of {bytes} bytes");
        claimed.extend(held.iter().map(|held| held.job.id));
    }
    assert_eq!(claimed.len(), 2 * 16, "no job is claimed twice, and none of those that did not fit");
    assert_eq!(world.count("workflow_queue_projection WHERE status = 'processing'").await, 2 * 16);
}
