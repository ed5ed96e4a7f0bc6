//! Cursor pages.

use std::fmt::Display;
use std::str::FromStr;

use actix_web::{HttpRequest, HttpResponse};
use domain::ErrorCode;
use serde::{Deserialize, Serialize};
use store::PageRequest;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::Problem;

/// Rows of a page when the caller does not say.
const DEFAULT_LIMIT: u32 = 20;
/// Rows of a page at most.
const MAX_LIMIT: u32 = 100;

/// Which page.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Items at most.
    #[param(minimum = 1, maximum = 100, default = 20, example = 20)]
    pub limit: Option<u32>,
    /// Start after the item with this id; `last_id` of the page before.
    pub after: Option<String>,
    /// Newest (`desc`, the default) or oldest (`asc`) first.
    #[param(inline)]
    pub order: Option<Order>,
}

/// Direction of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Oldest first.
    Asc,
    /// Newest first.
    Desc,
}

impl PageQuery {
    /// Checks limit and cursor.
    ///
    /// # Errors
    /// 400 for either.
    pub fn request<I>(&self, uuid: fn(I) -> Uuid) -> Result<PageRequest, Problem>
    where
        I: FromStr,
        I::Err: Display,
    {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(Problem::new(
                ErrorCode::InvalidRequest,
                format!("query parameter \"limit\": must be 1 to {MAX_LIMIT}, not {limit}"),
            ));
        }
        let after =
            self.after.as_deref().map(str::parse::<I>).transpose().map_err(|e| {
                Problem::new(ErrorCode::InvalidCursor, format!("query parameter \"after\": {e}"))
            })?;
        Ok(PageRequest { limit, after: after.map(uuid), descending: self.order != Some(Order::Asc) })
    }
}

/// One page of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct List<T> {
    /// Always `list`.
    #[schema(example = "list")]
    pub object: &'static str,
    /// The items.
    pub data: Vec<T>,
    /// Id of the first item.
    pub first_id: Option<String>,
    /// Id of the last item: the cursor of the next page.
    pub last_id: Option<String>,
    /// Whether another page follows.
    pub has_more: bool,
}

impl<T: Serialize> List<T> {
    /// A page with its cursors.
    pub fn page(data: Vec<T>, id: impl Fn(&T) -> String, has_more: bool) -> Self {
        let (first_id, last_id) = (data.first().map(&id), data.last().map(&id));
        Self { object: "list", data, first_id, last_id, has_more }
    }

    /// A list that is always whole.
    pub fn whole(data: Vec<T>) -> Self {
        Self { object: "list", data, first_id: None, last_id: None, has_more: false }
    }

    /// Answers with the page and, when another follows, `Link: <…>; rel="next"`.
    pub fn answer(&self, req: &HttpRequest) -> HttpResponse {
        let mut response = HttpResponse::Ok();
        if let (true, Some(last)) = (self.has_more, &self.last_id) {
            let kept =
                url::form_urlencoded::parse(req.query_string().as_bytes()).filter(|(k, _)| k != "after");
            let query = url::form_urlencoded::Serializer::new(String::new())
                .extend_pairs(kept)
                .append_pair("after", last)
                .finish();
            response.insert_header(("Link", format!("<{}?{query}>; rel=\"next\"", req.path())));
        }
        response.json(self)
    }
}
