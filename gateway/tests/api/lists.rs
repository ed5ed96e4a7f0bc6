//! Cursor pages do not lose or repeat items while others are inserted.

use anyhow::Result;
use serde_json::json;

use crate::support::Gateway;

async fn make(gateway: &Gateway, name: String) -> Result<()> {
    let body = json!({"name": name, "domain": "insurance_brokerage", "dialogues": 2});
    let made = gateway.post("/v1/datasets", &body).await?;
    anyhow::ensure!(made.status == 201, "{made:?}");
    Ok(())
}

#[tokio::test]
async fn a_walk_sees_each_item_once_while_new_ones_arrive() -> Result<()> {
    let gateway = Gateway::start().await?;
    for i in 0..7 {
        make(&gateway, format!("old-{i}")).await?;
    }
    let (mut seen, mut next, mut inserted) = (Vec::new(), Some("/v1/datasets?limit=3".to_owned()), 0);
    while let Some(path) = next.take() {
        let page = gateway.get(&path).await?;
        assert_eq!((page.status, page.body["object"].as_str()), (200, Some("list")));
        let items = page.body["data"].as_array().unwrap();
        assert_eq!(page.body["first_id"], items[0]["id"]);
        assert_eq!(page.body["last_id"], items[items.len() - 1]["id"]);
        seen.extend(items.iter().map(|d| d["name"].as_str().unwrap().to_owned()));
        let link = page.header("link");
        assert_eq!(page.body["has_more"], !link.is_empty());
        if let Some((url, _)) = link.strip_prefix('<').and_then(|l| l.split_once('>')) {
            assert!(link.ends_with("rel=\"next\"") && url.contains("limit=3"), "{link}");
            next = Some(url.to_owned());
        }
        make(&gateway, format!("new-{inserted}")).await?;
        inserted += 1;
    }
    assert_eq!(seen, ["old-6", "old-5", "old-4", "old-3", "old-2", "old-1", "old-0"]);
    let oldest = gateway.get("/v1/datasets?limit=2&order=asc").await?;
    assert_eq!(oldest.body["data"][0]["name"], "old-0");
    assert_eq!(oldest.body["data"][1]["name"], "old-1");
    Ok(())
}

#[tokio::test]
async fn filters_select_and_stay_in_the_link() -> Result<()> {
    let gateway = Gateway::start().await?;
    for name in ["a", "b"] {
        make(&gateway, name.into()).await?;
    }
    let subject = gateway.get("/v1/datasets").await?.body["data"][0]["id"].as_str().unwrap().to_owned();
    let page = gateway.get(&format!("/v1/jobs?subject={subject}&state=queued&limit=1")).await?;
    assert_eq!(page.body["data"][0]["spec"]["dataset_id"], subject);
    assert!(page.header("link").contains(&format!("subject={subject}")), "{}", page.header("link"));
    let one = gateway.get(&format!("/v1/jobs?subject={subject}&kind=assemble")).await?;
    assert_eq!(one.body["data"].as_array().unwrap().len(), 1);
    assert_eq!(one.body["data"][0]["pending_needs"], 1);
    assert_eq!(one.body["has_more"], false);
    Ok(())
}
