//! DOT, graphviz's language.

use std::fmt::Write;

use super::{Picture, Scope};

/// The picture as DOT.
pub(super) fn write(picture: &Picture) -> String {
    let mut dot =
        String::from("digraph {\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n");
    scope(&mut dot, picture, &picture.root, "  ", "cluster");
    for ((from, to), arrow) in &picture.arrows {
        let style = if arrow.is_control { "style=dashed, " } else { "" };
        let label = escaped(&arrow.labels.join("\n"));
        let _ = writeln!(dot, "  n{from} -> n{to} [{style}tooltip=\"{label}\"];");
    }
    dot.push_str("}\n");
    dot
}

fn scope(dot: &mut String, picture: &Picture, scope_: &Scope, indent: &str, id: &str) {
    for &index in &scope_.boxes {
        let drawn = &picture.boxes[index];
        let (label, title) = (escaped(&drawn.lines.join("\n")), escaped(&drawn.title));
        let fill = fill(drawn.kind);
        let _ =
            writeln!(dot, "{indent}n{index} [label=\"{label}\", tooltip=\"{title}\", fillcolor=\"{fill}\"];");
    }
    for (index, inner) in scope_.scopes.values().enumerate() {
        let id = format!("{id}_{index}");
        let _ = writeln!(dot, "{indent}subgraph {id} {{\n{indent}  label=\"{}\";", escaped(&inner.name));
        scope(dot, picture, inner, &format!("{indent}  "), &id);
        let _ = writeln!(dot, "{indent}}}");
    }
}

/// The colour of a kind of box.
pub(super) fn fill(kind: &str) -> &'static str {
    match kind {
        "placeholder" => "#d9ead3",
        "constant" => "#eeeeee",
        "variable" => "#fff2cc",
        "effect" => "#f4cccc",
        "scope" => "#d9d2e9",
        _ => "#cfe2f3",
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
