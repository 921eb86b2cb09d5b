//! Pictures of graphs: as DOT for graphviz, and as SVG, for which no other program is needed.

mod dot;
mod layout;
mod svg;

use std::collections::BTreeMap;

use opsmith_core::{DeviceKind, Result, bail};

use super::{Graph, Kind, Node, Output};

/// The most boxes of a picture: one with more would show nothing.
const MOST_BOXES: usize = 5000;

/// What a picture shows: boxes in boxes, and arrows.
struct Picture {
    root: Scope,
    /// What goes from box to box: the label, and whether it only orders the two.
    arrows: BTreeMap<(usize, usize), Arrow>,
    boxes: Vec<Drawn>,
}

/// A named scope, with what is in it; the graph itself has no name.
#[derive(Default)]
struct Scope {
    name: String,
    boxes: Vec<usize>,
    scopes: BTreeMap<String, Scope>,
}

/// A box: a node, or a scope that is not opened.
struct Drawn {
    lines: Vec<String>,
    title: String,
    kind: &'static str,
}

/// What goes from one box to another.
struct Arrow {
    labels: Vec<String>,
    is_control: bool,
}

impl Graph {
    /// The graph in the language of graphviz, scopes as boxes around their nodes.
    ///
    /// # Errors
    /// `InvalidArgument` for a graph of more nodes than a picture can show.
    pub fn to_dot(&self) -> Result<String> {
        Ok(dot::write(&Picture::new(self)?))
    }

    /// The graph as an SVG picture, scopes as boxes around their nodes. Where there are very many nodes, scopes are closed.
    ///
    /// # Errors
    /// `InvalidArgument` for a graph of more nodes than a picture can show.
    pub fn to_svg(&self) -> Result<String> {
        Ok(svg::write(&Picture::new(self)?))
    }
}

impl Picture {
    fn new(graph: &Graph) -> Result<Picture> {
        let nodes: Vec<_> = (0..graph.num_nodes()).map(|id| graph.node(id)).collect();
        let open = nodes.len() <= MOST_BOXES;
        let mut picture = Picture { root: Scope::default(), arrows: BTreeMap::new(), boxes: vec![] };
        let mut box_of = Vec::with_capacity(nodes.len());
        let mut closed: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for node in &nodes {
            let scope = node.name.split_once('/').map(|(scope, _)| scope);
            match scope {
                Some(scope) if !open => {
                    let next = picture.boxes.len();
                    let (at, count) = closed.entry(scope).or_insert((next, 0));
                    *count += 1;
                    if *at == next {
                        picture
                            .add(Drawn { lines: vec![scope.into()], title: scope.into(), kind: "scope" }, "");
                    }
                    box_of.push(*at);
                }
                _ => {
                    let path = node.name.rsplit_once('/').map_or("", |(path, _)| path);
                    box_of.push(picture.add(Drawn::of(node), path));
                }
            }
        }
        for (at, count) in closed.values() {
            picture.boxes[*at].lines.push(format!("{count} nodes"));
        }
        if picture.boxes.len() > MOST_BOXES {
            bail!(
                InvalidArgument,
                "a graph of {} nodes cannot be drawn: at most {MOST_BOXES} boxes show anything; put nodes into scopes",
                nodes.len()
            );
        }
        picture.connect(graph, &nodes, &box_of);
        Ok(picture)
    }

    /// Adds a box to the scope at a path, and gives its number.
    fn add(&mut self, drawn: Drawn, path: &str) -> usize {
        let mut scope = &mut self.root;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            scope = scope
                .scopes
                .entry(part.to_owned())
                .or_insert_with(|| Scope { name: part.into(), ..Scope::default() });
        }
        scope.boxes.push(self.boxes.len());
        self.boxes.push(drawn);
        self.boxes.len() - 1
    }

    fn connect(&mut self, graph: &Graph, nodes: &[std::sync::Arc<Node>], box_of: &[usize]) {
        for (id, node) in nodes.iter().enumerate() {
            let mut sources: Vec<(usize, Option<String>)> = Vec::new();
            for input in node.inputs.iter().flatten() {
                let output = Output::new(graph, *input);
                sources.push((input.node, Some(format!("{}{}", output.dtype(), output.shape()))));
            }
            match node.kind {
                Kind::Variable { initial } => sources.push((initial.node, Some("initial".into()))),
                Kind::Assign { variable } => sources.push((variable, None)),
                _ => {}
            }
            sources.extend(node.controls.iter().map(|&control| (control, None)));
            for (source, label) in sources {
                let (from, to) = (box_of[source], box_of[id]);
                if from == to {
                    continue;
                }
                let arrow =
                    self.arrows.entry((from, to)).or_insert(Arrow { labels: vec![], is_control: true });
                arrow.is_control &= label.is_none();
                arrow.labels.extend(label.filter(|label| !arrow.labels.contains(label)));
            }
        }
    }
}

impl Drawn {
    fn of(node: &Node) -> Drawn {
        let short = node.name.rsplit('/').next().unwrap_or(&node.name);
        let mut lines = vec![short.to_owned()];
        if !short.starts_with(node.kind.name()) {
            lines.push(node.kind.name().to_owned());
        }
        let outputs: Vec<String> =
            node.outputs.iter().map(|known| format!("{}{}", known.dtype, known.shape)).collect();
        if !outputs.is_empty() {
            lines.push(outputs.join(", "));
        }
        if node.device.kind != DeviceKind::Cpu {
            lines.push(node.device.name());
        }
        let kind = match node.kind {
            Kind::Placeholder => "placeholder",
            Kind::Constant(_) => "constant",
            Kind::Variable { .. } => "variable",
            Kind::Assign { .. } | Kind::Group | Kind::Initialize => "effect",
            Kind::Call { .. } => "call",
        };
        Drawn { lines, title: format!("{} ({})", node.name, node.kind.name()), kind }
    }
}
