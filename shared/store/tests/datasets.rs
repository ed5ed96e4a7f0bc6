//! Published datasets are fixed.

use domain::DatasetId;
use domain::dataset::{DatasetSpec, ImportSource, ImportSpec};
use store::Store;
use testkit::TestDb;

#[tokio::test]
async fn the_database_refuses_every_change_of_a_published_dataset() -> Result<(), Box<dyn std::error::Error>>
{
    let db = TestDb::new().await?;
    let pool = db.pool().await?;
    let store = Store::from_pool(pool.clone());
    let id = DatasetId::generate();
    let spec = DatasetSpec { domain: "d".into(), dialogues: 0, seed: 0, shard_size: 1, eval_fraction: 0.0 };
    let import = ImportSpec {
        source: ImportSource::Path("x".into()),
        main_speaker_label: Some("SPEAKER_MAIN".into()),
        eval_fraction: 0.0,
        seed: 3,
        license: None,
        drop_voices: true,
        script_words: false,
    };
    let mut tx = store.begin().await?;
    store::datasets::insert_import(&mut tx, id, "fixed", &spec, &import).await?;
    tx.commit().await?;
    assert_eq!(store::datasets::get(&store, id).await?.import, Some(import));

    sqlx::query("UPDATE datasets SET summary = '{\"train_dialogues\":1,\"eval_dialogues\":0,\"rejected_dialogues\":0,\"audio_s\":1,\"words\":1,\"injections\":0,\"content_sha256\":\"00\"}', published_at = now()")
        .execute(&pool)
        .await?;
    for change in [
        "UPDATE datasets SET name = 'other'",
        "UPDATE datasets SET summary = NULL, published_at = NULL",
        "UPDATE datasets SET spec = '{}'",
    ] {
        let error = sqlx::query(change).execute(&pool).await.expect_err(change).to_string();
        assert!(error.contains("dataset fixed is published and never changes"), "{change}: {error}");
    }
    assert_eq!(store::datasets::get(&store, id).await?.name, "fixed");
    Ok(())
}
