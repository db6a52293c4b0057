//! Rust source cut into code, comments and string literals, so that rules about words can tell them apart. Not a
//! parser: it knows comments (nested), strings (raw and byte), characters and lifetimes, nothing else.

/// What a piece of source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Outside comments and literals.
    Code,
    /// Line or block comment, with its marks.
    Comment,
    /// Content of a string literal, without quotes.
    Text,
}

/// A piece of one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// What it is.
    pub kind: Kind,
    /// 1-based line.
    pub line: usize,
    /// The characters.
    pub text: String,
}

/// Cuts source into pieces; a piece never spans lines.
pub fn pieces(source: &str) -> Vec<Piece> {
    let mut cut = Cutter { chars: source.chars().collect(), at: 0, line: 1, out: Vec::new(), open: String::new() };
    while cut.at < cut.chars.len() {
        cut.next();
    }
    cut.close(Kind::Code);
    cut.out
}

/// The identifiers of a piece of code or the words of a text: runs of letters, digits and underscores.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

struct Cutter {
    chars: Vec<char>,
    at: usize,
    line: usize,
    out: Vec<Piece>,
    open: String,
}

impl Cutter {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn close(&mut self, kind: Kind) {
        if !self.open.trim().is_empty() {
            let text = std::mem::take(&mut self.open);
            self.out.push(Piece { kind, line: self.line, text });
        }
        self.open.clear();
    }

    /// Takes one character into the open piece; a line's end closes the piece.
    fn take(&mut self, kind: Kind) {
        let c = self.chars[self.at];
        self.at += 1;
        if c == '\n' {
            self.close(kind);
            self.line += 1;
        } else {
            self.open.push(c);
        }
    }

    fn next(&mut self) {
        match (self.chars[self.at], self.peek(1)) {
            ('/', Some('/')) => self.line_comment(),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(0, false),
            ('r', Some('"' | '#')) if !self.within_word() => {
                let hashes = (1..).take_while(|&i| self.peek(i) == Some('#')).count();
                if self.peek(1 + hashes) == Some('"') {
                    self.at += 1 + hashes;
                    self.string(hashes, true);
                } else {
                    self.take(Kind::Code);
                }
            }
            ('\'', _) => self.quote(),
            _ => self.take(Kind::Code),
        }
    }

    /// Whether the character at hand continues an identifier (`br"` begins a raw string, `for"` cannot occur).
    fn within_word(&self) -> bool {
        let last = self.open.chars().last();
        last.is_some_and(|c| c.is_alphanumeric() || c == '_') && !self.open.ends_with('b')
    }

    fn line_comment(&mut self) {
        self.close(Kind::Code);
        while self.at < self.chars.len() && self.chars[self.at] != '\n' {
            self.take(Kind::Comment);
        }
        self.close(Kind::Comment);
    }

    fn block_comment(&mut self) {
        self.close(Kind::Code);
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.chars[self.at], self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.take(Kind::Comment);
                    continue;
                }
            }
            self.take(Kind::Comment);
            self.take(Kind::Comment);
            if depth == 0 {
                break;
            }
        }
        self.close(Kind::Comment);
    }

    /// At the opening quote of a string with this many hashes.
    fn string(&mut self, hashes: usize, raw: bool) {
        self.close(Kind::Code);
        self.at += 1;
        while self.at < self.chars.len() {
            let c = self.chars[self.at];
            if c == '\\' && !raw && self.peek(1) != Some('\n') {
                self.at += 2;
                self.open.push(' ');
            } else if c == '"' && (1..=hashes).all(|i| self.peek(i) == Some('#')) {
                self.at += 1 + hashes;
                break;
            } else {
                self.take(Kind::Text);
            }
        }
        self.close(Kind::Text);
    }

    /// At a single quote: a character, which is passed over, or a lifetime.
    fn quote(&mut self) {
        let end = match self.peek(1) {
            Some('\\') => (3..12).find(|&i| self.peek(i) == Some('\'')),
            _ => (self.peek(2) == Some('\'')).then_some(2),
        };
        match end {
            Some(end) => {
                self.at += end + 1;
                self.open.push(' ');
            }
            None => self.take(Kind::Code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, source: &str) -> Vec<String> {
        let pieces = pieces(source);
        pieces.into_iter().filter(|p| p.kind == kind).map(|p| format!("{}:{}", p.line, p.text.trim())).collect()
    }

    #[test]
    fn comments_strings_and_code_are_told_apart() {
        let source = "let a = \"x // y\"; // z \"w\"\n\
                      /* one /* two */\n three */ let b = r#\"p\"q\"#;\nfn f<'a>(c: char) { c == '\"' }\n";
        assert_eq!(of(Kind::Text, source), ["1:x // y", "3:p\"q"]);
        assert_eq!(of(Kind::Comment, source), ["1:// z \"w\"", "2:/* one /* two */", "3:three */"]);
        assert_eq!(of(Kind::Code, source), ["1:let a =", "1:;", "3:let b =", "3:;", "4:fn f<'a>(c: char) { c ==   }"]);
    }

    #[test]
    fn escapes_do_not_end_a_string() {
        assert_eq!(of(Kind::Code, r#"a("\"", '\'', b"\\", br"\") + b"#), ["1:a(", "1:,  , b", "1:, b", "1:) + b"]);
    }

    #[test]
    fn words_are_whole_identifiers() {
        assert_eq!(words("io::page_bytes(x1)").collect::<Vec<_>>(), ["io", "page_bytes", "x1"]);
    }
}
