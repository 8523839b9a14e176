//! Malicious texts in a graph: in every format, the text stays inside its label.

use kernel::draw::{Drawing, Format};
use kernel::ids::Label;
use quick_xml::events::Event;
use quick_xml::{Reader, XmlVersion};

use super::{RUN, draw, orders, read, standings};

const TEXTS: &[&str] = &[
    "<script>alert(1)</script>",
    "\"]:::x; click n0 href \"javascript:alert(1)\"",
    "a\" -> \"b\" [label=\"x\"]; \\\" \\n \\",
    "%%{init: {'theme':'dark'}}%% #quot; &lt; &#60;",
    "' onload='alert(1)' x=\"]]>--><!--",
    "\u{1b}[2J\u{7}\r\nnew line\u{0}\u{202e}turned\u{fffe}\u{9b}31m",
    "{{ ${{ }} }} | `tick` ; end",
];

/// A drawing whose texts are all this one: those that an author may choose, and what a strange server could send.
fn sent(text: &str) -> Drawing {
    let (mut definition, plan) = read(&orders());
    definition.name = Some(text.to_owned());
    for node in &mut definition.nodes {
        node.description = Some(text.to_owned());
        node.condition = Some(text.to_owned());
    }
    let mut drawing = Drawing::new(&definition, &plan, Some(&standings(RUN)));
    for node in &mut drawing.nodes {
        node.kind = text.to_owned();
    }
    drawing
}

/// Every element's name with its text, read by a parser that takes only well-formed XML.
fn elements(svg: &str) -> Vec<(String, String)> {
    let mut reader = Reader::from_str(svg);
    reader.config_mut().enable_all_checks(true);
    let (mut all, mut open): (Vec<(String, String)>, Vec<usize>) = (Vec::new(), Vec::new());
    loop {
        let event = reader.read_event().unwrap_or_else(|error| panic!("{error}\n{svg}"));
        match event {
            Event::Eof => break,
            Event::Start(ref tag) | Event::Empty(ref tag) => {
                for attribute in tag.attributes() {
                    let attribute = attribute.unwrap_or_else(|error| panic!("{error}\n{svg}"));
                    let name = String::from_utf8(attribute.key.as_ref().to_vec()).expect("text");
                    assert!(!name.starts_with("on") && name != "style", "{name}\n{svg}");
                    let value = attribute.normalized_value(XmlVersion::Implicit1_0).expect("known entities");
                    assert!(name != "href" || value.starts_with("#node-"), "{value}");
                }
                all.push((String::from_utf8(tag.name().as_ref().to_vec()).expect("text"), String::new()));
                if matches!(event, Event::Start(_)) {
                    open.push(all.len() - 1);
                }
            }
            Event::End(_) => drop(open.pop().expect("something is open")),
            Event::Text(text) => {
                let text = text.decode().expect("text");
                if let Some(at) = open.last() {
                    all[*at].1.push_str(&text);
                }
            }
            Event::GeneralRef(name) => {
                let name = name.decode().expect("text");
                let known = [("amp", "&"), ("lt", "<"), ("gt", ">"), ("quot", "\""), ("#39", "'")];
                let known = known.iter().find(|(entity, _)| *entity == name).expect("an entity of XML itself");
                all[*open.last().expect("an element")].1.push_str(known.1);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty(), "everything is closed\n{svg}");
    all
}

#[test]
fn svg_is_well_formed_and_contains_only_known_elements() {
    for text in TEXTS {
        let svg = sent(text).render(Format::Svg);
        let elements = elements(&svg);
        for (name, _) in &elements {
            let known = ["svg", "title", "desc", "style", "rect", "g", "path", "text", "a"];
            assert!(known.contains(&name.as_str()), "{name}\n{svg}");
        }
        assert_eq!(elements.iter().filter(|(name, _)| name == "a").count(), 5, "{svg}");
        let title = &elements.iter().find(|(name, _)| name == "title").expect("a title").1;
        assert!(
            title.starts_with(&text[..2].replace('\u{1b}', " ")),
            "the title starts with the text: {title:?} for {text:?}"
        );
    }
}

#[test]
fn no_form_lets_a_control_character_through() {
    for text in TEXTS {
        for format in [Format::Svg, Format::Mermaid, Format::Dot, Format::Text] {
            let drawn = sent(text).render(format);
            let odd = drawn.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}' || *c == '\u{fffe}');
            assert_eq!(odd, None, "{format:?}: {drawn}");
        }
    }
}

#[test]
fn mermaid_keeps_its_lines_and_nothing_of_a_text_means_anything() {
    let lines = draw(&orders(), Some(RUN)).render(Format::Mermaid).lines().count();
    for text in TEXTS {
        let drawn = sent(text).render(Format::Mermaid);
        assert!((lines - 1..=lines).contains(&drawn.lines().count()), "{drawn}");
        assert!(!drawn.contains("%%") && !drawn.contains("<script") && !drawn.contains('`'), "{drawn}");
        // Quotes come in pairs on each line.
        assert!(drawn.lines().all(|line| line.matches('"').count() % 2 == 0), "{drawn}");
    }
}

#[test]
fn dot_keeps_its_strings_closed() {
    let lines = draw(&orders(), Some(RUN)).render(Format::Dot).lines().count();
    for text in TEXTS {
        let drawn = sent(text).render(Format::Dot);
        assert_eq!(drawn.lines().count(), lines, "{drawn}");
        for line in drawn.lines() {
            let (mut quoted, mut escaped, mut outside) = (false, false, String::new());
            for c in line.chars() {
                match c {
                    _ if escaped => escaped = false,
                    '\\' if quoted => escaped = true,
                    '"' => quoted = !quoted,
                    c if !quoted => outside.push(c),
                    _ => {}
                }
            }
            assert!(!quoted, "{line}");
            let ours = |c: char| c.is_ascii_alphanumeric() || " ={}[],->_".contains(c);
            assert!(outside.chars().all(ours), "{outside}");
        }
    }
}

#[test]
fn long_names_are_cut_and_shown_in_full_in_the_title() {
    let long = "a".repeat(64);
    let mut drawing = draw(&orders(), None);
    drawing.nodes[0].key = kernel::ids::NodeKey::new(&long).expect("a key");
    let labelled = drawing.edges.iter_mut().find(|edge| edge.label.is_some()).expect("a label");
    labelled.label = Some(Label::new(&long).expect("a label"));
    let elements = elements(&drawing.render(Format::Svg));
    let observed = elements.iter().filter(|(name, text)| name == "title" && text.contains(&long)).count();
    let shown = elements.iter().filter(|(name, text)| name == "text" && text.ends_with('…')).count();
    let whole = elements.iter().filter(|(name, text)| name == "text" && text.contains(&long)).count();
    assert_eq!((observed, shown, whole), (2, 2, 0));
}
