//! Reading golden data.

use anyhow::Result;
use testkit::{golden_json, golden_path};

#[test]
fn missing_golden_data_is_an_error_that_says_what_to_set() -> Result<()> {
    for error in [golden_path("no/such/set.json").map(drop), golden_json("no/such/set.json").map(drop)] {
        let text = error.expect_err("there is no such file").to_string();
        assert!(text.contains("PPX_GOLDEN_DIR") && text.contains("no/such/set.json"), "{text}");
    }
    Ok(())
}
