//! Texts with slots in braces.

/// Part of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Said as it stands.
    Text(&'a str),
    /// Name of a slot or a phrase list.
    Slot(&'a str),
}

/// Cuts a template into its parts.
///
/// # Errors
/// What is wrong with the braces.
pub fn pieces(template: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find(['{', '}']) {
        let (text, brace) = rest.split_at(open);
        let Some(inner) = brace.strip_prefix('{') else {
            return Err(format!("\"}}\" without \"{{\" in {template:?}"));
        };
        let Some((name, after)) = inner.split_once('}') else {
            return Err(format!("\"{{\" without \"}}\" in {template:?}"));
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        {
            return Err(format!("{name:?} is no slot name in {template:?}"));
        }
        if !text.is_empty() {
            found.push(Piece::Text(text));
        }
        found.push(Piece::Slot(name));
        rest = after;
    }
    if !rest.is_empty() {
        found.push(Piece::Text(rest));
    }
    Ok(found)
}

/// Names of the slots of a template; none when its braces are wrong.
#[must_use]
pub fn slot_names(template: &str) -> Vec<&str> {
    let slots = |piece| match piece {
        Piece::Slot(name) => Some(name),
        Piece::Text(_) => None,
    };
    pieces(template).unwrap_or_default().into_iter().filter_map(slots).collect()
}
