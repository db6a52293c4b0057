//! Text as HTML.

/// Text as the content of an element or of a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// A section with a heading.
pub fn section(heading: &str, content: &str) -> String {
    format!("<section><h2>{heading}</h2>{content}</section>\n")
}

/// A table; cells are HTML.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: String = head.iter().map(|cell| format!("<th>{cell}</th>")).collect();
    let row = |cells: &Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>")
}

/// A number of a tile: what it is, the number, and what belongs to it.
pub fn tile(label: &str, number: &str, note: &str) -> String {
    format!("<div class=\"tile\"><span>{}</span><b>{}</b><i>{}</i></div>", escape(label), escape(number), escape(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
