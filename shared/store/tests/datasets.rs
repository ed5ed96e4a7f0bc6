//! Published datasets are fixed.

use domain::DatasetId;
use domain::dataset::{DatasetSpec, ImportSource, ImportSpec};
use store::{PageRequest, Store};
use testkit::TestDb;

#[tokio::test]
async fn the_database_refuses_every_change_of_a_published_dataset() -> Result<(), Box<dyn std::error::Error>>
{
    let db = TestDb::new().await?;
    let pool = db.pool().await?;
    let store = Store::from_pool(pool.clone());
    let id = DatasetId::generate();
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
    store::datasets::insert_import(&mut tx, id, "fixed", &spec(), &import).await?;
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

fn spec() -> DatasetSpec {
    DatasetSpec {
        domain: "d".into(),
        dialogues: 0,
        seed: 0,
        shard_size: 1,
        eval_fraction: 0.0,
        ..DatasetSpec::default()
    }
}

async fn add(store: &Store, name: &str) -> Result<u32, store::StoreError> {
    let mut tx = store.begin().await?;
    let version = store::datasets::insert(&mut tx, DatasetId::generate(), name, &spec()).await?;
    store::commit(tx).await?;
    Ok(version)
}

#[tokio::test]
async fn twenty_inserts_of_one_name_at_once_become_twenty_versions() -> Result<(), Box<dyn std::error::Error>>
{
    let db = TestDb::new().await?;
    let store = Store::from_pool(db.pool().await?);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        all.spawn(async move { add(&store, "calls").await });
    }
    let mut versions = all.join_all().await.into_iter().collect::<Result<Vec<u32>, _>>()?;
    versions.sort_unstable();
    assert_eq!(versions, (1..=20).collect::<Vec<u32>>());
    assert_eq!(add(&store, "other").await?, 1);
    // What is rolled back takes no number.
    let mut tx = store.begin().await?;
    assert_eq!(store::datasets::insert(&mut tx, DatasetId::generate(), "other", &spec()).await?, 2);
    tx.rollback().await?;
    assert_eq!(add(&store, "other").await?, 2);
    let page = PageRequest { limit: 100, after: None, descending: true };
    let found = async |name: &str| {
        let named = name.parse().expect("a name");
        let page = store::datasets::list(&store, Some(&named), page).await?;
        Ok::<Vec<u32>, store::StoreError>(page.items.iter().map(|d| d.version).collect())
    };
    assert_eq!((found("calls").await?.len(), found("calls@7").await?), (20, vec![7]));
    assert_eq!((found("calls@21").await?, found("other").await?), (vec![], vec![2, 1]));
    Ok(())
}
