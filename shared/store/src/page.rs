//! Cursor pages over time-ordered ids.

use uuid::Uuid;

/// What page to read.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest {
    /// Rows at most.
    pub limit: u32,
    /// Start after this id.
    pub after: Option<Uuid>,
    /// Newest first.
    pub descending: bool,
}

/// One page, stable under inserts.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Whether another page follows.
    pub has_more: bool,
}

impl PageRequest {
    /// One more than asked for: shows whether another page follows.
    pub(crate) fn probe(self) -> i64 {
        i64::from(self.limit) + 1
    }
    /// Cuts the probing row off.
    pub(crate) fn page<T>(self, mut items: Vec<T>) -> Page<T> {
        let limit = usize::try_from(self.limit).expect("u32 fits");
        let has_more = items.len() > limit;
        items.truncate(limit);
        Page { items, has_more }
    }
}

/// Reads one page of a table whose primary key is a time-ordered `id`; `$1..` are the filter's binds.
///
/// Both orders are spelled out so that the statement text stays constant.
macro_rules! list_sql {
    ($columns:expr, $from:literal, $filter:literal, $after:literal, $limit:literal) => {
        [
            concat!(
                "SELECT ",
                $columns,
                " FROM ",
                $from,
                " WHERE ",
                $filter,
                " AND (",
                $after,
                "::uuid IS NULL OR id < ",
                $after,
                ") ORDER BY id DESC LIMIT ",
                $limit
            ),
            concat!(
                "SELECT ",
                $columns,
                " FROM ",
                $from,
                " WHERE ",
                $filter,
                " AND (",
                $after,
                "::uuid IS NULL OR id > ",
                $after,
                ") ORDER BY id ASC LIMIT ",
                $limit
            ),
        ]
    };
}
pub(crate) use list_sql;

/// Picks the statement for the order.
pub(crate) const fn ordered(sql: [&'static str; 2], page: PageRequest) -> &'static str {
    if page.descending { sql[0] } else { sql[1] }
}
