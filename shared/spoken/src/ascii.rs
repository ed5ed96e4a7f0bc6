//! Typographic punctuation as ASCII.

/// Replaces curly quotes, dashes, ellipses and unusual spaces; letters stay as they are.
///
/// An em dash becomes ` - ` so that the words beside it stay apart; zero-width characters vanish.
#[must_use]
pub fn to_ascii_punctuation(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' | '\u{2032}' | '\u{00b4}' | '`' => {
                out.push('\'')
            }
            '\u{201c}'..='\u{201f}' | '\u{2033}' | '\u{00ab}' | '\u{00bb}' => out.push('"'),
            '\u{2010}'..='\u{2012}' | '\u{2013}' | '\u{2212}' => out.push('-'),
            '\u{2014}' | '\u{2015}' => out.push_str(" - "),
            '\u{2026}' => out.push_str("..."),
            '\u{00a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' | '\t' => {
                out.push(' ')
            }
            '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{00ad}' => {}
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typographic_marks_become_ascii_and_letters_stay() {
        assert_eq!(
            to_ascii_punctuation(
                "\u{201c}It\u{2019}s caf\u{e9}\u{201d}\u{a0}10\u{2013}15\u{2026} yes\u{2014}no\u{200b}"
            ),
            "\"It's caf\u{e9}\" 10-15... yes - no"
        );
    }
}
