//! Tests the errors of the store: each tells the caller what to do.

use store::Error;
use store::testing::Database;

#[tokio::test]
async fn a_value_that_cannot_be_read_is_corrupt_and_not_an_outage() {
    let database = Database::new().await;
    let client = database.client().await;
    let row = client.query_one("SELECT 'x'::text", &[]).await.expect("a row");
    let unreadable = row.try_get::<_, i32>(0).expect_err("a text is not a number");
    assert!(matches!(Error::from(unreadable), Error::Corrupt(_)));
    let missing = row.try_get::<_, i32>("nothing").expect_err("no such column");
    assert!(matches!(Error::from(missing), Error::Corrupt(_)));
}

#[tokio::test]
async fn a_lost_connection_is_an_outage() {
    let database = Database::new().await;
    let client = database.client().await;
    let error = client.execute("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await.expect_err("cut off");
    assert!(matches!(Error::from(error), Error::Unavailable(_)));
}
