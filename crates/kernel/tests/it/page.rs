//! Breaks the lines of pages that are generated from code at 120 columns.

const WIDTH: usize = 120;

/// A page whose paragraphs and long lines are broken between words. Tables and code stay as they are.
pub(crate) fn wrap(page: &str) -> String {
    let (mut wrapped, mut paragraph, mut in_code) = (String::new(), String::new(), false);
    for line in page.lines() {
        in_code ^= line.starts_with("```");
        let is_prose =
            !in_code && line.starts_with(|c: char| c.is_alphabetic() || "`[".contains(c)) && !line.starts_with("```");
        if is_prose {
            paragraph = if paragraph.is_empty() { line.to_owned() } else { format!("{paragraph} {line}") };
            continue;
        }
        wrapped += &fold(&std::mem::take(&mut paragraph));
        wrapped += &if line.is_empty() || in_code || line.starts_with('|') { format!("{line}\n") } else { fold(line) };
    }
    wrapped + &fold(&paragraph)
}

fn fold(line: &str) -> String {
    if line.is_empty() {
        return String::new();
    }
    let (mut folded, mut width) = (String::new(), 0);
    for word in line.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            folded.push('\n');
            width = 0;
        } else if width > 0 {
            folded.push(' ');
            width += 1;
        }
        folded.push_str(word);
        width += length;
    }
    folded + "\n"
}

#[test]
fn long_lines_are_broken_between_words() {
    let word = "a".repeat(70);
    assert_eq!(
        wrap(&format!("{word} {word}\nshort\n\n| {word} {word} |\n")),
        format!("{word}\n{word} short\n\n| {word} {word} |\n")
    );
}
